//! The kernel of x86-64 processors with AVX2.
//!
//! No closure holds a vector instruction: see `kernel_avx512.rs`.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::offset_of;

use crate::cache::table::{Line, Slot};
use crate::mem::keyed_hash::HashKeys;
use crate::merge::pair_table::ID_BITS;
use crate::simd::{Kernel, OnKernel, Portable};
use crate::split::blocks::classes::{BLOCK, Classes, High, from_words};
use crate::split::blocks::known_characters::{Bytes, MANY_HIGH, known_characters};
use crate::unicode::utf8::{CodeUnit, Out, ROW, UNITS, put};

/// AVX2 and AES: nearly every processor in use.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// None where the processor cannot; a value of this type says that it can.
    pub fn detect() -> Option<Avx2> {
        let is_there = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        is_there.then_some(Avx2(()))
    }
}

impl Kernel for Avx2 {
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
        // SAFETY: the processor has the instructions, or there were no `self`. Both loads are of
        // 32 of the 64 bytes.
        unsafe {
            let halves = [
                _mm256_loadu_si256(whole.as_ptr().cast()),
                _mm256_loadu_si256(whole[32..].as_ptr().cast()),
            ];
            let upper = within(halves, b'A', b'Z');
            let blank = within(halves, b' ', b' ');
            let newline = within(halves, b'\n', b'\n') | within(halves, b'\r', b'\r');
            let words = [
                upper | within(halves, b'a', b'z'),
                within(halves, b'0', b'9'),
                blank | within(halves, b'\t', b'\r'),
                newline,
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
    fn write_places(self, bits: u64, base: u32, places: &mut [u32; BLOCK]) {
        Portable.write_places(bits, base, places);
    }

    #[inline(always)]
    fn key_in(self, block: &[u8; 16], length: usize) -> u128 {
        /// Within a cache line, so that no load of a mask touches two.
        #[repr(align(32))]
        struct Masks([u8; 32]);
        static ONES_THEN_ZEROS: Masks = {
            let mut bytes = [0; 32];
            let mut place = 0;
            while place < 16 {
                bytes[place] = 0xFF;
                place += 1;
            }
            Masks(bytes)
        };
        let minus = 0usize.wrapping_sub(length);
        // SAFETY: the processor has the instructions, or there were no `self`. The mask is 16 of the
        // 32 bytes.
        unsafe {
            let mask = _mm_loadu_si128(ONES_THEN_ZEROS.0.as_ptr().add(minus & 15).cast());
            let bytes = _mm_and_si128(_mm_loadu_si128(block.as_ptr().cast()), mask);
            as_word(_mm_insert_epi8::<15>(bytes, minus as i32))
        }
    }

    /// Two rounds of AES under random keys: enough that nobody can aim at a line without them.
    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe {
            let [first, second] = keys.as_words().map(as_vector);
            let once = _mm_aesenc_si128(_mm_xor_si128(as_vector(key), first), second);
            _mm_cvtsi128_si64(_mm_aesenc_si128(once, first)) as u64
        }
    }

    #[inline(always)]
    fn find(self, line: &Line, key: &u128) -> Option<Slot> {
        // SAFETY: the processor has the instructions, or there were no `self`.
        let words = unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(equal_words(line, key))) };
        // Two bits for each of four words: the lowest is left where the first slot has the key, and
        // `SECOND` where the second has it. Which cannot be predicted, so no branch asks.
        let slots = (words & words >> 2) as usize;
        (slots & (Slot::SECOND | 1) != 0).then_some(Slot::from_bits(slots))
    }

    #[inline(always)]
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8] {
        const { assert!(ID_BITS == 20) };
        // SAFETY: the processor has the instructions, or there were no `self`; the result is 32
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

    #[inline(always)]
    fn write_utf8<U: CodeUnit>(self, units: &[U; UNITS], out: &mut Out) -> (usize, bool) {
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe {
            let codes = codes_of(units);
            if let Some(row) = as_ascii(codes) {
                put(out, 0, row);
                return (UNITS, false);
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

    fn run<W: OnKernel>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,aes,bmi1,bmi2,lzcnt,popcnt")]
        fn with_instructions<W: OnKernel>(kernel: Avx2, work: W) -> W::Output {
            work.run(kernel)
        }
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe { with_instructions(self, work) }
    }
}

// What other threads may be writing to is loaded by assembly, for which it is no data race. The keys
// are loaded before the values, by the processor too: a value is written before its key.

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

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn codes_of<U: CodeUnit>(units: &[U; UNITS]) -> [__m256i; 2] {
    let units = units.as_ptr();
    // SAFETY: the caller's promise; each load is of as many units, of so many bytes, as there are.
    unsafe {
        match size_of::<U>() {
            1 => {
                let all = _mm_loadu_si128(units.cast());
                [
                    _mm256_cvtepu8_epi32(all),
                    _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(all)),
                ]
            }
            2 => [
                _mm256_cvtepu16_epi32(_mm_loadu_si128(units.cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(units.add(8).cast())),
            ],
            _ => [
                _mm256_loadu_si256(units.cast()),
                _mm256_loadu_si256(units.add(8).cast()),
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

/// The UTF-8 of four code points and of the next four, and anything behind each, and how many bytes
/// they are.
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
        // Minus the number of bytes behind the first.
        let behind = _mm256_add_epi32(_mm256_add_epi32(two, three), four);
        let unused = _mm256_add_epi32(_mm256_set1_epi32(24), _mm256_slli_epi32::<3>(behind));
        let lead = _mm256_or_si256(
            _mm256_and_si256(two, _mm256_set1_epi32(0xC0)),
            _mm256_or_si256(
                _mm256_and_si256(three, _mm256_set1_epi32(0xE0)),
                _mm256_and_si256(four, _mm256_set1_epi32(0xF0)),
            ),
        );
        let bytes = _mm256_or_si256(_mm256_srlv_epi32(long, unused), lead);
        let bytes = _mm256_blendv_epi8(codes, bytes, two);
        // Two bits of each for how many are behind the first; the lower is that of one or three.
        let odd = _mm256_castsi256_ps(_mm256_slli_epi32::<31>(behind));
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

/// Which bytes of four characters of up to four bytes each are theirs, in order, by how many each
/// has behind its first: a bit for each character for the lower and, higher, for the upper bit.
static JOINING: [[u8; ROW]; 256] = {
    let mut table = [[0x80; ROW]; 256];
    let mut lengths = 0;
    while lengths < 256 {
        let (mut at, mut character) = (0, 0);
        while character < 4 {
            let n_behind = (lengths >> character & 1) + 2 * (lengths >> (4 + character) & 1);
            let mut byte = 0;
            while byte <= n_behind {
                table[lengths][at] = (4 * character + byte) as u8;
                at += 1;
                byte += 1;
            }
            character += 1;
        }
        lengths += 1;
    }
    table
};

/// The bytes of a block; one of these says that the processor has AVX2.
#[derive(Clone, Copy)]
struct Halves([__m256i; 2]);

impl Bytes for Halves {
    #[inline(always)]
    fn at_least(self, first: u8) -> u64 {
        // SAFETY: the processor has the instructions, or there were no `self`.
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
        // SAFETY: the processor has the instructions, or there were no `self`.
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
