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

#[cfg(test)]
mod random {
    /// A function of `end` that returns numbers below it, the same ones for the same seed.
    pub fn below(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |end| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % end
        }
    }
}

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
