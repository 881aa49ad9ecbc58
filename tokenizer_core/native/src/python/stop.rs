//! Cancelling calls, for Python.

use pyo3::import_exception;
use pyo3::prelude::*;

use crate::stop;

import_exception!(tokenizer_core.errors, CancelledError);
import_exception!(tokenizer_core.errors, SplitTooSlowError);

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StopFlag>()?;
    module.add_function(wrap_pyfunction!(look_at, module)?)
}

/// Ends calls of other threads; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
#[derive(Clone)]
struct StopFlag(stop::StopFlag);

#[pymethods]
impl StopFlag {
    #[new]
    fn new() -> StopFlag {
        StopFlag(stop::StopFlag::default())
    }

    fn set(&self) {
        self.0.set();
    }

    fn is_set(&self) -> bool {
        self.0.is_set()
    }
}

/// Calls on this thread look at `flag` from now on, or at none.
#[pyfunction]
#[pyo3(signature = (flag))]
fn look_at(flag: Option<&StopFlag>) -> Option<StopFlag> {
    stop::replace(flag.map(|flag| flag.0.clone())).map(StopFlag)
}
