//! The classes of 64 bytes of text at once, as one word of bits for each class.
//!
//! Bit `i` of a word belongs to byte `i` of the block. All bytes of a character have its classes,
//! so that one shift compares with the character before, of any length. Vectors class ASCII
//! and frequent other characters; the remaining ones are looked up one by one in the Unicode
//! tables.

use crate::simd::{Instructions, Portable};
use crate::unicode::{L, LM, LO, LT, LU, M, N, S, class_at};

/// Bytes in a block.
pub const BLOCK: usize = 64;

/// Bits of the ASCII table; see `Classes`.
pub const LETTER: u8 = 1;
pub const NUMBER: u8 = 2;
pub const SPACE: u8 = 4;
pub const NEWLINE: u8 = 8;
pub const BLANK: u8 = 16;
pub const APOSTROPHE: u8 = 32;
pub const UPPER: u8 = 64;
pub const SLASH: u8 = 128;

/// The classes of each ASCII byte, by the bits above.
pub static ASCII: [u8; 128] = {
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
            // With SPACE, a line break; alone, another control character.
            0..0x20 | 0x7F => NEWLINE,
            b'\'' => APOSTROPHE,
            b'/' => SLASH,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// The classes of up to 64 bytes; bits from `valid` on have no meaning.
#[derive(Clone, Copy, Default)]
pub struct Classes {
    /// Bytes of whole characters in the block.
    pub valid: usize,
    /// Bytes that continue a character.
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
    /// `\p{Lm}`, `\p{Lo}`: letters that count as both cases.
    pub both: u64,
    pub mark: u64,
    /// Bytes above 0x7F.
    pub high: u64,
    /// Whether there is a letter of U+3000 or above, or another character there that the vectors do
    /// not know: perhaps of a script without blanks.
    pub is_wide: bool,
    /// First bytes of characters outside ASCII that the vectors do not know.
    pub looked_up: u64,
    /// U+4E00 to U+9FA5.
    pub han: u64,
    /// U+3041 to U+3096 and U+30A1 to U+30FF without U+30FB.
    pub kana: u64,
    /// `\p{Cc}` of ASCII, without white space.
    pub control: u64,
    /// Set by grammars that take out characters: they are nothing but that.
    pub cut_out: u64,
    /// Set by grammars: characters whose classes they do not have.
    pub unclear: u64,
}

/// Bytes above 0x7F, and the first bytes of characters outside ASCII that vectors recognise.
/// Portable code recognises none.
#[derive(Clone, Copy, Default)]
pub struct High {
    pub all: u64,
    /// Of three bytes and `\p{Lo}` or `\p{Lm}`: ideographs, kana, Hangul.
    pub ideographs: u64,
    /// Those of them from U+4E00 to U+9FA5, and kana.
    pub han: u64,
    pub kana: u64,
    /// Of two bytes and `\p{Lu}` or `\p{Ll}`: Cyrillic, Latin.
    pub cased: u64,
    /// Those of them that are `\p{Lu}`.
    pub upper_cased: u64,
    /// Of three bytes and of no class: quotes and dashes, punctuation of ideographs and of full width.
    pub symbols: u64,
}

/// Classing a block, with each instruction set.
pub trait Blocks: Instructions {
    /// The classes of `text[at..at + 64]`, or of the rest of the text, without those of characters
    /// outside ASCII.
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High);

    /// Writes the positions of the bits of `bits`, plus `base`, from the start of `positions` on.
    /// It may overwrite entries after them.
    fn write_positions(self, bits: u64, base: u32, positions: &mut [u32; BLOCK]);
}

impl Blocks for Portable {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High) {
        let bytes = &text[at..text.len().min(at + BLOCK)];
        let mut words = [0u64; 8];
        let mut high = High::default();
        for (position, eight) in bytes.chunks(8).enumerate() {
            let mut classes = 0;
            for (i, &byte) in eight.iter().enumerate() {
                let class = ASCII.get(usize::from(byte)).copied().unwrap_or(0);
                classes |= u64::from(class) << (8 * i);
                high.all |= u64::from(byte >> 7) << (8 * position + i);
            }
            let bits = transposed(classes);
            for (bit, word) in words.iter_mut().enumerate() {
                *word |= (bits >> (8 * bit) & 0xFF) << (8 * position);
            }
        }
        (from_words(words, bytes.len()), high)
    }

    #[inline(always)]
    fn write_positions(self, mut bits: u64, base: u32, positions: &mut [u32; BLOCK]) {
        // Eight at a time, needed or not: the number of positions cannot be predicted.
        for eight in positions.as_chunks_mut::<8>().0 {
            for position in eight {
                *position = base + bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
            }
            if bits == 0 {
                return;
            }
        }
    }
}

