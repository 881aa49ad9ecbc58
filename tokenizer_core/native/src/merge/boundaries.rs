//! Where a pre-token can be cut into parts that never merge with each other.
//!
//! Every merge across a position joins two neighbours: one ends with the character before the
//! position, the other begins with the character after it. If no pair of the table does that,
//! nothing ever merges across, and both sides may be encoded separately. Chinese clauses are long
//! and hardly ever repeat; their parts are short and repeat often.
//!
//! `may_join` may be wrongly true, which costs only speed: pairs of characters are kept as bits of
//! a hash, and other pairs, such as those that cut a character, as the bytes that meet.

use crate::mem::sections::{Reader, Unusable, Writer, check};
use crate::mem::table::Table;
use crate::merge::pair_table::Pair;
use crate::unicode::{is_inner, length_from};

/// Bits of the characters that may follow one; those of frequent characters stay in the first
/// cache.
const LINE_BITS: u32 = 9;
/// Lines, as a power of two: at most, and at least.
const N_LINES: (u32, u32) = (10, 3);
/// At least this many bits for each pair of characters, up to the greatest size.
const BITS_PER_PAIR: u32 = 16;

pub struct Boundaries {
    /// A bit for each pair of bytes, the last before a position and the first after it.
    by_bytes: Box<[u64; 1 << 10]>,
    /// A bit for each pair of characters, the one before outside ASCII: a line for what the one
    /// before hashes to, in it a bit for the one after.
    by_characters: Table<u64>,
    /// A hash shifted right by this is the number of a line.
    shift: u32,
}

impl Boundaries {
    /// Of all `pairs` that merge, and of the tokens that a `whole` pre-token becomes though merging
    /// does not make them: such a pre-token must not be cut, so no position between characters that
    /// meet in one is a boundary. `bytes_of` gives the bytes of an id.
    pub fn new<'v>(
        pairs: impl Iterator<Item = Pair>,
        whole: impl Iterator<Item = &'v [u8]>,
        bytes_of: impl Fn(u32) -> &'v [u8],
    ) -> Boundaries {
        let mut boundaries = Boundaries {
            by_bytes: Box::new([0; 1 << 10]),
            by_characters: vec![0; 1 << (N_LINES.0 + LINE_BITS - 6)].into(),
            shift: u32::BITS - N_LINES.0,
        };
        for Pair { left, right, .. } in pairs {
            boundaries.join(bytes_of(left), bytes_of(right));
        }
        for token in whole {
            for position in 1..token.len() {
                let (left, right) = token.split_at(position);
                boundaries.join(left, right);
            }
        }
        boundaries.fold();
        boundaries
    }

    /// No position is a boundary.
    pub fn none() -> Boundaries {
        Boundaries {
            by_bytes: Box::new([u64::MAX; 1 << 10]),
            by_characters: vec![0; 1 << (N_LINES.1 + LINE_BITS - 6)].into(),
            shift: u32::BITS - N_LINES.1,
        }
    }

    pub fn write(&self, to: &mut Writer) {
        to.table(&self.by_bytes[..]);
        to.table(&self.by_characters);
    }

    pub fn read(from: &mut Reader) -> Result<Boundaries, Unusable> {
        let by_bytes = Box::new(from.array()?);
        let by_characters: Table<u64> = from.table()?;
        let n_bits = by_characters.len().trailing_zeros() + 6;
        let are_lines = (LINE_BITS + N_LINES.1..=LINE_BITS + N_LINES.0).contains(&n_bits);
        check(
            by_characters.len().is_power_of_two() && are_lines,
            "the boundaries have another size",
        )?;
        Ok(Boundaries {
            by_bytes,
            by_characters,
            shift: u32::BITS + LINE_BITS - n_bits,
        })
    }

    /// No position next to a character that begins with `byte` is a boundary, though no pair of the
    /// table says so; after one outside ASCII, whose last byte is another, nothing changes.
    pub fn exclude(&mut self, byte: u8) {
        for other in 0..=255 {
            for bytes in [[byte, other], [other, byte]] {
                let (word, bit) = Meeting::at(&bytes, 1).position_of_bytes();
                self.by_bytes[word] |= 1 << bit;
            }
        }
    }

    /// Remembers that `left` and `right` may belong together.
    fn join(&mut self, left: &[u8], right: &[u8]) {
        let (&last, &first) = (left.last().expect("bytes"), right.first().expect("bytes"));
        if is_inner(first) {
            return;
        }
        match (last_character(left), first_character(right)) {
            // So many characters may follow a blank that its line would be full.
            (Some(before), Some(after)) if !before.is_ascii() => {
                let text = [before, after].concat();
                let (before, after) = (Meeting::at_start(&text), Meeting::at(&text, before.len()));
                let (word, bit) = self.position_of_characters(before, after);
                self.by_characters.values_mut()[word] |= 1 << bit;
            }
            _ => {
                let (word, bit) = Meeting::at(&[last, first], 1).position_of_bytes();
                self.by_bytes[word] |= 1 << bit;
            }
        }
    }

    /// Halves the lines for as long as there are more bits than the pairs need.
    fn fold(&mut self) {
        let n_pairs: u32 = self
            .by_characters
            .iter()
            .map(|word| word.count_ones())
            .sum();
        let mut n_lines = N_LINES.0;
        while n_lines > N_LINES.1 && n_pairs * BITS_PER_PAIR < 1 << (n_lines + LINE_BITS - 1) {
            n_lines -= 1;
            const WORDS: usize = 1 << (LINE_BITS - 6);
            let folded = self.by_characters.chunks(2 * WORDS).flat_map(|lines| {
                let (first, second) = lines.split_at(WORDS);
                first.iter().zip(second).map(|(a, b)| a | b)
            });
            self.by_characters = folded.collect::<Vec<u64>>().into();
        }
        self.shift = u32::BITS - n_lines;
    }

    /// Bit 0 says whether anything may merge across a position, given what meets there and what met
    /// at the character before.
    #[inline(always)]
    pub fn may_join(&self, before: Meeting, after: Meeting) -> u32 {
        let (word, bit) = self.position_of_characters(before, after);
        let by_characters = self.by_characters[word] >> bit;
        by_characters as u32 | self.may_join_ascii(after)
    }

    /// The same where the character before is ASCII.
    #[inline(always)]
    pub fn may_join_ascii(&self, after: Meeting) -> u32 {
        let (word, bit) = after.position_of_bytes();
        (self.by_bytes[word] >> bit) as u32
    }

    /// The bit of two characters.
    #[inline(always)]
    fn position_of_characters(&self, before: Meeting, after: Meeting) -> (usize, u32) {
        // Any odd constant with many bits: a text that collides is cut less often.
        const FACTOR: u32 = 0x9E37_79B9;
        let line = (before.0 >> 8).wrapping_mul(FACTOR) >> self.shift;
        let position = line << LINE_BITS | after.0.wrapping_mul(FACTOR) >> (u32::BITS - LINE_BITS);
        ((position >> 6) as usize, position & 63)
    }
}

