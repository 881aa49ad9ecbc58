//! Words of ASCII letters, eight bytes at a time: most of most texts.
//!
//! A word's length cannot be predicted, so a loop over its bytes ends with a mispredicted branch.
//! Plain arithmetic classes eight bytes in one register instead, and the length is a count of bits.
//! If that does not decide the end (a longer word near the end of the text, a letter outside ASCII
//! after it) the result is None and the scanner decides.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;
/// The bit that differs between the cases of an ASCII letter.
const CASE: u64 = 0x20 * ONES;

/// The end of the letters from `start` on, when there is at least one and what ends them is ASCII.
#[inline(always)]
pub fn letters(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let block = block_at(text, at)?;
        let run = run_of(between(block | CASE, b'a', b'z') & !block);
        if run < 8 {
            let is_ascii = (block >> (8 * run)) & 0x80 == 0;
            return (is_ascii && at + run > start).then_some(at + run);
        }
        at += 8;
    }
}

/// The end of `[A-Z]*[a-z]+|[A-Z]+` at `start`, when it fits eight bytes and what ends it is ASCII.
#[inline(always)]
pub fn cased_word(text: &[u8], start: usize) -> Option<usize> {
    let block = block_at(text, start)?;
    let upper = run_of(between(block, b'A', b'Z'));
    if upper == 8 {
        return None;
    }
    let rest = block >> (8 * upper);
    let lower = run_of(between(rest, b'a', b'z'));
    let run = upper + lower;
    if run == 0 || run >= 8 || (block >> (8 * run)) & 0x80 != 0 {
        return None;
    }
    Some(start + run)
}

#[inline(always)]
fn block_at(text: &[u8], at: usize) -> Option<u64> {
    let block = text.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*block))
}

/// The high bit of each byte that is between two ASCII characters; a byte above 0x7F is not.
#[inline(always)]
fn between(block: u64, first: u8, last: u8) -> u64 {
    let low = block & !HIGH;
    let from_first = low + u64::from(0x80 - first) * ONES;
    let above_last = low + u64::from(0x7F - last) * ONES;
    from_first & !above_last & !block & HIGH
}

/// How many bytes from the first have their high bit set; nothing but high bits may be set.
#[inline(always)]
fn run_of(bits: u64) -> usize {
    (!bits & HIGH).trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_letters(text: &[u8], start: usize) -> usize {
        let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
        start + text[start..].iter().take_while(|b| is_letter(b)).count()
    }

    #[test]
    fn every_byte_at_every_place_is_classed() {
        for byte in 0..=255u8 {
            for position in 0..8 {
                let mut block = [b'a'; 8];
                block[position] = byte;
                let bits = between(u64::from_le_bytes(block), b'a', b'z');
                assert_eq!(
                    bits >> (8 * position) & 0x80 != 0,
                    byte.is_ascii_lowercase()
                );
                let mut text = [b'q'; 24];
                text[position] = byte;
                text[20] = b'.';
                let end = slow_letters(&text, 0);
                let expected = (end > 0 && text[end] < 0x80 && end < 20).then_some(end);
                if end < 20 {
                    assert_eq!(letters(&text, 0), expected);
                }
                let upper = text.iter().take_while(|b| b.is_ascii_uppercase()).count();
                let lower = text[upper..]
                    .iter()
                    .take_while(|b| b.is_ascii_lowercase())
                    .count();
                let end = upper + lower;
                let expected = (end > 0 && end < 8 && text[end] < 0x80).then_some(end);
                assert_eq!(cased_word(&text, 0), expected);
            }
        }
    }

    #[test]
    fn near_the_end_of_the_text_nothing_is_settled() {
        for length in 0..8 {
            assert_eq!(letters(&vec![b'a'; length], 0), None);
            assert_eq!(cased_word(&vec![b'a'; length], 0), None);
        }
        assert_eq!(letters(b"abc", 4), None);
        assert_eq!(letters(b"abcdefgh ijklmnop", 0), Some(8));
    }
}
