//! Text to pre-tokens: the named split patterns of `splitting/patterns.py` as scanners over UTF-8 bytes.
//!
//! Each grammar is one function, `advance(text, pos) -> end`: where the pre-token that starts at
//! `pos` ends. The grammars equal the regular expressions, alternative by alternative, and are the
//! definition for anything faster (`blocks`). No pattern has a look-behind, so a scan may start at any
//! boundary, and two scans that share one boundary agree from there on. Each character is read a
//! bounded number of times, for any text.

pub mod automaton;
pub mod blocks;
pub mod finders;
pub mod parts;
pub mod pieces;
mod pre_tokens;
mod rules;
pub mod safe_cuts;

use std::mem::discriminant;

use crate::mem::sections::{Reader, Unusable, Writer};
use crate::mem::table::Table;
use crate::split::automaton::Automaton;
use crate::split::rules::{
    SpaceRun, bytes_run, contraction, contraction_after, contraction_of_any_case, digits, is_other,
    run, word, word_after_mark,
};
use crate::stop::Stopped;
use crate::unicode::{L, M, N, S, class_at};

/// One of the named split patterns, or any other one that has an automaton; copied freely between
/// threads.
#[derive(Clone, Copy)]
pub enum Scanner<'a> {
    Gpt2,
    Cl100k,
    Llama3,
    Qwen2,
    O200k,
    Automaton(&'a Automaton),
}

/// A scanner with the automaton that it may run.
pub enum Pattern {
    Named(Scanner<'static>),
    Automaton(Box<Automaton>),
}

impl Pattern {
    pub fn scanner(&self) -> Scanner<'_> {
        match self {
            Pattern::Named(scanner) => *scanner,
            Pattern::Automaton(automaton) => Scanner::Automaton(automaton),
        }
    }

    /// Writes it to a compiled file.
    pub fn write(&self, to: &mut Writer) {
        match self {
            Pattern::Named(scanner) => {
                let is_it = |known: &Scanner| discriminant(known) == discriminant(scanner);
                let found = Scanner::NAMES.iter().find(|(_, known)| is_it(known));
                to.table(found.expect("a name").0.as_bytes());
            }
            Pattern::Automaton(automaton) => {
                to.table::<u8>(&[]);
                automaton.write(to);
            }
        }
    }

    pub fn read(from: &mut Reader) -> Result<Pattern, Unusable> {
        let name: Table<u8> = from.table()?;
        if name.is_empty() {
            return Ok(Pattern::Automaton(Box::new(Automaton::read(from)?)));
        }
        let scanner = str::from_utf8(&name).ok().and_then(Scanner::from_name);
        Ok(Pattern::Named(
            scanner.ok_or(Unusable("a split pattern without a name"))?,
        ))
    }
}

impl Scanner<'static> {
    pub const NAMES: [(&'static str, Scanner<'static>); 5] = [
        ("gpt2", Scanner::Gpt2),
        ("cl100k", Scanner::Cl100k),
        ("llama3", Scanner::Llama3),
        ("qwen2", Scanner::Qwen2),
        ("o200k", Scanner::O200k),
    ];

    /// The scanner of a named pattern of `splitting/patterns.py`; None for any other name.
    pub fn from_name(name: &str) -> Option<Scanner<'static>> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name)?;
        Some(found.1)
    }
}

impl Scanner<'_> {
    /// Calls `visit` with the bytes of every pre-token, in order; joined they are `text`, unless the
    /// pattern drops text. Fails if an automaton takes too long.
    pub fn for_each<'t>(
        self,
        text: &'t str,
        mut visit: impl FnMut(&'t [u8]),
    ) -> Result<(), Stopped> {
        let bytes = text.as_bytes();
        if let Scanner::Automaton(automaton) = self {
            let mut pieces = automaton.pieces(text);
            while let Some(piece) = pieces.next_piece()? {
                visit(&bytes[piece]);
            }
            return Ok(());
        }
        let mut at = 0;
        while at < bytes.len() {
            let start = at;
            at = self.advance(bytes, start);
            visit(&bytes[start..at]);
        }
        Ok(())
    }

    /// Where the pre-token that starts at `at` ends, by a named pattern.
    fn advance(self, text: &[u8], at: usize) -> usize {
        match self {
            Scanner::Gpt2 => Gpt2.advance(text, at),
            Scanner::Cl100k => Cl100k.advance(text, at),
            Scanner::Llama3 => Llama3.advance(text, at),
            Scanner::Qwen2 => Qwen2.advance(text, at),
            Scanner::O200k => O200k.advance(text, at),
            Scanner::Automaton(automaton) => automaton.advance(text, at),
        }
    }

    /// Whether a text may be cut between two characters, in any context.
    pub fn is_safe_cut(self, before: u32, after: u32) -> bool {
        match self {
            Scanner::Automaton(automaton) => automaton.is_safe_cut(before, after),
            _ => safe_cuts::is_safe_cut(before, after),
        }
    }
}

/// A split pattern as a type, so that loops over it are compiled for it.
pub trait Grammar: Copy {
    /// Where the pre-token that starts at `pos` ends.
    fn advance(self, text: &[u8], pos: usize) -> usize;
}

