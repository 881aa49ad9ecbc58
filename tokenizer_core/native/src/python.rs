//! What Python sees of the encoder: conversions, the GIL, exceptions, and no algorithm.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::scan::Scanner;
use crate::unicode::{UNICODE_TABLES, class_of};

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("UNICODE_TABLES", UNICODE_TABLES)?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(unicode_classes, module)?)?;
    Ok(())
}

fn scanner_of(pattern: &str) -> PyResult<Scanner> {
    Scanner::from_name(pattern)
        .ok_or_else(|| PyValueError::new_err(format!("no compiled split pattern {pattern:?}")))
}

/// The pre-tokens of a text by a named pattern.
#[pyfunction]
fn split<'t>(text: &'t str, pattern: &str) -> PyResult<Vec<&'t str>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    scanner_of(pattern)?.for_each(text, |piece| {
        pieces.push(&text[start..start + piece.len()]);
        start += piece.len();
    });
    Ok(pieces)
}

/// The class byte of every code point, for the test that compares them with `regex`.
#[pyfunction]
fn unicode_classes(py: Python<'_>) -> Bound<'_, PyBytes> {
    let classes: Vec<u8> = (0..0x11_0000).map(class_of).collect();
    PyBytes::new(py, &classes)
}
