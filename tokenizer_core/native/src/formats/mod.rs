//! Files of tokenizers, without an object of Python for each of their values.
//!
//! Only files without fault are read here. For any other there is no result, and the readers in
//! Python, which read every file, say what is wrong.

pub mod model;
pub mod ranks;
mod reader;
mod tokens;
