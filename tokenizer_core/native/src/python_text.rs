//! Texts from Python as UTF-8.

use std::ops::Range;

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::types::string::PyStringData;

use crate::changes::{Change, Changed};
use crate::code_units::{CodeUnit, NoUtf8, append_utf8};
use crate::huge_pages;
use crate::kernel::AnyKernel;
use crate::nfc;
use crate::python::releasing_gil_if_long;
use crate::windows::Unwritten;

const ASKED_FROM_BYTES: usize = 1024;

/// A text as Python has it: where that is ASCII it is UTF-8, and nothing is to be written.
#[derive(Clone, Copy)]
pub enum Text<'t> {
    Utf8(&'t str),
    Latin1(&'t [u8]),
    TwoBytes(&'t [u16]),
    FourBytes(&'t [u32]),
}

/// What `work` makes of `texts`. The GIL is released where they are long.
///
/// Raises UnicodeEncodeError for a lone surrogate.
pub fn with_utf8<T: Send>(
    py: Python<'_>,
    texts: &[Bound<'_, PyString>],
    work: impl FnOnce(&[&str]) -> T + Send,
) -> PyResult<T> {
    let sources: Vec<Text> = texts.iter().map(Text::of).collect::<PyResult<_>>()?;
    let n_bytes = sources.iter().map(Text::n_bytes).sum();
    let done = releasing_gil_if_long(py, n_bytes, || {
        let mut own = Vec::new();
        Ok(work(&as_utf8(&sources, &mut own)?))
    });
    done.map_err(|(place, why): (usize, NoUtf8)| error_of(&texts[place], why))
}

/// The UTF-8 of one text: it is there, or it is to be written.
pub enum Utf8<'t> {
    Whole(&'t str),
    Unwritten(Changed<'t, Text<'t>>),
}

/// What `work` makes of one text with changes, which are in order; no other `str` is made for them. The
/// GIL is released where it is long.
///
/// Raises UnicodeEncodeError for a lone surrogate, and ValueError where the changes are in no order or not
/// of this text.
pub fn with_utf8_of<T: Send>(
    py: Python<'_>,
    text: &Bound<'_, PyString>,
    changes: &[Change],
    work: impl FnOnce(Utf8) -> Result<T, NoUtf8> + Send,
) -> PyResult<T> {
    let source = Text::of(text)?;
    let utf8 = match (source, changes) {
        (Text::Utf8(text), []) => Utf8::Whole(text),
        (_, [(0, end, instead)]) if *end == source.n_characters() => Utf8::Whole(instead),
        _ => Utf8::Unwritten(Changed::new(source, changes).ok_or_else(|| {
            PyValueError::new_err("changes that are in no order or beyond the text")
        })?),
    };
    releasing_gil_if_long(py, source.n_bytes(), || work(utf8)).map_err(|why| error_of(text, why))
}

impl Unwritten for Text<'_> {
    type Error = NoUtf8;

    fn n_characters(&self) -> usize {
        match self {
            Text::Utf8(text) => text.len(),
            Text::Latin1(bytes) => bytes.len(),
            Text::TwoBytes(units) => units.len(),
            Text::FourBytes(units) => units.len(),
        }
    }

    fn n_bytes_at_most(&self) -> usize {
        let of_one = match self {
            Text::Utf8(_) => 1,
            Text::Latin1(_) => u8::MAX_BYTES,
            Text::TwoBytes(_) => u16::MAX_BYTES,
            Text::FourBytes(_) => u32::MAX_BYTES,
        };
        of_one * self.n_characters()
    }

    fn around(&self, place: usize) -> Option<(u32, u32)> {
        Some((self.code(place - 1), self.code(place)))
    }

    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), NoUtf8> {
        // SAFETY: what is appended is UTF-8 of whole characters, also where it ends in an error.
        self.part(window)
            .append_utf8_to(unsafe { own.as_mut_vec() })
    }

    fn no_memory(&self) -> NoUtf8 {
        NoUtf8::Memory
    }
}

fn error_of(text: &Bound<'_, PyString>, why: NoUtf8) -> PyErr {
    match why {
        NoUtf8::Surrogate => surrogate_error(text),
        NoUtf8::Memory => PyMemoryError::new_err("no memory for the texts in UTF-8 and their ids"),
    }
}

fn surrogate_error(text: &Bound<'_, PyString>) -> PyErr {
    let refused = text.to_str();
    refused.expect_err("a surrogate has no UTF-8")
}

/// Where the runs of characters are that NFC may touch; None if they are more than `max_runs`. Raises
/// UnicodeEncodeError for a lone surrogate.
pub fn restless_runs(
    text: &Bound<'_, PyString>,
    max_runs: usize,
) -> PyResult<Option<Vec<(usize, usize)>>> {
    // SAFETY: as in `Text::of`.
    let runs = match unsafe { text.data() }? {
        PyStringData::Ucs1(_) => Ok(Some(Vec::new())),
        PyStringData::Ucs2(units) => runs_in(text.py(), units, max_runs),
        PyStringData::Ucs4(units) => runs_in(text.py(), units, max_runs),
    };
    runs.map_err(|_| surrogate_error(text))
}

fn runs_in<U: CodeUnit>(
    py: Python<'_>,
    units: &[U],
    max_runs: usize,
) -> Result<Option<Vec<(usize, usize)>>, NoUtf8> {
    releasing_gil_if_long(py, size_of_val(units), || {
        nfc::restless_runs(units, max_runs)
    })
}

impl<'t> Text<'t> {
    fn of<'py>(text: &'t Bound<'py, PyString>) -> PyResult<Text<'t>> {
        // SAFETY: a `str` does not change, and lives as long as the reference to it. That PyO3 knows
        // its layout here is what the tests of texts of each width show.
        Ok(match unsafe { text.data() }? {
            PyStringData::Ucs1(bytes) if is_ascii(text, bytes)? => Text::Utf8(text.to_str()?),
            PyStringData::Ucs1(bytes) => Text::Latin1(bytes),
            PyStringData::Ucs2(units) => Text::TwoBytes(units),
            PyStringData::Ucs4(units) => Text::FourBytes(units),
        })
    }

    fn n_bytes(&self) -> usize {
        match self {
            Text::Utf8(text) => text.len(),
            Text::Latin1(bytes) => bytes.len(),
            Text::TwoBytes(units) => size_of_val(*units),
            Text::FourBytes(units) => size_of_val(*units),
        }
    }

    /// One of its characters.
    fn code(&self, place: usize) -> u32 {
        match self {
            Text::Utf8(text) => text.as_bytes()[place].into(),
            Text::Latin1(bytes) => bytes[place].into(),
            Text::TwoBytes(units) => units[place].into(),
            Text::FourBytes(units) => units[place],
        }
    }

    /// Some of its characters.
    fn part(&self, range: Range<usize>) -> Text<'t> {
        match *self {
            Text::Utf8(text) => Text::Latin1(&text.as_bytes()[range]),
            Text::Latin1(bytes) => Text::Latin1(&bytes[range]),
            Text::TwoBytes(units) => Text::TwoBytes(&units[range]),
            Text::FourBytes(units) => Text::FourBytes(&units[range]),
        }
    }

    /// The bytes of UTF-8 that are to be written of it, at least.
    fn n_own_at_least(&self) -> usize {
        match self {
            Text::Utf8(_) => 0,
            others => others.n_characters(),
        }
    }

    /// Appends the UTF-8 of what is none yet.
    fn append_utf8_to(&self, own: &mut Vec<u8>) -> Result<(), NoUtf8> {
        let kernel = AnyKernel::chosen();
        match self {
            Text::Utf8(_) => Ok(()),
            Text::Latin1(bytes) => append_utf8(kernel, bytes, own),
            Text::TwoBytes(units) => append_utf8(kernel, units, own),
            Text::FourBytes(units) => append_utf8(kernel, units, own),
        }
    }
}

/// Python knows it of each `str`; of a short one looking is faster than asking.
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

/// Each as UTF-8, one behind the other in `own`, which is empty, where it is none yet; or the place
/// of one that has none.
fn as_utf8<'t>(
    sources: &[Text<'t>],
    own: &'t mut Vec<u8>,
) -> Result<Vec<&'t str>, (usize, NoUtf8)> {
    if sources.len() > 1 {
        // Otherwise `append_utf8` judges better. What there is no memory for is told there.
        let n_bytes = sources.iter().map(Text::n_own_at_least).sum::<usize>();
        let _ = own.try_reserve_exact(n_bytes / 16 * 17);
        huge_pages::advise(own.as_ptr(), own.capacity());
    }
    let mut ends = Vec::with_capacity(sources.len());
    for (place, source) in sources.iter().enumerate() {
        source.append_utf8_to(own).map_err(|why| (place, why))?;
        ends.push(own.len());
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let texts = sources.iter().zip(starts.zip(&ends));
    let utf8_of = |(source, (start, &end)): (&Text<'t>, (usize, &usize))| match source {
        Text::Utf8(text) => *text,
        // SAFETY: this is what `append_utf8` appended of one text.
        _ => unsafe { std::str::from_utf8_unchecked(&own[start..end]) },
    };
    Ok(texts.map(utf8_of).collect())
}
