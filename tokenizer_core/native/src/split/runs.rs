//! Runs of characters of one class, which the split patterns consist of.

use crate::unicode::{L, N, S, class_at};

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