/// Eight bytes as a square of bits, transposed, so that bit i of byte k becomes bit k of byte i:
/// exchanges across the diagonal pairs of bits, then of fours, then of halves.
#[inline(always)]
fn transposed(square: u64) -> u64 {
    let exchanged = |square: u64, mask: u64, by: u32| {
        let different = (square ^ (square >> by)) & mask;
        square ^ different ^ (different << by)
    };
    let square = exchanged(square, 0x00AA_00AA_00AA_00AA, 7);
    let square = exchanged(square, 0x0000_CCCC_0000_CCCC, 14);
    exchanged(square, 0x0000_0000_F0F0_F0F0, 28)
}

/// The classes of `text[at..at + 64]`, or of what is left of it.
#[inline(always)]
pub fn classes(kernel: impl Blocks, text: &[u8], at: usize) -> Classes {
    let (mut classes, high) = kernel.ascii(text, at);
    if high.all != 0 {
        classes.high = high.all;
        classes.add_known(&high);
        classes.add_multibyte(text, at, high);
    }
    classes
}

impl High {
    /// These bytes, and no character known.
    #[inline(always)]
    pub fn unknown(all: u64) -> High {
        High {
            all,
            ..High::default()
        }
    }

    /// The known characters that end within the block, by their first bytes.
    #[inline(always)]
    fn whole(&self) -> (u64, u64, u64) {
        (
            self.ideographs & u64::MAX >> 2,
            self.cased & u64::MAX >> 1,
            self.symbols & u64::MAX >> 2,
        )
    }
}

impl Classes {
    /// Where runs of blanks begin.
    #[inline(always)]
    pub fn begins_of_blanks(&self) -> u64 {
        self.blank & !(self.blank << 1)
    }

    #[inline(always)]
    fn add_known(&mut self, high: &High) {
        let (ideographs, cased, symbols) = high.whole();
        let of_three = ideographs | symbols;
        self.inner = of_three << 1 | of_three << 2 | cased << 1;
        self.both = ideographs | ideographs << 1 | ideographs << 2;
        self.letter |= self.both | cased | cased << 1;
        let upper = high.upper_cased & cased;
        self.upper |= upper | upper << 1;
        self.is_wide = ideographs != 0;
        let all = |first: u64| first | first << 1 | first << 2;
        self.han = all(high.han & ideographs);
        self.kana = all(high.kana & ideographs);
    }

    #[inline(always)]
    fn add_multibyte(&mut self, text: &[u8], at: usize, high: High) {
        let (ideographs, cased, symbols) = high.whole();
        let of_three = ideographs | symbols;
        let known = of_three | of_three << 1 | of_three << 2 | cased | cased << 1;
        let mut left = high.all & !known;
        let mut largest = 0;
        while left != 0 {
            let position = left.trailing_zeros() as usize;
            let (class, length) = class_at(text, at + position);
            largest = largest.max(text[at + position]);
            if position + length > BLOCK {
                self.valid = position;
                break;
            }
            self.looked_up |= 1 << position;
            let bits = (u64::MAX >> (BLOCK - length)) << position;
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
        self.is_wide |= largest >= 0xE3;
    }
}

/// Of a word for each bit of the ASCII table.
#[inline(always)]
pub fn from_words(words: [u64; 8], valid: usize) -> Classes {
    let [
        letter,
        number,
        space,
        newline,
        blank,
        apostrophe,
        upper,
        slash,
    ] = words;
    let control = newline & !space;
    let newline = newline & space;
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
        control,
        ..Classes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Kernel, Work};
    use crate::unicode::class_of;

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

    struct ClassesOf<'t>(&'t [u8]);

    impl<K: Blocks> Work<K> for ClassesOf<'_> {
        type Output = Classes;

        fn run(self, kernel: K) -> Classes {
            classes(kernel, self.0, 0)
        }
    }

    #[test]
    fn what_kernels_know_is_what_the_tables_say() {
        let words = |classes: &Classes| {
            let c = classes;
            let words = [c.inner, c.letter, c.number, c.space, c.newline, c.blank];
            let more = [c.apostrophe, c.slash, c.upper, c.both, c.mark, c.high];
            let valid = u64::MAX >> (BLOCK - c.valid);
            (
                c.valid,
                words.map(|word| word & valid),
                more.map(|word| word & valid),
            )
        };
        for kernel in Kernel::all() {
            for character in '\0'..=char::MAX {
                // Alone, next to another of its length, and across the end of the block.
                let text =
                    format!("{character}a{character}{character}中é”Ж {character}。か").repeat(4);
                let text = text.as_bytes();
                let expected = words(&classes(Portable, text, 0));
                assert_eq!(
                    words(&kernel.run(ClassesOf(text))),
                    expected,
                    "{character:?}"
                );
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
            for position in at..at + character.len_utf8() {
                let is_in = |word: u64| word >> position & 1 != 0;
                assert_eq!(is_in(found.inner), position > at);
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
