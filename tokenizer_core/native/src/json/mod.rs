//! JSON: what requests hold and what responses are made of. Knows `mem` alone, so that it
//! could be a crate.

pub mod ids;
pub mod text;
pub mod values;
