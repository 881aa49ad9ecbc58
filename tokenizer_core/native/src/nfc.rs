//! Whether a text is in NFC as it stands, seen quickly; normalizing is left to Python.

use std::sync::LazyLock;

use crate::code_units::CodeUnit;
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

/// Whether NFC may touch a code point, by itself or together with its neighbours.
pub fn is_restless(code: u32) -> bool {
    let code = code as usize;
    RESTLESS
        .get(code / 64)
        .is_some_and(|bits| bits >> (code % 64) & 1 != 0)
}

/// Whether a text of these code points certainly is in NFC; false where it would take more to know,
/// and where one is a surrogate.
pub fn is_settled<U: CodeUnit>(units: &[U]) -> bool {
    units.chunks(BLOCK).all(|block| {
        let is_restless = |code: u32| is_restless(code) || code & !0x7FF == 0xD800;
        is_plain(block) || !block.iter().any(|&unit| is_restless(unit.into()))
    })
}

/// First places and ends of the runs of characters that NFC may touch; None if there are more of them
/// than `max_runs`. Every other character normalizes to itself, and what begins with it normalizes
/// alone.
pub fn restless_runs<U: CodeUnit>(units: &[U], max_runs: usize) -> Option<Vec<(usize, usize)>> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (place, block) in units.chunks(BLOCK).enumerate() {
        if is_plain(block) {
            continue;
        }
        for (at, &unit) in (place * BLOCK..).zip(block) {
            if !is_restless(unit.into()) {
                continue;
            }
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
            if runs.len() > max_runs {
                return None;
            }
        }
    }
    Some(runs)
}

/// Code points looked at together.
const BLOCK: usize = 64;

/// Whether all are of kinds that are frequent and never restless: those below U+0300, and Chinese.
#[inline(always)]
fn is_plain<U: CodeUnit>(block: &[U]) -> bool {
    block.iter().fold(true, |all, &unit| {
        let code: u32 = unit.into();
        all & (code < 0x300 || code.wrapping_sub(0x4E00) < 0xA000 - 0x4E00)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Vec<u32> {
        text.chars().map(u32::from).collect()
    }

    #[test]
    fn what_is_passed_over_is_not_restless() {
        for code in (0..0x300).chain(0x4E00..0xA000) {
            assert!(!is_restless(code), "{code:x}");
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
                assert!(is_settled(&units(&before)));
                assert_eq!(restless_runs(&units(&before), 0), Some(vec![]));
                for restless in ["\u{301}", "\u{3099}", "\u{212b}", "\u{1161}", "\u{1d15e}"] {
                    let behind = filler.repeat(70);
                    assert!(!is_settled(&units(&format!("{before}{restless}"))));
                    let text = units(&format!("{before}{restless}{behind}"));
                    assert!(!is_settled(&text));
                    let place = units(&before).len();
                    assert_eq!(restless_runs(&text, 1), Some(vec![(place, place + 1)]));
                    assert_eq!(restless_runs(&text, 0), None);
                }
            }
        }
    }

    #[test]
    fn runs_go_on_across_blocks_and_end_at_what_is_settled() {
        for n_before in 55..70 {
            for n_restless in 1..150 {
                let text = "x".repeat(n_before) + &"\u{301}".repeat(n_restless) + "y\u{323}";
                let end = n_before + n_restless;
                let expected = vec![(n_before, end), (end + 1, end + 2)];
                assert_eq!(restless_runs(&units(&text), 2), Some(expected));
                assert_eq!(restless_runs(&units(&text), 1), None);
            }
        }
    }
}
