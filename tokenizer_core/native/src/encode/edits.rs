//! A text with changes, applied as its windows are written.

use std::ops::{Deref, Range};

use crate::encode::windows::Source;
use crate::stop::Stopped;

/// Start and end of a part of a text, in characters, and its replacement.
pub type Change<R> = (usize, usize, R);

/// A text with changes; see `Changed::new`.
pub struct Changed<'t, T, R> {
    text: T,
    changes: &'t [Change<R>],
}

impl<'t, T: Source, R> Changed<'t, T, R> {
    /// None if the changes are not in order or exceed the text.
    pub fn new(text: T, changes: &'t [Change<R>]) -> Option<Changed<'t, T, R>> {
        let ends = changes.iter().flat_map(|(start, end, _)| [*start, *end]);
        let are_in_order = ends.chain([text.n_characters()]).is_sorted();
        are_in_order.then_some(Changed { text, changes })
    }
}

impl<T: Source, R: Deref<Target = str> + Sync> Source for Changed<'_, T, R> {
    type Error = T::Error;

    fn n_characters(&self) -> usize {
        self.text.n_characters()
    }

    fn max_bytes(&self) -> usize {
        if let Some(utf8) = self.as_utf8() {
            return utf8.len();
        }
        let instead = self.changes.iter().map(|change| change.2.len());
        self.text.max_bytes() + instead.sum::<usize>()
    }

    fn around(&self, position: usize) -> Option<(u32, u32)> {
        // No cut next to a change, so that each change is in one window.
        let next = self.changes.partition_point(|change| change.1 < position);
        let is_changed = self
            .changes
            .get(next)
            .is_some_and(|change| change.0 <= position);
        if is_changed {
            None
        } else {
            self.text.around(position)
        }
    }

    fn as_utf8(&self) -> Option<&str> {
        match self.changes {
            [] => self.text.as_utf8(),
            [(0, end, instead)] if *end == self.text.n_characters() => Some(instead),
            _ => None,
        }
    }

    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), T::Error> {
        let (mut at, end) = (window.start, window.end);
        let first = self.changes.partition_point(|change| change.0 < at);
        for (start, after, instead) in &self.changes[first..] {
            if *start > end {
                break;
            }
            self.text.append_to(own, at..*start)?;
            own.try_reserve(instead.len()).map_err(Stopped::from)?;
            own.push_str(instead);
            at = *after;
        }
        self.text.append_to(own, at..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::specials::SpecialTokens;
    use crate::encode::tests::encoder;
    use crate::encode::windows::tests::Characters;
    use crate::split::Scanner;

    #[test]
    fn changes_are_of_one_window_whatever_its_size() {
        let (encoder, none) = (encoder(), SpecialTokens::none());
        let words = "the cat's, 12 the other, a the\n".repeat(9);
        let characters: Vec<char> = words.chars().collect();
        let n = characters.len();
        let mut state = 5u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for round in 0..300 {
            let mut positions: Vec<usize> = (0..2 * random(12)).map(|_| random(n + 1)).collect();
            if round % 3 == 0 {
                positions.extend([0, 0, n, n]);
            }
            if round % 20 == 0 {
                positions = vec![0, n];
            }
            positions.sort_unstable();
            let whole = "the other, 12 the\n".repeat(5);
            let instead = ["", "the", " ", "\u{4e2d}", "s, the other'", &whole];
            let changes: Vec<Change<String>> = positions
                .chunks(2)
                .map(|position| {
                    (
                        position[0],
                        position[1],
                        instead[random(instead.len())].to_owned(),
                    )
                })
                .collect();
            let (mut changed, mut at) = (String::new(), 0);
            for (start, end, instead) in &changes {
                changed.extend(&characters[at..*start]);
                changed.push_str(instead);
                at = *end;
            }
            changed.extend(&characters[at..]);
            let texts = [Changed::new(Characters(characters.clone()), &changes).unwrap()];
            for (_, scanner) in Scanner::NAMES {
                let mut expected = Vec::new();
                encoder.encode(scanner, &changed, &mut expected).unwrap();
                for sizes in [(1, 1), (3, 3), (20, 1), (1000, 1)] {
                    let batch = encoder.encode_in_windows(scanner, &none, &texts, sizes);
                    assert_eq!(batch.unwrap().ids, expected, "{changes:?} {sizes:?}");
                }
            }
        }
    }

    #[test]
    fn changes_in_no_order_or_beyond_the_text_are_refused() {
        let text = || Characters("abc".chars().collect());
        for positions in [&[(1, 4)][..], &[(2, 1)], &[(1, 2), (0, 3)]] {
            let changes: Vec<Change<String>> = positions
                .iter()
                .map(|&(start, end)| (start, end, String::new()))
                .collect();
            assert!(Changed::new(text(), &changes).is_none());
        }
        assert!(Changed::new(text(), &[(0, 0, "x"), (3, 3, "y")]).is_some());
    }
}
