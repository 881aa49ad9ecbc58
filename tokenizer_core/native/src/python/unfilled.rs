//! Python objects whose memory the engine fills itself, so that no result is copied.

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;

/// A new `bytes` and its memory.
///
/// # Safety
/// The caller writes all of the memory before any other code sees the object.
pub unsafe fn new_bytes(
    py: Python<'_>,
    n_bytes: usize,
) -> PyResult<(Bound<'_, PyAny>, &mut [MaybeUninit<u8>])> {
    // SAFETY: the function gives a new reference, or null with an exception set. The memory has this
    // size, belongs to the object, and nobody else sees it before the object is returned. Empty
    // objects are shared, and nothing is written to them.
    unsafe {
        let bytes = ffi::PyBytes_FromStringAndSize(std::ptr::null(), n_bytes as ffi::Py_ssize_t);
        let object = Bound::from_owned_ptr_or_err(py, bytes)?;
        let start = ffi::PyBytes_AS_STRING(object.as_ptr()).cast_mut();
        Ok((
            object,
            std::slice::from_raw_parts_mut(start.cast(), n_bytes),
        ))
    }
}

/// A new `str` of ASCII and its memory.
///
/// # Safety
/// As of `new_bytes`, and only ASCII is written.
pub unsafe fn new_ascii(
    py: Python<'_>,
    n_bytes: usize,
) -> PyResult<(Bound<'_, PyAny>, &mut [MaybeUninit<u8>])> {
    // SAFETY: as in `new_bytes`.
    unsafe {
        let text = ffi::PyUnicode_New(n_bytes as ffi::Py_ssize_t, 127);
        let object = Bound::from_owned_ptr_or_err(py, text)?;
        let start = ffi::PyUnicode_DATA(object.as_ptr());
        Ok((
            object,
            std::slice::from_raw_parts_mut(start.cast(), n_bytes),
        ))
    }
}
