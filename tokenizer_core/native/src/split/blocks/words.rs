//! CLIP's pattern in blocks: letters, single digits and other characters, without the white space
//! between them.
//!
//! It has two steps: the first keeps its matches alone, the second is GPT-2's and cuts the first one's
//! `<|startoftext|>`. Without that name, a boundary of one step is a boundary of both. As in `ruled`,
//! the automaton is the definition, and takes over at each `<|` and at characters that it tells from
//! the sample of their class.

use memchr::memmem;

use crate::mem::growth::NoMemory;
use crate::simd::{Kernel, Work};
use crate::split::automaton::Automaton;
use crate::split::blocks::classes::{BLOCK, Blocks, Classes, classes};
use crate::split::blocks::ruled::mark_unclear;
use crate::split::blocks::starts::{below_first, with_whole_contractions};
use crate::split::pre_tokens::PreTokens;
use crate::split::rules::contraction;

/// Appends the words of a text from `at` on; `name` is the first `<|` that is known.
pub fn find_words(
    (automaton, kernel): (&Automaton, Kernel),
    text: &[u8],
    at: &mut usize,
    name: &mut Option<usize>,
    words: &mut PreTokens,
) -> Result<(), NoMemory> {
    while *at < text.len() && !words.is_full() {
        let must_ask;
        (*at, must_ask) = kernel.run(FindWords {
            automaton,
            text,
            at: *at,
            name,
            words,
        })?;
        if must_ask {
            *at = automaton.words_at(text, *at, |word| words.push(word))?;
        }
    }
    Ok(())
}

/// Appends the words of a text from the boundary `at` on, until they are full.
struct FindWords<'a, 't> {
    automaton: &'a Automaton,
    text: &'a [u8],
    at: usize,
    /// The first `<|` that is known; any position before `at` at first.
    name: &'a mut Option<usize>,
    words: &'a mut PreTokens<'t>,
}

impl<K: Blocks> Work<K> for FindWords<'_, '_> {
    /// The boundary after them, and whether the automaton must continue there.
    type Output = Result<(usize, bool), NoMemory>;

    #[inline(always)]
    fn run(self, kernel: K) -> Self::Output {
        let FindWords {
            automaton,
            text,
            mut at,
            name,
            words,
        } = self;
        while at < text.len() && !words.is_full() {
            let mut classes = classes(kernel, text, at);
            mark_unclear(automaton, &mut classes, text, at);
            if name.is_some_and(|name| name < at) {
                *name = memmem::find(&text[at..], b"<|").map(|found| at + found);
            }
            if let Some(name) = *name
                && name - at < BLOCK
            {
                classes.unclear |= 1 << (name - at);
            }
            let valid = u64::MAX >> (BLOCK - classes.valid);
            let certain = valid & below_first(classes.unclear & valid);
            let mut ends = starts(&classes, text, at) & certain & !1;
            if certain == valid && at + classes.valid == text.len() && classes.valid < BLOCK {
                ends |= 1 << classes.valid;
            }
            if ends == 0 {
                return Ok((at, true));
            }
            let mut positions = [0; BLOCK];
            kernel.write_positions(ends, 0, &mut positions);
            let positions = &positions[..ends.count_ones() as usize];
            words.push_of_block(&text[at..], positions, classes.space)?;
            words.is_wide |= classes.high != 0;
            at += 63 - ends.leading_zeros() as usize;
        }
        Ok((at, false))
    }
}

/// The starts of words and of white space; those after an unclear character do not matter.
#[inline(always)]
fn starts(classes: &Classes, text: &[u8], at: usize) -> u64 {
    let Classes {
        letter,
        number,
        space,
        inner,
        ..
    } = *classes;
    let unlike = |of: u64| of & !(of << 1);
    let other = !(letter | number | space);
    let starts = unlike(letter) | number & !inner | unlike(other) | unlike(space);
    with_whole_contractions(starts, classes.apostrophe, text, at, contraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::automaton::{Behavior, StepTables};
    use crate::unicode::{L, N, S, class_at};

    /// With one class, so that no character is unclear.
    fn automaton() -> Automaton {
        let step = StepTables {
            moves: vec![0, 0, 2, 0, 2, 1 << 31],
            behavior: Behavior::Isolated,
            invert: false,
            drops_unmatched: true,
        };
        Automaton::build(&[0], &[0], vec![step], vec![false], None).unwrap()
    }

    /// The end of the word or of the white space at `at`, by the definition, and whether it is a word.
    fn piece_at(text: &[u8], at: usize) -> (usize, bool) {
        if text[at] == b'\''
            && let Some(end) = contraction(text, at)
        {
            return (end, true);
        }
        let kind = |at: usize| {
            let (class, length) = class_at(text, at);
            let kinds = [L, N, S].map(|of| class & of != 0);
            (length > 0).then_some((kinds, length))
        };
        let (first, mut end) = kind(at).map(|(kinds, n)| (kinds, at + n)).unwrap();
        let is_single = first[1] || first[2];
        while let Some((kinds, length)) = kind(end)
            && kinds == first
            && !is_single
        {
            end += length;
        }
        (end, !first[2])
    }

    #[test]
    fn blocks_find_the_words_of_the_definition_and_copy_them() {
        #[rustfmt::skip]
        const PARTS: [&str; 22] = [
            " ", " ", "  ", "\n", "\u{3000}", "a", "word", "B", "'", "'s", "'ll", "''", "1", "23",
            "²", ".", "!?", "é", "中文", "\u{301}", "🙂", "a_rather_long_word_of_letters",
        ];
        let automaton = automaton();
        let mut next = crate::random::below(11);
        let mut n_found = 0;
        for round in 0..4000 {
            let kinds: Vec<&str> = (0..1 + next(6)).map(|_| PARTS[next(22)]).collect();
            let n_parts = [5, 60, 900][round % 3];
            let text: String = (0..next(n_parts))
                .map(|_| kinds[next(kinds.len())])
                .collect();
            let text = text.as_bytes();
            let (mut expected, mut at) = (Vec::new(), 0);
            while at < text.len() {
                let (end, is_word) = piece_at(text, at);
                if is_word {
                    expected.push(&text[at..end]);
                }
                at = end;
            }
            for kernel in Kernel::all() {
                let mark = (round % 2 == 0).then_some(0xFF);
                let (mut found, mut at) = (Vec::new(), 0);
                while at < text.len() {
                    let mut words = PreTokens::of(text, true, mark);
                    let must_ask;
                    (at, must_ask) = kernel
                        .run(FindWords {
                            automaton: &automaton,
                            text,
                            at,
                            name: &mut None,
                            words: &mut words,
                        })
                        .unwrap();
                    n_found += words.n;
                    if must_ask {
                        let (end, is_word) = piece_at(text, at);
                        if is_word {
                            words.push(at..end).unwrap();
                        }
                        at = end;
                    }
                    let (bytes, ends) = (words.bytes(), &words.ends[..words.n]);
                    let mut begin = 0;
                    for &end in ends {
                        let word = &bytes[begin..end];
                        found.push(match mark {
                            Some(mark) => word.strip_suffix(&[mark]).unwrap().to_vec(),
                            None => word.to_vec(),
                        });
                        begin = end;
                    }
                }
                assert_eq!(found, expected, "{}", kernel.name());
            }
        }
        assert!(n_found > 100_000, "{n_found}");
    }
}
