//! The kernel of x86-64 processors with AVX-512.
//!
//! No closure holds a vector instruction: a closure is compiled without the instructions of the
//! function around it, and where it happens not to be inlined each of them becomes a call.

use std::arch::x86_64::*;

use crate::cache::table::{Line, Slot};
use crate::mem::keyed_hash::HashKeys;
use crate::simd::avx2::Avx2;
use crate::simd::{Kernel, OnKernel};
use crate::split::blocks::classes::{
    APOSTROPHE, ASCII, BLANK, BLOCK, Classes, High, LETTER, NEWLINE, NUMBER, SLASH, SPACE, UPPER,
    from_words,
};
use crate::split::blocks::known_characters::{Bytes, MANY_HIGH, known_characters};
use crate::unicode::utf8::{CodeUnit, Out, UNITS};

/// AVX-512 with VBMI2: processors from about 2019 (Intel) and 2022 (AMD) on.
#[derive(Clone, Copy)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// None where the processor cannot; a value of this type says that it can.
    pub fn detect() -> Option<Avx512> {
        let avx2 = Avx2::detect()?;
        let is_there = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2");
        is_there.then_some(Avx512(avx2))
    }
}

impl Kernel for Avx512 {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High) {
        let block = &text[at..];
        let valid = block.len().min(BLOCK);
        // SAFETY: the processor has the instructions, or there were no `self`. The masked load
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
    fn write_places(self, bits: u64, base: u32, places: &mut [u32; BLOCK]) {
        const IOTA: [u8; BLOCK] = {
            let mut iota = [0; BLOCK];
            let mut i = 0;
            while i < BLOCK {
                iota[i] = i as u8;
                i += 1;
            }
            iota
        };
        // SAFETY: the processor has the instructions, or there were no `self`. Each of the four
        // stores is of 16 of the 64 places.
        unsafe {
            let packed = _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(IOTA.as_ptr().cast()));
            let base = _mm512_set1_epi32(base as i32);
            let out = places.as_mut_ptr().cast::<__m512i>();
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

    #[inline(always)]
    fn key_in(self, block: &[u8; 16], length: usize) -> u128 {
        self.0.key_in(block, length)
    }

    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        self.0.hash(keys, key)
    }

    #[inline(always)]
    fn find(self, line: &Line, key: &u128) -> Option<Slot> {
        self.0.find(line, key)
    }

    #[inline(always)]
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8] {
        self.0.ids_in(line, slot)
    }

    #[inline(always)]
    fn write_utf8<U: CodeUnit>(self, units: &[U; UNITS], out: &mut Out) -> (usize, bool) {
        let units = units.as_ptr();
        // SAFETY: the processor has the instructions, or there were no `self`. Each load is of 16 units of
        // so many bytes; `out` is of 64 bytes.
        unsafe {
            let codes = match size_of::<U>() {
                1 => _mm512_cvtepu8_epi32(_mm_loadu_si128(units.cast())),
                2 => _mm512_cvtepu16_epi32(_mm256_loadu_si256(units.cast())),
                _ => _mm512_loadu_si512(units.cast()),
            };
            let from_80 = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(0x80));
            if from_80 == 0 {
                _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(codes));
                return (UNITS, false);
            }
            let from_800 = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(0x800));
            let from_10000 = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(0x1_0000));
            // Four bytes of each, as if all were so long: six bits in each, the highest first.
            let shifts = _mm512_set1_epi64(0x2026_2C32_0006_0C12);
            let six = _mm512_multishift_epi64_epi8(shifts, codes);
            let (low, behind) = (_mm512_set1_epi8(0x3F), _mm512_set1_epi8(0x80_u8 as i8));
            let bytes = _mm512_or_si512(_mm512_and_si512(six, low), behind);
            // Shorter ones begin further back. The first byte says how many follow.
            let lead = _mm512_maskz_set1_epi32(from_80, 0x00C0_0000);
            let lead = _mm512_mask_set1_epi32(lead, from_800, 0x0000_E000);
            let lead = _mm512_mask_set1_epi32(lead, from_10000, 0x0000_00F0);
            let bytes = _mm512_or_si512(bytes, lead);
            let bytes = _mm512_mask_slli_epi32::<24>(bytes, !from_80, codes);
            let used = _mm512_set1_epi32(0xFF00_0000_u32 as i32);
            let used = _mm512_mask_set1_epi32(used, from_80, 0xFFFF_0000_u32 as i32);
            let used = _mm512_mask_set1_epi32(used, from_800, 0xFFFF_FF00_u32 as i32);
            let used = _mm512_mask_set1_epi32(used, from_10000, -1);
            let used = _mm512_movepi8_mask(used);
            _mm512_storeu_si512(
                out.as_mut_ptr().cast(),
                _mm512_maskz_compress_epi8(used, bytes),
            );
            let high_bits = _mm512_and_si512(codes, _mm512_set1_epi32(!0x7FF));
            let surrogates = _mm512_cmpeq_epi32_mask(high_bits, _mm512_set1_epi32(0xD800));
            (used.count_ones() as usize, surrogates != 0)
        }
    }

    fn run<W: OnKernel>(self, work: W) -> W::Output {
        #[target_feature(
            enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2",
            enable = "avx2,aes,bmi1,bmi2,lzcnt,popcnt"
        )]
        fn with_instructions<W: OnKernel>(kernel: Avx512, work: W) -> W::Output {
            work.run(kernel)
        }
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe { with_instructions(self, work) }
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
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe { _mm512_cmpge_epu8_mask(self.0, _mm512_set1_epi8(first as i8)) }
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: the processor has the instructions, or there were no `self`.
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
