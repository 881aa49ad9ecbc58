//! Tables that begin as zeros. The system supplies them when they are touched, in large pages: a
//! table that is read all over then needs fewer entries of the address translation cache.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapRaw};

use crate::mem::huge_pages;

/// Types that all-zero bytes are a value of, and that need no drop.
///
/// # Safety
/// Both hold.
pub unsafe trait Zeroable {}

// SAFETY: zeros are a value of integers.
unsafe impl Zeroable for u64 {}

/// `n` values, at first all zeros, each at its alignment; memory is used as it is touched.
pub struct ZeroedTable<T> {
    /// Mapped directly: an allocator would reuse memory and write zeros to it, which touches it in
    /// small pages.
    memory: MmapRaw,
    /// The offset of the first value.
    start: usize,
    n: usize,
    values: std::marker::PhantomData<T>,
}

impl<T: Zeroable> ZeroedTable<T> {
    /// Panics without memory.
    pub fn new(n: usize) -> ZeroedTable<T> {
        ZeroedTable::try_new(n).expect("memory for a table")
    }

    pub fn try_new(n: usize) -> io::Result<ZeroedTable<T>> {
        const { assert!(!std::mem::needs_drop::<T>()) };
        let n_bytes = n * size_of::<T>();
        let align = huge_pages::page_for(n_bytes).max(align_of::<T>());
        let memory = MmapRaw::from(MmapMut::map_anon(n_bytes + align)?);
        let start = memory.as_ptr().align_offset(align);
        huge_pages::advise_table(memory.as_ptr().wrapping_add(start), n_bytes);
        Ok(ZeroedTable {
            memory,
            start,
            n,
            values: std::marker::PhantomData,
        })
    }
}

impl<T: Zeroable> Deref for ZeroedTable<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: from `start` on, which is aligned for `T`, lie `n` values within `memory`, whose
        // bytes were zeros, a value of `T`, and are written as values of `T` only: through
        // `deref_mut`, or by themselves where they are atomic.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.start).cast(), self.n) }
    }
}

impl<T: Zeroable> DerefMut for ZeroedTable<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed for as long as the slice is.
        unsafe {
            let start = self.memory.as_mut_ptr().add(self.start);
            std::slice::from_raw_parts_mut(start.cast(), self.n)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(C, align(64))]
    struct Line([u64; 8]);

    // SAFETY: zeros are a value of integers.
    unsafe impl Zeroable for Line {}

    #[test]
    fn tables_are_zeros_aligned_and_hold_what_is_written() {
        for n in [1, 3, 1 << 10, 1 << 17] {
            let mut table = ZeroedTable::<Line>::new(n);
            assert_eq!(table.len(), n);
            assert_eq!(table.as_ptr() as usize % 64, 0);
            assert!(table.iter().all(|line| *line == Line([0; 8])));
            for (i, line) in table.iter_mut().enumerate() {
                line.0 = [i as u64; 8];
            }
            let expected = |i: usize| Line([i as u64; 8]);
            assert!(
                table
                    .iter()
                    .enumerate()
                    .all(|(i, line)| *line == expected(i))
            );
        }
    }
}
