//! Special tokens: strings that are one id each.
//!
//! A text may have trusted runs. Some tokens are then found only within a run, the others everywhere. The
//! next token is the leftmost of both kinds, and the longest of those: a token that reaches beyond a run
//! hides none within it.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::BuildError;

use crate::encode::flagged_tokens::{FlaggedSearch, FlaggedTokens};
use crate::encode::tokens::{Found, Tokens};
use crate::normalize::spaces::Spaces;
use crate::split::Scanner;

/// The special tokens of one call, and what happens to the text between them. A clone shares the tables.
#[derive(Clone)]
pub struct SpecialTokens {
    /// Found in all of a text.
    everywhere: Arc<Tokens>,
    trusted: Option<Trusted>,
    /// The same tokens, if they have flags.
    flagged: Option<Arc<FlaggedTokens>>,
    spaces: Spaces,
}

/// Tokens that are found only within these runs of a text, in its positions (`Source`).
#[derive(Clone)]
struct Trusted {
    tokens: Arc<Tokens>,
    runs: Vec<Range<usize>>,
}

impl SpecialTokens {
    /// Of strings, none of them empty, and their ids.
    pub fn new(tokens: &[(&str, u32)]) -> Result<SpecialTokens, BuildError> {
        Ok(SpecialTokens {
            everywhere: Arc::new(Tokens::new(tokens)?),
            trusted: None,
            flagged: None,
            spaces: Spaces::default(),
        })
    }

    /// The same tokens, found with their flags.
    pub fn with_flags(self, flagged: FlaggedTokens) -> SpecialTokens {
        let flagged = Some(Arc::new(flagged));
        SpecialTokens { flagged, ..self }
    }

    pub fn none() -> SpecialTokens {
        SpecialTokens {
            everywhere: Arc::new(Tokens::none()),
            trusted: None,
            flagged: None,
            spaces: Spaces::default(),
        }
    }

    /// The same, with this rule for the text between them.
    pub fn with_spaces(self, spaces: Spaces) -> SpecialTokens {
        SpecialTokens { spaces, ..self }
    }

    /// These and others, which are found only within `runs`. None if the runs are not in order.
    pub fn with_trusted(
        &self,
        others: &SpecialTokens,
        runs: Vec<Range<usize>>,
    ) -> Option<SpecialTokens> {
        let ends = runs.iter().flat_map(|run| [run.start, run.end]);
        ends.is_sorted().then(|| SpecialTokens {
            everywhere: self.everywhere.clone(),
            trusted: Some(Trusted {
                tokens: others.everywhere.clone(),
                runs,
            }),
            flagged: None,
            spaces: self.spaces,
        })
    }

    pub(crate) fn spaces(&self) -> Spaces {
        self.spaces
    }

    #[cfg(test)]
    pub(crate) fn flagged(&self) -> Option<&FlaggedTokens> {
        self.flagged.as_deref()
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

    /// Whether a text may be cut between two characters, so that both sides can be encoded separately.
    pub(crate) fn may_be_cut(&self, scanner: Scanner, before: u32, after: u32) -> bool {
        let of_trusted = self.trusted.as_ref().map(|trusted| &trusted.tokens);
        let mut tokens = [Some(&self.everywhere), of_trusted].into_iter().flatten();
        let spaces = self.spaces;
        scanner.is_safe_cut(spaces.read(before), spaces.read(after))
            && !tokens.any(|tokens| {
                tokens.any_contains_pair(before, after)
                    || spaces.may_put() && tokens.any_ends_with(before)
            })
            && self.flagged.as_ref().is_none_or(|flagged| {
                let characters = char::from_u32(before).zip(char::from_u32(after));
                characters.is_some_and(|(before, after)| flagged.may_be_cut(before, after))
            })
    }

    /// The search in a text with these runs, in bytes.
    #[inline]
    pub(crate) fn search<'s>(&'s self, text: &'s str, runs: &'s [Range<usize>]) -> Search<'s> {
        let trusted = (self.trusted.as_ref())
            .map(|trusted| SearchInRuns::new(&trusted.tokens, &self.everywhere, text, runs));
        Search {
            everywhere: &self.everywhere,
            text,
            trusted,
            flagged: self
                .flagged
                .as_ref()
                .map(|flagged| FlaggedSearch::new(flagged, text)),
        }
    }
}

