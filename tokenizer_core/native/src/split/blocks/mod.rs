//! Pre-tokens found 64 bytes at a time.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod classes;
#[cfg(target_arch = "x86_64")]
mod known_characters;
pub mod ruled;
pub mod starts;
