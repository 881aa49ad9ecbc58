//! Words of o200k: upper case, then lower case. Letters and marks without case count as both.

use crate::split::runs::run;
use crate::unicode::{LL, LM, LO, LT, LU, M, class_at};

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
