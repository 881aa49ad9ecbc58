//! Batches of documents for Python, as files of ids store them.
//!
//! Corpora are encoded batch after batch. Ids are made in memory that stays with the thread, and
//! copied to an array of their size: fresh memory for the most ids possible would cost a page fault
//! for every 4 kB, a tenth of the time.

use std::cell::Cell;

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyUnicodeDecodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::encode::Encoded;
use crate::python::gil::releasing_gil_if_long;

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

/// The ids of `texts`, as uint16 or uint32. Raises UnicodeDecodeError if one is not UTF-8,
/// ValueError if an id does not fit.
pub fn encode<'py>(
    py: Python<'py>,
    texts: &[PyBackedBytes],
    as_uint16: bool,
    encode: impl FnOnce(&[&str], &mut Encoded) + Send,
) -> PyResult<Arrays<'py>> {
    let lengths: Vec<u64> = texts.iter().map(|text| text.len() as u64).collect();
    let n_bytes = lengths.iter().sum::<u64>() as usize;
    let made = releasing_gil_if_long(py, n_bytes, || {
        let mut checked = Vec::with_capacity(texts.len());
        for text in texts {
            match simdutf8::basic::from_utf8(text) {
                Ok(text) => checked.push(text),
                // Only the slower check names the position.
                Err(_) => return Err((&**text, std::str::from_utf8(text).unwrap_err())),
            }
        }
        let mut encoded = Encoded {
            ids: KEPT.take(),
            ends: Vec::with_capacity(texts.len() + 1),
        };
        encoded.ids.clear();
        encoded.ends.push(0);
        encode(&checked, &mut encoded);
        let ids = copied(&encoded.ids, as_uint16);
        if encoded.ids.capacity() <= MAX_KEPT_IDS {
            KEPT.set(encoded.ids);
        }
        Ok((ids, encoded.ends))
    });
    let (ids, ends) = match made {
        Ok(made) => made,
        Err((bytes, error)) => {
            return Err(PyErr::from_value(
                PyUnicodeDecodeError::new_utf8(py, bytes, error)?.into_any(),
            ));
        }
    };
    let ids = match ids {
        Some(Ids::Narrow(ids)) => ids.into_pyarray(py).into_any(),
        Some(Ids::Wide(ids)) => ids.into_pyarray(py).into_any(),
        None => {
            return Err(PyValueError::new_err(
                "an id does not fit two bytes; do without as_uint16",
            ));
        }
    };
    Ok((ids, ends.into_pyarray(py), lengths.into_pyarray(py)))
}

fn copied(ids: &[u32], as_uint16: bool) -> Option<Ids> {
    if !as_uint16 {
        return Some(Ids::Wide(ids.to_vec()));
    }
    // All bits together: without a branch for each, this is done in vectors.
    let bits = ids.iter().fold(0, |bits, id| bits | id);
    u16::try_from(bits).ok()?;
    Some(Ids::Narrow(ids.iter().map(|&id| id as u16).collect()))
}
