//! Lists of ids for Python, made of ints that exist already.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyList};

use crate::mem::prefetch::prefetch;

/// Each int is prefetched this many ids ahead, and the pointer to it as many before that: with a
/// large vocabulary both are outside the cache.
const AHEAD: usize = 8;

/// Texts of up to this many characters are encoded to memory that stays with the thread, some 100
/// kB.
pub const MAX_SHORT: usize = 1 << 12;

thread_local! {
    static SHORT_IDS: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// Calls `take` with the ids of a short text, which `encode` appends to memory of this thread.
pub fn with_short_ids<T>(
    encode: impl FnOnce(Vec<u32>) -> PyResult<Vec<u32>>,
    take: impl FnOnce(&[u32]) -> PyResult<T>,
) -> PyResult<T> {
    // Taken out, because Python code, which may make another call, can run meanwhile.
    let mut ids = encode(SHORT_IDS.take())?;
    let taken = take(&ids);
    ids.clear();
    SHORT_IDS.set(ids);
    taken
}

/// The Python int of each id, made at the first call that returns a list: reusing one costs a third
/// of making one.
#[derive(Default)]
pub struct Ints(PyOnceLock<Vec<Py<PyInt>>>);

impl Ints {
    /// A list of ids, which are below `n_ids`.
    pub fn list_of<'py>(
        &self,
        py: Python<'py>,
        n_ids: usize,
        ids: &[u32],
    ) -> PyResult<Bound<'py, PyList>> {
        let ints = self.0.get_or_try_init(py, || {
            (0..n_ids as u32)
                .map(|id| Ok(id.into_pyobject(py)?.unbind()))
                .collect::<PyResult<_>>()
        })?;
        let ask_for_pointer = |id: &u32| prefetch(&raw const ints[*id as usize]);
        let ask_for = |id: &u32| prefetch(ints[*id as usize].as_ptr());
        ids.iter().take(2 * AHEAD).for_each(ask_for_pointer);
        ids.iter().take(AHEAD).for_each(ask_for);
        let taken = ids.iter().enumerate().map(|(position, &id)| {
            ids.get(position + 2 * AHEAD).map(ask_for_pointer);
            ids.get(position + AHEAD).map(ask_for);
            ints[id as usize].bind(py)
        });
        PyList::new(py, taken)
    }
}
