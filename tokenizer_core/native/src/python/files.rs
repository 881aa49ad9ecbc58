//! Files of tokenizers for Python.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::formats::model::Model;
use crate::formats::ranks;
use crate::mem::growth::with_room;
use crate::merge;
use crate::python::text::memory_error;
use crate::python::unfilled::{bytes_of, int_of, new_list, pair_of, str_of};

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeModel>()?;
    module.add_function(wrap_pyfunction!(left_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(read_model, module)?)?;
    module.add_function(wrap_pyfunction!(read_ranks, module)?)?;
    module.add_function(wrap_pyfunction!(read_tekken, module)?)
}

/// Entries and merges of a `tokenizer.json`; see `_native.pyi`.
#[pyclass(frozen, mapping, module = "tokenizer_core._native")]
struct NativeModel {
    model: Model,
}

/// The vocabulary, the merges, and the ids of both sides and the product of each merge.
type Parts<'py> = (Bound<'py, PyDict>, Bound<'py, PyList>, Bound<'py, PyBytes>);

#[pymethods]
impl NativeModel {
    fn __len__(&self) -> usize {
        self.model.n_entries()
    }

    fn __contains__(&self, text: &str) -> bool {
        self.model.id_of(text).is_some()
    }

    fn __getitem__(&self, text: PyBackedStr) -> PyResult<u32> {
        let id = self.model.id_of(&text);
        id.ok_or_else(|| PyKeyError::new_err(text.to_string()))
    }

    /// text -> id, in the order of the file
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let entries = PyDict::new(py);
        for (text, id) in self.model.entries() {
            entries.set_item(str_of(py, text)?, id)?;
        }
        Ok(entries)
    }

    /// The left and right sides of all merges, in turn.
    fn sides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let merges = self.model.merges();
        let mut sides = with_room(2 * merges.len()).map_err(memory_error)?;
        for &[left, right, _] in merges {
            sides.extend([left, right]);
        }
        let text_of = |&entry: &u32| Ok(str_of(py, self.model.text(entry))?.into_any());
        new_list(py, sides.iter().map(text_of))
    }

    #[pyo3(signature = (plain, *, by_characters=false))]
    fn build<'py>(
        &self,
        py: Python<'py>,
        plain: Vec<PyBackedStr>,
        by_characters: bool,
    ) -> PyResult<Option<Parts<'py>>> {
        let plain: Vec<&str> = plain.iter().map(|text| &**text).collect();
        let tokens = match by_characters {
            true => self.model.tokens_of_characters(&plain),
            false => self.model.tokens(&plain),
        };
        let Some(tokens) = tokens.map_err(memory_error)? else {
            return Ok(None);
        };
        let vocab = PyDict::new(py);
        let mut objects = with_room(self.model.n_entries()).map_err(memory_error)?;
        for (&id, token) in self.model.ids().iter().zip(tokens.iter()) {
            let token = bytes_of(py, token)?;
            vocab.set_item(int_of(py, id as usize)?, &token)?;
            objects.push(token);
        }
        let merges = self.model.merges();
        let mut ids = with_room(12 * merges.len()).map_err(memory_error)?;
        for entry in merges.iter().flatten() {
            ids.extend(self.model.ids()[*entry as usize].to_ne_bytes());
        }
        let object_of = |entry: u32| objects[entry as usize].clone();
        let pairs = merges
            .iter()
            .map(|&[left, right, _]| pair_of([object_of(left), object_of(right)]));
        Ok(Some((vocab, new_list(py, pairs)?, PyBytes::new(py, &ids))))
    }
}

/// (the document without the entries and merges of its model, these)
#[pyfunction]
fn read_model(
    py: Python<'_>,
    document: &Bound<'_, PyBytes>,
) -> PyResult<Option<(Py<PyBytes>, NativeModel)>> {
    let document = document.as_bytes();
    let read = py.detach(|| Model::read(document)).map_err(memory_error)?;
    Ok(read.map(|(rest, model)| (PyBytes::new(py, &rest).unbind(), NativeModel { model })))
}

/// token -> rank
#[pyfunction]
fn read_ranks<'py>(
    py: Python<'py>,
    document: &Bound<'py, PyBytes>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let document = document.as_bytes();
    let read = py
        .detach(|| ranks::read_ranks(document))
        .map_err(memory_error)?;
    let Some((tokens, ranks)) = read else {
        return Ok(None);
    };
    let found = PyDict::new(py);
    for (token, &rank) in tokens.iter().zip(&ranks) {
        found.set_item(bytes_of(py, token)?, int_of(py, rank as usize)?)?;
    }
    Ok((found.len() == ranks.len()).then_some(found))
}

/// (the document without the entries of its vocabulary, their tokens)
#[pyfunction]
fn read_tekken<'py>(
    py: Python<'py>,
    document: &Bound<'py, PyBytes>,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyList>)>> {
    let document = document.as_bytes();
    let read = py
        .detach(|| ranks::read_tekken(document))
        .map_err(memory_error)?;
    let Some((rest, tokens)) = read else {
        return Ok(None);
    };
    let mut objects = with_room(tokens.count()).map_err(memory_error)?;
    for token in tokens.iter() {
        objects.push(bytes_of(py, token)?);
    }
    let list = new_list(py, objects.into_iter().map(Ok))?;
    Ok(Some((PyBytes::new(py, &rest), list)))
}

/// The bytes of each token that its last merge has on the left.
#[pyfunction]
fn left_sizes(py: Python<'_>, tokens: Vec<PyBackedBytes>) -> Option<Vec<u32>> {
    let tokens: Vec<&[u8]> = tokens.iter().map(|token| &**token).collect();
    py.detach(|| merge::left_sizes(&tokens))
}
