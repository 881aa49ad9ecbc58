//! Frequent characters outside ASCII, recognised by vectors in 64 bytes at once.

use crate::split::blocks::classes::High;

/// The bytes of a block, compared at once.
pub trait Bytes: Copy {
    /// The bytes that are at least `first`, unsigned.
    fn at_least(self, first: u8) -> u64;

    /// The bytes that equal this one.
    fn equal(self, byte: u8) -> u64;
}

/// From this many bytes above 0x7F in a block on, vectors are faster than the tables. The callers
/// test it, not `known_characters`: that way the compiler makes scanning with AVX2 a fifth faster.
pub const MANY_HIGH: u32 = 8;

/// The known characters, given the bytes above 0x7F. The result may be wrong for a character that
/// continues after the block: `High::whole` leaves it out.
#[inline(always)]
pub fn known_characters(bytes: impl Bytes, all: u64) -> High {
    // The bits of a last byte are shifted to the byte before it.
    let from_81 = bytes.at_least(0x81) >> 1;
    let from_84 = bytes.at_least(0x84) >> 1;
    let from_88 = bytes.at_least(0x88) >> 1;
    let from_8f = bytes.at_least(0x8F) >> 1;
    let from_90 = bytes.at_least(0x90) >> 1;
    let from_92 = bytes.at_least(0x92) >> 1;
    let from_9a = bytes.at_least(0x9A) >> 1;
    let from_97 = bytes.at_least(0x97) >> 1;
    let from_9f = bytes.at_least(0x9F) >> 1;
    let from_a0 = bytes.at_least(0xA0) >> 1;
    let from_a1 = bytes.at_least(0xA1) >> 1;
    let from_a8 = bytes.at_least(0xA8) >> 1;
    let from_b0 = bytes.at_least(0xB0) >> 1;
    let from_b1 = bytes.at_least(0xB1) >> 1;
    let is_bb = bytes.equal(0xBB) >> 1;
    let (is_be, is_bf) = (bytes.equal(0xBE) >> 1, bytes.equal(0xBF) >> 1);
    let (is_80, is_81) = (bytes.equal(0x80), bytes.equal(0x81));
    let (is_82, is_83) = (bytes.equal(0x82), bytes.equal(0x83));

    // U+3041 to U+3096, U+30A1 to U+30FF without the dot U+30FB, and U+3131 to U+318E.
    let kana = is_81 & from_81 | is_82 & (!from_97 | from_a1) | is_83 & !is_bb;
    let jamo = bytes.equal(0x84) & from_b1 | bytes.equal(0x85) | bytes.equal(0x86) & !from_8f;
    let e3 = bytes.equal(0xE3);
    // U+4E00 to U+9FA5; U+AC00 to U+D7A3.
    let e4 = bytes.equal(0xE4) & bytes.at_least(0xB8) >> 1;
    // Without U+9FA6 to U+9FFF, which DeepSeek does not have among the ideographs.
    let after_a5 = (is_be & bytes.at_least(0xA6) >> 2 | is_bf) & bytes.equal(0xE9);
    let e5_to_e9 = bytes.at_least(0xE5) & !bytes.at_least(0xEA) & !after_a5;
    let ea = bytes.equal(0xEA) & from_b0;
    let eb_ec = bytes.at_least(0xEB) & !bytes.at_least(0xED);
    let last_hangul = bytes.equal(0x9E) & !bytes.at_least(0xA4) >> 1;
    let ed = bytes.equal(0xED) & (!bytes.at_least(0x9E) | last_hangul) >> 1;
    // U+2010 to U+2027; U+3001 to U+3003 and U+3008 to U+3011; U+FF01 to U+FF0F and U+FF1A to
    // U+FF20.
    let dashes = bytes.equal(0xE2) & (is_80 & from_90 & !from_a8) >> 1;
    let of_ideographs = e3 & (is_80 & (from_81 & !from_84 | from_88 & !from_92)) >> 1;
    let is_bc = bytes.equal(0xBC);
    let full_width = bytes.equal(0xEF) & (is_bc & (from_81 & !from_90 | from_9a & !from_a1)) >> 1;

    // U+0400 to U+045F; U+00C0 to U+00FF without the signs of multiplying and dividing.
    let (c3, d0) = (bytes.equal(0xC3), bytes.equal(0xD0));
    let d1 = bytes.equal(0xD1) & !from_a0;
    let signs = (bytes.equal(0x97) | bytes.equal(0xB7)) >> 1;
    let latin = c3 & !signs;
    High {
        all,
        han: e4 | e5_to_e9,
        kana: e3 & kana >> 1,
        ideographs: e3 & (kana | jamo) >> 1 | e4 | e5_to_e9 | ea | eb_ec | ed,
        cased: d0 | d1 | latin,
        upper_cased: d0 & !from_b0 | latin & !from_9f,
        symbols: dashes | of_ideographs | full_width,
    }
}
