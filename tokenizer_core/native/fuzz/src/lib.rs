//! What the fuzz targets share: texts made of traps, slow definitions to compare with, and
//! tokenizers that are built both ways.
//!
//! The definitions share no code with the engine: splitting is the published expressions run by
//! the library tiktoken runs them with, merging looks for the lowest pair again before each step.

pub mod definitions;
pub mod inputs;
pub mod tokenizers;
