//! Pre-tokens found 64 bytes at a time.

pub mod classes;
#[cfg(target_arch = "x86_64")]
pub mod known_characters;
pub mod starts;
