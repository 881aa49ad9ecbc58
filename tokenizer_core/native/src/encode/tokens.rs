//! Strings with an id each, found leftmost, then longest.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use aho_corasick::{AhoCorasick, Anchored, BuildError, Input, Match, MatchKind, StartKind};
use memchr::{memchr, memmem};

pub(crate) struct Tokens {
    finder: Option<Finder>,
    ids: Vec<u32>,
    /// The pairs of adjacent characters in them.
    pairs: HashSet<(u32, u32)>,
    last_characters: HashSet<u32>,
}

/// A token in a text, in bytes, and its id.
pub(crate) type Found = (Range<usize>, u32);

impl Tokens {
    pub(crate) fn new(tokens: &[(&str, u32)]) -> Result<Tokens, BuildError> {
        let contents: Vec<&str> = tokens.iter().map(|(content, _)| *content).collect();
        let finder = (!tokens.is_empty()).then(|| Finder::new(&contents));
        let finder = finder.transpose()?;
        let ids = tokens.iter().map(|(_, id)| *id).collect();
        let pairs_of = |content: &str| {
            let codes: Vec<u32> = content.chars().map(u32::from).collect();
            codes
                .windows(2)
                .map(|pair| (pair[0], pair[1]))
                .collect::<Vec<_>>()
        };
        let pairs = tokens.iter().flat_map(|token| pairs_of(token.0)).collect();
        let last = |token: &(&str, u32)| token.0.chars().next_back().map(u32::from);
        Ok(Tokens {
            finder,
            ids,
            pairs,
            last_characters: tokens.iter().filter_map(last).collect(),
        })
    }

    pub(crate) fn none() -> Tokens {
        Tokens {
            finder: None,
            ids: Vec::new(),
            pairs: HashSet::new(),
            last_characters: HashSet::new(),
        }
    }

    /// The first one within a range: the leftmost, and the longest of those.
    #[inline]
    pub(crate) fn find(&self, text: &str, range: Range<usize>) -> Option<Found> {
        let (range, index) = self.find_index(text, range)?;
        Some((range, self.ids[index]))
    }

    /// The same, with the index of the token.
    #[inline]
    pub(crate) fn find_index(
        &self,
        text: &str,
        range: Range<usize>,
    ) -> Option<(Range<usize>, usize)> {
        let found = self.finder.as_ref()?.find(text, range)?;
        Some((found.range(), found.pattern().as_usize()))
    }

    /// Whether one contains these two characters next to each other.
    pub(crate) fn any_contains_pair(&self, before: u32, after: u32) -> bool {
        self.pairs.contains(&(before, after))
    }

    /// Whether one ends with this character.
    pub(crate) fn any_ends_with(&self, character: u32) -> bool {
        self.last_characters.contains(&character)
    }

    pub(crate) fn id(&self, index: usize) -> u32 {
        self.ids[index]
    }
}

/// Finds any of some strings: the leftmost, and the longest of those.
struct Finder {
    strings: AhoCorasick,
    /// What those with the same first byte have in common, if there are few such bytes. A text has it
    /// rarely, and vectors find it. The automaton alone would look for rare bytes: those of DeepSeek's
    /// `｜` are in most Chinese characters.
    beginnings: Vec<memmem::Finder<'static>>,
}

const MAX_BEGINNINGS: usize = 4;
/// Bytes in which all beginnings are looked for before the next ones: few at first, because the next
/// string may be near, then twice as many each time.
const FIRST_SEARCHED: usize = 128;
const SEARCHED: usize = 1 << 11;
/// In fewer bytes the first one is looked for before all: vectors do not find strings there.
const SHORT: usize = 48;
/// After so many positions in vain, and one more for each `BYTES_PER_TRY`, the automaton searches.
const FREE_TRIES: usize = 32;
const BYTES_PER_TRY: usize = 32;

