//! Tables of numbers: built in this process, or a section of a compiled file.

use std::ops::Deref;
use std::sync::Arc;

use crate::mem::image::{Block, Image};
use crate::mem::zeroed::{Zeroable, ZeroedTable};

/// Types of which any bytes are a value, and that have no padding.
///
/// # Safety
/// Both hold, and the alignment is at most that of a section.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: integers.
unsafe impl Plain for u8 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers, as many as fill it.
unsafe impl Plain for Block {}
// SAFETY: an array has no padding.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Read as a slice, whose address and length are here whoever owns the memory: no loop pays for it.
pub struct Table<T> {
    values: *const [T],
    owner: Owner<T>,
}

enum Owner<T> {
    Vector(Vec<T>),
    Zeroed(ZeroedTable<T>),
    Image(#[expect(dead_code, reason = "keeps the memory")] Arc<Image>),
}

// SAFETY: values of `Plain` types, which only `values_mut` changes.
unsafe impl<T: Plain> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Table<T> {}

impl<T: Plain> Table<T> {
    pub fn zeroed(values: ZeroedTable<T>) -> Table<T>
    where
        T: Zeroable,
    {
        Table {
            values: &raw const *values,
            owner: Owner::Zeroed(values),
        }
    }

    /// Bytes of an image as values; None unless they are whole and aligned ones.
    pub fn of_image(image: &Arc<Image>, start: usize, n_bytes: usize) -> Option<Table<T>> {
        let blocks = image.blocks();
        let size = size_of::<T>();
        if start.checked_add(n_bytes)? > size_of_val(blocks)
            || !start.is_multiple_of(align_of::<T>())
            || !n_bytes.is_multiple_of(size)
        {
            return None;
        }
        let first = blocks.as_ptr().cast::<u8>().wrapping_add(start).cast();
        Some(Table {
            values: std::ptr::slice_from_raw_parts(first, n_bytes / size),
            owner: Owner::Image(image.clone()),
        })
    }

    /// Of a table that is being built. Panics for one of an image, which never changes.
    pub fn values_mut(&mut self) -> &mut [T]
    where
        T: Zeroable,
    {
        match &mut self.owner {
            Owner::Vector(values) => values,
            Owner::Zeroed(values) => values,
            Owner::Image(_) => panic!("a table of a file is never changed"),
        }
    }
}

impl<T: Plain> From<Vec<T>> for Table<T> {
    fn from(values: Vec<T>) -> Table<T> {
        Table {
            values: std::ptr::slice_from_raw_parts(values.as_ptr(), values.len()),
            owner: Owner::Vector(values),
        }
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the owner keeps these values, neither moves nor resizes them, and changes them only
        // through a unique borrow of the table.
        unsafe { &*self.values }
    }
}
