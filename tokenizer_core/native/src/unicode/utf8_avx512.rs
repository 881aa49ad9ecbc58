//! UTF-8 of 16 code points at once with AVX-512.

use std::arch::x86_64::*;

use crate::simd::Avx512;
use crate::unicode::utf8::{CodePoint, Out, POINTS, WriteUtf8};

// SAFETY: stores cover all bytes up to the returned length.
unsafe impl WriteUtf8 for Avx512 {
    #[inline(always)]
    fn write_utf8<U: CodePoint>(self, points: &[U; POINTS], out: &mut Out) -> (usize, bool) {
        let points = points.as_ptr();
        // SAFETY: the processor has the instructions, because `self` exists. Each load is of 16 points of
        // so many bytes; `out` is of 64 bytes.
        unsafe {
            let codes = match size_of::<U>() {
                1 => _mm512_cvtepu8_epi32(_mm_loadu_si128(points.cast())),
                2 => _mm512_cvtepu16_epi32(_mm256_loadu_si256(points.cast())),
                _ => _mm512_loadu_si512(points.cast()),
            };
            let from_80 = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(0x80));
            if from_80 == 0 {
                _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(codes));
                return (POINTS, false);
            }
            let from_800 = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(0x800));
            let from_10000 = _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(0x1_0000));
            // Four bytes of each, as if all were so long: six bits in each, the highest first.
            let shifts = _mm512_set1_epi64(0x2026_2C32_0006_0C12);
            let six = _mm512_multishift_epi64_epi8(shifts, codes);
            let (low, after) = (_mm512_set1_epi8(0x3F), _mm512_set1_epi8(0x80_u8 as i8));
            let bytes = _mm512_or_si512(_mm512_and_si512(six, low), after);
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
}
