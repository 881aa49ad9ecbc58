//! Decoding for Python: ids from lists and arrays, bytes straight into Python objects.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;

use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList};

use crate::decode::rows::{Rows, Texts};
use crate::decode::text::TextRules;
use crate::decode::vocabulary::Vocabulary;
use crate::decode::{Ids, Measure};
use crate::mem::growth::{Grow, NoMemory, collected, with_room};
use crate::mem::huge_pages;
use crate::python::gil::releasing_gil_if_long;
use crate::python::text::memory_error;
use crate::python::unfilled::{
    LONG_BYTES, new_ascii, new_bytes, new_list, replaced_str_of, str_of,
};

create_exception!(
    tokenizer_core._native,
    UnknownIdError,
    PyValueError,
    "The argument is the index of the first element that is no id with a token."
);

/// The bytes of `ids`, as a `str` if `as_text` and they are ASCII.
pub fn decode_list<'py>(
    vocabulary: &Vocabulary,
    ids: &Bound<'py, PyList>,
    as_text: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    let mut plain: Vec<u32> = with_room(ids.len()).map_err(memory_error)?;
    while plain.len() < ids.len() {
        let index = plain.len();
        if let Some(id) = plain_int(ids, index) {
            plain.try_push(id).map_err(memory_error)?;
            continue;
        }
        let element = ids.get_item(index)?;
        match element.extract() {
            Ok(id) if !element.is_instance_of::<PyBool>() => {
                plain.try_push(id).map_err(memory_error)?;
            }
            // One before it may be unknown; that one is the first.
            _ => {
                let first = vocabulary.measure(&plain[..]).err();
                return Err(UnknownIdError::new_err(first.unwrap_or(index)));
            }
        }
    }
    decode(py, vocabulary, &plain[..], as_text)
}

/// The ids of several texts; None unless each element is a list of ints or an array of integers, and
/// all ids are known.
pub fn rows_of(batch: &Bound<'_, PyList>, rules: &TextRules) -> PyResult<Option<Rows>> {
    let mut rows = Rows::default();
    rows.ends
        .try_reserve_exact(batch.len())
        .map_err(|error| memory_error(NoMemory::from(error)))?;
    for element in batch.iter() {
        let is_read = if let Ok(list) = element.cast_exact::<PyList>() {
            append_list(list, &mut rows.ids)
        } else if let Ok(array) = element.cast::<PyArray1<u32>>() {
            append_array(array, &mut rows.ids)
        } else if let Ok(array) = element.cast::<PyArray1<i64>>() {
            append_array(array, &mut rows.ids)
        } else {
            return Ok(None);
        };
        if !is_read.map_err(memory_error)? {
            return Ok(None);
        }
        rows.ends.try_push(rows.ids.len()).map_err(memory_error)?;
    }
    let are_known = rows.ids.iter().all(|&id| rules.is_known(id));
    Ok(are_known.then_some(rows))
}

fn append_list(list: &Bound<'_, PyList>, ids: &mut Vec<u32>) -> Result<bool, NoMemory> {
    ids.try_reserve(list.len())?;
    for index in 0..list.len() {
        let Some(id) = plain_int(list, index) else {
            return Ok(false);
        };
        ids.try_push(id)?;
    }
    Ok(true)
}

fn append_array<I: Element + Copy + TryInto<u32>>(
    array: &Bound<'_, PyArray1<I>>,
    ids: &mut Vec<u32>,
) -> Result<bool, NoMemory> {
    let array = array.readonly();
    if !array.data().is_aligned() {
        return Ok(false);
    }
    ids.try_reserve(array.len())?;
    for &id in array.as_array() {
        let Ok(id) = id.try_into() else {
            return Ok(false);
        };
        ids.push(id);
    }
    Ok(true)
}

/// A list of texts.
pub fn list_of_texts<'py>(py: Python<'py>, parts: &[Texts]) -> PyResult<Bound<'py, PyList>> {
    let n_texts = parts.iter().map(|part| part.ends.len()).sum();
    let mut texts = with_room(n_texts).map_err(memory_error)?;
    for part in parts {
        let mut start = 0;
        for &end in &part.ends {
            texts.push(replaced_str_of(py, &part.bytes[start..end])?.into_any());
            start = end;
        }
    }
    new_list(py, texts.into_iter().map(Ok))
}

