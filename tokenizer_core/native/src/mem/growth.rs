//! Growing vectors where there may be no memory: an error instead of the end of the process.
//!
//! Everything whose size depends on the input of a call grows by these functions or `try_reserve`.

use std::collections::TryReserveError;
use std::io;

use crate::mem::huge_pages;

/// No memory for what a call makes of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

impl From<NoMemory> for io::Error {
    fn from(_: NoMemory) -> io::Error {
        io::ErrorKind::OutOfMemory.into()
    }
}

/// An empty vector with room for `n` values.
pub fn with_room<T>(n: usize) -> Result<Vec<T>, NoMemory> {
    let mut values = Vec::new();
    values.try_reserve_exact(n)?;
    Ok(values)
}

/// `n` times the same value. Training reads such vectors at random: in small pages it waits for their
/// addresses, an eighth of its time.
pub fn filled<T: Clone>(value: T, n: usize) -> Result<Vec<T>, NoMemory> {
    let mut values = with_room(n)?;
    huge_pages::advise(values.as_ptr(), n);
    values.resize(n, value);
    Ok(values)
}

/// All values of an iterator.
pub fn collected<T>(values: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let mut vector = with_room(values.len())?;
    vector.extend(values);
    Ok(vector)
}

pub trait Grow<T> {
    fn try_push(&mut self, value: T) -> Result<(), NoMemory>;

    fn try_extend(&mut self, values: &[T]) -> Result<(), NoMemory>
    where
        T: Copy;
}

impl<T> Grow<T> for Vec<T> {
    #[inline(always)]
    fn try_push(&mut self, value: T) -> Result<(), NoMemory> {
        if self.len() == self.capacity() {
            reserve_one(self)?;
        }
        self.push(value);
        Ok(())
    }

    #[inline(always)]
    fn try_extend(&mut self, values: &[T]) -> Result<(), NoMemory>
    where
        T: Copy,
    {
        self.try_reserve(values.len())?;
        self.extend_from_slice(values);
        Ok(())
    }
}

#[cold]
fn reserve_one<T>(values: &mut Vec<T>) -> Result<(), NoMemory> {
    Ok(values.try_reserve(1)?)
}
