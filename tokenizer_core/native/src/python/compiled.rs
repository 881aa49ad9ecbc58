//! Compiled tokenizers for Python.

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyDict;

use crate::compiled::{self, Compiled, Failure};
use crate::mem::table::Table;
use crate::python::encoder::{NativeEncoder, pairs_of};
use crate::python::training::{RawFile, reopen};
use crate::python::unfilled::bytes_of;

create_exception!(
    tokenizer_core._native,
    UnusableFileError,
    PyValueError,
    "A compiled file of other code, of another source, or with damage."
);

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CompiledTokenizer>()?;
    module.add(
        "UnusableFileError",
        module.py().get_type::<UnusableFileError>(),
    )?;
    module.add_function(wrap_pyfunction!(compile_tokenizer, module)?)
}

/// An opened compiled file; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
struct CompiledTokenizer {
    #[pyo3(get)]
    encoder: Py<NativeEncoder>,
    #[pyo3(get)]
    is_shared: bool,
    extras: Vec<(Table<u8>, Table<u8>)>,
}

#[pymethods]
impl CompiledTokenizer {
    #[new]
    fn new(py: Python<'_>, descriptor: RawFile, key: [u8; 32]) -> PyResult<CompiledTokenizer> {
        if descriptor < 0 {
            return Err(PyValueError::new_err("no such descriptor"));
        }
        let file = reopen(descriptor)?;
        let opened = py.detach(|| Compiled::open(&file, key));
        let compiled = opened.map_err(|failure| match failure {
            Failure::Unusable(why) => UnusableFileError::new_err(why.0),
            Failure::Unread(error) => error.into(),
        })?;
        Ok(CompiledTokenizer {
            encoder: Py::new(py, NativeEncoder::of(compiled.encoder, compiled.pattern))?,
            is_shared: compiled.is_shared,
            extras: compiled.extras,
        })
    }

    fn extra<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = (self.extras.iter()).find(|(known, _)| **known == *name.as_bytes());
        let (_, content) = found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        bytes_of(py, content)
    }
}

/// The content of a compiled file.
#[pyfunction]
fn compile_tokenizer<'py>(
    py: Python<'py>,
    encoder: &NativeEncoder,
    key: [u8; 32],
    extras: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let extras: Vec<(PyBackedStr, PyBackedBytes)> = pairs_of(extras)?;
    let extras: Vec<(&[u8], &[u8])> = extras
        .iter()
        .map(|(name, content)| (name.as_bytes(), &content[..]))
        .collect();
    let (encoder, pattern) = encoder.parts();
    bytes_of(
        py,
        &py.detach(|| compiled::compile(encoder, pattern, key, &extras)),
    )
}
