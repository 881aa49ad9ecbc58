//! Texts from Python as UTF-8.

use std::ops::Range;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::string::PyStringData;
use pyo3::types::{PyBool, PyList, PyString, PyTuple};

use crate::encode::windows::Source;
use crate::mem::growth::{Grow, NoMemory, with_room};
use crate::python::gil::releasing_gil_if_long;
use crate::python::stop::{CancelledError, SplitTooSlowError};
use crate::python::unfilled::{int_of, new_list, pair_of};
use crate::simd::Kernel;
use crate::stop::Stopped;
use crate::unicode::utf8::{CodePoint, NoUtf8, append_utf8};

const ASKED_FROM_BYTES: usize = 1024;

/// A text in the width that Python stores. ASCII is UTF-8 already, and nothing is written.
#[derive(Clone, Copy)]
pub enum Text<'t> {
    Utf8(&'t str),
    Latin1(&'t [u8]),
    TwoBytes(&'t [u16]),
    FourBytes(&'t [u32]),
}

/// Runs `work` on one text, without the GIL if it is long.
///
/// Raises UnicodeEncodeError for a lone surrogate.
pub fn with_text<T: Send>(
    py: Python<'_>,
    text: &Bound<'_, PyString>,
    work: impl FnOnce(&Text) -> Result<T, NoUtf8> + Send,
) -> PyResult<T> {
    let source = Text::of(text)?;
    let done = releasing_gil_if_long(py, source.n_bytes(), || work(&source));
    done.map_err(|why| error_of(text, why))
}

/// Runs `work` on `texts`, without the GIL if they are long.
///
/// Raises UnicodeEncodeError for a lone surrogate.
pub fn with_texts<T: Send>(
    py: Python<'_>,
    texts: &[Bound<'_, PyString>],
    work: impl FnOnce(&[Text]) -> Result<T, (usize, NoUtf8)> + Send,
) -> PyResult<T> {
    let mut sources: Vec<Text> = with_room(texts.len()).map_err(memory_error)?;
    for text in texts {
        sources.push(Text::of(text)?);
    }
    let n_bytes = sources.iter().map(Text::n_bytes).sum();
    let done = releasing_gil_if_long(py, n_bytes, || work(&sources));
    done.map_err(|(position, why)| error_of(&texts[position], why))
}

/// CancelledError, MemoryError or SplitTooSlowError.
pub fn stopped_error(why: Stopped) -> PyErr {
    match why {
        Stopped::TooSlow => SplitTooSlowError::new_err(
            "the split pattern of this tokenizer takes too long on this text: a part of it makes the \
             expression try very many ways; break the text, or use a tokenizer with a simpler \
             expression",
        ),
        Stopped::NoMemory => memory_error(NoMemory),
        Stopped::Cancelled => CancelledError::new_err("The call was cancelled."),
    }
}

pub fn memory_error(_: impl Into<NoMemory>) -> PyErr {
    PyMemoryError::new_err("no memory for the texts in UTF-8 and their ids")
}

impl Source for Text<'_> {
    type Error = NoUtf8;

    fn n_characters(&self) -> usize {
        match self {
            Text::Utf8(text) => text.len(),
            Text::Latin1(bytes) => bytes.len(),
            Text::TwoBytes(points) => points.len(),
            Text::FourBytes(points) => points.len(),
        }
    }

    fn max_bytes(&self) -> usize {
        let of_one = match self {
            Text::Utf8(_) => 1,
            Text::Latin1(_) => u8::MAX_BYTES,
            Text::TwoBytes(_) => u16::MAX_BYTES,
            Text::FourBytes(_) => u32::MAX_BYTES,
        };
        of_one * self.n_characters()
    }

    fn around(&self, position: usize) -> Option<(u32, u32)> {
        Some((self.code(position - 1), self.code(position)))
    }

    fn as_utf8(&self) -> Option<&str> {
        match self {
            Text::Utf8(text) => Some(text),
            _ => None,
        }
    }

    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), NoUtf8> {
        // SAFETY: only the UTF-8 of whole characters is appended, even if it ends in an error.
        self.part(window)
            .append_utf8_to(unsafe { own.as_mut_vec() })
    }
}

/// The joined text of segments, and the runs of it, in characters, that are trusted; None for
/// segments that are not all a tuple of a `str` and a `bool`.
pub fn join_segments<'py>(
    segments: &Bound<'py, PyList>,
) -> PyResult<Option<(Bound<'py, PyString>, Bound<'py, PyList>)>> {
    let py = segments.py();
    let mut texts = with_room(segments.len()).map_err(memory_error)?;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    // Where the run that continues begins, and where the text ends.
    let (mut start, mut end) = (None, 0);
    for segment in segments.iter() {
        let Ok(pair) = segment.cast_exact::<PyTuple>() else {
            return Ok(None);
        };
        let [text, is_trusted] = pair.as_slice() else {
            return Ok(None);
        };
        let pair = (text.cast_exact::<PyString>(), is_trusted.cast::<PyBool>());
        let (Ok(text), Ok(is_trusted)) = pair else {
            return Ok(None);
        };
        let n_characters = text.code_point_len()?;
        if n_characters > 0 {
            if is_trusted.is_true() {
                start = start.or(Some(end));
            } else if let Some(start) = start.take() {
                runs.try_push((start, end)).map_err(memory_error)?;
            }
            end += n_characters;
        }
        texts.try_push(text.clone()).map_err(memory_error)?;
    }
    if let Some(start) = start {
        runs.try_push((start, end)).map_err(memory_error)?;
    }
    let texts = new_list(py, texts.into_iter().map(|text| Ok(text.into_any())))?;
    // SAFETY: the function gives a new reference to a `str`, or null with an exception set.
    let joined = unsafe {
        let joined = ffi::PyUnicode_Join(intern!(py, "").as_ptr(), texts.as_ptr());
        Bound::from_owned_ptr_or_err(py, joined)?.cast_into_unchecked()
    };
    let runs = runs
        .into_iter()
        .map(|(start, end)| pair_of([int_of(py, start)?, int_of(py, end)?]));
    Ok(Some((joined, new_list(py, runs)?)))
}

pub fn error_of(text: &Bound<'_, PyString>, why: NoUtf8) -> PyErr {
    match why {
        NoUtf8::Surrogate => surrogate_error(text),
        NoUtf8::Stopped(why) => stopped_error(why),
    }
}

fn surrogate_error(text: &Bound<'_, PyString>) -> PyErr {
    let refused = text.to_str();
    refused.expect_err("a surrogate has no UTF-8")
}

impl<'t> Text<'t> {
    fn of<'py>(text: &'t Bound<'py, PyString>) -> PyResult<Text<'t>> {
        // SAFETY: a `str` does not change, and lives as long as the reference to it. That PyO3 knows
        // its layout here is what the tests of texts of each width show.
        Ok(match unsafe { text.data() }? {
            PyStringData::Ucs1(bytes) if is_ascii(text, bytes)? => {
                // SAFETY: ASCII is UTF-8.
                Text::Utf8(unsafe { str::from_utf8_unchecked(bytes) })
            }
            PyStringData::Ucs1(bytes) => Text::Latin1(bytes),
            PyStringData::Ucs2(points) => Text::TwoBytes(points),
            PyStringData::Ucs4(points) => Text::FourBytes(points),
        })
    }

    fn n_bytes(&self) -> usize {
        match self {
            Text::Utf8(text) => text.len(),
            Text::Latin1(bytes) => bytes.len(),
            Text::TwoBytes(points) => size_of_val(*points),
            Text::FourBytes(points) => size_of_val(*points),
        }
    }

    /// One of its characters.
    fn code(&self, position: usize) -> u32 {
        match self {
            Text::Utf8(text) => text.as_bytes()[position].into(),
            Text::Latin1(bytes) => bytes[position].into(),
            Text::TwoBytes(points) => points[position].into(),
            Text::FourBytes(points) => points[position],
        }
    }

    /// Some of its characters.
    fn part(&self, range: Range<usize>) -> Text<'t> {
        match *self {
            Text::Utf8(text) => Text::Latin1(&text.as_bytes()[range]),
            Text::Latin1(bytes) => Text::Latin1(&bytes[range]),
            Text::TwoBytes(points) => Text::TwoBytes(&points[range]),
            Text::FourBytes(points) => Text::FourBytes(&points[range]),
        }
    }

    /// Appends the UTF-8 of a text that is not UTF-8 yet.
    fn append_utf8_to(&self, own: &mut Vec<u8>) -> Result<(), NoUtf8> {
        let kernel = Kernel::chosen();
        match self {
            Text::Utf8(_) => Ok(()),
            Text::Latin1(bytes) => append_utf8(kernel, bytes, own),
            Text::TwoBytes(points) => append_utf8(kernel, points, own),
            Text::FourBytes(points) => append_utf8(kernel, points, own),
        }
    }
}

/// Python stores this for each `str`; for a short one reading the bytes is faster than calling it.
fn is_ascii(text: &Bound<'_, PyString>, bytes: &[u8]) -> PyResult<bool> {
    if bytes.len() < ASKED_FROM_BYTES {
        return Ok(bytes.is_ascii());
    }
    let py = text.py();
    let answer = py
        .get_type::<PyString>()
        .call_method1(intern!(py, "isascii"), (text,))?;
    answer.extract()
}
