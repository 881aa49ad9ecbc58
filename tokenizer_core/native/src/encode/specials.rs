//! Special tokens: strings that are one id each.

use std::collections::HashSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, Input, MatchKind};

/// The special tokens of one call.
pub struct SpecialTokens {
    finder: Option<AhoCorasick>,
    ids: Vec<u32>,
    /// The pairs of adjacent characters in them.
    pairs: HashSet<(u32, u32)>,
}

impl SpecialTokens {
    /// Of strings, none of them empty, and their ids.
    pub fn new(tokens: &[(&str, u32)]) -> Result<SpecialTokens, BuildError> {
        let contents = tokens.iter().map(|(content, _)| content);
        let finder = (!tokens.is_empty())
            .then(|| {
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(contents)
            })
            .transpose()?;
        let ids = tokens.iter().map(|(_, id)| *id).collect();
        let pairs_of = |content: &str| {
            let codes: Vec<u32> = content.chars().map(u32::from).collect();
            codes
                .windows(2)
                .map(|pair| (pair[0], pair[1]))
                .collect::<Vec<_>>()
        };
        let pairs = tokens.iter().flat_map(|token| pairs_of(token.0)).collect();
        Ok(SpecialTokens { finder, ids, pairs })
    }

    pub fn none() -> SpecialTokens {
        SpecialTokens {
            finder: None,
            ids: Vec::new(),
            pairs: HashSet::new(),
        }
    }

    /// Whether one contains these two characters next to each other.
    pub(crate) fn any_contains_pair(&self, before: u32, after: u32) -> bool {
        self.pairs.contains(&(before, after))
    }

    /// The first one that starts at `from` or later: the leftmost, and the longest of those.
    #[inline]
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<(Range<usize>, u32)> {
        let found = self
            .finder
            .as_ref()?
            .find(Input::new(text).range(from..text.len()))?;
        Some((found.range(), self.ids[found.pattern()]))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::encode::Encoder;
    use crate::encode::sink::SLACK;
    use crate::encode::tasks::Encoded;
    use crate::encode::tests::encoder;
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
}
