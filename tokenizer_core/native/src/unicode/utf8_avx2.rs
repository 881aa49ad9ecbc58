//! UTF-8 of 16 code points at once with AVX2.
//!
//! No closure holds a vector instruction: see `simd`.

use std::arch::x86_64::*;

use crate::simd::Avx2;
use crate::unicode::utf8::{CodePoint, JOINING, Out, POINTS, ROW, WriteUtf8, put};

// SAFETY: stores cover all bytes up to the returned length.
unsafe impl WriteUtf8 for Avx2 {
    #[inline(always)]
    fn write_utf8<U: CodePoint>(self, points: &[U; POINTS], out: &mut Out) -> (usize, bool) {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe {
            let codes = codes_of(points);
            if let Some(row) = as_ascii(codes) {
                put(out, 0, row);
                return (POINTS, false);
            }
            let mut at = 0;
            for codes in codes {
                let (rows, [first, second]) = utf8_of(codes);
                put(out, at, rows[0]);
                put(out, at + first, rows[1]);
                at += first + second;
            }
            (at, any_surrogate(codes))
        }
    }
}

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn codes_of<U: CodePoint>(points: &[U; POINTS]) -> [__m256i; 2] {
    let points = points.as_ptr();
    // SAFETY: the caller's promise; each load is of as many points, of so many bytes, as there are.
    unsafe {
        match size_of::<U>() {
            1 => {
                let all = _mm_loadu_si128(points.cast());
                [
                    _mm256_cvtepu8_epi32(all),
                    _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(all)),
                ]
            }
            2 => [
                _mm256_cvtepu16_epi32(_mm_loadu_si128(points.cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(points.add(8).cast())),
            ],
            _ => [
                _mm256_loadu_si256(points.cast()),
                _mm256_loadu_si256(points.add(8).cast()),
            ],
        }
    }
}

/// A byte of each, where none needs more.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn as_ascii(codes: [__m256i; 2]) -> Option<[u8; ROW]> {
    // SAFETY: the caller's promise; the array and the vector are of 16 bytes.
    unsafe {
        let beyond = _mm256_set1_epi32(!0x7F);
        if _mm256_testz_si256(_mm256_or_si256(codes[0], codes[1]), beyond) == 0 {
            return None;
        }
        // Each half has four of the first eight, then four of the others.
        let words = _mm256_packus_epi32(codes[0], codes[1]);
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
        let (low, high) = (
            _mm256_castsi256_si128(words),
            _mm256_extracti128_si256::<1>(words),
        );
        let bytes = _mm_packus_epi16(low, high);
        Some(std::mem::transmute::<__m128i, [u8; ROW]>(bytes))
    }
}

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn any_surrogate(codes: [__m256i; 2]) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let (mask, value) = (_mm256_set1_epi32(!0x7FF), _mm256_set1_epi32(0xD800));
        let first = _mm256_cmpeq_epi32(_mm256_and_si256(codes[0], mask), value);
        let second = _mm256_cmpeq_epi32(_mm256_and_si256(codes[1], mask), value);
        _mm256_movemask_epi8(_mm256_or_si256(first, second)) != 0
    }
}

/// The UTF-8 of four code points and of the next four, each followed by anything, and their
/// lengths.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn utf8_of(codes: __m256i) -> ([[u8; ROW]; 2], [usize; 2]) {
    // SAFETY: the caller's promise; arrays and vectors are of 32 bytes, and a row of the table is of 16.
    unsafe {
        let six = _mm256_set1_epi32(0x3F);
        // Four bytes of each, as if all were so long: six bits in each, the highest first.
        let fourth = _mm256_slli_epi32::<24>(_mm256_and_si256(codes, six));
        let third = _mm256_and_si256(_mm256_srli_epi32::<6>(codes), six);
        let second = _mm256_and_si256(_mm256_srli_epi32::<12>(codes), six);
        let first = _mm256_srli_epi32::<18>(codes);
        let bits = _mm256_or_si256(
            _mm256_or_si256(first, _mm256_slli_epi32::<8>(second)),
            _mm256_or_si256(_mm256_slli_epi32::<16>(third), fourth),
        );
        let long = _mm256_or_si256(bits, _mm256_set1_epi32(0x8080_8080_u32 as i32));
        // All ones where there are at least two bytes, three, and four.
        let two = _mm256_cmpgt_epi32(codes, _mm256_set1_epi32(0x7F));
        let three = _mm256_cmpgt_epi32(codes, _mm256_set1_epi32(0x7FF));
        let four = _mm256_cmpgt_epi32(codes, _mm256_set1_epi32(0xFFFF));
        // Minus the number of bytes after the first.
        let after = _mm256_add_epi32(_mm256_add_epi32(two, three), four);
        let unused = _mm256_add_epi32(_mm256_set1_epi32(24), _mm256_slli_epi32::<3>(after));
        let lead = _mm256_or_si256(
            _mm256_and_si256(two, _mm256_set1_epi32(0xC0)),
            _mm256_or_si256(
                _mm256_and_si256(three, _mm256_set1_epi32(0xE0)),
                _mm256_and_si256(four, _mm256_set1_epi32(0xF0)),
            ),
        );
        let bytes = _mm256_or_si256(_mm256_srlv_epi32(long, unused), lead);
        let bytes = _mm256_blendv_epi8(codes, bytes, two);
        // Two bits of each for how many are after the first; the lower is that of one or three.
        let odd = _mm256_castsi256_ps(_mm256_slli_epi32::<31>(after));
        let (odd, many) = (
            _mm256_movemask_ps(odd) as usize,
            _mm256_movemask_ps(_mm256_castsi256_ps(three)) as usize,
        );
        let first = JOINING[(many & 15) << 4 | odd & 15].as_ptr().cast();
        let second = JOINING[many & 0xF0 | odd >> 4].as_ptr().cast();
        let joined = _mm256_shuffle_epi8(bytes, _mm256_loadu2_m128i(second, first));
        let n_first = 4 + (odd & 15).count_ones() + 2 * (many & 15).count_ones();
        let n_both = 8 + odd.count_ones() + 2 * many.count_ones();
        (
            std::mem::transmute::<__m256i, [[u8; ROW]; 2]>(joined),
            [n_first as usize, (n_both - n_first) as usize],
        )
    }
}
