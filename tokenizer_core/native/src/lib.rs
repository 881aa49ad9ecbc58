//! The compiled engine of `tokenizer_core`: the module `tokenizer_core._native`.
//!
//! Only this file and `python/` know of Python; the algorithms build and are tested without it
//! (`cargo test --no-default-features`).

mod cache;
pub mod compiled;
pub mod decode;
pub mod encode;
pub mod formats;
pub mod json;
pub mod mem;
pub mod merge;
pub mod normalize;
mod simd;
pub mod split;
pub mod stop;
pub mod train;
pub mod unicode;

#[cfg(feature = "python")]
mod python;

#[cfg(feature = "python")]
#[pyo3::pymodule(name = "_native")]
mod module {
    use pyo3::prelude::*;

    /// The stub at the time of compiling. The engine compares it with the installed one, and
    /// refuses a module that was compiled for other Python code.
    #[pymodule_export]
    const STUB: &str = include_str!("../../_native.pyi");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::python::register(module)
    }
}
