//! Ids as JSON, eight at a time, with AVX-512.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::json::ids::{WriteIds, write_last};
use crate::simd::Avx512;

const IDS: usize = 8;
/// The first number that has more than seven digits.
const TOO_LONG: i64 = 10_000_000;
/// Of each word its last two bytes: the last digit and the comma.
const ALWAYS: u64 = 0xC0C0_C0C0_C0C0_C0C0;

// SAFETY: all bytes that are kept are written, and their number is returned.
unsafe impl WriteIds for Avx512 {
    /// Reads no table, which the tables of the encoder would have driven out of the cache.
    #[inline(always)]
    fn write_ids(self, ids: &[u32], out: &mut [MaybeUninit<u8>]) -> usize {
        let mut at = 0;
        for block in ids.chunks(IDS) {
            let rest = &mut out[at..];
            // SAFETY: the processor has the instructions, because `self` exists. The load is of the ids
            // of the block. The stores are of the bytes that `rest` has, or of 64 where it has so many.
            unsafe {
                let present = u8::MAX >> (IDS - block.len());
                let ids = _mm256_maskz_loadu_epi32(present, block.as_ptr().cast());
                let ids = _mm512_cvtepu32_epi64(ids);
                if _mm512_cmpge_epu64_mask(ids, _mm512_set1_epi64(TOO_LONG)) != 0 {
                    at += block
                        .iter()
                        .fold(0, |n, &id| n + write_last(id, &mut rest[n..]));
                    continue;
                }
                let digits = digits_of(ids);
                // The first of eight digits is zero: a comma after the last takes its place.
                let text = _mm512_srli_epi64::<8>(digits);
                let text = _mm512_or_si512(text, _mm512_set1_epi64(0x2C30_3030_3030_3030));
                // Keep a byte if it or one before it in the word is no zero.
                let kept = (_mm512_test_epi8_mask(digits, digits) >> 1) | ALWAYS;
                let kept = kept | (kept << 1 & 0xFEFE_FEFE_FEFE_FEFE);
                let kept = kept | (kept << 2 & 0xFCFC_FCFC_FCFC_FCFC);
                let kept = kept | (kept << 4 & 0xF0F0_F0F0_F0F0_F0F0);
                let kept = kept & (u64::MAX >> (8 * (IDS - block.len())));
                let text = _mm512_maskz_compress_epi8(kept, text);
                let n_bytes = kept.count_ones() as usize;
                if rest.len() >= 64 {
                    _mm512_storeu_si512(rest.as_mut_ptr().cast(), text);
                } else {
                    let start = rest[..n_bytes].as_mut_ptr();
                    _mm512_mask_storeu_epi8(start.cast(), u64::MAX >> (64 - n_bytes), text);
                }
                at += n_bytes;
            }
        }
        at
    }
}

/// Eight digits of each of eight numbers, the first in the low byte. A number is divided by 10,000, both
/// parts by 100, and all four parts by 10.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn digits_of(numbers: __m512i) -> __m512i {
    // SAFETY: as above.
    unsafe {
        // Exact below 2^26; the others divide 16 bits, of which the high half of a product is kept.
        let high = _mm512_mul_epu32(numbers, _mm512_set1_epi64(109_951_163));
        let high = _mm512_srli_epi64::<40>(high);
        let low = _mm512_mul_epu32(high, _mm512_set1_epi64(10_000));
        let low = _mm512_sub_epi64(numbers, low);
        let fours = _mm512_or_si512(high, _mm512_slli_epi64::<32>(low));
        let high = _mm512_mulhi_epu16(fours, _mm512_set1_epi32(5243));
        let high = _mm512_srli_epi16::<3>(high);
        let low = _mm512_mullo_epi16(high, _mm512_set1_epi32(100));
        let low = _mm512_sub_epi16(fours, low);
        let twos = _mm512_or_si512(high, _mm512_slli_epi32::<16>(low));
        let high = _mm512_mulhi_epu16(twos, _mm512_set1_epi16(6554));
        let low = _mm512_mullo_epi16(high, _mm512_set1_epi16(10));
        let low = _mm512_sub_epi16(twos, low);
        _mm512_or_si512(high, _mm512_slli_epi16::<8>(low))
    }
}
