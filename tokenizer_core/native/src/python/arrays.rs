//! Arrays of ids for Python. When Python frees one, its memory goes to the buffer pool.

use std::mem::ManuallyDrop;
use std::ptr;

use numpy::ndarray::ArrayViewMut1;
use numpy::npyffi::{PY_ARRAY_API, npy_intp};
use numpy::{Element, IntoPyArray, PyArray1, PyArrayDescrMethods, PyArrayMethods};
use pyo3::prelude::*;

use crate::mem::buffer_pool;

/// Keeps the memory of an array of ids alive.
#[pyclass(frozen, module = "tokenizer_core._native")]
struct IdBuffer {
    start: *mut u32,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns the vector and does not use it before it is dropped; only numpy reads and writes
// the ids.
unsafe impl Send for IdBuffer {}
// SAFETY: as above.
unsafe impl Sync for IdBuffer {}

impl Drop for IdBuffer {
    fn drop(&mut self) {
        // SAFETY: these are the parts of a vector that nothing else dropped, and no array uses it any more.
        let ids = unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) };
        buffer_pool::give_back(ids);
    }
}

/// An array of `ids`, without a copy.
pub fn array_of(py: Python<'_>, mut ids: Vec<u32>) -> PyResult<Bound<'_, PyArray1<u32>>> {
    shrink(&mut ids);
    if ids.len() < buffer_pool::MIN_KEPT {
        return Ok(ids.into_pyarray(py));
    }
    let mut ids = ManuallyDrop::new(ids);
    let (start, length, capacity) = (ids.as_mut_ptr(), ids.len(), ids.capacity());
    let buffer = Bound::new(
        py,
        IdBuffer {
            start,
            length,
            capacity,
        },
    )?;
    // SAFETY: the vector has this many ids, and nothing else reads or writes them: `buffer` keeps the memory and
    // leaves it alone.
    let view = unsafe { ArrayViewMut1::from_shape_ptr(length, start) };
    // SAFETY: `buffer` lives as long as the array, and the memory as long as that.
    Ok(unsafe { PyArray1::borrow_from_array(&view, buffer.into_any()) })
}

/// An array of a few `ids` in numpy's own memory. An owner besides numpy would take a third of the
/// time of a call with a short text.
pub fn array_with_copy<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let mut shape = [ids.len() as npy_intp];
    // SAFETY: numpy gives a new reference to an array of this shape and type, or null with an exception
    // set (rust-numpy's functions panic there). Its memory has room for the ids, and nobody else sees
    // it before the array is returned.
    unsafe {
        let dtype = u32::get_dtype(py).into_dtype_ptr();
        let array = PY_ARRAY_API.PyArray_Empty(py, 1, shape.as_mut_ptr(), dtype, 0);
        let array = Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked::<PyArray1<u32>>();
        ptr::copy_nonoverlapping(ids.as_ptr(), array.data(), ids.len());
        Ok(array)
    }
}

/// Python may keep the array for long: at most an eighth of its memory is unused.
fn shrink(ids: &mut Vec<u32>) {
    if ids.capacity() > ids.len() + ids.len() / 8 + 64 {
        ids.shrink_to_fit();
    }
}
