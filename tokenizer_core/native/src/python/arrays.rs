//! Arrays of ids for Python, whose memory serves others when Python lets them go.

use std::mem::ManuallyDrop;

use numpy::ndarray::ArrayViewMut1;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::mem::buffer_pool;

/// What an array of ids keeps alive: the vector that they stand in.
#[pyclass(frozen, module = "tokenizer_core._native")]
struct Room {
    start: *mut u32,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns the vector and does nothing with it before it is dropped; what is in it is for numpy.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: these are the parts of a vector that nothing else dropped, and no array has it any more.
        let ids = unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) };
        buffer_pool::give_back(ids);
    }
}

/// An array of `ids`, which stay where they are.
pub fn array_of(py: Python<'_>, mut ids: Vec<u32>) -> PyResult<Bound<'_, PyArray1<u32>>> {
    give_back_room(&mut ids);
    if ids.len() < buffer_pool::MIN_KEPT {
        return Ok(ids.into_pyarray(py));
    }
    let mut ids = ManuallyDrop::new(ids);
    let (start, length, capacity) = (ids.as_mut_ptr(), ids.len(), ids.capacity());
    let room = Bound::new(
        py,
        Room {
            start,
            length,
            capacity,
        },
    )?;
    // SAFETY: so many ids stand there, and nothing else reads or writes them: `room` keeps the memory and
    // leaves it alone.
    let view = unsafe { ArrayViewMut1::from_shape_ptr(length, start) };
    // SAFETY: `room` lives as long as the array, and the memory as long as that.
    Ok(unsafe { PyArray1::borrow_from_array(&view, room.into_any()) })
}

/// An array lives as long as Python likes: it keeps no more than an eighth of what it does not need.
fn give_back_room(ids: &mut Vec<u32>) {
    if ids.capacity() > ids.len() + ids.len() / 8 + 64 {
        ids.shrink_to_fit();
    }
}
