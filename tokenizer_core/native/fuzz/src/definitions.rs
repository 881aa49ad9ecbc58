//! What splitting and merging are, slow and obvious.

use std::collections::HashMap;

use fancy_regex::Regex;
use tokenizer_native::split::Scanner;

/// The expressions as published: tiktoken 0.14 for the first two and the last, `tokenizer.json` of
/// Llama 3 and of Qwen 3.
#[rustfmt::skip]
const PUBLISHED: [(&str, &str); 5] = [
    ("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"),
    ("cl100k", r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"),
    ("llama3", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    ("qwen2", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    ("o200k", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
];

/// A scanner and the expression it stands for.
pub struct Splitter {
    pub name: &'static str,
    pub scanner: Scanner<'static>,
    expression: Regex,
}

impl Splitter {
    pub fn all() -> Vec<Splitter> {
        let splitters = PUBLISHED.map(|(name, expression)| Splitter {
            name,
            scanner: Scanner::from_name(name).expect("a scanner of that name"),
            expression: Regex::new(expression).expect("an expression"),
        });
        splitters.into()
    }

    /// Where the pre-tokens end, by the expression; None where the library gives up.
    pub fn ends_by_expression(&self, text: &str) -> Option<Vec<usize>> {
        let mut ends = Vec::new();
        for found in self.expression.find_iter(text) {
            let found = found.ok()?;
            assert_eq!(found.start(), ends.last().copied().unwrap_or(0), "a gap");
            ends.push(found.end());
        }
        assert_eq!(ends.last().copied().unwrap_or(0), text.len(), "a gap");
        Some(ends)
    }
}

/// Where the pre-tokens end, by the plain scanner.
pub fn ends_by_scanner(scanner: Scanner, text: &str) -> Vec<usize> {
    let (mut ends, mut end) = (Vec::new(), 0);
    let visit = |piece: &[u8]| {
        end += piece.len();
        ends.push(end);
    };
    scanner.for_each(text, visit).expect("linear");
    ends
}

/// A tokenizer by its definition.
pub enum Rules {
    /// Pair of tokens -> position in the list.
    Merges(HashMap<(Vec<u8>, Vec<u8>), u32>),
    /// Two neighbours merge whose bytes together have a rank.
    Ranks,
}

pub struct Definition {
    pub ids: HashMap<Vec<u8>, u32>,
    pub rules: Rules,
    pub take_whole: bool,
}

impl Definition {
    /// Joins the neighbours of the lowest rank, the leftmost of equals, until none has one.
    pub fn encode(&self, piece: &[u8]) -> Vec<u32> {
        if self.take_whole
            && let Some(&id) = self.ids.get(piece)
        {
            return vec![id];
        }
        let mut ends: Vec<usize> = (1..=piece.len()).collect();
        let part = |ends: &[usize], at: usize| {
            let start = at.checked_sub(1).map_or(0, |before| ends[before]);
            start..ends[at]
        };
        let rank_at = |ends: &[usize], at: usize| {
            let (left, right) = (part(ends, at), part(ends, at + 1));
            match &self.rules {
                Rules::Ranks => self.ids.get(&piece[left.start..right.end]).copied(),
                Rules::Merges(ranks) => {
                    let pair = (piece[left].to_vec(), piece[right].to_vec());
                    ranks.get(&pair).copied()
                }
            }
        };
        // The rank of each pair is kept until one of its sides changes.
        let mut ranks: Vec<Option<u32>> =
            (0..ends.len() - 1).map(|at| rank_at(&ends, at)).collect();
        while let Some((_, at)) = (ranks.iter().enumerate())
            .filter_map(|(at, rank)| rank.map(|rank| (rank, at)))
            .min()
        {
            ends.remove(at);
            ranks.remove(at);
            for changed in [at.checked_sub(1), Some(at)].into_iter().flatten() {
                if changed < ranks.len() {
                    ranks[changed] = rank_at(&ends, changed);
                }
            }
        }
        let parts = (0..ends.len()).map(|at| self.ids[&piece[part(&ends, at)]]);
        parts.collect()
    }

    pub fn encode_all(&self, text: &str, ends: &[usize]) -> Vec<u32> {
        let mut start = 0;
        let mut ids = Vec::new();
        for &end in ends {
            ids.extend(self.encode(&text.as_bytes()[start..end]));
            start = end;
        }
        ids
    }
}

/// Panics with the first pre-token whose ids are not those of the definition, if there is one.
pub fn assert_same(definition: &Definition, text: &str, ends: &[usize], ids: &[u32], what: &str) {
    let (mut start, mut at) = (0, 0);
    for &end in ends {
        let piece = &text[start..end];
        let expected = definition.encode(piece.as_bytes());
        let found = &ids[at..ids.len().min(at + expected.len())];
        assert_eq!(found, expected, "{what}: {piece:?} at {start} of {text:?}");
        (start, at) = (end, at + expected.len());
    }
    assert_eq!(ids.len(), at, "{what}: ids after the end of {text:?}");
}
