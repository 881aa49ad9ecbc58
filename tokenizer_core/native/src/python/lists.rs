//! Lists of ids for Python, made of ints that exist already; and sequences as arguments.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PySequence};

use crate::mem::growth::with_room;
use crate::mem::prefetch::prefetch;
use crate::python::text::memory_error;
use crate::python::unfilled::{int_of, new_list};

/// Each int is prefetched this many ids ahead, and the pointer to it as many before that: with a
/// large vocabulary both are outside the cache.
const AHEAD: usize = 8;

/// Texts of up to this many characters are encoded to memory that stays with the thread: 20 kB for
/// English, 400 kB at most. Fresh memory costs as much as the encoding, because the system zeroes it.
pub const MAX_SHORT: usize = 1 << 14;

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

/// The Python int of each id: reusing one costs a third of making one. They are made, for all ids, once
/// calls have returned a quarter as many.
#[derive(Default)]
pub struct Ints {
    all: PyOnceLock<Vec<Py<PyAny>>>,
    n_listed: AtomicUsize,
}

impl Ints {
    /// A list of ids, most of them below `n_ids`.
    pub fn list_of<'py>(
        &self,
        py: Python<'py>,
        n_ids: usize,
        ids: &[u32],
    ) -> PyResult<Bound<'py, PyList>> {
        let Some(ints) = self.all.get(py) else {
            let n_listed = self.n_listed.fetch_add(ids.len(), Relaxed) + ids.len();
            if n_listed > n_ids / 4 {
                self.all.get_or_try_init(py, || all_ints(py, n_ids))?;
                return self.list_of(py, n_ids, ids);
            }
            return new_list(py, ids.iter().map(|&id| int_of(py, id as usize)));
        };
        let int = |id: &u32| ints.get(*id as usize);
        let ask_for_pointer = |id: &u32| prefetch(ints.as_ptr().wrapping_add(*id as usize));
        let ask_for = |id: &u32| {
            if let Some(int) = int(id) {
                prefetch(int.as_ptr());
            }
        };
        ids.iter().take(2 * AHEAD).for_each(ask_for_pointer);
        ids.iter().take(AHEAD).for_each(ask_for);
        let taken = ids.iter().enumerate().map(|(position, id)| {
            ids.get(position + 2 * AHEAD).map(ask_for_pointer);
            ids.get(position + AHEAD).map(ask_for);
            int(id).map_or_else(|| int_of(py, *id as usize), |int| Ok(int.bind(py).clone()))
        });
        new_list(py, taken)
    }
}

fn all_ints(py: Python<'_>, n_ids: usize) -> PyResult<Vec<Py<PyAny>>> {
    let mut ints = with_room(n_ids).map_err(memory_error)?;
    for id in 0..n_ids {
        ints.push(int_of(py, id)?.unbind());
    }
    Ok(ints)
}

/// The items of a sequence. PyO3's vectors end the process where there is no memory for them.
pub struct Items<T>(pub Vec<T>);

impl<'a, 'py, T> FromPyObject<'a, 'py> for Items<T>
where
    T: for<'b> FromPyObject<'b, 'py, Error: Into<PyErr>>,
{
    type Error = PyErr;

    fn extract(sequence: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let sequence = sequence.cast::<PySequence>()?;
        let mut items = with_room(sequence.len()?).map_err(memory_error)?;
        for item in sequence.try_iter()? {
            // Code that runs meanwhile may make the sequence longer.
            items.try_reserve(1).map_err(memory_error)?;
            items.push(item?.extract().map_err(Into::into)?);
        }
        Ok(Items(items))
    }
}
