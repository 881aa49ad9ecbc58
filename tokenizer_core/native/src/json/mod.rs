//! JSON: what requests hold and what responses are made of.

pub mod ids;
pub mod text;
