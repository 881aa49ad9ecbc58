//! The classes of 64 bytes of text at once, as one word of bits for each class.
//!
//! Bit `i` of a word is about byte `i` of the block. All bytes of a character have its classes, so
//! that "is the character before of this class" is one shift, whatever its length. ASCII is classed
//! by the processor's vectors, which is where a kernel of its own comes in; other characters are
//! looked up one by one in the Unicode tables.

use crate::unicode::{L, LM, LO, LT, LU, M, N, S, class_at};

/// Bytes in a block.
pub const BLOCK: usize = 64;

/// Bits of the ASCII table; see `Classes`.
const LETTER: u8 = 1;
const NUMBER: u8 = 2;
const SPACE: u8 = 4;
const NEWLINE: u8 = 8;
const BLANK: u8 = 16;
const APOSTROPHE: u8 = 32;
const UPPER: u8 = 64;
const SLASH: u8 = 128;

/// What the scanners ask of each ASCII byte.
static ASCII: [u8; 128] = {
    let mut table = [0; 128];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'A'..=b'Z' => LETTER | UPPER,
            b'a'..=b'z' => LETTER,
            b'0'..=b'9' => NUMBER,
            b'\r' | b'\n' => SPACE | NEWLINE,
            b' ' => SPACE | BLANK,
            b'\t' | 0x0B | 0x0C => SPACE,
            b'\'' => APOSTROPHE,
            b'/' => SLASH,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// The classes of up to 64 bytes; what lies behind `valid` means nothing.
#[derive(Clone, Copy, Default)]
pub struct Classes {
    /// Bytes of whole characters in the block.
    pub valid: usize,
    /// Bytes that start no character.
    pub inner: u64,
    pub letter: u64,
    pub number: u64,
    pub space: u64,
    /// `\r` and `\n`.
    pub newline: u64,
    /// U+0020.
    pub blank: u64,
    pub apostrophe: u64,
    pub slash: u64,
    /// `\p{Lu}`, `\p{Lt}`.
    pub upper: u64,
    /// `\p{Lm}`, `\p{Lo}`: letters that stand for both cases.
    pub both: u64,
    pub mark: u64,
}

/// A way to class the ASCII bytes of a block, and to write down where its bits are.
pub trait Kernel: Copy {
    /// The classes of `text[at..at + 64]`, or of what is left of it; those of characters outside
    /// ASCII are left open. Returns the bytes above 0x7F too.
    fn ascii(self, text: &[u8], at: usize) -> (Classes, u64);

    /// Writes the places of the bits of `bits`, plus `base`, from the start of `places` on.
    fn write_places(self, bits: u64, base: u32, places: &mut [u32; BLOCK]);
}

/// The classes of `text[at..at + 64]`, or of what is left of it.
#[inline(always)]
pub fn classes(kernel: impl Kernel, text: &[u8], at: usize) -> Classes {
    let (mut classes, high) = kernel.ascii(text, at);
    if high != 0 {
        classes.add_multibyte(text, at, high);
    }
    classes
}

impl Classes {
    #[inline(always)]
    fn add_multibyte(&mut self, text: &[u8], at: usize, high: u64) {
        let mut left = high;
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            let (class, length) = class_at(text, at + place);
            if place + length > BLOCK {
                self.valid = place;
                return;
            }
            let bits = (u64::MAX >> (BLOCK - length)) << place;
            left &= !bits;
            self.inner |= bits & (bits << 1);
            let chosen = |of: u8| if class & of != 0 { bits } else { 0 };
            self.letter |= chosen(L);
            self.number |= chosen(N);
            self.space |= chosen(S);
            self.upper |= chosen(LU | LT);
            self.both |= chosen(LM | LO);
            self.mark |= chosen(M);
        }
    }
}

/// Eight bytes at a time by plain arithmetic, on any processor.
#[derive(Clone, Copy)]
pub struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, u64) {
        let bytes = &text[at..text.len().min(at + BLOCK)];
        let mut words = [0u64; 8];
        let mut high = 0;
        for (place, &byte) in bytes.iter().enumerate() {
            high |= u64::from(byte >> 7) << place;
            let class = if byte < 0x80 { ASCII[usize::from(byte)] } else { 0 };
            for (bit, word) in words.iter_mut().enumerate() {
                *word |= u64::from(class >> bit & 1) << place;
            }
        }
        (from_words(words, bytes.len()), high)
    }

    #[inline(always)]
    fn write_places(self, mut bits: u64, base: u32, places: &mut [u32; BLOCK]) {
        for place in places {
            if bits == 0 {
                return;
            }
            *place = base + bits.trailing_zeros();
            bits &= bits - 1;
        }
    }
}