/// An element below 2^32 that is exactly an int.
#[inline(always)]
pub fn plain_int(ids: &Bound<'_, PyList>, index: usize) -> Option<u32> {
    plain_number(ids, index).and_then(|number| u32::try_from(number).ok())
}

/// An element that is exactly an int and not negative, of the size of a C long.
#[inline(always)]
pub fn plain_number(list: &Bound<'_, PyList>, index: usize) -> Option<u64> {
    if index >= list.len() {
        return None;
    }
    // SAFETY: `index` is below the length, and no other code runs before the element was read:
    // reading an exact int calls none. The element is borrowed from the list meanwhile, under the
    // GIL.
    unsafe {
        let element = ffi::PyList_GET_ITEM(list.as_ptr(), index as ffi::Py_ssize_t);
        if ffi::PyLong_CheckExact(element) == 0 {
            return None;
        }
        let mut overflow = 0;
        let value = ffi::PyLong_AsLongAndOverflow(element, &mut overflow);
        // Out of range gives -1 and no exception.
        u64::try_from(value).ok()
    }
}

/// As `decode_list`, of an array.
pub fn decode_array<'py>(
    py: Python<'py>,
    vocabulary: &Vocabulary,
    ids: &PyReadonlyArray1<'py, u32>,
    as_text: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if !ids.data().is_aligned() {
        return Err(PyValueError::new_err("the array is not aligned"));
    }
    if !ids.is_c_contiguous() {
        let copy = collected(ids.as_array().iter().copied()).map_err(memory_error)?;
        return decode(py, vocabulary, &copy[..], as_text);
    }
    // SAFETY: the array is held, so its memory does not move, is aligned and initialized, and has
    // `len` elements; NumPy refuses to resize an array that others hold. Other threads may write
    // elements meanwhile, as in any NumPy function that releases the GIL. So elements are read one
    // by one as atomics, and no earlier read is trusted: `fill` checks every id and every bound
    // again.
    let shared = unsafe { std::slice::from_raw_parts(ids.data().cast::<AtomicU32>(), ids.len()) };
    decode(py, vocabulary, shared, as_text)
}

fn decode<'py, I: Ids + Sync + ?Sized>(
    py: Python<'py>,
    vocabulary: &Vocabulary,
    ids: &I,
    as_text: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match releasing_gil_if_long(py, 4 * ids.count(), || vocabulary.measure(ids)) {
        Err(index) => Err(UnknownIdError::new_err(index)),
        Ok(Measure { n_bytes, is_ascii }) => {
            let is_text = as_text && is_ascii;
            // SAFETY: `fill` writes all of the memory, or the object is dropped unseen.
            let (object, out) = unsafe {
                if is_text {
                    new_ascii(py, n_bytes)?
                } else {
                    new_bytes(py, n_bytes)?
                }
            };
            let is_as_measured = releasing_gil_if_long(py, n_bytes, || {
                huge_pages::advise(out.as_ptr(), out.len());
                // SAFETY: `fill` has written all of it, as its result says.
                vocabulary.fill(ids, out) == n_bytes
                    && !(is_text && I::MAY_CHANGE && !unsafe { is_all_ascii(out) })
            });
            if !is_as_measured {
                return Err(PyRuntimeError::new_err(
                    "the ids were changed by another thread while they were decoded",
                ));
            }
            if as_text && !is_text && n_bytes >= LONG_BYTES {
                let bytes = object.cast::<PyBytes>()?.as_bytes();
                if let Ok(text) = py.detach(|| simdutf8::basic::from_utf8(bytes)) {
                    return Ok(str_of(py, text)?.into_any());
                }
            }
            Ok(object)
        }
    }
}

/// A `str` that says it is ASCII must be.
///
/// # Safety
/// All of the memory has been written.
unsafe fn is_all_ascii(filled: &[MaybeUninit<u8>]) -> bool {
    // SAFETY: the layout is the same, and by the caller's promise all of it has a value.
    let bytes = unsafe { &*(std::ptr::from_ref(filled) as *const [u8]) };
    bytes.is_ascii()
}
