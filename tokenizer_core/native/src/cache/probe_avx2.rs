//! Probing a line with AVX2 and AES, which processors with AVX-512 use too.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::offset_of;

use crate::cache::probe::Probe;
use crate::cache::table::{Line, Slot};
use crate::mem::hash::HashKeys;
use crate::merge::pair_table::ID_BITS;
use crate::simd::HasAvx2;

impl<K: HasAvx2> Probe for K {
    #[inline(always)]
    fn key_in(self, block: &[u8; 16], length: usize) -> u128 {
        /// Within a cache line, so that no load of a mask touches two.
        #[repr(align(32))]
        struct Masks([u8; 32]);
        static ONES_THEN_ZEROS: Masks = {
            let mut bytes = [0; 32];
            let mut position = 0;
            while position < 16 {
                bytes[position] = 0xFF;
                position += 1;
            }
            Masks(bytes)
        };
        let minus = 0usize.wrapping_sub(length);
        // SAFETY: the processor has the instructions, because `self` exists. The mask is 16 of the
        // 32 bytes.
        unsafe {
            let mask = _mm_loadu_si128(ONES_THEN_ZEROS.0.as_ptr().add(minus & 15).cast());
            let bytes = _mm_and_si128(_mm_loadu_si128(block.as_ptr().cast()), mask);
            as_word(_mm_insert_epi8::<15>(bytes, minus as i32))
        }
    }

    /// Two rounds of AES under random keys: nobody can choose a line without them.
    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe {
            let [first, second] = keys.as_words().map(as_vector);
            let once = _mm_aesenc_si128(_mm_xor_si128(as_vector(key), first), second);
            _mm_cvtsi128_si64(_mm_aesenc_si128(once, first)) as u64
        }
    }

    #[inline(always)]
    fn find(self, line: &Line, key: &u128) -> Option<Slot> {
        // SAFETY: the processor has the instructions, because `self` exists.
        let words = unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(equal_words(line, key))) };
        // Two bits for each of four words: the lowest remains if the first slot has the key, and
        // `SECOND` if the second has it. No branch asks which: that cannot be predicted.
        let slots = (words & words >> 2) as usize;
        (slots & (Slot::SECOND | 1) != 0).then_some(Slot::from_bits(slots))
    }

    #[inline(always)]
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8] {
        const { assert!(ID_BITS == 20) };
        // SAFETY: the processor has the instructions, because `self` exists; the result is 32
        // bytes as the array is.
        unsafe {
            // The four bytes from that in which an id begins; the second of three begins within.
            let spread = _mm256_setr_epi8(
                0, 1, 2, 3, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, // the first four ids
                10, 11, 12, 13, 13, 14, 15, -1, 13, 14, 15, -1, 13, 14, 15,
                -1, // the fifth, and the last, which may stand for more
            );
            let shifts = _mm256_setr_epi32(0, 4, 0, 0, 4, 0, 0, 0);
            let spread = _mm256_shuffle_epi8(value_twice(line, slot), spread);
            let ids = _mm256_srlv_epi32(spread, shifts);
            let ids = _mm256_and_si256(ids, _mm256_set1_epi32((1 << ID_BITS) - 1));
            std::mem::transmute::<__m256i, [u32; 8]>(ids)
        }
    }
}

// Other threads may be writing to a line. Assembly loads it, which is no data race. The keys are
// loaded before the values, by the processor too: a value is written before its key.

/// All bits of those words of the two keys of a line that are the same in `key`.
#[target_feature(enable = "avx2")]
#[inline]
fn equal_words(line: &Line, key: &u128) -> __m256i {
    let equal;
    // SAFETY: it reads the 16 bytes of the key and the 32 of those in the line. Either key of the line
    // is seen whole: 16 aligned bytes are read at once by every processor with AVX.
    unsafe {
        asm!("vbroadcasti128 {equal}, [{key}]", "vpcmpeqq {equal}, {equal}, [{keys}]",
            equal = out(ymm_reg) equal, key = in(reg) key, keys = in(reg) line.keys.as_ptr(),
            options(readonly, nostack, preserves_flags));
    }
    equal
}

#[target_feature(enable = "avx2")]
#[inline]
fn value_twice(line: &Line, slot: Slot) -> __m256i {
    let value;
    // SAFETY: it reads the 16 bytes of one of the two values.
    unsafe {
        asm!("vbroadcasti128 {value}, [{line} + {slot} + {values}]", value = out(ymm_reg) value,
            line = in(reg) line, slot = in(reg) slot.offset(), values = const offset_of!(Line, values),
            options(readonly, nostack, preserves_flags));
    }
    value
}

#[inline(always)]
fn as_word(key: __m128i) -> u128 {
    // SAFETY: both are 16 bytes, and any bytes are a value of both.
    unsafe { std::mem::transmute::<__m128i, u128>(key) }
}

#[inline(always)]
fn as_vector(word: u128) -> __m128i {
    // SAFETY: both are 16 bytes, and any bytes are a value of both.
    unsafe { std::mem::transmute::<u128, __m128i>(word) }
}
