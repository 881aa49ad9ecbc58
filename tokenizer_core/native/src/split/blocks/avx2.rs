//! Classes of a block with AVX2.
//!
//! No closure holds a vector instruction: see `simd`.

use std::arch::x86_64::*;

use crate::simd::{Avx2, Portable};
use crate::split::blocks::classes::{BLOCK, Blocks, Classes, High, from_words};
use crate::split::blocks::known_characters::{Bytes, MANY_HIGH, known_characters};

impl Blocks for Avx2 {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High) {
        let block = &text[at..];
        let valid = block.len().min(BLOCK);
        let mut padded = [0; BLOCK];
        let whole = match block.first_chunk::<BLOCK>() {
            Some(whole) => whole,
            None => {
                padded[..valid].copy_from_slice(block);
                &padded
            }
        };
        // SAFETY: the processor has the instructions, because `self` exists. Both loads are of
        // 32 of the 64 bytes.
        unsafe {
            let halves = [
                _mm256_loadu_si256(whole.as_ptr().cast()),
                _mm256_loadu_si256(whole[32..].as_ptr().cast()),
            ];
            let upper = within(halves, b'A', b'Z');
            let blank = within(halves, b' ', b' ');
            let newline = within(halves, b'\n', b'\n') | within(halves, b'\r', b'\r');
            let control = within(halves, 0, 0x1F) & !within(halves, b'\t', b'\r')
                | within(halves, 0x7F, 0x7F);
            let words = [
                upper | within(halves, b'a', b'z'),
                within(halves, b'0', b'9'),
                blank | within(halves, b'\t', b'\r'),
                newline | control,
                blank,
                within(halves, b'\'', b'\''),
                upper,
                within(halves, b'/', b'/'),
            ];
            let all = high_bits(halves[0], halves[1]);
            let known = if all.count_ones() < MANY_HIGH {
                High::unknown(all)
            } else {
                known_characters(Halves(halves), all)
            };
            (from_words(words, valid), known)
        }
    }

    #[inline(always)]
    fn write_positions(self, bits: u64, base: u32, positions: &mut [u32; BLOCK]) {
        Portable.write_positions(bits, base, positions);
    }
}

/// The bytes of a block; one of these says that the processor has AVX2.
#[derive(Clone, Copy)]
struct Halves([__m256i; 2]);

impl Bytes for Halves {
    #[inline(always)]
    fn at_least(self, first: u8) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe {
            let first = _mm256_set1_epi8(first as i8);
            high_bits(
                _mm256_cmpeq_epi8(_mm256_max_epu8(self.0[0], first), self.0[0]),
                _mm256_cmpeq_epi8(_mm256_max_epu8(self.0[1], first), self.0[1]),
            )
        }
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe {
            let byte = _mm256_set1_epi8(byte as i8);
            high_bits(
                _mm256_cmpeq_epi8(self.0[0], byte),
                _mm256_cmpeq_epi8(self.0[1], byte),
            )
        }
    }
}

/// The highest bit of each byte.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn high_bits(low: __m256i, high: __m256i) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_movemask_epi8(low) as u32;
        u64::from(low) | u64::from(_mm256_movemask_epi8(high) as u32) << 32
    }
}

/// The bytes from `first` to `last`, both of ASCII.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn within(halves: [__m256i; 2], first: u8, last: u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        high_bits(
            between(halves[0], first, last),
            between(halves[1], first, last),
        )
    }
}

/// All bits of the bytes from `first` to `last`, both of ASCII: bytes above 0x7F are negative.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn between(bytes: __m256i, first: u8, last: u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        if first == last {
            return _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(first as i8));
        }
        let from_first = _mm256_cmpgt_epi8(bytes, _mm256_set1_epi8(first as i8 - 1));
        let to_last = _mm256_cmpgt_epi8(_mm256_set1_epi8(last as i8 + 1), bytes);
        _mm256_and_si256(from_first, to_last)
    }
}
