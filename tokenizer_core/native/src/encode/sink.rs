//! The destination of ids: the end of a vector, or a count.

use std::ops::ControlFlow;

use crate::cache::packed_ids::{MiddleValue, count_in};
use crate::cache::probe::Probe;
use crate::cache::table::{Line, Slot};
use crate::mem::growth::{Grow, NoMemory};
use crate::split::blocks::classes::BLOCK;
use crate::split::pieces::BATCH;
use crate::stop::Stopped;

/// Counts or keeps ids. Between `open` and `close` the values of the tables go through a cursor, which stays
/// in a register.
pub trait Sink {
    type Cursor: Copy;

    /// A cursor for `n_values` values.
    fn open(&mut self, n_values: usize) -> Result<Self::Cursor, NoMemory>;

    /// Adds the ids of the value in a slot.
    ///
    /// # Safety
    /// The cursor comes from `open`, or from `add_value` or `add_middle` since then; no
    /// other method was called in between, and fewer values were added than `open` was promised.
    unsafe fn add_value(
        &mut self,
        cursor: Self::Cursor,
        kernel: impl Probe,
        line: &Line,
        slot: Slot,
    ) -> Self::Cursor;

    /// Adds the ids of a value of the second table, or of a wide entry.
    ///
    /// # Safety
    /// As of `add_value`.
    unsafe fn add_middle(&mut self, cursor: Self::Cursor, value: MiddleValue) -> Self::Cursor;

    /// # Safety
    /// The cursor is what `open` gave, or one of these two since; nothing else was called in between.
    unsafe fn close(&mut self, cursor: Self::Cursor);

    /// Adds ids while no cursor is open.
    fn add(&mut self, ids: &[u32]) -> Result<(), Stopped>;

    /// Adds the ids that `append` appends to a vector. It may be `own`, which is empty.
    fn add_appended(
        &mut self,
        own: &mut Vec<u32>,
        append: impl FnOnce(&mut Vec<u32>) -> Result<(), Stopped>,
    ) -> Result<(), Stopped>;

    fn wants_more(&self) -> ControlFlow<()>;
}

/// Appends to a vector.
pub struct Appender<'v> {
    pub out: &'v mut Vec<u32>,
}

/// A value is stored as this many ids, for any number of them: one instruction, and no branch that
/// cannot be predicted. The few values of more ids end in equal ids, so the last one is stored
/// again.
const STORED: usize = 8;
/// Room for each value.
const ROOM: usize = 4 * STORED;
/// Room after the last ids: for as many values as a batch may have.
pub const SLACK: usize = ROOM * (BATCH + BLOCK);

impl Sink for Appender<'_> {
    /// The end of the ids so far.
    type Cursor = *mut u32;

    #[inline(always)]
    fn open(&mut self, n_values: usize) -> Result<*mut u32, NoMemory> {
        self.out.try_reserve(n_values * ROOM)?;
        Ok(self.out.spare_capacity_mut().as_mut_ptr().cast())
    }

    #[inline(always)]
    unsafe fn add_value(
        &mut self,
        cursor: *mut u32,
        kernel: impl Probe,
        line: &Line,
        slot: Slot,
    ) -> *mut u32 {
        // SAFETY: `open` made room for more than two times eight ids for each value that the caller adds,
        // and a value has at most 15.
        unsafe {
            let (ids, n_ids) = (kernel.ids_in(line, slot), count_in(line, slot));
            cursor.cast::<[u32; STORED]>().write_unaligned(ids);
            if n_ids > STORED {
                let more = cursor.add(STORED).cast::<[u32; STORED]>();
                more.write_unaligned([ids[STORED - 1]; STORED]);
            }
            cursor.add(n_ids)
        }
    }

    #[inline(always)]
    unsafe fn add_middle(&mut self, cursor: *mut u32, value: MiddleValue) -> *mut u32 {
        const MOST: usize = MiddleValue::STORED;
        const { assert!(MiddleValue::MAX_IDS <= ROOM) };
        let (ids, n_ids) = value.padded();
        // SAFETY: `open` made room for so many ids for each value that the caller adds.
        unsafe {
            cursor.cast::<[u32; MOST]>().write_unaligned(ids);
            if n_ids > MOST {
                let more = cursor.add(MOST).cast::<[u32; ROOM - MOST]>();
                more.write_unaligned([ids[MOST - 1]; ROOM - MOST]);
            }
            cursor.add(n_ids)
        }
    }

    #[inline(always)]
    unsafe fn close(&mut self, cursor: *mut u32) {
        // SAFETY: the cursor is within the vector's memory, and all below is written.
        unsafe {
            let n_ids = cursor.offset_from_unsigned(self.out.as_ptr());
            self.out.set_len(n_ids);
        }
    }

    fn add(&mut self, ids: &[u32]) -> Result<(), Stopped> {
        Ok(self.out.try_extend(ids)?)
    }

    fn add_appended(
        &mut self,
        _: &mut Vec<u32>,
        append: impl FnOnce(&mut Vec<u32>) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        append(self.out)
    }

    #[inline(always)]
    fn wants_more(&self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Counts until there are more than `limit`.
pub struct Counter {
    pub n_ids: usize,
    pub limit: usize,
}

impl Counter {
    pub fn up_to(limit: Option<usize>) -> Counter {
        Counter {
            n_ids: 0,
            limit: limit.unwrap_or(usize::MAX),
        }
    }
}

impl Sink for Counter {
    type Cursor = usize;

    #[inline(always)]
    fn open(&mut self, _: usize) -> Result<usize, NoMemory> {
        Ok(self.n_ids)
    }

    #[inline(always)]
    unsafe fn add_value(&mut self, cursor: usize, _: impl Probe, line: &Line, slot: Slot) -> usize {
        cursor + count_in(line, slot)
    }

    #[inline(always)]
    unsafe fn add_middle(&mut self, cursor: usize, value: MiddleValue) -> usize {
        cursor + value.padded().1
    }

    #[inline(always)]
    unsafe fn close(&mut self, cursor: usize) {
        self.n_ids = cursor;
    }

    fn add(&mut self, ids: &[u32]) -> Result<(), Stopped> {
        self.n_ids += ids.len();
        Ok(())
    }

    fn add_appended(
        &mut self,
        own: &mut Vec<u32>,
        append: impl FnOnce(&mut Vec<u32>) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        append(own)?;
        self.n_ids += own.len();
        Ok(())
    }

    #[inline(always)]
    fn wants_more(&self) -> ControlFlow<()> {
        if self.n_ids > self.limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
