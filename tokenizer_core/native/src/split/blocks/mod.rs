//! Pre-tokens found 64 bytes at a time.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod classes;
pub mod ends;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod known_characters;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod ruled;
pub mod starts;
