//! Special tokens: strings that are one id each.
//!
//! A text may have trusted runs. Some tokens are then found only within a run, the others everywhere. The
//! next token is the leftmost of both kinds, and the longest of those: a token that reaches beyond a run
//! hides none within it. One search finds both kinds, as in a text without runs, until it finds a token
//! that does not count; from there on each kind is searched by itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, Anchored, BuildError, Input, Match, MatchKind, StartKind};
use memchr::memmem;

/// The special tokens of one call. A clone shares the tables.
#[derive(Clone)]
pub struct SpecialTokens {
    /// Found in all of a text.
    everywhere: Arc<Tokens>,
    trusted: Option<Trusted>,
}

/// Tokens that are found only within these runs of a text, in its positions (`Source`).
#[derive(Clone)]
struct Trusted {
    tokens: Arc<Tokens>,
    /// These, and those found everywhere.
    both: Arc<Tokens>,
    runs: Vec<Range<usize>>,
}

struct Tokens {
    finder: Option<Finder>,
    ids: Vec<u32>,
    /// The pairs of adjacent characters in them.
    pairs: HashSet<(u32, u32)>,
}

/// A token in a text, in bytes, and its id.
type Found = (Range<usize>, u32);

impl SpecialTokens {
    /// Of strings, none of them empty, and their ids.
    pub fn new(tokens: &[(&str, u32)]) -> Result<SpecialTokens, BuildError> {
        Ok(SpecialTokens {
            everywhere: Arc::new(Tokens::new(tokens)?),
            trusted: None,
        })
    }

    pub fn none() -> SpecialTokens {
        SpecialTokens {
            everywhere: Arc::new(Tokens::none()),
            trusted: None,
        }
    }

    /// These and others, which are found only within `runs`; `both` has all of them. None if the
    /// runs are not in order.
    pub fn with_trusted(
        &self,
        others: &SpecialTokens,
        both: &SpecialTokens,
        runs: Vec<Range<usize>>,
    ) -> Option<SpecialTokens> {
        let ends = runs.iter().flat_map(|run| [run.start, run.end]);
        ends.is_sorted().then(|| SpecialTokens {
            everywhere: self.everywhere.clone(),
            trusted: Some(Trusted {
                tokens: others.everywhere.clone(),
                both: both.everywhere.clone(),
                runs,
            }),
        })
    }

    pub(crate) fn has_runs(&self) -> bool {
        self.trusted.is_some()
    }

    /// The trusted runs within a window of the text, in the text's positions.
    pub(crate) fn runs_in(&self, window: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let runs = self
            .trusted
            .as_ref()
            .map_or(&[][..], |trusted| &trusted.runs);
        let first = runs.partition_point(|run| run.end <= window.start);
        let clipped = runs[first..]
            .iter()
            .take_while(move |run| run.start < window.end);
        clipped.map(move |run| run.start.max(window.start)..run.end.min(window.end))
    }

    /// Whether one contains these two characters next to each other.
    pub(crate) fn any_contains_pair(&self, before: u32, after: u32) -> bool {
        let contains = |tokens: &Tokens| tokens.pairs.contains(&(before, after));
        let trusted = self.trusted.as_ref();
        contains(&self.everywhere) || trusted.is_some_and(|trusted| contains(&trusted.tokens))
    }

    /// The search in a text with these runs, in bytes.
    #[inline]
    pub(crate) fn search<'s>(&'s self, text: &'s str, runs: &'s [Range<usize>]) -> Search<'s> {
        let trusted = self.trusted.as_ref().map(|trusted| SearchInRuns {
            tokens: &trusted.tokens,
            both: Some(&trusted.both),
            text,
            runs,
            next: None,
            next_everywhere: None,
        });
        Search {
            everywhere: &self.everywhere,
            text,
            trusted,
        }
    }
}

impl Tokens {
    fn new(tokens: &[(&str, u32)]) -> Result<Tokens, BuildError> {
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
        Ok(Tokens { finder, ids, pairs })
    }

    fn none() -> Tokens {
        Tokens {
            finder: None,
            ids: Vec::new(),
            pairs: HashSet::new(),
        }
    }

    /// Whether one is this string.
    fn has(&self, string: &str) -> bool {
        let found = self.find(string, 0..string.len());
        found.is_some_and(|(range, _)| range == (0..string.len()))
    }

