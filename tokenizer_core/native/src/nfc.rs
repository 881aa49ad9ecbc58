//! Whether a text is in NFC as it stands, seen quickly; normalizing is left to Python.

use std::sync::LazyLock;

use crate::nfc_ranges::RANGES;

/// One bit for each code point up to the last that NFC may touch.
static RESTLESS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let last = RANGES.last().expect("there are some").1;
    let mut bits = vec![0; last as usize / 64 + 1];
    for (first, last) in RANGES {
        for code in first..=last {
            bits[code as usize / 64] |= 1 << (code % 64);
        }
    }
    bits
});

/// Whether NFC may touch a character, by itself or together with its neighbours.
pub fn is_restless(character: char) -> bool {
    let code = character as usize;
    RESTLESS
        .get(code / 64)
        .is_some_and(|bits| bits >> (code % 64) & 1 != 0)
}

/// Whether `text` certainly is in NFC; false where it would take more to know.
pub fn is_settled(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + 64).min(bytes.len());
        // Characters that begin with a lesser byte lie below U+0300, where nothing is restless;
        // those that begin with E4 to E9 are Chinese, where nothing is either.
        if bytes[at..end].iter().fold(false, |any, byte| {
            any | (*byte >= 0xcc && !(0xe4..=0xe9).contains(byte))
        }) {
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            let mut characters = text[at..].char_indices();
            for (place, character) in characters.by_ref() {
                if is_restless(character) {
                    return false;
                }
                if at + place + 1 >= end {
                    break;
                }
            }
            at = text.len() - characters.as_str().len();
        } else {
            at = end;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_that_are_passed_over_begin_nothing_restless() {
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let first = character.to_string().as_bytes()[0];
            if first < 0xcc || (0xe4..=0xe9).contains(&first) {
                assert!(!is_restless(character), "{character:?}");
            }
        }
    }

    #[test]
    fn one_restless_character_is_seen_wherever_it_stands() {
        for filler in [
            "a",
            "\u{e9}",
            "\u{4e2d}",
            "\u{3042}",
            "\u{1f642}",
            "\u{ac00}x",
        ] {
            for n_before in 0..140 {
                let before = filler.repeat(n_before);
                assert!(is_settled(&before));
                for restless in ["\u{301}", "\u{3099}", "\u{212b}", "\u{1161}", "\u{1d15e}"] {
                    assert!(!is_settled(&format!("{before}{restless}")));
                    assert!(!is_settled(&format!(
                        "{before}{restless}{}",
                        filler.repeat(70)
                    )));
                }
            }
        }
    }
}
