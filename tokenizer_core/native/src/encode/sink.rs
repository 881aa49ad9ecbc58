//! The destination of ids: the end of a vector, where they stay or are counted.

use crate::cache::packed_ids::{MiddleValue, count_in};
use crate::cache::probe::Probe;
use crate::cache::table::{Line, Slot};
use crate::mem::growth::{Grow, NoMemory};
use crate::split::blocks::classes::BLOCK;
use crate::split::pieces::BATCH;
use crate::stop::Stopped;

/// Takes the ids of a call. Between `open` and `close` the values of the tables go through a cursor, which
/// stays in a register.
pub struct Sink<'v> {
    pub out: &'v mut Vec<u32>,
    /// Ids that were counted and dropped; None if `out` keeps all.
    counted: Option<usize>,
    limit: usize,
}

/// A value is stored as this many ids, for any number of them: one instruction, and no branch that
/// cannot be predicted. The few values of more ids end in equal ids, so the last one is stored
/// again.
const STORED: usize = 8;
/// Room for each value.
const ROOM: usize = 4 * STORED;
/// Room after the last ids: for as many values as a batch may have.
pub const SLACK: usize = ROOM * (BATCH + BLOCK);

impl<'v> Sink<'v> {
    /// Appends to a vector.
    pub fn appending(out: &'v mut Vec<u32>) -> Sink<'v> {
        Sink {
            out,
            counted: None,
            limit: usize::MAX,
        }
    }

    /// Counts until there are more than `limit`; `own` is an empty vector for the ids of a batch.
    pub fn counting(own: &'v mut Vec<u32>, limit: Option<usize>) -> Sink<'v> {
        Sink {
            out: own,
            counted: Some(0),
            limit: limit.unwrap_or(usize::MAX),
        }
    }

    pub fn n_ids(&self) -> usize {
        self.counted.unwrap_or(0) + self.out.len()
    }

    /// Asked before each batch: ids that are only counted are dropped here.
    #[inline(always)]
    pub fn wants_more(&mut self) -> bool {
        if let Some(counted) = &mut self.counted {
            *counted += self.out.len();
            self.out.clear();
        }
        self.n_ids() <= self.limit
    }

    /// A cursor for `n_values` values: the end of the ids so far.
    #[inline(always)]
    pub fn open(&mut self, n_values: usize) -> Result<Cursor, NoMemory> {
        self.out.try_reserve(n_values * ROOM)?;
        Ok(Cursor(self.out.spare_capacity_mut().as_mut_ptr().cast()))
    }

    /// # Safety
    /// The cursor is what `open` gave, moved by values; nothing else was called in between.
    #[inline(always)]
    pub unsafe fn close(&mut self, cursor: Cursor) {
        // SAFETY: the cursor is within the vector's memory, and all below is written.
        unsafe {
            let n_ids = cursor.0.offset_from_unsigned(self.out.as_ptr());
            self.out.set_len(n_ids);
        }
    }

    /// Adds ids while no cursor is open.
    pub fn add(&mut self, ids: &[u32]) -> Result<(), Stopped> {
        Ok(self.out.try_extend(ids)?)
    }
}

/// Where the next ids of an open sink go.
#[derive(Clone, Copy)]
pub struct Cursor(*mut u32);

impl Cursor {
    /// Adds the ids of the value in a slot; returns the cursor after them.
    ///
    /// # Safety
    /// The cursor comes from `Sink::open`, or from `add_value` or `add_middle` since then; the sink was
    /// not used in between, and fewer values were added than `open` was promised.
    #[inline(always)]
    pub unsafe fn add_value(self, kernel: impl Probe, line: &Line, slot: Slot) -> Cursor {
        // SAFETY: `open` made room for more than two times eight ids for each value that the caller adds,
        // and a value has at most 15.
        unsafe {
            let (ids, n_ids) = (kernel.ids_in(line, slot), count_in(line, slot));
            self.0.cast::<[u32; STORED]>().write_unaligned(ids);
            if n_ids > STORED {
                let more = self.0.add(STORED).cast::<[u32; STORED]>();
                more.write_unaligned([ids[STORED - 1]; STORED]);
            }
            Cursor(self.0.add(n_ids))
        }
    }

    /// Adds the ids of a value of the second table, or of a wide entry.
    ///
    /// # Safety
    /// As of `add_value`.
    #[inline(always)]
    pub unsafe fn add_middle(self, value: MiddleValue) -> Cursor {
        const MOST: usize = MiddleValue::STORED;
        const { assert!(MiddleValue::MAX_IDS <= ROOM) };
        let (ids, n_ids) = value.padded();
        // SAFETY: `open` made room for so many ids for each value that the caller adds.
        unsafe {
            self.0.cast::<[u32; MOST]>().write_unaligned(ids);
            if n_ids > MOST {
                let more = self.0.add(MOST).cast::<[u32; ROOM - MOST]>();
                more.write_unaligned([ids[MOST - 1]; ROOM - MOST]);
            }
            Cursor(self.0.add(n_ids))
        }
    }
}