impl Finder {
    fn new(strings: &[&str]) -> Result<Finder, BuildError> {
        let mut common: BTreeMap<u8, &[u8]> = BTreeMap::new();
        for string in strings.iter().map(|string| string.as_bytes()) {
            let known = common.entry(string[0]).or_insert(string);
            let pairs = known.iter().zip(string);
            *known = &known[..pairs.take_while(|(one, other)| one == other).count()];
        }
        let has_few = common.len() <= MAX_BEGINNINGS;
        let beginnings = common.values().filter(|_| has_few);
        Ok(Finder {
            strings: AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .start_kind(StartKind::Both)
                .prefilter(!has_few)
                .build(strings)?,
            beginnings: beginnings
                .map(|beginning| memmem::Finder::new(beginning).into_owned())
                .collect(),
        })
    }

    #[inline]
    fn find(&self, text: &str, range: Range<usize>) -> Option<Match> {
        let (input, mut at) = (Input::new(text), range.start);
        let mut n_left = if self.beginnings.is_empty() {
            0
        } else {
            FREE_TRIES
        };
        while n_left > 0 {
            let start = self.next_beginning(text.as_bytes(), at..range.end)?;
            let here = input.clone().range(start..range.end);
            if let found @ Some(_) = self.strings.find(here.anchored(Anchored::Yes)) {
                return found;
            }
            n_left += (start - at) / BYTES_PER_TRY;
            n_left -= 1;
            at = start + 1;
        }
        self.strings.find(input.range(at..range.end))
    }

    /// Where the next string may begin.
    fn next_beginning(&self, text: &[u8], mut range: Range<usize>) -> Option<usize> {
        let mut searched = FIRST_SEARCHED;
        while !range.is_empty() {
            let until = range.end.min(range.start + searched);
            let mut first = until;
            for beginning in &self.beginnings {
                let end = range.end.min(first + beginning.needle().len() - 1);
                let (here, needle) = (&text[range.start..end], beginning.needle());
                if here.len() < SHORT && memchr(needle[0], here).is_none() {
                    continue;
                }
                if let Some(distance) = beginning.find(here) {
                    first = range.start + distance;
                }
            }
            if first < until {
                return Some(first);
            }
            range.start = until;
            searched = SEARCHED.min(2 * searched);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_whatever_they_begin_with_and_however_often() {
        let sets: [&[&str]; 6] = [
            &["<|a|>", "<|a|><|a|>", "<b>"],
            &["<a", "é|", "é"],
            &["aa", "aab", "b"],
            &["<"],
            &["a", "b", "c", "<", "é"],
            &["<|é|>", "<|éé|>"],
        ];
        const PARTS: [&str; 9] = ["<", "<|a|>", "|", "a", "b", ">", "é", "<|é", "xxxxx"];
        let mut next = crate::random::below(5);
        for round in 0..3000 {
            let strings = sets[round % sets.len()];
            let finder = Finder::new(strings).unwrap();
            let kinds = 1 + next(PARTS.len());
            let mut text: String = (0..next(100)).map(|_| PARTS[next(kinds)]).collect();
            if round % 3 == 0 {
                // Around the ends of what is searched at once.
                let end = [128, 384, 896, 1920, 3968][next(5)];
                text.insert_str(0, &"x".repeat(end - next(8)));
            }
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let Some(&from) = starts.get(next(3)) else {
                continue;
            };
            let to = text.len() - if text.ends_with('x') { next(4) } else { 0 };
            let expected = starts.iter().filter(|&&at| at >= from).find_map(|&at| {
                let here = &text.as_bytes()[at..];
                let fits =
                    |string: &&&str| here.starts_with(string.as_bytes()) && at + string.len() <= to;
                let longest = strings
                    .iter()
                    .filter(fits)
                    .max_by_key(|string| string.len());
                longest.map(|string| at..at + string.len())
            });
            let found = finder
                .find(&text, from.min(to)..to)
                .map(|found| found.range());
            assert_eq!(found, expected, "{strings:?} {text:?}");
        }
    }
}
