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
