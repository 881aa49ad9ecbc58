//! Classes of a block with NEON.
//!
//! Vector `i` of four holds each fourth byte of a block, beginning with byte `i`: bits of four
//! neighbours are at the same position of four vectors, and shifts that insert join them.

use std::arch::aarch64::*;

use crate::simd::{Neon, Portable};
use crate::split::blocks::classes::{ASCII, BLOCK, Blocks, Classes, High, from_words};
use crate::split::blocks::known_characters::{Bytes, MANY_HIGH, known_characters};

impl Blocks for Neon {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High) {
        let Some(block) = text[at..].first_chunk::<BLOCK>() else {
            return Portable.ascii(text, at);
        };
        // SAFETY: the processor has the instructions, because `self` exists. The loads are of 64 bytes:
        // the block, and each half of the table.
        unsafe {
            let uint8x16x4_t(a, b, c, d) = vld4q_u8(block.as_ptr());
            let bytes = Fourths([a, b, c, d]);
            let table = [0, 64].map(|half| vld1q_u8_x4(ASCII[half..].as_ptr()));
            let class = Fourths(bytes.0.map(|bytes| {
                let of_second = vsubq_u8(bytes, vdupq_n_u8(64));
                vqtbx4q_u8(vqtbl4q_u8(table[0], bytes), table[1], of_second)
            }));
            let words = [
                class.with_bit::<0>(),
                class.with_bit::<1>(),
                class.with_bit::<2>(),
                class.with_bit::<3>(),
                class.with_bit::<4>(),
                class.with_bit::<5>(),
                class.with_bit::<6>(),
                class.with_bit::<7>(),
            ];
            let all = bytes.with_bit::<7>();
            let known = if all.count_ones() < MANY_HIGH {
                High::unknown(all)
            } else {
                known_characters(bytes, all)
            };
            (from_words(words, BLOCK), known)
        }
    }

    #[inline(always)]
    fn write_positions(self, bits: u64, base: u32, positions: &mut [u32; BLOCK]) {
        Portable.write_positions(bits, base, positions);
    }
}

/// The bytes of a block; one of these says that the processor has NEON.
#[derive(Clone, Copy)]
struct Fourths([uint8x16_t; 4]);

impl Fourths {
    /// The bytes that have bit `BIT`.
    #[inline(always)]
    fn with_bit<const BIT: i32>(self) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe {
            let to_top = vdupq_n_s8(7 - BIT as i8);
            let [a, b, c, d] = self.0.map(|bytes| vshlq_u8(bytes, to_top));
            // From the top: one bit of each of two bytes, then of four, then these twice.
            let (two, next_two) = (vsriq_n_u8::<1>(b, a), vsriq_n_u8::<1>(d, c));
            let four = vsriq_n_u8::<2>(next_two, two);
            let twice = vreinterpretq_u16_u8(vsriq_n_u8::<4>(four, four));
            vget_lane_u64::<0>(vreinterpret_u64_u8(vshrn_n_u16::<4>(twice)))
        }
    }
}

impl Bytes for Fourths {
    #[inline(always)]
    fn at_least(self, first: u8) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe { Fourths(self.0.map(|bytes| vcgeq_u8(bytes, vdupq_n_u8(first)))).with_bit::<7>() }
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: the processor has the instructions, because `self` exists.
        unsafe { Fourths(self.0.map(|bytes| vceqq_u8(bytes, vdupq_n_u8(byte)))).with_bit::<7>() }
    }
}
