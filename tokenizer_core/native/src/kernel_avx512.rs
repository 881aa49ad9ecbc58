//! The kernel of x86-64 processors with AVX-512.
//!
//! No closure holds a vector instruction: a closure is compiled without the instructions of the
//! function around it, and where it happens not to be inlined each of them becomes a call.

use std::arch::x86_64::*;

use crate::block_classes::{
    APOSTROPHE, ASCII, BLANK, BLOCK, Classes, High, LETTER, NEWLINE, NUMBER, SLASH, SPACE, UPPER,
    from_words,
};
use crate::code_units::ROW;
use crate::kernel::{Kernel, OnKernel};
use crate::kernel_avx2::Avx2;
use crate::keyed_hash::HashKeys;
use crate::write_once::{Line, Slot};

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
            let mut found = High {
                all: high,
                ..High::default()
            };
            if high != 0 {
                found.ideographs = at_least(bytes, 0xE5) & !at_least(bytes, 0xEA)
                    | equal(bytes, 0xE4) & at_least(bytes, 0xB8) >> 1
                    | at_least(bytes, 0xEB) & !at_least(bytes, 0xED);
                let (d0, d1) = (equal(bytes, 0xD0), equal(bytes, 0xD1));
                found.cased = d0 | d1 & !(at_least(bytes, 0xA0) >> 1);
                found.upper_cased = d0 & !(at_least(bytes, 0xB0) >> 1);
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
    fn utf8_of(self, codes: [u32; 8]) -> ([[u8; ROW]; 2], [usize; 2]) {
        self.0.utf8_of(codes)
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

/// # Safety
/// The processor has AVX-512 BW.
#[inline(always)]
unsafe fn at_least(bytes: __m512i, byte: u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cmpge_epu8_mask(bytes, _mm512_set1_epi8(byte as i8)) }
}

/// # Safety
/// The processor has AVX-512 BW.
#[inline(always)]
unsafe fn equal(bytes: __m512i, byte: u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte as i8)) }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn widened(sixteen: __m128i, base: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_add_epi32(base, _mm512_cvtepu8_epi32(sixteen)) }
}
