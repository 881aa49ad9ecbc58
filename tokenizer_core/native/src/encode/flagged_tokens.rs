//! Added tokens with flags, found as `tokenizer_core/specials/flags.py` defines: one search in the
//! text, and one for the tokens that are `normalized` in each part that the first leaves.

use std::ops::Range;

use aho_corasick::BuildError;

use crate::encode::tokens::{Found, Tokens};

/// An added token: its content, its id, and which flags it has.
pub struct FlaggedToken<'t> {
    pub content: &'t str,
    pub id: u32,
    pub flags: Flags,
}

#[derive(Clone, Copy)]
pub struct Flags {
    /// The token includes the white space before it, and after it.
    pub strips_left: bool,
    pub strips_right: bool,
    /// It is no token next to a word.
    pub is_word: bool,
}

pub struct FlaggedTokens {
    first: Pass,
    later: Option<Pass>,
    /// The characters of words: the first and the last of each range, in order.
    words: Vec<(u32, u32)>,
    strips_left: bool,
    /// The last characters of tokens that strip on the right.
    before_stripped: Vec<char>,
    /// The first and last characters of tokens that depend on the character beside them.
    word_starts: Vec<char>,
    word_ends: Vec<char>,
}

/// The tokens of one search.
struct Pass {
    tokens: Tokens,
    flags: Vec<Flags>,
}

/// A part of a text, which is searched as a text of its own.
struct Part {
    range: Range<usize>,
    /// Where the plain text after the last match begins, and where the search goes on.
    plain_start: usize,
    at: usize,
}

impl FlaggedTokens {
    /// Of one or two passes; contents are not empty.
    pub fn new(
        first: &[FlaggedToken],
        later: &[FlaggedToken],
        words: Vec<(u32, u32)>,
    ) -> Result<FlaggedTokens, BuildError> {
        let all = || first.iter().chain(later);
        let of_words = || all().filter(|token| token.flags.is_word);
        let stripping = all().filter(|token| token.flags.strips_right);
        Ok(FlaggedTokens {
            first: Pass::new(first)?,
            later: (!later.is_empty()).then(|| Pass::new(later)).transpose()?,
            words,
            strips_left: all().any(|token| token.flags.strips_left),
            before_stripped: stripping.filter_map(FlaggedToken::last).collect(),
            word_starts: of_words().filter_map(FlaggedToken::first).collect(),
            word_ends: of_words().filter_map(FlaggedToken::last).collect(),
        })
    }

    /// Whether the two sides of this position may be searched separately. No token contains it.
    pub fn may_be_cut(&self, before: char, after: char) -> bool {
        let strips_right = before.is_whitespace() || self.before_stripped.contains(&before);
        !(self.strips_left && before.is_whitespace()
            || !self.before_stripped.is_empty() && after.is_whitespace() && strips_right
            || self.word_starts.contains(&after)
            || self.word_ends.contains(&before))
    }

    fn is_word(&self, character: Option<char>) -> bool {
        character.is_some_and(|character| {
            let code = u32::from(character);
            let next = self.words.partition_point(|&(_, last)| last < code);
            self.words
                .get(next)
                .is_some_and(|&(first, _)| first <= code)
        })
    }

    /// The next token of a part.
    fn next_in(&self, pass: &Pass, text: &str, part: &mut Part) -> Option<Found> {
        let Range { start, end } = part.range;
        while let Some((found, index)) = pass.tokens.find_index(text, part.at..end) {
            let flags = &pass.flags[index];
            let (before, after) = (&text[start..found.start], &text[found.end..end]);
            part.at = found.end;
            if flags.is_word
                && (self.is_word(before.chars().next_back()) || self.is_word(after.chars().next()))
            {
                continue;
            }
            let mut range = found;
            if flags.strips_left {
                // A token that begins before the end of the last one has no text before it.
                let plain = text.get(part.plain_start..range.start).unwrap_or("");
                range.start = part.plain_start + plain.trim_end().len();
            }
            if flags.strips_right {
                range.end = end - after.trim_start().len();
            }
            part.plain_start = range.end;
            return Some((range, pass.tokens.id(index)));
        }
        None
    }
}

impl FlaggedToken<'_> {
    fn first(&self) -> Option<char> {
        self.content.chars().next()
    }

    fn last(&self) -> Option<char> {
        self.content.chars().next_back()
    }
}

impl Pass {
    fn new(tokens: &[FlaggedToken]) -> Result<Pass, BuildError> {
        let ids: Vec<(&str, u32)> = tokens.iter().map(|t| (t.content, t.id)).collect();
        Ok(Pass {
            tokens: Tokens::new(&ids)?,
            flags: tokens.iter().map(|token| token.flags).collect(),
        })
    }
}

impl Part {
    fn new(range: Range<usize>) -> Part {
        let (plain_start, at) = (range.start, range.start);
        Part {
            range,
            plain_start,
            at,
        }
    }
}

/// Finds the tokens of a text, from left to right, with the white space that they include. A token
/// may begin before the end of the one before it.
pub(crate) struct FlaggedSearch<'s> {
    tokens: &'s FlaggedTokens,
    text: &'s str,
    outer: Part,
    /// The part before `next`, or after the last token of the first pass, in which the later pass
    /// searches.
    inner: Option<Part>,
    next: Option<Found>,
}

