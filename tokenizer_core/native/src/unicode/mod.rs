//! Classes of characters, read from the generated tables.
//!
//! A class is a byte with at most one bit set; no code point is in two classes (the generator
//! checks it), and 0 is none of them: punctuation, symbols, controls, unassigned.

mod tables;
pub mod utf8;
#[cfg(target_arch = "x86_64")]
mod utf8_avx2;
#[cfg(target_arch = "x86_64")]
mod utf8_avx512;
#[cfg(target_arch = "aarch64")]
mod utf8_neon;

use crate::unicode::tables::{BLOCKS, INDEX, SHIFT};

pub use crate::unicode::tables::{LL, LM, LO, LT, LU, M, N, S, UNICODE_TABLES};

/// `\p{L}`
pub const L: u8 = LU | LL | LT | LM | LO;

/// The class of any code point below 0x110000, surrogates included.
#[inline(always)]
pub fn class_of(code: u32) -> u8 {
    let block = INDEX[(code >> SHIFT) as usize] as usize;
    BLOCKS[(block << SHIFT) | (code & ((1 << SHIFT) - 1)) as usize]
}

/// The class and the length in bytes of the character that starts at `pos`; `(0, 0)` at the end.
///
/// `text` is UTF-8 and `pos` the start of a character. Anything else gives a wrong class or, on
/// broken UTF-8, a panic, never a read outside `text`.
#[inline(always)]
pub fn class_at(text: &[u8], pos: usize) -> (u8, usize) {
    match text.get(pos) {
        None => (0, 0),
        // The first block of the tables is ASCII.
        Some(&byte) if byte < 0x80 => (BLOCKS[byte as usize], 1),
        Some(_) => {
            let (code, length) = wide_at(text, pos);
            (class_of(code), length)
        }
    }
}

/// The code point and the length of the character outside ASCII that starts at `at`.
#[inline(always)]
pub fn wide_at(text: &[u8], at: usize) -> (u32, usize) {
    let follower = |i: usize| u32::from(text[at + i] & 0x3F);
    let first = u32::from(text[at]);
    match length_from(text[at]) {
        0..3 => ((first & 0x1F) << 6 | follower(1), 2),
        3 => ((first & 0x0F) << 12 | follower(1) << 6 | follower(2), 3),
        _ => {
            let code = (first & 0x07) << 18 | follower(1) << 12 | follower(2) << 6 | follower(3);
            (code, 4)
        }
    }
}

/// The length of the character that starts with this byte.
#[inline(always)]
pub fn length_from(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0.. => 4,
    }
}

/// Whether a byte continues a character.
#[inline(always)]
pub fn is_inner(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}
