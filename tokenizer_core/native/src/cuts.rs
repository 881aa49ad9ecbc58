//! Where a pre-token falls apart into parts that never merge with each other.
//!
//! Every merge joins two neighbours, one of which ends with the character before a place and the
//! other of which begins with the character behind it. Where no pair of the table could do that,
//! nothing ever merges across, and what stands on each side may be encoded alone. Chinese clauses
//! are long and hardly one comes twice; their parts are short and come again and again.
//!
//! The answer "may join" may be wrong, which costs only speed: pairs of characters are kept as bits
//! of a hash, and pairs of which one is cut within a character as pairs of the bytes that meet.

use crate::pair_table::Pair;

const FILTER_BITS: u32 = 19;

pub struct Cuts {
    /// A bit for each pair of bytes, the last before a place and the first behind it.
    by_bytes: Box<[u64]>,
    /// A bit for each hash of a pair of characters.
    by_characters: Box<[u64]>,
}

impl Cuts {
    /// Of all `pairs` that merge, and of the tokens that are taken `whole` though merging would not
    /// come to them: a pre-token that is one of these must not fall apart, so nothing is cut
    /// between characters that meet in one. `bytes_of` gives the bytes of an id.
    pub fn new<'v>(
        pairs: impl Iterator<Item = Pair>,
        whole: impl Iterator<Item = &'v [u8]>,
        bytes_of: impl Fn(u32) -> &'v [u8],
    ) -> Cuts {
        let mut cuts = Cuts {
            by_bytes: vec![0; 1 << 10].into(),
            by_characters: vec![0; 1 << (FILTER_BITS - 6)].into(),
        };
        for Pair { left, right, .. } in pairs {
            cuts.join(bytes_of(left), bytes_of(right));
        }
        for token in whole {
            for place in 1..token.len() {
                let (left, right) = token.split_at(place);
                cuts.join(left, right);
            }
        }
        cuts
    }

    /// Remembers that `left` and `right` may belong together.
    fn join(&mut self, left: &[u8], right: &[u8]) {
        let (&last, &first) = (left.last().expect("bytes"), right.first().expect("bytes"));
        if is_inner(first) {
            return;
        }
        match (last_character(left), first_character(right)) {
            (Some(before), Some(behind)) => {
                let (word, bit) = place_of_characters(before, behind);
                self.by_characters[word] |= bit;
            }
            _ => {
                let (word, bit) = place_of_bytes(last, first);
                self.by_bytes[word] |= bit;
            }
        }
    }

    /// Whether anything may merge across the place between two characters, given as their bytes
    /// (see `character_at`), of which the first ends with the byte `last`.
    #[inline(always)]
    pub fn may_join(&self, before: u32, last: u8, behind: u32) -> bool {
        let (word, bit) = place_of_characters(before, behind);
        let by_characters = self.by_characters[word] & bit;
        let (word, bit) = place_of_bytes(last, behind as u8);
        by_characters | self.by_bytes[word] & bit != 0
    }
}

/// The bytes of the character of `length` bytes at `at`, the first one lowest.
#[inline(always)]
pub fn character_at(text: &[u8], at: usize, length: usize) -> u32 {
    match text[at..].first_chunk::<4>() {
        Some(bytes) => u32::from_le_bytes(*bytes) & (u32::MAX >> (32 - 8 * length)),
        None => packed(&text[at..at + length]),
    }
}

/// How many bytes the character has that starts with this one.
#[inline(always)]
pub fn length_from(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0.. => 4,
    }
}

#[inline(always)]
fn place_of_characters(before: u32, behind: u32) -> (usize, u64) {
    // Any odd constant of many bits: a text that collides is not cut where it could be.
    let hash = (u64::from(before) << 32 | u64::from(behind)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let place = hash >> (64 - FILTER_BITS);
    ((place >> 6) as usize, 1 << (place & 63))
}

#[inline(always)]
fn place_of_bytes(last: u8, first: u8) -> (usize, u64) {
    let place = usize::from(last) << 8 | usize::from(first);
    (place >> 6, 1 << (place & 63))
}

fn is_inner(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

fn packed(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |packed, &byte| packed << 8 | u32::from(byte))
}

fn first_character(token: &[u8]) -> Option<u32> {
    token.get(..length_from(token[0])).map(packed)
}

fn last_character(token: &[u8]) -> Option<u32> {
    let start = token.iter().rposition(|&byte| !is_inner(byte))?;
    let bytes = &token[start..];
    (bytes.len() == length_from(bytes[0])).then(|| packed(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_meets_in_a_pair_may_join_and_most_else_does_not() {
        let tokens: [&[u8]; 8] = [
            "中".as_bytes(),
            "文字".as_bytes(),
            b"a",
            "é".as_bytes(),
            b" ",
            b"\xE4\xB8",
            b"\x96",
            "界".as_bytes(),
        ];
        let pair = |left, right| Pair {
            left,
            right,
            rank: 0,
        };
        let pairs = [pair(0, 1), pair(2, 3), pair(4, 5), pair(5, 6), pair(6, 7)];
        let whole = ["界é".as_bytes()];
        let cuts = Cuts::new(pairs.into_iter(), whole.into_iter(), |id| {
            tokens[id as usize]
        });
        let may_join = |before: char, behind: char| {
            let text = format!("{before}{behind}");
            let (bytes, length) = (text.as_bytes(), before.len_utf8());
            cuts.may_join(
                character_at(bytes, 0, length),
                bytes[length - 1],
                character_at(bytes, length, behind.len_utf8()),
            )
        };
        assert!(may_join('中', '文') && may_join('a', 'é'));
        // A blank with the first bytes of any character of this lead; the end of one with 界.
        assert!(may_join(' ', '世') && may_join('世', '界'));
        // Only a token that is taken whole has these next to each other.
        assert!(may_join('界', 'é'));
        assert!(!may_join('文', '字') && !may_join('中', '字') && !may_join('é', 'a'));
        assert!(!may_join('a', '文') && !may_join('字', '中'));
    }
}
