//! Split patterns for Python: a name, or the tables of an automaton.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::python::gil::releasing_gil_if_long;
use crate::python::text::stopped_error;
use crate::split::automaton::{Automaton, Behavior, Rules, StepTables};
use crate::split::{Pattern, Scanner, finders};

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeAutomaton>()?;
    module.add_function(wrap_pyfunction!(split, module)?)
}

/// A split pattern as an automaton; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
pub struct NativeAutomaton {
    pattern: Arc<Pattern>,
}

#[pymethods]
impl NativeAutomaton {
    #[new]
    #[pyo3(signature = (firsts, numbers, steps, cuts, rules=None))]
    fn new(
        firsts: Vec<u32>,
        numbers: Vec<u8>,
        steps: Vec<(Vec<u32>, String, bool, bool)>,
        cuts: Vec<bool>,
        rules: Option<&str>,
    ) -> PyResult<NativeAutomaton> {
        let step = |(moves, behavior, invert, drops_unmatched): (_, String, _, _)| {
            let behavior = Behavior::from_name(&behavior)
                .ok_or_else(|| format!("no behavior {behavior:?}"))?;
            Ok(StepTables {
                moves,
                behavior,
                invert,
                drops_unmatched,
            })
        };
        let build = || {
            let steps = steps.into_iter().map(step).collect::<Result<_, String>>()?;
            let rules = match rules {
                Some(name) => {
                    Some(Rules::from_name(name).ok_or_else(|| format!("no rules {name:?}"))?)
                }
                None => None,
            };
            Automaton::build(&firsts, &numbers, steps, cuts, rules)
        };
        let automaton = build().map_err(PyValueError::new_err)?;
        let pattern = Arc::new(Pattern::Automaton(Box::new(automaton)));
        Ok(NativeAutomaton { pattern })
    }
}

/// The pattern that an argument names or is.
pub fn pattern_of(argument: &Bound<'_, PyAny>) -> PyResult<Arc<Pattern>> {
    if let Ok(automaton) = argument.cast::<NativeAutomaton>() {
        return Ok(automaton.get().pattern.clone());
    }
    let name: &str = argument
        .extract()
        .map_err(|_| PyTypeError::new_err("a split pattern is a name or a NativeAutomaton"))?;
    let scanner = Scanner::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("no compiled split pattern {name:?}")))?;
    Ok(Arc::new(Pattern::Named(scanner)))
}

/// The pre-tokens of a text.
#[pyfunction]
fn split<'t>(py: Python<'_>, text: &'t str, pattern: &Bound<'_, PyAny>) -> PyResult<Vec<&'t str>> {
    let pattern = pattern_of(pattern)?;
    let mut pieces = Vec::new();
    let start = text.as_ptr().addr();
    let visit = |piece: &[u8]| {
        let at = piece.as_ptr().addr() - start;
        pieces.push(&text[at..at + piece.len()]);
    };
    // A named pattern runs its scanner here, so that tests can compare its blocks with it.
    releasing_gil_if_long(py, text.len(), || {
        let scanner = pattern.scanner();
        match scanner {
            Scanner::Automaton(_) => finders::for_each(scanner, text, visit),
            _ => scanner.for_each(text, visit),
        }
    })
    .map_err(stopped_error)?;
    Ok(pieces)
}