#[derive(Clone, Copy)]
pub struct Gpt2;
#[derive(Clone, Copy)]
pub struct Cl100k;
#[derive(Clone, Copy)]
pub struct Llama3;
#[derive(Clone, Copy)]
pub struct Qwen2;
#[derive(Clone, Copy)]
pub struct O200k;

impl Grammar for Gpt2 {
    /// `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++\Z|\s+(?!\S)|\s`
    #[inline(always)]
    fn advance(self, text: &[u8], pos: usize) -> usize {
        let first = text[pos];
        if first == b'\''
            && let Some(end) = contraction(text, pos)
        {
            return end;
        }
        let start = pos + usize::from(first == b' ');
        let (class, len) = class_at(text, start);
        if class & L != 0 {
            run(text, start + len, |class| class & L != 0)
        } else if class & N != 0 {
            run(text, start + len, |class| class & N != 0)
        } else if class & S == 0 && len != 0 {
            run(text, start + len, is_other)
        } else {
            let space = SpaceRun::read(text, pos);
            // All of it when the text ends there; what follows else gets its last character.
            if space.end == text.len() {
                space.end
            } else {
                space.without_last()
            }
        }
    }
}

impl Grammar for Cl100k {
    /// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+`
    /// `| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\Z|\s*[\r\n]|\s+(?!\S)|\s`
    #[inline(always)]
    fn advance(self, text: &[u8], pos: usize) -> usize {
        advance_like_cl100k::<3>(text, pos, |space, text_end| {
            if space.end == text_end {
                space.end
            } else {
                space.through_last_newline_or_without_last()
            }
        })
    }
}

impl Grammar for Llama3 {
    /// As `Cl100k` but `\s*[\r\n]+|\s+(?!\S)|\s+`: newlines come before the end of the text.
    #[inline(always)]
    fn advance(self, text: &[u8], pos: usize) -> usize {
        advance_like_cl100k::<3>(text, pos, SpaceRun::newline_first)
    }
}

impl Grammar for Qwen2 {
    /// As `Llama3` with `\p{N}` for `\p{N}{1,3}`.
    #[inline(always)]
    fn advance(self, text: &[u8], pos: usize) -> usize {
        advance_like_cl100k::<1>(text, pos, SpaceRun::newline_first)
    }
}

impl Grammar for O200k {
    /// The alternatives of o200k, P standing for `[^\r\n\p{L}\p{N}]`, U for
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, W for `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`, C for contractions:
    /// `P?U*W+C?|P?U+W*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    #[inline(always)]
    fn advance(self, text: &[u8], pos: usize) -> usize {
        let first = text[pos];
        let (class, len) = class_at(text, pos);
        if class & N != 0 {
            return digits::<3>(text, pos + len);
        }
        if class & L != 0 {
            return contraction_after(text, word(text, pos));
        }
        let next = pos + len;
        if first != b'\r' && first != b'\n' {
            let (next_class, _) = class_at(text, next);
            if next_class & (L | M) != 0 {
                let end = if class & M != 0 {
                    word_after_mark(text, next)
                } else {
                    word(text, next)
                };
                return contraction_after(text, end);
            }
            if class & M != 0 {
                return contraction_after(text, next);
            }
            if class & S == 0 || (first == b' ' && next_class & (S | N) == 0 && next < text.len()) {
                let end = run(text, next, is_other);
                return bytes_run(text, end, |b| b == b'\r' || b == b'\n' || b == b'/');
            }
        }
        SpaceRun::newline_first(SpaceRun::read(text, pos), text.len())
    }
}

/// The grammars of cl100k and its descendants differ in how many digits go together and in what
/// they do with white space.
#[inline(always)]
fn advance_like_cl100k<const DIGITS: usize>(
    text: &[u8],
    pos: usize,
    end_of_space: impl Fn(SpaceRun, usize) -> usize,
) -> usize {
    let first = text[pos];
    if first == b'\''
        && let Some(end) = contraction_of_any_case(text, pos)
    {
        return end;
    }
    let (class, len) = class_at(text, pos);
    let next = pos + len;
    if class & L != 0 {
        return run(text, next, |class| class & L != 0);
    }
    if class & N != 0 {
        return digits::<DIGITS>(text, next);
    }
    if first != b'\r' && first != b'\n' {
        let (next_class, next_len) = class_at(text, next);
        if next_class & L != 0 {
            return run(text, next + next_len, |class| class & L != 0);
        }
        if class & S == 0 || (first == b' ' && next_class & (S | N) == 0 && next_len != 0) {
            let end = run(text, next, is_other);
            return bytes_run(text, end, |b| b == b'\r' || b == b'\n');
        }
    }
    end_of_space(SpaceRun::read(text, pos), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_linear_on_runs() {
        // A quadratic scan of these would take minutes.
        for unit in [
            "a", "A", "中", " ", "\n", " \n", "\u{301}", "A\u{301}", "^", "1", "\u{85}",
        ] {
            let text = unit.repeat(1 << 20);
            for (_, scanner) in Scanner::NAMES {
                let mut covered = 0;
                scanner
                    .for_each(&text, |piece| covered += piece.len())
                    .unwrap();
                assert_eq!(covered, text.len());
            }
        }
    }
}