impl<'s> FlaggedSearch<'s> {
    pub fn new(tokens: &'s FlaggedTokens, text: &'s str) -> FlaggedSearch<'s> {
        FlaggedSearch {
            tokens,
            text,
            outer: Part::new(0..text.len()),
            inner: None,
            next: None,
        }
    }

    /// The next token; after the first None there is none.
    pub(crate) fn next(&mut self) -> Option<Found> {
        let (tokens, text) = (self.tokens, self.text);
        let Some(later) = &tokens.later else {
            return tokens.next_in(&tokens.first, text, &mut self.outer);
        };
        if self.inner.is_none() {
            let start = self.outer.plain_start;
            self.next = tokens.next_in(&tokens.first, text, &mut self.outer);
            let end = self.next.as_ref().map_or(text.len(), |next| next.0.start);
            self.inner = Some(Part::new(start..end.max(start)));
        }
        let found = tokens.next_in(later, text, self.inner.as_mut()?);
        if found.is_some() {
            return found;
        }
        self.inner = None;
        self.next.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::specials::SpecialTokens;
    use crate::encode::tests::encoder;
    use crate::encode::windows::tests::Characters;
    use crate::normalize::spaces::Spaces;
    use crate::split::Scanner;

    const CONTENTS: [&str; 6] = ["[M]", "<s>", "  ", "the", "> <", "é"];

    fn flags(number: usize) -> Flags {
        Flags {
            strips_left: number & 1 != 0,
            strips_right: number & 2 != 0,
            is_word: number & 4 != 0,
        }
    }

    /// Tokens with the flags that the digits of `number` in base 16 give: three flags, and the pass.
    fn specials(number: usize) -> SpecialTokens {
        let ids: Vec<(&str, u32)> = CONTENTS.into_iter().zip(300..).collect();
        let digit = |id: u32| number >> (4 * (id - 300));
        let token = |&(content, id): &(&'static str, u32)| FlaggedToken {
            content,
            id,
            flags: flags(digit(id)),
        };
        let (later, first): (Vec<_>, Vec<_>) = ids.iter().partition(|t| digit(t.1) & 8 != 0);
        let passes = [first, later].map(|p| p.into_iter().map(token).collect::<Vec<_>>());
        let words = vec![(0x61, 0x7A), (0xE9, 0xE9)];
        let flagged = FlaggedTokens::new(&passes[0], &passes[1], words).unwrap();
        SpecialTokens::new(&ids).unwrap().with_flags(flagged)
    }

    fn texts() -> Vec<String> {
        let parts = [
            "[M]", "<s>", "  ", "the", "> <", "é", " ", "\n", "\u{3000}", "\u{2581}", "a", "cat ",
            ".", "1 ", ",",
        ];
        let mut random = crate::random::below(3);
        let text = |n: usize| (0..n).map(|_| parts[random(parts.len())]).collect();
        (0..160).map(|round| round % 40).map(text).collect()
    }

    #[test]
    fn tokens_with_flags_are_found_in_windows_of_any_size() {
        let encoder = encoder();
        for (round, text) in texts().iter().enumerate() {
            let always = ["metaspace-prepend", "metaspace-always", "metaspace-first"];
            let names = [&["none", "metaspace", "prefix-space"][..], &always].concat();
            let name = names[round % 6];
            let tokens = specials(round.wrapping_mul(2654435761) & 0xFF_FFFF)
                .with_spaces(Spaces::named(name).unwrap());
            let characters = [Characters::of(text)];
            for (_, scanner) in Scanner::NAMES {
                let mut expected = Vec::new();
                (encoder.encode_document(scanner, &tokens, text, &mut expected)).unwrap();
                for sizes in [(1, 1), (2, 1), (5, 1), (1, 3)] {
                    let batch = encoder.encode_in_windows(scanner, &tokens, &characters, sizes);
                    assert_eq!(batch.unwrap().ids, expected, "{round} {sizes:?} {text:?}");
                }
                let counted = encoder.count_document(scanner, &tokens, &characters[0], None);
                assert_eq!(counted, Ok(expected.len()));
            }
        }
    }

    /// The first and the last byte of each token, and its id.
    fn found_in(tokens: &SpecialTokens, text: &str) -> Vec<(usize, usize, u32)> {
        let (mut search, mut all) = (tokens.search(text, &[]), Vec::new());
        while let Some((range, id)) = search.next(0) {
            all.push((range.start, range.end, id));
        }
        all
    }

    /// Scanners allow few of these cuts, so that tests of windows see few of them.
    #[test]
    fn the_sides_of_a_cut_have_the_tokens_of_the_whole() {
        let mut n_cuts = 0;
        for (round, text) in texts().iter().enumerate() {
            // All flags, and each alone: one that forbids a cut hides the others.
            let flags = [0xFF_FFFF, 0x99_9999, 0xAA_AAAA, 0xCC_CCCC][round / 40];
            let tokens = specials(round.wrapping_mul(2654435761) & flags);
            let flagged = tokens.flagged().unwrap();
            let whole = found_in(&tokens, text);
            for (at, after) in text.char_indices().skip(1) {
                let before = text[..at].chars().next_back().unwrap();
                let pair = [before, after].iter().collect::<String>();
                let contains = |content: &str| content.contains(&pair);
                if CONTENTS.into_iter().any(contains) || !flagged.may_be_cut(before, after) {
                    continue;
                }
                n_cuts += 1;
                let right = found_in(&tokens, &text[at..]).into_iter();
                let right = right.map(|(start, end, id)| (at + start, at + end, id));
                let sides: Vec<_> = found_in(&tokens, &text[..at])
                    .into_iter()
                    .chain(right)
                    .collect();
                assert_eq!(sides, whole, "{round} {text:?} {at}");
            }
        }
        assert!(n_cuts > 1000, "{n_cuts}");
    }
}
