//! Where a text may be cut so that both sides can be encoded separately.
//!
//! At positions where every pattern has a boundary and neither side reads across it: after a letter
//! that no letter, mark or apostrophe follows, after the last digit of a number, and before a blank
//! that follows anything visible. Text in any script has such positions, except one run of letters,
//! of emoji or of blanks.

use crate::unicode::{L, M, N, S, class_of};

/// Whether text may be cut between two characters, in any context.
pub(crate) fn is_safe_cut(before: u32, after: u32) -> bool {
    let (class_before, class_after) = (class_of(before), class_of(after));
    let ends_word = class_before & L != 0 && class_after & (L | M) == 0;
    ends_word && after != u32::from('\'')
        || class_before & N != 0 && class_after & N == 0
        || class_before & S == 0 && after == u32::from(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Scanner;

    /// At least one character of each kind that a pattern distinguishes.
    #[rustfmt::skip]
    const KINDS: [&str; 23] = [
        "r", "e", "\u{200d}", "\u{903}", "V", "s", "S", "l", "\u{17f}", "\u{2b0}", "\u{1c5}",
        "\u{4e2d}", "\u{301}", "1", "\u{bd}", " ", "\n", "\r", "\u{3000}", "'", "/", ".",
        "\u{1f642}",
    ];

    fn pieces<'t>(scanner: Scanner, text: &'t str) -> Vec<&'t [u8]> {
        let mut pieces = Vec::new();
        scanner.for_each(text, |piece| pieces.push(piece)).unwrap();
        pieces
    }

    fn assert_cuts_are_safe(text: &str) -> usize {
        let mut n_cuts = 0;
        for (position, after) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(position);
            let before = left.chars().next_back().expect("skipped the first");
            if is_safe_cut(before.into(), after.into()) {
                n_cuts += 1;
                for (name, scanner) in Scanner::NAMES {
                    let apart = [pieces(scanner, left), pieces(scanner, right)].concat();
                    assert_eq!(apart, pieces(scanner, text), "{name} {text:?} {position}");
                }
            }
        }
        n_cuts
    }

    #[test]
    fn a_cut_changes_no_pre_token_of_any_text_of_four_kinds_nor_of_longer_ones() {
        let mut n_cuts = 0;
        for number in 0..KINDS.len().pow(4) {
            let kind = |position| KINDS[number / KINDS.len().pow(position) % KINDS.len()];
            n_cuts += assert_cuts_are_safe(&[kind(0), kind(1), kind(2), kind(3)].concat());
        }
        assert!(n_cuts > 50_000);
        let mut random = crate::random::below(11);
        for _ in 0..20_000 {
            let kinds = (0..14).map(|_| KINDS[random(KINDS.len())]);
            assert_cuts_are_safe(&kinds.collect::<String>());
        }
    }
}
