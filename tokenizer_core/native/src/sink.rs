//! Where ids go while a text is encoded: to the end of a vector, or into a count.

use std::ops::ControlFlow;

use crate::kernel::Kernel;
use crate::piece_cache::Value;

/// Takes ids. Between `open` and `close` the short values go through a cursor, which stays in a
/// register.
pub trait Sink {
    type Cursor: Copy;

    /// A cursor that can take `n_values` values.
    fn open(&mut self, n_values: usize) -> Self::Cursor;

    /// Takes the ids of a value of the first table, of which there is at least one.
    fn take_value(
        &mut self,
        cursor: Self::Cursor,
        kernel: impl Kernel,
        value: &Value,
    ) -> Self::Cursor;

    fn close(&mut self, cursor: Self::Cursor);

    /// Takes ids while no cursor is open.
    fn take(&mut self, ids: &[u32]);

    fn wants_more(&self) -> ControlFlow<()>;
}

/// Appends to a vector.
pub struct Appender<'v> {
    pub out: &'v mut Vec<u32>,
}

/// Ids that are stored for a value, whatever its number: one instruction and no branch.
const STORED: usize = 8;

impl Sink for Appender<'_> {
    /// The length of the vector with what was taken.
    type Cursor = usize;

    #[inline(always)]
    fn open(&mut self, n_values: usize) -> usize {
        self.out.reserve(n_values * STORED);
        self.out.len()
    }

    #[inline(always)]
    fn take_value(&mut self, cursor: usize, kernel: impl Kernel, value: &Value) -> usize {
        debug_assert!(cursor + STORED <= self.out.capacity());
        let ids = kernel.ids_of(value);
        // SAFETY: `open` made room for eight ids for each value that is taken, and a value is
        // counted with at most five.
        unsafe {
            let place = self.out.as_mut_ptr().add(cursor);
            place.cast::<[u32; STORED]>().write_unaligned(ids);
        }
        cursor + value.count()
    }

    #[inline(always)]
    fn close(&mut self, cursor: usize) {
        // SAFETY: `take_value` has written all ids below the cursor, within the capacity.
        unsafe { self.out.set_len(cursor) };
    }

    fn take(&mut self, ids: &[u32]) {
        self.out.extend_from_slice(ids);
    }

    #[inline(always)]
    fn wants_more(&self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Counts, until there are more than `limit`.
pub struct Counter {
    pub n_ids: usize,
    pub limit: usize,
}

impl Sink for Counter {
    type Cursor = usize;

    #[inline(always)]
    fn open(&mut self, _: usize) -> usize {
        self.n_ids
    }

    #[inline(always)]
    fn take_value(&mut self, cursor: usize, _: impl Kernel, value: &Value) -> usize {
        cursor + value.count()
    }

    #[inline(always)]
    fn close(&mut self, cursor: usize) {
        self.n_ids = cursor;
    }

    fn take(&mut self, ids: &[u32]) {
        self.n_ids += ids.len();
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
