//! The kernels of x86-64: AVX-512 and AVX2. The only file with vector instructions.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::block_classes::{
    APOSTROPHE, ASCII, BLANK, BLOCK, Classes, High, LETTER, NEWLINE, NUMBER, SLASH, SPACE, UPPER,
    from_words,
};
use crate::kernel::{Kernel, OnKernel, Portable};
use crate::keyed_hash::HashKeys;
use crate::merge::ID_BITS;
use crate::packed_ids::Value;
use crate::piece_cache::MAX_SHORT_BYTES;
use crate::write_once::Line;

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
            let word = |bit: u8| _mm512_test_epi8_mask(class, _mm512_set1_epi8(bit as i8));
            let words = [
                word(LETTER),
                word(NUMBER),
                word(SPACE),
                word(NEWLINE),
                word(BLANK),
                word(APOSTROPHE),
                word(UPPER),
                word(SLASH),
            ];
            let mut found = High {
                all: high,
                ..High::default()
            };
            if high != 0 {
                let at_least =
                    |byte: u8| _mm512_cmpge_epu8_mask(bytes, _mm512_set1_epi8(byte as i8));
                let is = |byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte as i8));
                let from_b8 = at_least(0xB8);
                found.ideographs = at_least(0xE5) & !at_least(0xEA)
                    | is(0xE4) & from_b8 >> 1
                    | at_least(0xEB) & !at_least(0xED);
                let (d0, d1) = (is(0xD0), is(0xD1));
                found.cyrillic = d0 | d1 & !(at_least(0xA0) >> 1);
                found.upper_cyrillic = d0 & !(at_least(0xB0) >> 1);
            }
            (from_words(words, valid), found)
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
            let wide = |sixteen| _mm512_add_epi32(base, _mm512_cvtepu8_epi32(sixteen));
            _mm512_storeu_si512(out, wide(_mm512_castsi512_si128(packed)));
            let n = bits.count_ones();
            if n > 16 {
                _mm512_storeu_si512(out.add(1), wide(_mm512_extracti32x4_epi32::<1>(packed)));
                if n > 32 {
                    let (third, fourth) = (
                        _mm512_extracti32x4_epi32::<2>(packed),
                        _mm512_extracti32x4_epi32::<3>(packed),
                    );
                    _mm512_storeu_si512(out.add(2), wide(third));
                    _mm512_storeu_si512(out.add(3), wide(fourth));
                }
            }
        }
    }

    #[inline(always)]
    fn key(self, text: &[u8], start: usize, length: usize) -> u128 {
        let length = length.min(MAX_SHORT_BYTES + 1);
        let piece = &text[start..start + length];
        // SAFETY: the processor has the instructions, or there were no `self`. The masked load
        // reads the `length` bytes of `piece`, at most 16, and no other.
        unsafe {
            let present = ((1u32 << length) - 1) as __mmask16;
            let bytes = _mm_maskz_loadu_epi8(present, piece.as_ptr().cast());
            as_word(_mm_insert_epi8::<15>(bytes, length as i32))
        }
    }

    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        self.0.hash(keys, key)
    }

    #[inline(always)]
    fn find(self, line: &Line, key: u128) -> Option<Value> {
        self.0.find(line, key)
    }

    #[inline(always)]
    fn ids_of(self, value: Value) -> [u32; 8] {
        self.0.ids_of(value)
    }
}

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
            let bits = |low: __m256i, high: __m256i| {
                let low = _mm256_movemask_epi8(low) as u32;
                u64::from(low) | u64::from(_mm256_movemask_epi8(high) as u32) << 32
            };
            let within = |first: u8, last: u8| {
                let [low, high] = halves.map(|half| between(half, first, last));
                bits(low, high)
            };
            let upper = within(b'A', b'Z');
            let blank = within(b' ', b' ');
            let newline = within(b'\n', b'\n') | within(b'\r', b'\r');
            let words = [
                upper | within(b'a', b'z'),
                within(b'0', b'9'),
                blank | within(b'\t', b'\r'),
                newline,
                blank,
                within(b'\'', b'\''),
                upper,
                within(b'/', b'/'),
            ];
            let high = High {
                all: bits(halves[0], halves[1]),
                ..High::default()
            };
            (from_words(words, valid), high)
        }
    }

    #[inline(always)]
    fn write_places(self, bits: u64, base: u32, places: &mut [u32; BLOCK]) {
        Portable.write_places(bits, base, places);
    }

    #[inline(always)]
    fn key(self, text: &[u8], start: usize, length: usize) -> u128 {
        /// All bits of the first so many bytes.
        static FIRST: [[u8; 16]; 17] = {
            let mut masks = [[0; 16]; 17];
            let mut length = 0;
            while length < 17 {
                let mut place = 0;
                while place < length {
                    masks[length][place] = 0xFF;
                    place += 1;
                }
                length += 1;
            }
            masks
        };
        let length = length.min(MAX_SHORT_BYTES + 1);
        // SAFETY: the processor has the instructions, or there were no `self`. Both loads are of
        // 16 bytes of an array of 16.
        unsafe {
            let bytes = match text[start..].first_chunk::<16>() {
                Some(block) => {
                    let mask = _mm_loadu_si128(FIRST[length].as_ptr().cast());
                    _mm_and_si128(_mm_loadu_si128(block.as_ptr().cast()), mask)
                }
                None => {
                    let mut block = [0; 16];
                    block[..length].copy_from_slice(&text[start..start + length]);
                    _mm_loadu_si128(block.as_ptr().cast())
                }
            };
            as_word(_mm_insert_epi8::<15>(bytes, length as i32))
        }
    }

    /// Two rounds of AES under random keys: enough that nobody can aim at a line without them.
    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe {
            let [first, second] = keys.as_words().map(as_vector);
            let once = _mm_aesenc_si128(_mm_xor_si128(as_vector(key), first), second);
            (_mm_cvtsi128_si64(_mm_aesenc_si128(once, first)) as u64)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        }
    }

    #[inline(always)]
    fn find(self, line: &Line, key: u128) -> Option<Value> {
        let (first, second): (__m128i, __m128i);
        // SAFETY: the processor has the instructions, or there were no `self`. Other threads may
        // write to the line, which for an assembly block is no data race. It loads the two keys,
        // which are aligned.
        unsafe {
            asm!("vmovdqa {first}, [{line}]", "vmovdqa {second}, [{line} + 16]",
                first = out(xmm_reg) first, second = out(xmm_reg) second,
                line = in(reg) line.keys.as_ptr(), options(readonly, nostack, preserves_flags));
        }
        // SAFETY: as above.
        let slots = unsafe {
            let [first, second] = [first, second].map(|of| _mm_cmpeq_epi64(of, as_vector(key)));
            let (low, high) = (
                _mm_unpacklo_epi64(first, second),
                _mm_unpackhi_epi64(first, second),
            );
            // A bit for each slot. Which it is cannot be predicted, so no branch asks.
            _mm_movemask_pd(_mm_castsi128_pd(_mm_and_si128(low, high))) as usize
        };
        (slots != 0).then(|| {
            let words = &line.values[slots & 2..];
            let value: __m128i;
            // SAFETY: as above, and this block stays behind the one that loads the keys, as does
            // its load in the processor: a value is written before the last word of its key.
            unsafe {
                asm!("vmovdqa {value}, [{words}]", value = out(xmm_reg) value,
                    words = in(reg) words.as_ptr(), options(readonly, nostack, preserves_flags));
            }
            Value(as_word(value))
        })
    }

    #[inline(always)]
    fn ids_of(self, value: Value) -> [u32; 8] {
        const { assert!(ID_BITS == 20) };
        // SAFETY: the processor has the instructions, or there were no `self`; the result is 32
        // bytes as the array is.
        unsafe {
            let twice = _mm256_broadcastsi128_si256(as_vector(value.0));
            // The four bytes from that in which an id begins; the second of three begins within.
            let spread = _mm256_setr_epi8(
                0, 1, 2, 3, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, // the first four ids
                10, 11, 12, 13, 13, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1,
                -1, // the last two
            );
            let shifts = _mm256_setr_epi32(0, 4, 0, 0, 4, 0, 0, 0);
            let ids = _mm256_srlv_epi32(_mm256_shuffle_epi8(twice, spread), shifts);
            let ids = _mm256_and_si256(ids, _mm256_set1_epi32((1 << ID_BITS) - 1));
            std::mem::transmute::<__m256i, [u32; 8]>(ids)
        }
    }
}

impl Avx512 {
    pub fn run<W: OnKernel>(self, work: W) -> W::Output {
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

impl Avx2 {
    pub fn run<W: OnKernel>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,aes,bmi1,bmi2,lzcnt,popcnt")]
        fn with_instructions<W: OnKernel>(kernel: Avx2, work: W) -> W::Output {
            work.run(kernel)
        }
        // SAFETY: the processor has the instructions, or there were no `self`.
        unsafe { with_instructions(self, work) }
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
