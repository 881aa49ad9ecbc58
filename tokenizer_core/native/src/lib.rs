//! The compiled engine of `tokenizer_core`. Only this file and `python/` know of Python; the
//! algorithms build and are tested without it (`cargo test --no-default-features`).

pub mod scan;
pub mod unicode;
mod unicode_tables;
