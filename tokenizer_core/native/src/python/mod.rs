//! The Python module: conversions, the GIL, exceptions, and no algorithm.

mod arrays;
mod compiled;
mod decode_streams;
mod decoding;
mod documents;
mod encoder;
mod files;
mod gil;
mod json;
mod lists;
mod normalizing;
mod splitting;
mod stop;
mod text;
mod training;
mod unfilled;

use pyo3::prelude::*;

/// Adds everything to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    compiled::register(module)?;
    encoder::register(module)?;
    decode_streams::register(module)?;
    documents::register(module)?;
    files::register(module)?;
    json::register(module)?;
    normalizing::register(module)?;
    splitting::register(module)?;
    stop::register(module)?;
    training::register(module)
}