/// The bytes that meet where a character starts: the last byte before it (0 if that does not
/// matter), and up to three bytes of the character, the first ones lowest.
#[derive(Clone, Copy)]
pub struct Meeting(u32);

impl Meeting {
    #[inline(always)]
    pub fn at(text: &[u8], position: usize) -> Meeting {
        match text[position - 1..].first_chunk() {
            Some(bytes) => Meeting::of(*bytes),
            None => Meeting::of(padded(&text[position - 1..])),
        }
    }

    /// At the start of `text`.
    #[inline(always)]
    pub fn at_start(text: &[u8]) -> Meeting {
        let byte = |position: usize| text.get(position).copied().unwrap_or(0);
        Meeting::of([0, byte(0), byte(1), byte(2)])
    }

    /// The character at `position`, without the byte before it.
    #[inline(always)]
    pub fn after_nothing(text: &[u8], position: usize) -> Meeting {
        match text[position..].first_chunk() {
            Some(&[first, second, third]) => Meeting::of([0, first, second, third]),
            None => Meeting::at_start(&text[position..]),
        }
    }

    #[inline(always)]
    fn of(bytes: [u8; 4]) -> Meeting {
        /// By the upper half of a character's first byte, which determines its length.
        const KEPT: [u32; 16] = {
            let mut kept = [0xFFFF; 16];
            (kept[0xC], kept[0xD]) = (0xFF_FFFF, 0xFF_FFFF);
            (kept[0xE], kept[0xF]) = (0xFFFF_FFFF, 0xFFFF_FFFF);
            kept
        };
        let all = u32::from_le_bytes(bytes);
        Meeting(all & KEPT[(all >> 12 & 0xF) as usize])
    }

    #[inline(always)]
    pub fn is_ascii(self) -> bool {
        self.0 & 0x8000 == 0
    }

