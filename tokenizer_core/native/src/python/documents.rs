//! Batches of documents for Python, as files of ids store them.
//!
//! Corpora are encoded batch after batch. Ids are made in memory that stays with the thread, and
//! copied to an array of their size: fresh memory for the most ids possible would cost a page fault
//! for every 4 kB, a tenth of the time.

use std::cell::Cell;
use std::str::Utf8Error;

use memchr::memmem;
use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::{PyTypeError, PyUnicodeDecodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::encode::Encoded;
use crate::mem::growth::{collected, with_room};
use crate::python::gil::releasing_gil_if_long;
use crate::python::text::{memory_error, stopped_error};
use crate::stop::Stopped;

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(split_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(count_ids, module)?)
}

/// As `bytes.split` with a separator that is not empty, whose search takes five times as long.
#[pyfunction]
fn split_bytes<'py>(text: &Bound<'py, PyBytes>, separator: &[u8]) -> PyResult<Bound<'py, PyList>> {
    let (py, text) = (text.py(), text.as_bytes());
    let (parts, mut start) = (PyList::empty(py), 0);
    for end in memmem::find_iter(text, separator) {
        parts.append(PyBytes::new(py, &text[start..end]))?;
        start = end + separator.len();
    }
    parts.append(PyBytes::new(py, &text[start..]))?;
    Ok(parts)
}

/// Adds to `counts` how often each id occurs. It holds the GIL: another thread may write to the
/// arrays, and a copy takes as long as counting.
#[pyfunction]
fn count_ids(ids: &Bound<'_, PyAny>, mut counts: PyReadwriteArray1<'_, u64>) -> PyResult<()> {
    let counts = counts.as_slice_mut()?;
    if let Ok(ids) = ids.extract::<PyReadonlyArray1<'_, u16>>() {
        return add_counts(&ids, counts);
    }
    match ids.extract::<PyReadonlyArray1<'_, u32>>() {
        Ok(ids) => add_counts(&ids, counts),
        Err(_) => Err(PyTypeError::new_err("ids are uint16 or uint32")),
    }
}

fn add_counts<T: Element + Copy + Into<u32>>(
    ids: &PyReadonlyArray1<'_, T>,
    counts: &mut [u64],
) -> PyResult<()> {
    for &id in ids.as_slice()? {
        match counts.get_mut(id.into() as usize) {
            Some(count) => *count += 1,
            None => return Err(PyValueError::new_err("an id has no count")),
        }
    }
    Ok(())
}

/// A thread keeps memory for at most this many ids.
const MAX_KEPT_IDS: usize = 4 << 20;

thread_local! {
    static KEPT: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// Ids of u16 or u32, where those of each text begin and the last end, the bytes of each text.
pub type Arrays<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
);

enum Ids {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

enum Failure<'t> {
    NotUtf8(&'t [u8], Utf8Error),
    /// An id does not fit two bytes.
    TooWide,
    Stopped(Stopped),
}

impl<E: Into<Stopped>> From<E> for Failure<'_> {
    fn from(error: E) -> Self {
        Failure::Stopped(error.into())
    }
}

/// The ids of `texts`, as uint16 or uint32. Raises UnicodeDecodeError if one is not UTF-8,
/// ValueError if an id does not fit.
pub fn encode<'py>(
    py: Python<'py>,
    texts: &[PyBackedBytes],
    as_uint16: bool,
    encode: impl FnOnce(&[&str], &mut Encoded) -> Result<(), Stopped> + Send,
) -> PyResult<Arrays<'py>> {
    let lengths = texts.iter().map(|text| text.len() as u64);
    let lengths = collected(lengths).map_err(memory_error)?;
    let n_bytes = lengths.iter().sum::<u64>() as usize;
    let made = releasing_gil_if_long(py, n_bytes, || {
        let mut checked = with_room(texts.len())?;
        let mut ends = with_room(texts.len() + 1)?;
        ends.push(0);
        for text in texts {
            match simdutf8::basic::from_utf8(text) {
                Ok(text) => checked.push(text),
                // Only the slower check names the position.
                Err(_) => {
                    let error = std::str::from_utf8(text).unwrap_err();
                    return Err(Failure::NotUtf8(text, error));
                }
            }
        }
        let mut encoded = Encoded {
            ids: KEPT.take(),
            ends,
        };
        encoded.ids.clear();
        encode(&checked, &mut encoded)?;
        let ids = copied(&encoded.ids, as_uint16)?;
        if encoded.ids.capacity() <= MAX_KEPT_IDS {
            KEPT.set(encoded.ids);
        }
        Ok((ids, encoded.ends))
    });
    let (ids, ends) = match made {
        Ok(made) => made,
        Err(Failure::NotUtf8(bytes, error)) => {
            return Err(PyErr::from_value(
                PyUnicodeDecodeError::new_utf8(py, bytes, error)?.into_any(),
            ));
        }
        Err(Failure::Stopped(why)) => return Err(stopped_error(why)),
        Err(Failure::TooWide) => {
            return Err(PyValueError::new_err(
                "an id does not fit two bytes; do without as_uint16",
            ));
        }
    };
    let ids = match ids {
        Ids::Narrow(ids) => ids.into_pyarray(py).into_any(),
        Ids::Wide(ids) => ids.into_pyarray(py).into_any(),
    };
    Ok((ids, ends.into_pyarray(py), lengths.into_pyarray(py)))
}

fn copied<'t>(ids: &[u32], as_uint16: bool) -> Result<Ids, Failure<'t>> {
    if !as_uint16 {
        return Ok(Ids::Wide(collected(ids.iter().copied())?));
    }
    // All bits together: without a branch for each, this is done in vectors.
    let bits = ids.iter().fold(0, |bits, id| bits | id);
    u16::try_from(bits).map_err(|_| Failure::TooWide)?;
    Ok(Ids::Narrow(collected(ids.iter().map(|&id| id as u16))?))
}
