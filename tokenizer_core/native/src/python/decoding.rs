//! Decoding for Python: ids from lists and arrays, bytes straight into Python objects.

use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::decode::Measure;
use crate::decode::rows::{Rows, Texts};
use crate::decode::text::TextRules;
use crate::decode::vocabulary::Vocabulary;
use crate::mem::growth::{Grow, NoMemory, with_room};
use crate::mem::{buffer_pool, huge_pages};
use crate::python::gil::releasing_gil_if_long;
use crate::python::text::memory_error;
use crate::python::unfilled::{
    LONG_BYTES, new_ascii, new_bytes, new_list, replaced_str_of, str_of,
};

create_exception!(
    tokenizer_core._native,
    UnknownIdError,
    PyValueError,
    "The argument is the index of an element that is no id with a token."
);

/// The bytes of `ids`, a list or an array; a `str` if `as_text` and they are ASCII, or many and UTF-8.
pub fn decode<'py>(
    vocabulary: &Vocabulary,
    ids: &Bound<'py, PyAny>,
    as_text: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let no_memory = || memory_error(NoMemory);
    let mut plain = buffer_pool::take(ids.len()?, 0).ok_or_else(no_memory)?;
    if let Ok(list) = ids.cast::<PyList>() {
        if !append_list(list, &mut plain).map_err(memory_error)? {
            return Err(UnknownIdError::new_err(plain.len()));
        }
    } else {
        // A copy, because another thread may write to the array while the GIL is released.
        let array: PyReadonlyArray1<'py, u32> = ids.extract()?;
        plain.try_extend(array.as_slice()?).map_err(memory_error)?;
    }
    let decoded = decode_plain(ids.py(), vocabulary, &plain, as_text);
    buffer_pool::give_back(plain);
    decoded
}

fn decode_plain<'py>(
    py: Python<'py>,
    vocabulary: &Vocabulary,
    ids: &[u32],
    as_text: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let measured = releasing_gil_if_long(py, 4 * ids.len(), || vocabulary.measure(ids));
    let Measure { n_bytes, is_ascii } = measured.map_err(UnknownIdError::new_err)?;
    // SAFETY: `fill` writes all of the memory, and ASCII if all tokens are.
    let (object, out) = unsafe {
        if as_text && is_ascii {
            new_ascii(py, n_bytes)?
        } else {
            new_bytes(py, n_bytes)?
        }
    };
    let n_written = releasing_gil_if_long(py, n_bytes, || {
        huge_pages::advise(out.as_ptr(), out.len());
        vocabulary.fill(ids, out)
    });
    assert_eq!(n_written, n_bytes, "the ids were measured");
    if as_text && !is_ascii && n_bytes >= LONG_BYTES {
        let bytes = object.cast::<PyBytes>()?.as_bytes();
        if let Ok(text) = py.detach(|| simdutf8::basic::from_utf8(bytes)) {
            return Ok(str_of(py, text)?.into_any());
        }
    }
    Ok(object)
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