/// Finds the tokens of a text, from left to right.
pub(crate) struct Search<'s> {
    everywhere: &'s Tokens,
    text: &'s str,
    trusted: Option<SearchInRuns<'s>>,
    flagged: Option<FlaggedSearch<'s>>,
}

struct SearchInRuns<'s> {
    tokens: &'s Tokens,
    text: &'s str,
    /// Those that may have further tokens.
    runs: &'s [Range<usize>],
    /// The next token of each kind, kept until the search has passed its start.
    next: Option<Found>,
    next_everywhere: Option<Found>,
}

impl<'s> Search<'s> {
    pub(crate) fn text(&self) -> &'s str {
        self.text
    }

    /// The first token that starts at `from` or later, which is the end of the last one. With flags it
    /// may start before that.
    #[inline]
    pub(crate) fn next(&mut self, from: usize) -> Option<Found> {
        if let Some(search) = &mut self.flagged {
            return search.next();
        }
        match &mut self.trusted {
            None => self.everywhere.find(self.text, from..self.text.len()),
            Some(search) => search.next(from, self.everywhere),
        }
    }
}

impl<'s> SearchInRuns<'s> {
    fn new(
        tokens: &'s Tokens,
        everywhere: &Tokens,
        text: &'s str,
        runs: &'s [Range<usize>],
    ) -> SearchInRuns<'s> {
        let mut search = SearchInRuns {
            tokens,
            text,
            runs,
            next: None,
            next_everywhere: everywhere.find(text, 0..text.len()),
        };
        search.next = search.find(0);
        search
    }

    fn next(&mut self, from: usize, everywhere: &Tokens) -> Option<Found> {
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
    use crate::encode::sink::SLACK;
    use crate::encode::tests::encoder;
    use crate::encode::windows::tests::Characters;
    use crate::mem::buffer_pool::{self, LARGE_BYTES};
    use crate::split::Scanner;

    pub const TOKENS: [(&str, u32); 4] =
        [("<|a|>", 300), ("<|a|><|a|>", 301), ("<", 302), ("é|", 303)];

    pub fn texts() -> Vec<String> {
        let parts = [
            "<|a|>", "<|a|>", "<", "é|", "é", "|", "<|a", "the ", "  ", "\n", "12345", "'ll",
            "\u{4e2d}",
        ];
        let mut next = crate::random::below(7);
        let mut part = || parts[next(parts.len())].repeat(if next(16) == 0 { 30 } else { 1 });
        let text = |round| (0..round).map(|_| part()).collect();
        let mut texts: Vec<String> = (0..40).map(text).collect();
        texts.extend([String::new(), "the".repeat(200), "<".into(), String::new()]);
        texts
    }

    /// The definition: a trusted token lies within one run.
    fn encode_with_runs_slowly(text: &str, trusted: &[usize], runs: &[Range<usize>]) -> Vec<u32> {
        let (encoder, none, mut ids) = (encoder(), SpecialTokens::none(), Vec::new());
        let (mut start, mut at) = (0, 0);
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
                .encode_document(Scanner::Gpt2, &none, &text[start..at], &mut ids)
                .unwrap();
            ids.push(*id);
            at += token.len();
            start = at;
        }
        encoder
            .encode_document(Scanner::Gpt2, &none, &text[start..], &mut ids)
            .unwrap();
        ids
    }

    #[test]
    fn trusted_tokens_are_found_within_runs_in_windows_of_any_size() {
        let encoder = encoder();
        let mut random = crate::random::below(11);
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
                let trusted = tokens_of(true);
                let tokens = tokens_of(false).with_trusted(&trusted, runs.to_vec());
                tokens.unwrap()
            };
            for sizes in [(1, 1), (2, 3), (7, 2), (1 << 20, 1)] {
                let texts = [Characters::of(text)];
                let made = encoder.encode_in_windows(Scanner::Gpt2, &make(&runs), &texts, sizes);
                assert_eq!(made.unwrap().ids, expected, "{text:?} {runs:?} {sizes:?}");
                let texts = [&text[..]];
                let specials = make(&in_bytes);
                let made = encoder.encode_in_windows(Scanner::Gpt2, &specials, &texts, sizes);
                assert_eq!(made.unwrap().ids, expected, "{text:?} {runs:?} {sizes:?}");
            }
            let source = Characters::of(text);
            let count = |limit| {
                let counted = encoder.count_document(Scanner::Gpt2, &make(&runs), &source, limit);
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
            none.with_trusted(&none, runs).is_some()
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
}
