//! English contractions, which the split patterns treat as pieces or as ends of words.

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