    /// The first one within a range: the leftmost, and the longest of those.
    #[inline]
    fn find(&self, text: &str, range: Range<usize>) -> Option<Found> {
        let found = self.finder.as_ref()?.find(text, range)?;
        Some((found.range(), self.ids[found.pattern()]))
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
/// Bytes in which all beginnings are looked for before the next ones.
const SEARCHED: usize = 1 << 11;
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
        while !range.is_empty() {
            let until = range.end.min(range.start + SEARCHED);
            let first = |beginning: &memmem::Finder| {
                let end = range.end.min(until + beginning.needle().len() - 1);
                beginning.find(&text[range.start..end])
            };
            if let Some(distance) = self.beginnings.iter().filter_map(first).min() {
                return Some(range.start + distance);
            }
            range.start = until;
        }
        None
    }
}

/// Finds the tokens of a text, from left to right.
pub(crate) struct Search<'s> {
    everywhere: &'s Tokens,
    text: &'s str,
    trusted: Option<SearchInRuns<'s>>,
}

struct SearchInRuns<'s> {
    tokens: &'s Tokens,
    /// Both kinds, until one was found that does not count.
    both: Option<&'s Tokens>,
    text: &'s str,
    /// Those that may have further tokens.
    runs: &'s [Range<usize>],
    /// The next token of each kind, once it is found; kept until the search has passed its start.
    next: Option<Found>,
    next_everywhere: Option<Found>,
}

impl<'s> Search<'s> {
    pub(crate) fn text(&self) -> &'s str {
        self.text
    }

    /// The first token that starts at `from` or later, which is not before that of the last call.
    #[inline]
    pub(crate) fn next(&mut self, from: usize) -> Option<Found> {
        match &mut self.trusted {
            None => self.everywhere.find(self.text, from..self.text.len()),
            Some(search) => search.next(from, self.everywhere),
        }
    }
}