/// Of one word for each bit of the ASCII table.
#[inline(always)]
fn from_words(words: [u64; 8], valid: usize) -> Classes {
    let [letter, number, space, newline, blank, apostrophe, upper, slash] = words;
    Classes {
        valid,
        letter,
        number,
        space,
        newline,
        blank,
        apostrophe,
        upper,
        slash,
        ..Classes::default()
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;

    /// AVX-512 with VBMI and VBMI2: processors from about 2019 (Intel) and 2022 (AMD) on.
    #[derive(Clone, Copy)]
    pub struct Avx512(());

    impl Avx512 {
        /// None where the processor cannot; a value of this type says that it can.
        pub fn detect() -> Option<Avx512> {
            let is_there = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vbmi2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            is_there.then_some(Avx512(()))
        }
    }

    impl Kernel for Avx512 {
        #[inline(always)]
        fn ascii(self, text: &[u8], at: usize) -> (Classes, u64) {
            let block = &text[at..];
            let valid = block.len().min(BLOCK);
            // SAFETY: the processor has the instructions, or there were no `self`; the load reads
            // the first `valid` bytes of `block` and no other; the tables are 64 bytes each.
            unsafe {
                let present = u64::MAX >> (BLOCK - valid);
                let bytes = _mm512_maskz_loadu_epi8(present, block.as_ptr().cast());
                let high = _mm512_movepi8_mask(bytes);
                let first = _mm512_loadu_si512(ASCII.as_ptr().cast());
                let second = _mm512_loadu_si512(ASCII[64..].as_ptr().cast());
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
                (from_words(words, valid), high)
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
            // SAFETY: the processor has the instructions, or there were no `self`; each store is
            // of 16 of the 64 places.
            unsafe {
                let iota = _mm512_loadu_si512(IOTA.as_ptr().cast());
                let packed = _mm512_maskz_compress_epi8(bits, iota);
                let base = _mm512_set1_epi32(base as i32);
                let out = places.as_mut_ptr().cast::<__m512i>();
                let wide = |quarter| _mm512_add_epi32(base, _mm512_cvtepu8_epi32(quarter));
                _mm512_storeu_si512(out, wide(_mm512_castsi512_si128(packed)));
                let n = bits.count_ones();
                if n > 16 {
                    _mm512_storeu_si512(out.add(1), wide(_mm512_extracti32x4_epi32::<1>(packed)));
                    if n > 32 {
                        let third = _mm512_extracti32x4_epi32::<2>(packed);
                        _mm512_storeu_si512(out.add(2), wide(third));
                        let fourth = _mm512_extracti32x4_epi32::<3>(packed);
                        _mm512_storeu_si512(out.add(3), wide(fourth));
                    }
                }
            }
        }
    }

    /// AVX2: nearly every processor in use.
    #[derive(Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        /// None where the processor cannot; a value of this type says that it can.
        pub fn detect() -> Option<Avx2> {
            let is_there = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            is_there.then_some(Avx2(()))
        }
    }

    impl Kernel for Avx2 {
        #[inline(always)]
        fn ascii(self, text: &[u8], at: usize) -> (Classes, u64) {
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
            // SAFETY: the processor has the instructions, or there were no `self`; both loads are
            // of 32 of the 64 bytes.
            unsafe {
                let halves = [
                    _mm256_loadu_si256(whole.as_ptr().cast()),
                    _mm256_loadu_si256(whole[32..].as_ptr().cast()),
                ];
                let join = |low: i32, high: i32| u64::from(low as u32) | u64::from(high as u32) << 32;
                let of_both = |class: fn(__m256i) -> __m256i| {
                    let [low, high] = halves.map(|half| _mm256_movemask_epi8(class(half)));
                    join(low, high)
                };
                let high = of_both(|bytes| bytes);
                let lower = of_both(|bytes| unsafe { between(bytes, b'a', b'z') });
                let upper = of_both(|bytes| unsafe { between(bytes, b'A', b'Z') });
                let number = of_both(|bytes| unsafe { between(bytes, b'0', b'9') });
                let blank = of_both(|bytes| unsafe { between(bytes, b' ', b' ') });
                let tabs = of_both(|bytes| unsafe { between(bytes, b'\t', b'\r') });
                let apostrophe = of_both(|bytes| unsafe { between(bytes, b'\'', b'\'') });
                let slash = of_both(|bytes| unsafe { between(bytes, b'/', b'/') });
                let newline = of_both(|bytes| unsafe {
                    _mm256_or_si256(between(bytes, b'\n', b'\n'), between(bytes, b'\r', b'\r'))
                });
                let words = [
                    lower | upper,
                    number,
                    blank | tabs,
                    newline,
                    blank,
                    apostrophe,
                    upper,
                    slash,
                ];
                (from_words(words, valid), high)
            }
        }

        #[inline(always)]
        fn write_places(self, bits: u64, base: u32, places: &mut [u32; BLOCK]) {
            Portable.write_places(bits, base, places);
        }
    }

    /// All bits of the bytes between two of ASCII; bytes above 0x7F are below all of them.
    #[inline(always)]
    unsafe fn between(bytes: __m256i, first: u8, last: u8) -> __m256i {
        // SAFETY: the caller's processor has the instructions.
        unsafe {
            if first == last {
                return _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(first as i8));
            }
            let from_first = _mm256_cmpgt_epi8(bytes, _mm256_set1_epi8(first as i8 - 1));
            let to_last = _mm256_cmpgt_epi8(_mm256_set1_epi8(last as i8 + 1), bytes);
            _mm256_and_si256(from_first, to_last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unicode::class_of;

    fn agree(kernel: impl Kernel, text: &[u8], at: usize) {
        let (expected, high) = Portable.ascii(text, at);
        let (found, found_high) = kernel.ascii(text, at);
        let of = |c: Classes| {
            [
                c.letter, c.number, c.space, c.newline, c.blank, c.apostrophe, c.upper, c.slash,
            ]
        };
        let valid = u64::MAX >> (BLOCK - expected.valid);
        assert_eq!(of(found).map(|word| word & valid), of(expected));
        assert_eq!((found.valid, found_high), (expected.valid, high));
        let bits = expected.letter | high;
        let (mut places, mut expected) = ([0; BLOCK], [0; BLOCK]);
        kernel.write_places(bits, 7, &mut places);
        Portable.write_places(bits, 7, &mut expected);
        let n = bits.count_ones() as usize;
        assert_eq!(places[..n], expected[..n]);
    }

    #[test]
    fn the_ascii_table_is_the_unicode_tables() {
        for byte in 0..0x80 {
            let (class, bits) = (class_of(byte), ASCII[byte as usize]);
            assert_eq!(bits & LETTER != 0, class & L != 0);
            assert_eq!(bits & NUMBER != 0, class & N != 0);
            assert_eq!(bits & SPACE != 0, class & S != 0, "{byte:x}");
            assert_eq!(bits & UPPER != 0, class & (LU | LT) != 0);
            assert_eq!(class & (M | LM | LO), 0);
        }
    }

    #[test]
    fn every_kernel_classes_every_byte_at_every_place() {
        let text: Vec<u8> = (0..1000u32).map(|i| (i * i * 7 + i / 3) as u8).collect();
        let all: Vec<u8> = (0..=255).collect();
        for text in [&text[..], &all] {
            for at in 0..text.len() {
                agree(Portable, text, at);
                #[cfg(target_arch = "x86_64")]
                {
                    if let Some(kernel) = Avx2::detect() {
                        agree(kernel, text, at);
                    }
                    if let Some(kernel) = Avx512::detect() {
                        agree(kernel, text, at);
                    }
                }
            }
        }
    }

    #[test]
    fn all_bytes_of_a_character_have_its_class_and_a_cut_one_is_left_out() {
        let text = "aé中\u{301}²\u{3000}Ж🙂ʰ".repeat(4);
        let found = classes(Portable, text.as_bytes(), 0);
        assert!(found.valid <= BLOCK && found.valid > BLOCK - 4);
        assert!(text.is_char_boundary(found.valid));
        for (at, character) in text.char_indices().take_while(|(at, _)| *at < found.valid) {
            let class = class_of(character.into());
            for place in at..at + character.len_utf8() {
                let is_in = |word: u64| word >> place & 1 != 0;
                assert_eq!(is_in(found.inner), place > at);
                assert_eq!(is_in(found.letter), class & L != 0);
                assert_eq!(is_in(found.number), class & N != 0);
                assert_eq!(is_in(found.space), class & S != 0);
                assert_eq!(is_in(found.upper), class & (LU | LT) != 0);
                assert_eq!(is_in(found.both), class & (LM | LO) != 0);
                assert_eq!(is_in(found.mark), class & M != 0);
            }
        }
    }
}
