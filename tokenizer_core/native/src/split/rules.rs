//! The building blocks of the split patterns: runs of characters, contractions, and the words of o200k.

use crate::unicode::{L, LL, LM, LO, LT, LU, M, N, S, class_at};

// Runs of characters of one class, which the split patterns consist of.

/// `[^\s\p{L}\p{N}]`
#[inline(always)]
pub fn is_other(class: u8) -> bool {
    class & (L | N | S) == 0
}

/// The end of the run from `pos` of characters whose class `is_in` it.
#[inline(always)]
pub fn run(text: &[u8], mut pos: usize, is_in: impl Fn(u8) -> bool) -> usize {
    loop {
        let (class, len) = class_at(text, pos);
        if len == 0 || !is_in(class) {
            return pos;
        }
        pos += len;
    }
}

#[inline(always)]
pub fn bytes_run(text: &[u8], mut pos: usize, is_in: impl Fn(u8) -> bool) -> usize {
    while text.get(pos).is_some_and(|&byte| is_in(byte)) {
        pos += 1;
    }
    pos
}

/// The end of up to `DIGITS` characters of `\p{N}`, the first of which ends at `pos`.
#[inline(always)]
pub fn digits<const DIGITS: usize>(text: &[u8], mut pos: usize) -> usize {
    for _ in 1..DIGITS {
        let (class, len) = class_at(text, pos);
        if class & N == 0 {
            break;
        }
        pos += len;
    }
    pos
}

/// A run of white space: its end, the start of its last character, and the end of its last newline.
/// It is read at most three times: through its last newline, without its last character, and that
/// character.
pub struct SpaceRun {
    start: usize,
    last: usize,
    pub end: usize,
    newline_end: Option<usize>,
}

impl SpaceRun {
    #[inline(always)]
    pub fn read(text: &[u8], start: usize) -> SpaceRun {
        let (mut end, mut last, mut newline_end) = (start, start, None);
        loop {
            let (class, len) = class_at(text, end);
            if class & S == 0 {
                return SpaceRun {
                    start,
                    last,
                    end,
                    newline_end,
                };
            }
            last = end;
            end += len;
            if matches!(text[last], b'\r' | b'\n') {
                newline_end = Some(end);
            }
        }
    }

    /// `\s+(?!\S)|\s` where something visible follows the run.
    #[inline(always)]
    pub fn without_last(&self) -> usize {
        if self.last == self.start {
            self.end
        } else {
            self.last
        }
    }

    /// `\s*[\r\n]|\s+(?!\S)|\s` where something visible follows the run.
    #[inline(always)]
    pub fn through_last_newline_or_without_last(&self) -> usize {
        self.newline_end.unwrap_or_else(|| self.without_last())
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`
    #[inline(always)]
    pub fn newline_first(self, text_end: usize) -> usize {
        if self.newline_end.is_none() && self.end == text_end {
            self.end
        } else {
            self.through_last_newline_or_without_last()
        }
    }
}

// English contractions, which the split patterns treat as pieces or as ends of words.

/// `'(?:[sdmt]|ll|ve|re)` at the apostrophe at `pos`.
#[inline(always)]
pub fn contraction(text: &[u8], pos: usize) -> Option<usize> {
    match (text.get(pos + 1)?, text.get(pos + 2)) {
        (b's' | b'd' | b'm' | b't', _) => Some(pos + 2),
        (b'l', Some(b'l')) | (b'v' | b'r', Some(b'e')) => Some(pos + 3),
        _ => None,
    }
}

/// `'(?i:[sdmt]|ll|ve|re)` at the apostrophe at `pos`. The long s, U+017F (C5 BF), folds to s;
/// no other character outside ASCII folds to one of these letters.
#[inline(always)]
pub fn contraction_of_any_case(text: &[u8], pos: usize) -> Option<usize> {
    let lower = |at: usize| text.get(at).map(|byte| byte | 0x20);
    match (lower(pos + 1)?, lower(pos + 2)) {
        (b's' | b'd' | b'm' | b't', _) => Some(pos + 2),
        (b'l', Some(b'l')) | (b'v' | b'r', Some(b'e')) => Some(pos + 3),
        _ if text[pos + 1..].starts_with("ſ".as_bytes()) => Some(pos + 3),
        _ => None,
    }
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)?` at `pos`.
#[inline(always)]
pub fn contraction_after(text: &[u8], pos: usize) -> usize {
    if text.get(pos) == Some(&b'\'') {
        contraction_of_any_case(text, pos).unwrap_or(pos)
    } else {
        pos
    }
}

// Words of o200k: upper case, then lower case. Letters and marks without case count as both.

const UPPER_ONLY: u8 = LU | LT;
const BOTH_CASES: u8 = LM | LO | M;

/// The upper-case run from `pos`: its end, and the end of the last character in it that counts as
/// both cases. `U*` may give that character back to `W+`, and nothing after it.
#[inline(always)]
fn upper_run(text: &[u8], mut pos: usize) -> (usize, Option<usize>) {
    let mut last_of_both = None;
    loop {
        let (class, len) = class_at(text, pos);
        if class & (UPPER_ONLY | BOTH_CASES) == 0 {
            return (pos, last_of_both);
        }
        pos += len;
        if class & BOTH_CASES != 0 {
            last_of_both = Some(pos);
        }
    }
}

/// `U*W+|U+W*` at the letter or mark at `pos`: its end.
///
/// `U*` takes all it can. If a `\p{Ll}` follows, `W+` continues from there. If not, `U*` gives
/// characters back until one counts as both cases: `W+` takes that one and stops, as only upper
/// case follows. Without one, the second alternative takes the upper-case run. The characters given
/// back are upper case only, and the next match takes all of them: no character is read more than
/// twice.
#[inline(always)]
pub fn word(text: &[u8], pos: usize) -> usize {
    let (end, last_of_both) = upper_run(text, pos);
    let (class, len) = class_at(text, end);
    if class & LL != 0 {
        run(text, end + len, |class| class & (LL | BOTH_CASES) != 0)
    } else {
        last_of_both.unwrap_or(end)
    }
}

/// As `word`, after the mark before `pos` was taken as the optional first character. If the first
/// alternative fails then, it is tried with the mark as the first of `U*W+`: the mark counts as
/// both cases, so `W+` matches it alone, and the upper-case run after it is left.
#[inline(always)]
pub fn word_after_mark(text: &[u8], pos: usize) -> usize {
    let (end, last_of_both) = upper_run(text, pos);
    let (class, len) = class_at(text, end);
    if class & LL != 0 {
        run(text, end + len, |class| class & (LL | BOTH_CASES) != 0)
    } else {
        last_of_both.unwrap_or(pos)
    }
}
