//! UTF-8 of four code points at once with NEON.

use std::arch::aarch64::*;

use crate::simd::Neon;
use crate::unicode::utf8::{JOINING, ROW, WriteUtf8};

// SAFETY: it returns the UTF-8 of the four, and the number of its bytes.
unsafe impl WriteUtf8 for Neon {
    #[inline(always)]
    fn utf8_of_four(self, codes: [u32; 4]) -> ([u8; ROW], usize) {
        // A number of each for a code point of at least two bytes, of three, and of four. Their sum is
        // the position in `JOINING`, and in the upper half the bytes in addition to one each.
        const EVEN: [u32; 4] = [0x1_0001, 0x1_0002, 0x1_0004, 0x1_0008];
        const THIRD: [u32; 4] = [0x1_000F, 0x1_001E, 0x1_003C, 0x1_0078];
        // SAFETY: the processor has the instructions, because `self` exists; arrays, vectors and a row
        // of the table are of 16 bytes.
        unsafe {
            let codes = vld1q_u32(codes.as_ptr());
            // Four bytes of each, as if all were so long: six bits in each, the highest first.
            let bits = vshrq_n_u32::<18>(codes);
            let bits = vsliq_n_u32::<8>(bits, vshrq_n_u32::<12>(codes));
            let bits = vsliq_n_u32::<16>(bits, vshrq_n_u32::<6>(codes));
            let bits = vsliq_n_u32::<24>(bits, codes);
            let bits = vandq_u32(bits, vdupq_n_u32(0x3F3F_3F3F));
            let long = vorrq_u32(bits, vdupq_n_u32(0x8080_8080));
            // All ones where there are at least two bytes, three, and four.
            let two = vcgtq_u32(codes, vdupq_n_u32(0x7F));
            let three = vcgtq_u32(codes, vdupq_n_u32(0x7FF));
            let four = vcgtq_u32(codes, vdupq_n_u32(0xFFFF));
            // Minus the number of bytes after the first; a shift to the left by less than zero is
            // one to the right.
            let after = vreinterpretq_s32_u32(vaddq_u32(vaddq_u32(two, three), four));
            let shift = vsubq_s32(vdupq_n_s32(-24), vshlq_n_s32::<3>(after));
            let masked = |mask, bits| vandq_u32(mask, vdupq_n_u32(bits));
            let lead = vorrq_u32(masked(two, 0xC0), masked(three, 0xE0));
            let lead = vorrq_u32(lead, masked(four, 0xF0));
            let bytes = vorrq_u32(vshlq_u32(long, shift), lead);
            let bytes = vreinterpretq_u8_u32(vbslq_u32(two, bytes, codes));
            let (even, third) = (vld1q_u32(EVEN.as_ptr()), vld1q_u32(THIRD.as_ptr()));
            let numbers = vaddq_u32(vandq_u32(two, even), vandq_u32(three, third));
            let sum = vaddvq_u32(vaddq_u32(numbers, vandq_u32(four, even)));
            let joining = vld1q_u8(JOINING[(sum & 0xFF) as usize].as_ptr());
            let joined = vqtbl1q_u8(bytes, joining);
            let mut row = [0; ROW];
            vst1q_u8(row.as_mut_ptr(), joined);
            (row, 4 + (sum >> 16) as usize)
        }
    }
}