impl SearchInRuns<'_> {
    fn next(&mut self, from: usize, everywhere: &Tokens) -> Option<Found> {
        if let Some(both) = self.both {
            let found = both.find(self.text, from..self.text.len())?;
            if self.counts(&found.0, everywhere) {
                return Some(found);
            }
            self.both = None;
            self.next_everywhere = everywhere.find(self.text, from..self.text.len());
            self.next = self.find(from);
        }
        self.next_of_both(from, everywhere)
    }

    /// Whether a token that is the longest at its start is within a run, or found everywhere.
    fn counts(&mut self, token: &Range<usize>, everywhere: &Tokens) -> bool {
        while let [run, others @ ..] = self.runs
            && run.end <= token.start
        {
            self.runs = others;
        }
        let run = self.runs.first();
        run.is_some_and(|run| run.start <= token.start && token.end <= run.end)
            || everywhere.has(&self.text[token.clone()])
    }

    fn next_of_both(&mut self, from: usize, everywhere: &Tokens) -> Option<Found> {
        let is_passed =
            |found: &Option<Found>| found.as_ref().is_some_and(|(range, _)| range.start < from);
        if is_passed(&self.next_everywhere) {
            self.next_everywhere = everywhere.find(self.text, from..self.text.len());
        }
        if is_passed(&self.next) {
            self.next = self.find(from);
        }
        let both = [&self.next_everywhere, &self.next].into_iter().flatten();
        both.min_by_key(|(range, _)| (range.start, Reverse(range.end)))
            .cloned()
    }

    /// The first one that starts at `from` or later within a run.
    fn find(&mut self, from: usize) -> Option<Found> {
        while let [run, others @ ..] = self.runs {
            if from < run.end {
                let range = from.max(run.start)..run.end;
                let found = self.tokens.find(self.text, range);
                if found.is_some() {
                    return found;
                }
            }
            self.runs = others;
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::encode::Encoder;
    use crate::encode::sink::SLACK;
    use crate::encode::tasks::Encoded;
    use crate::encode::tests::encoder;
    use crate::encode::windows::tests::Characters;
    use crate::mem::buffer_pool::{self, LARGE_BYTES};
    use crate::split::Scanner;

    pub const TOKENS: [(&str, u32); 4] =
        [("<|a|>", 300), ("<|a|><|a|>", 301), ("<", 302), ("é|", 303)];

    /// The definition: the longest token at each position, from left to right.
    fn encode_slowly(encoder: &Encoder, scanner: Scanner, text: &str) -> Vec<u32> {
        let (mut ids, mut start, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let found = TOKENS
                .iter()
                .filter(|(token, _)| text.as_bytes()[at..].starts_with(token.as_bytes()))
                .max_by_key(|(token, _)| token.len());
            if let Some((token, id)) = found {
                encoder.encode(scanner, &text[start..at], &mut ids).unwrap();
                ids.push(*id);
                at += token.len();
                start = at;
            } else {
                at += 1;
            }
        }
        encoder.encode(scanner, &text[start..], &mut ids).unwrap();
        ids
    }

    pub fn texts() -> Vec<String> {
        let parts = [
            "<|a|>", "<|a|>", "<", "é|", "é", "|", "<|a", "the ", "  ", "\n", "12345", "'ll",
            "\u{4e2d}",
        ];
        let mut state = 7u64;
        let mut texts: Vec<String> = (0..40)
            .map(|round| {
                let mut text = String::new();
                for _ in 0..round {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let times = if state >> 60 == 0 { 30 } else { 1 };
                    text += &parts[(state >> 33) as usize % parts.len()].repeat(times);
                }
                text
            })
            .collect();
        texts.extend([String::new(), "the".repeat(200), "<".into(), String::new()]);
        texts
    }

    #[test]
    fn special_tokens_are_found_leftmost_then_longest_and_counted_alike() {
        let (encoder, specials) = (encoder(), SpecialTokens::new(&TOKENS).unwrap());
        for text in texts() {
            for (name, scanner) in Scanner::NAMES {
                let expected = encode_slowly(&encoder, scanner, &text);
                let mut ids = Vec::new();
                encoder
                    .encode_document(scanner, &specials, &text, &mut ids)
                    .unwrap();
                assert_eq!(ids, expected, "{name} {text:?}");
                let count = |limit| {
                    encoder
                        .count_document(scanner, &specials, &text, limit)
                        .unwrap()
                };
                assert_eq!(count(None), ids.len());
                assert_eq!(count(Some(ids.len())), ids.len());
                if !ids.is_empty() {
                    assert!(count(Some(ids.len() - 1)) >= ids.len());
                }
            }
        }
    }

    /// The definition: a trusted token lies within one run.
    fn encode_with_runs_slowly(text: &str, trusted: &[usize], runs: &[Range<usize>]) -> Vec<u32> {
        let (encoder, mut ids, mut start, mut at) = (encoder(), Vec::new(), 0, 0);
        while at < text.len() {
            let may_be = |index: usize, end: usize| {
                let holds = |run: &Range<usize>| run.start <= at && end <= run.end;
                !trusted.contains(&index) || runs.iter().any(holds)
            };
            let found = TOKENS
                .iter()
                .enumerate()
                .filter(|(_, (token, _))| text.as_bytes()[at..].starts_with(token.as_bytes()))
                .filter(|(index, (token, _))| may_be(*index, at + token.len()))
                .max_by_key(|(_, (token, _))| token.len());
            let Some((_, (token, id))) = found else {
                at += 1;
                continue;
            };
            encoder
                .encode(Scanner::Gpt2, &text[start..at], &mut ids)
                .unwrap();
            ids.push(*id);
            at += token.len();
            start = at;
        }
        encoder
            .encode(Scanner::Gpt2, &text[start..], &mut ids)
            .unwrap();
        ids
    }

    #[test]
    fn trusted_tokens_are_found_within_runs_in_windows_of_any_size() {
        let encoder = encoder();
        let mut state = 11u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for (number, text) in texts().iter().cycle().take(400).enumerate() {
            let characters: Vec<char> = text.chars().collect();
            let offsets: Vec<usize> = text
                .char_indices()
                .map(|(at, _)| at)
                .chain([text.len()])
                .collect();
            // Runs in characters; some touch each other, some are empty.
            let mut ends: Vec<usize> = (0..2 * random(9))
                .map(|_| random(characters.len() + 1))
                .collect();
            ends.sort_unstable();
            let runs: Vec<Range<usize>> = ends.chunks(2).map(|end| end[0]..end[1]).collect();
            let in_bytes: Vec<Range<usize>> = runs
                .iter()
                .map(|run| offsets[run.start]..offsets[run.end])
                .collect();
            let trusted = [&[0, 1, 2, 3][..], &[0], &[1, 2], &[]][number % 4];
            let expected = encode_with_runs_slowly(text, trusted, &in_bytes);
            let tokens_of = |is_trusted: bool| {
                let chosen = TOKENS.iter().enumerate();
                let chosen = chosen.filter(|(index, _)| trusted.contains(index) == is_trusted);
                let chosen: Vec<(&str, u32)> = chosen.map(|(_, token)| *token).collect();
                SpecialTokens::new(&chosen).unwrap()
            };
            let make = |runs: &[Range<usize>]| {
                let all = SpecialTokens::new(&TOKENS).unwrap();
                tokens_of(false)
                    .with_trusted(&tokens_of(true), &all, runs.to_vec())
                    .unwrap()
            };
            for sizes in [(1, 1), (2, 3), (7, 2), (1 << 20, 1)] {
                let texts = [Characters(characters.clone())];
                let made = encoder.encode_in_windows(Scanner::Gpt2, &make(&runs), &texts, sizes);
                assert_eq!(made.unwrap().ids, expected, "{text:?} {runs:?} {sizes:?}");
                let texts = [&text[..]];
                let specials = make(&in_bytes);
                let made = encoder.encode_in_windows(Scanner::Gpt2, &specials, &texts, sizes);
                assert_eq!(made.unwrap().ids, expected, "{text:?} {runs:?} {sizes:?}");
            }
            let source = Characters(characters);
            let count = |limit| {
                let counted = encoder.count_source(Scanner::Gpt2, &make(&runs), &source, limit);
                counted.unwrap()
            };
            assert_eq!(count(None), expected.len());
            assert_eq!(count(Some(expected.len())), expected.len());
            let too_low = random(expected.len() + 1);
            assert_eq!(count(Some(too_low)) > too_low, expected.len() > too_low);
        }
    }

    #[test]
    fn runs_in_no_order_are_refused() {
        let fit = |ends: &[usize]| {
            let runs = ends.chunks(2).map(|end| end[0]..end[1]).collect();
            let none = SpecialTokens::none();
            none.with_trusted(&none, &none, runs).is_some()
        };
        assert!(!fit(&[2, 1]) && !fit(&[1, 3, 2, 4]));
        assert!(fit(&[0, 2, 2, 9]) && fit(&[]));
    }

    #[test]
    fn ids_of_a_byte_each_need_no_more_room_than_was_made() {
        let (encoder, text) = (encoder(), "qxz ".repeat(LARGE_BYTES));
        for _ in 0..2 {
            let mut ids = buffer_pool::take(text.len(), SLACK).unwrap();
            let room = ids.capacity();
            encoder
                .encode_document(Scanner::Gpt2, &SpecialTokens::none(), &text, &mut ids)
                .unwrap();
            assert_eq!((ids.len(), ids.capacity()), (text.len(), room));
        }
    }

    #[test]
    fn many_texts_and_long_ones_agree_by_threads() {
        let (encoder, specials) = (encoder(), SpecialTokens::new(&TOKENS).unwrap());
        let long = format!(
            "{}<|a|>{}",
            "the cat's \u{4e2d} ".repeat(90_000),
            "a".repeat(1 << 20)
        );
        let mut texts = vec!["the theme<|a|> of 12 them\n".repeat(70); 1000];
        texts.insert(500, long);
        for scanner in [Scanner::Gpt2, Scanner::O200k] {
            let expected = encoder.encode_texts(scanner, &specials, &texts, 1);
            assert_eq!(expected.as_ref().unwrap().ends.len(), texts.len());
            for n_threads in [2, 5] {
                let batch = encoder.encode_texts(scanner, &specials, &texts, n_threads);
                assert!(batch == expected);
            }
        }
        let none: [&str; 0] = [];
        assert_eq!(
            encoder.encode_texts(Scanner::Gpt2, &SpecialTokens::none(), &none, 4),
            Ok(Encoded::default())
        );
    }

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
        let mut state = 5usize;
        let mut next = |end: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % end
        };
        for round in 0..3000 {
            let strings = sets[round % sets.len()];
            let finder = Finder::new(strings).unwrap();
            let kinds = 1 + next(PARTS.len());
            let mut text: String = (0..next(100)).map(|_| PARTS[next(kinds)]).collect();
            if round % 5 == 0 {
                text.insert_str(0, &"x".repeat(SEARCHED - 3));
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