    /// The bit of two bytes.
    #[inline(always)]
    fn position_of_bytes(self) -> (usize, u32) {
        let position = self.0 & 0xFFFF;
        ((position >> 6) as usize, position & 63)
    }
}

fn padded(bytes: &[u8]) -> [u8; 4] {
    let mut padded = [0; 4];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

fn first_character(token: &[u8]) -> Option<&[u8]> {
    token.get(..length_from(token[0]))
}

fn last_character(token: &[u8]) -> Option<&[u8]> {
    let start = token.iter().rposition(|&byte| !is_inner(byte))?;
    let bytes = &token[start..];
    (bytes.len() == length_from(bytes[0])).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_meets_in_a_pair_may_join_and_most_else_does_not() {
        #[rustfmt::skip]
        let tokens: [&[u8]; 8] = [
            "中".as_bytes(), "文字".as_bytes(), b"a", "é".as_bytes(), b" ", b"\xE4\xB8", b"\x96",
            "界".as_bytes(),
        ];
        let pair = |left, right| Pair {
            left,
            right,
            rank: 0,
        };
        let pairs = [pair(0, 1), pair(2, 3), pair(4, 5), pair(5, 6), pair(6, 7)];
        let whole = ["界é".as_bytes()];
        let boundaries = Boundaries::new(pairs.into_iter(), whole.into_iter(), |id| {
            tokens[id as usize]
        });
        let may_join = |before: char, after: char| {
            let text = format!("{before}{after}");
            let (bytes, length) = (text.as_bytes(), before.len_utf8());
            boundaries.may_join(Meeting::at_start(bytes), Meeting::at(bytes, length)) & 1 != 0
        };
        assert!(may_join('中', '文') && may_join('a', 'é'));
        // A blank with the first bytes of any character of this lead; the end of one with 界.
        assert!(may_join(' ', '世') && may_join('世', '界'));
        // Only a token that is taken whole has these next to each other.
        assert!(may_join('界', 'é'));
        assert!(!may_join('文', '字') && !may_join('中', '字') && !may_join('é', 'a'));
        assert!(!may_join('a', '文') && !may_join('字', '中'));
    }

    #[test]
    fn no_position_next_to_an_excluded_byte_is_a_boundary() {
        let mut boundaries = Boundaries::new([].into_iter(), [].into_iter(), |_| &[]);
        boundaries.exclude(b'!');
        boundaries.exclude(0xE4);
        for (text, position, is_joined) in [
            ("a!", 1, true),
            ("!a", 1, true),
            ("é!", 2, true),
            ("é中", 2, true),
            ("中é", 3, false),
            ("ab", 1, false),
        ] {
            let text = text.as_bytes();
            let [before, after] = [Meeting::at_start(text), Meeting::at(text, position)];
            assert_eq!(boundaries.may_join(before, after) & 1 == 1, is_joined);
        }
    }

    /// With all lines, and with few.
    #[test]
    fn of_many_characters_those_that_meet_may_join_and_few_others() {
        // The last ones differ in their fourth byte only.
        let characters = (0x4E00..0x4E00 + 600).chain(0x1F600..0x1F620);
        let characters: Vec<String> = characters
            .map(|code| char::from_u32(code).expect("a character").to_string())
            .collect();
        let n = characters.len() as u32;
        for n_partners in [1, 6, 40] {
            let partner = |left: u32, position: u32| (left * 7 + position * position) % n;
            let pairs = (0..n).flat_map(|left| {
                (0..n_partners).map(move |position| Pair {
                    left,
                    right: partner(left, position),
                    rank: 0,
                })
            });
            let boundaries = Boundaries::new(pairs, [].into_iter(), |id| {
                characters[id as usize].as_bytes()
            });
            let mut n_wrong = 0;
            for left in 0..n {
                let meets: Vec<u32> = (0..n_partners)
                    .map(|position| partner(left, position))
                    .collect();
                for right in 0..n {
                    let [before, after] = [left, right].map(|id| &characters[id as usize]);
                    let text = format!("{before}{after}");
                    let after = Meeting::at(text.as_bytes(), before.len());
                    let before = Meeting::at_start(text.as_bytes());
                    let may_join = boundaries.may_join(before, after) & 1 != 0;
                    assert!(may_join || !meets.contains(&right), "{text}");
                    n_wrong += u32::from(may_join && !meets.contains(&right));
                }
            }
            assert!(n_wrong < n * n / 5, "{n_partners}: {n_wrong}");
        }
    }
}
