//! Releasing the GIL.

use pyo3::prelude::*;

/// Shorter work holds the GIL: releasing it and taking it back costs as much as encoding some hundred
/// bytes, and may cost a wait.
const RELEASE_GIL_FROM_BYTES: usize = 2048;

/// Runs `work`, without the GIL if it processes many bytes.
pub fn releasing_gil_if_long<T: Send>(
    py: Python<'_>,
    n_bytes: usize,
    work: impl FnOnce() -> T + Send,
) -> T {
    if n_bytes < RELEASE_GIL_FROM_BYTES {
        work()
    } else {
        py.detach(work)
    }
}
