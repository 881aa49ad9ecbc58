//! Classes of a block with AVX-512.

use std::arch::x86_64::*;

use crate::simd::Avx512;
use crate::split::blocks::classes::{
    APOSTROPHE, ASCII, BLANK, BLOCK, Blocks, Classes, High, LETTER, NEWLINE, NUMBER, SLASH, SPACE,
    UPPER, from_words,
};
use crate::split::blocks::known_characters::{Bytes, MANY_HIGH, known_characters};

impl Blocks for Avx512 {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High) {
        let block = &text[at..];
        let valid = block.len().min(BLOCK);
        // SAFETY: the processor has the instructions, because `self` exists. The masked load
        // reads the first `valid` bytes of `block` and no other; the table is 128 bytes.
        unsafe {
            let present = _bzhi_u64(u64::MAX, valid as u32);
            let bytes = _mm512_maskz_loadu_epi8(present, block.as_ptr().cast());
            let high = _mm512_movepi8_mask(bytes);
            let table = ASCII.as_ptr().cast::<__m512i>();
            let (first, second) = (_mm512_loadu_si512(table), _mm512_loadu_si512(table.add(1)));
            let class = _mm512_maskz_permutex2var_epi8(!high, first, bytes, second);
            let words = [
                with_bit(class, LETTER),
                with_bit(class, NUMBER),
                with_bit(class, SPACE),
                with_bit(class, NEWLINE),
                with_bit(class, BLANK),
                with_bit(class, APOSTROPHE),
                with_bit(class, UPPER),
                with_bit(class, SLASH),
            ];
            let known = if high.count_ones() < MANY_HIGH {
                High::unknown(high)
            } else {
                known_characters(Whole(bytes), high)
            };
            (from_words(words, valid), known)
        }
    }

    #[inline(always)]
    fn write_positions(self, bits: u64, base: u32, positions: &mut [u32; BLOCK]) {
        const IOTA: [u8; BLOCK] = {
            let mut iota = [0; BLOCK];
            let mut i = 0;
            while i < BLOCK {
                iota[i] = i as u8;
                i += 1;
            }
            iota
        };
        // SAFETY: the processor has the instructions, because `self` exists. Each of the four
        // stores is of 16 of the 64 positions.
        unsafe {
            let packed = _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(IOTA.as_ptr().cast()));
            let base = _mm512_set1_epi32(base as i32);
            let out = positions.as_mut_ptr().cast::<__m512i>();
            _mm512_storeu_si512(out, widened(_mm512_castsi512_si128(packed), base));
            let n = bits.count_ones();
            if n > 16 {
                let second = _mm512_extracti32x4_epi32::<1>(packed);
                _mm512_storeu_si512(out.add(1), widened(second, base));
                if n > 32 {
                    let (third, fourth) = (
                        _mm512_extracti32x4_epi32::<2>(packed),
                        _mm512_extracti32x4_epi32::<3>(packed),
                    );
                    _mm512_storeu_si512(out.add(2), widened(third, base));
                    _mm512_storeu_si512(out.add(3), widened(fourth, base));
                }
            }
        }
    }
}

/// The bytes of a class that have this bit.
///
/// # Safety
/// The processor has AVX-512 BW.
#[inline(always)]
unsafe fn with_bit(class: __m512i, bit: u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_test_epi8_mask(class, _mm512_set1_epi8(bit as i8)) }
}

/// The bytes of a block; one of these says that the processor has AVX-512 BW.
#[derive(Clone, Copy)]
struct Whole(__m512i);

impl Bytes for Whole {
    #[inline(always)]
    fn at_least(self, first: u8) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe { _mm512_cmpge_epu8_mask(self.0, _mm512_set1_epi8(first as i8)) }
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe { _mm512_cmpeq_epi8_mask(self.0, _mm512_set1_epi8(byte as i8)) }
    }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn widened(sixteen: __m128i, base: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_add_epi32(base, _mm512_cvtepu8_epi32(sixteen)) }
}
