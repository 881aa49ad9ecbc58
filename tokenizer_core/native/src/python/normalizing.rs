//! Normalizing for Python: the steps of a normalizer, and where NFC may change a text.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::string::PyStringData;
use pyo3::types::{PyString, PyTuple};

use crate::normalize::nfc;
use crate::normalize::{CharacterMap, Form, FormTables, Normalizer, Step};
use crate::python::gil::releasing_gil_if_long;
use crate::python::splitting::{NativeAutomaton, pattern_of};
use crate::python::text::{error_of, stopped_error};
use crate::python::unfilled::str_of;
use crate::unicode::utf8::{CodePoint, NoUtf8};

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeNormalizer>()?;
    module.add_function(wrap_pyfunction!(nfc_runs, module)?)
}

/// Runs the steps of a normalizer; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
struct NativeNormalizer {
    normalizer: Normalizer,
}

#[pymethods]
impl NativeNormalizer {
    #[new]
    fn new(steps: Vec<Bound<'_, PyTuple>>) -> PyResult<NativeNormalizer> {
        let steps = steps.iter().map(step_of).collect::<PyResult<_>>()?;
        Ok(NativeNormalizer {
            normalizer: Normalizer { steps },
        })
    }

    #[pyo3(signature = (text, *, begins_part=true))]
    fn normalize<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'py, PyString>,
        begins_part: bool,
    ) -> PyResult<Bound<'py, PyString>> {
        let source = text.to_str()?;
        let normalize = || self.normalizer.normalize(source, begins_part);
        match releasing_gil_if_long(py, source.len(), normalize).map_err(stopped_error)? {
            Cow::Borrowed(_) => Ok(text.clone()),
            Cow::Owned(normalized) => str_of(py, &normalized),
        }
    }
}

/// First positions and ends of the runs of characters that NFC may change; None if there are more than
/// `max_runs`.
#[pyfunction]
fn nfc_runs(text: &Bound<'_, PyString>, max_runs: usize) -> PyResult<Option<Vec<(usize, usize)>>> {
    let py = text.py();
    // SAFETY: as in `Text::of`.
    let runs = match unsafe { text.data() }? {
        PyStringData::Ucs1(_) => Ok(Some(Vec::new())),
        PyStringData::Ucs2(points) => runs_in(py, points, max_runs),
        PyStringData::Ucs4(points) => runs_in(py, points, max_runs),
    };
    runs.map_err(|why| error_of(text, why))
}

fn runs_in<U: CodePoint>(
    py: Python<'_>,
    points: &[U],
    max_runs: usize,
) -> Result<Option<Vec<(usize, usize)>>, NoUtf8> {
    releasing_gil_if_long(py, size_of_val(points), || nfc::nfc_runs(points, max_runs))
}

fn step_of(step: &Bound<'_, PyTuple>) -> PyResult<Step> {
    let kind: String = step.get_item(0)?.extract()?;
    let fields = step.as_any();
    match &*kind {
        "form" => {
            let mut tables = FormTables::default();
            (
                _,
                tables.decompositions,
                tables.classes,
                tables.compositions,
            ) = fields.extract::<(String, _, _, _)>()?;
            Ok(Step::Form(Form::new(tables)))
        }
        "map" => {
            let (_, replacements): (String, Vec<(char, String)>) = fields.extract()?;
            let map = CharacterMap::new(replacements).map_err(PyValueError::new_err)?;
            Ok(Step::Map(map))
        }
        "strip" => {
            let (_, left, right): (String, bool, bool) = fields.extract()?;
            Ok(Step::Strip { left, right })
        }
        "prepend" => {
            let (_, content): (String, String) = fields.extract()?;
            Ok(Step::Prepend(content))
        }
        "replace" => {
            let (_, pattern, content): (String, Bound<'_, PyAny>, String) = fields.extract()?;
            if pattern.is_instance_of::<NativeAutomaton>() {
                return Ok(Step::ReplaceMatches(pattern_of(&pattern)?, content));
            }
            let pattern: String = pattern.extract()?;
            if pattern.is_empty() {
                return Err(PyValueError::new_err("an empty text is everywhere"));
            }
            Ok(Step::Replace(pattern, content))
        }
        _ => Err(PyValueError::new_err(format!("no step {kind:?}"))),
    }
}
