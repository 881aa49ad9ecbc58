//! Merging a long piece in windows, so that memory does not grow with the piece.
//!
//! Tokens are those that merging a piece comes to if, and only if, each two neighbours are what
//! merging the bytes of these two alone comes to. Proof: while no merge has crossed an end of a
//! token, merging the piece does within two neighbours what merging these two alone does, step by
//! step, because the lowest of all pairs is also the lowest of fewer. So the first merge that crosses
//! the end between the two would cross it in both. This holds for any ranks.
//!
//! So the tokens of a piece up to some position can be extended: merge a window that begins with one
//! of the last tokens. If the window's first token is the same one, all neighbours are as merging
//! makes them: up to this token those from before, and from it on those of the window. If it is
//! another one, bytes beyond the earlier end have changed it. Then a larger window begins further back,
//! and also ends further on, so that all of them together are few times as long as the piece.

use crate::mem::growth::{Grow, NoMemory};
use crate::unicode::is_inner;

/// Bytes of a window: what merging them needs stays in the second cache.
pub const WINDOW: usize = 1 << 16;
/// A window begins this fraction of its size before the end of the one before. Missing bytes rarely
/// change more than the last few tokens.
const OVERLAP: usize = 16;

/// Appends the ids of a piece to `ids`. `merge` gives those of a part of it, and `n_bytes` the length
/// of a token; `window_ids` is memory for the ids of a window.
pub fn encode<E: From<NoMemory>>(
    piece: &[u8],
    window: usize,
    ids: &mut Vec<u32>,
    window_ids: &mut Vec<u32>,
    mut merge: impl FnMut(&[u8], &mut Vec<u32>) -> Result<(), E>,
    n_bytes: impl Fn(u32) -> usize,
) -> Result<(), E> {
    let first = ids.len();
    let (mut size, mut end) = (window, 0);
    while end < piece.len() {
        let (number, start) =
            last_token_before(&ids[first..], piece, end, size / OVERLAP, &n_bytes);
        let window_end = end_of_window(piece, start + size);
        if window_end <= end {
            size *= 2; // a token is as long as the window
            continue;
        }
        merge(&piece[start..window_end], window_ids)?;
        if number == 0 || window_ids[0] == ids[first + number] {
            ids.truncate(first + number);
            ids.try_extend(window_ids)?;
            end = window_end;
        } else {
            size *= 2;
        }
    }
    Ok(())
}

/// The last token that begins with a character, `overlap` bytes before `end` or earlier: its number
/// and position. The tokens end at `end`.
fn last_token_before(
    ids: &[u32],
    piece: &[u8],
    end: usize,
    overlap: usize,
    n_bytes: impl Fn(u32) -> usize,
) -> (usize, usize) {
    let (mut number, mut at) = (ids.len(), end);
    while number > 0 && (at + overlap > end || at == end || is_inner(piece[at])) {
        number -= 1;
        // Only tables of a forged file have tokens that are longer than the piece.
        at = at.saturating_sub(n_bytes(ids[number]));
    }
    (number, at)
}

/// The end of the character that includes the byte before `position`.
fn end_of_window(piece: &[u8], position: usize) -> usize {
    let rest = piece.get(position..).unwrap_or_default();
    let n_inner = rest.iter().take_while(|byte| is_inner(**byte)).count();
    position.min(piece.len()) + n_inner
}
