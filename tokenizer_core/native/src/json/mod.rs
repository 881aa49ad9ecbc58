//! JSON: what requests hold and what responses are made of. Knows `simd` and `mem` alone, so that it
//! could be a crate.

pub mod ids;
#[cfg(target_arch = "x86_64")]
mod ids_avx512;
pub mod text;
pub mod values;
