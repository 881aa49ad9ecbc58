//! JSON from and to Python objects.

use std::time::{Duration, Instant};

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::json;
use crate::json::values::{Limits, Value, ints_of};
use crate::mem::growth::collected;
use crate::mem::huge_pages;
use crate::python::gil::releasing_gil_if_long;
use crate::python::text::memory_error;
use crate::python::unfilled::{
    empty_dict, empty_list, fill, float_of, new_bytes, signed_int_of, str_of,
};

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(json_of_ids, module)?)?;
    module.add_function(wrap_pyfunction!(read_json, module)?)
}

/// Ids as the text of a JSON array.
#[pyfunction]
fn json_of_ids<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u32>,
) -> PyResult<Bound<'py, PyAny>> {
    // A copy, because another thread may write to the array while the GIL is released.
    let ids = collected(ids.as_array().iter().copied()).map_err(memory_error)?;
    json_bytes(py, &ids)
}

/// The text of a JSON array of the ids.
pub fn json_bytes<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    json_between(py, b"", ids, b"")
}

/// The text of a JSON array of the ids, between others.
pub fn json_between<'py>(
    py: Python<'py>,
    before: &[u8],
    ids: &[u32],
    after: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let n_bytes = releasing_gil_if_long(py, 4 * ids.len(), || json::ids::n_bytes(ids));
    // SAFETY: all three write all of their memory, or panic, which drops the object unseen.
    let (bytes, out) = unsafe { new_bytes(py, before.len() + n_bytes + after.len())? };
    releasing_gil_if_long(py, n_bytes, || {
        huge_pages::advise(out.as_ptr(), out.len());
        let (first, rest) = out.split_at_mut(before.len());
        let (array, last) = rest.split_at_mut(n_bytes);
        fill(first, before);
        json::ids::write(ids, array);
        fill(last, after);
    });
    Ok(bytes)
}

/// The value of a document, in a tuple; None if it is left to Python; see `json::values`.
#[pyfunction]
fn read_json<'py>(
    py: Python<'py>,
    document: &[u8],
    most_values: usize,
    most_containers: usize,
) -> PyResult<Option<(Bound<'py, PyAny>,)>> {
    let limits = Limits {
        values: most_values,
        containers: most_containers,
    };
    let is_long = document.len() >= LONG_BYTES;
    let read = || json::values::read(document, limits);
    let value = if is_long { py.detach(read) } else { read() };
    let Some(value) = value.map_err(memory_error)? else {
        return Ok(None);
    };
    let mut objects = Objects {
        py,
        n_made: 0,
        turn: Instant::now(),
    };
    let object = objects.make(&value)?;
    if is_long {
        py.detach(|| drop(value));
    }
    Ok(Some((object,)))
}

/// Other threads may run after this time. A thread that has waited for the GIL for 5 ms is certain to
/// get it when it is released; one that is woken earlier waits anew, and may never get it.
const TURN: Duration = Duration::from_millis(6);
/// The clock is read after so many objects: some 0.1 ms. So many bytes of text count as an object, and a
/// list or a dictionary, which costs more, as several.
const MADE_AT_ONCE: usize = 1 << 12;
const BYTES_OF_OBJECT: usize = 32;
const OBJECTS_OF_CONTAINER: usize = 10;
/// Shorter documents are read in microseconds: another thread would take the GIL for longer.
const LONG_BYTES: usize = 1 << 15;

/// Makes Python objects.
struct Objects<'py> {
    py: Python<'py>,
    n_made: usize,
    /// When other threads could run.
    turn: Instant,
}

impl<'py> Objects<'py> {
    fn make(&mut self, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        self.note(match value {
            Value::Array(_) | Value::Ints(_) | Value::Object(_) => OBJECTS_OF_CONTAINER,
            _ => 1,
        });
        match value {
            Value::Null => Ok(py.None().into_bound(py)),
            Value::Bool(is_true) => Ok(PyBool::new(py, *is_true).to_owned().into_any()),
            Value::Int(int) => signed_int_of(py, *int),
            Value::Float(float) => float_of(py, *float),
            Value::Text(text) => self.make_text(text),
            // Appended, because other threads run meanwhile, and may see the list (`gc.get_objects`).
            Value::Ints(ints) => {
                let list = empty_list(py)?;
                for int in ints_of(ints) {
                    self.note(1);
                    list.append(signed_int_of(py, int)?)?;
                }
                Ok(list.into_any())
            }
            Value::Array(values) => {
                let list = empty_list(py)?;
                for value in values {
                    list.append(self.make(value)?)?;
                }
                Ok(list.into_any())
            }
            Value::Object(members) => {
                let object = empty_dict(py)?;
                for (key, value) in members {
                    object.set_item(self.make_text(key)?, self.make(value)?)?;
                }
                Ok(object.into_any())
            }
        }
    }

    fn make_text(&mut self, text: &str) -> PyResult<Bound<'py, PyAny>> {
        self.note(1 + text.len() / BYTES_OF_OBJECT);
        Ok(str_of(self.py, text)?.into_any())
    }

    /// Notes that so many objects are made; lets other threads run from time to time.
    fn note(&mut self, n: usize) {
        self.n_made += n;
        if self.n_made >= MADE_AT_ONCE {
            self.n_made = 0;
            if self.turn.elapsed() >= TURN {
                self.py.detach(|| ());
                self.turn = Instant::now();
            }
        }
    }
}
