//! The compiled engine of `tokenizer_core`: the module `tokenizer_core._native`.
//!
//! Only this file and those named `python*.rs` know of Python; the algorithms build and are tested without it
//! (`cargo test --no-default-features`).

mod ascii_words;
mod atoms;
mod batches;
mod block_classes;
mod block_scan;
mod cased_words;
pub mod changes;
pub mod code_units;
mod contractions;
pub mod count;
mod cuts;
pub mod decode;
pub mod documents;
pub mod encoder;
mod groups;
mod huge_pages;
pub mod json_ids;
pub mod json_text;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod kernel_avx2;
#[cfg(target_arch = "x86_64")]
mod kernel_avx512;
mod keyed_hash;
#[cfg(target_arch = "x86_64")]
mod known_characters;
pub mod learn;
mod long_cache;
mod long_merge;
pub mod merge;
pub mod nfc;
mod nfc_ranges;
mod packed_ids;
mod pair_table;
mod parts;
mod piece_cache;
mod pieces;
mod places;
mod prefetch;
pub mod rooms;
mod runs;
mod safe_cuts;
pub mod scan;
mod short_merge;
mod sink;
mod tasks;
pub mod unicode;
mod unicode_tables;
pub mod vocabulary;
pub mod windows;
mod write_once;
mod zeroed_table;

#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_arrays;
#[cfg(feature = "python")]
mod python_decode;
#[cfg(feature = "python")]
mod python_documents;
#[cfg(feature = "python")]
mod python_lists;
#[cfg(feature = "python")]
mod python_text;
#[cfg(feature = "python")]
mod python_training;

#[cfg(feature = "python")]
#[pyo3::pymodule(name = "_native")]
mod module {
    use pyo3::prelude::*;

    /// The stub as it was when this was compiled. The engine compares it with the one beside it,
    /// so that a module left over from other Python code is told before it is called.
    #[pymodule_export]
    const STUB: &str = include_str!("../../_native.pyi");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::python::register(module)?;
        crate::python_training::register(module)
    }
}
