//! Published patterns that run as automata, followed block by block where rules tell their starts.
//!
//! The automaton is the definition. A rule is arithmetic as in `starts`, over the classes of
//! `unicode`; it may treat a character outside ASCII that way only if the automaton does not tell
//! it from the sample of its class. Any other one is `unclear`, and the certain starts end before it:
//! rare characters, another release of Unicode, and folded cases are left to the automaton.

use crate::split::Grammar;
use crate::split::automaton::Automaton;
use crate::split::blocks::classes::{BLOCK, Classes};
use crate::split::blocks::starts::{
    BlockGrammar, Shared, below_first, shared_starts, starts_like_cl100k, starts_like_o200k,
    with_whole_contractions,
};
use crate::split::rules::contraction;
use crate::unicode::class_at;

const OF_NO_CLASS: u16 = 1 << 8;
const HAN: usize = 9;
const KANA: usize = 10;

/// A pattern with an automaton, and rules for it.
#[derive(Clone, Copy)]
pub struct Ruled<'a, R> {
    pub automaton: &'a Automaton,
    pub rule: R,
}

/// How the blocks of a pattern are split.
pub trait Rule: Copy {
    /// As of `BlockGrammar`.
    const BEGINS_AT_BLANKS: bool = false;

    /// Changes classes that the pattern has otherwise.
    #[inline(always)]
    fn adjust(self, _classes: &mut Classes) {}

    /// As `BlockGrammar::starts`; what follows an unclear character does not matter.
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64;
}

/// Before each run of blanks.
#[derive(Clone, Copy)]
pub struct Metaspace;
/// GPT-2's after Digits, each alone.
#[derive(Clone, Copy)]
pub struct Digits;
/// GPT-2's after Digits, runs of them.
#[derive(Clone, Copy)]
pub struct DigitRuns;
/// Qwen 2's with marks among the letters.
#[derive(Clone, Copy)]
pub struct Qwen35;
/// o200k's with digits one by one, without contractions.
#[derive(Clone, Copy)]
pub struct Tekken;
/// o200k's with runs of ideographs cut out.
#[derive(Clone, Copy)]
pub struct KimiK2;
/// Digits by three, then runs of ideographs and kana, then words.
#[derive(Clone, Copy)]
pub struct DeepSeekV3;

/// Finds the characters of a block whose class is not all that the automaton knows of them.
#[inline(always)]
fn mark_unclear(automaton: &Automaton, classes: &mut Classes, text: &[u8], at: usize) {
    let samples = automaton.samples();
    let mut left = classes.looked_up;
    while left != 0 {
        let position = left.trailing_zeros() as usize;
        left &= left - 1;
        let (class, length) = class_at(text, at + position);
        let sample = (u16::from(class) | OF_NO_CLASS).trailing_zeros() as usize;
        let (class, _) = automaton.class_at(text, at + position);
        if class != samples[sample] {
            let bits = (u64::MAX >> (BLOCK - length)) << position;
            if class == samples[HAN] {
                classes.han |= bits;
            } else if class == samples[KANA] {
                classes.kana |= bits;
            } else {
                classes.unclear |= bits;
            }
        }
    }
}

impl<R: Rule> Grammar for Ruled<'_, R> {
    #[inline]
    fn advance(self, text: &[u8], pos: usize) -> usize {
        self.automaton.advance(text, pos)
    }
}

impl<R: Rule> BlockGrammar for Ruled<'_, R> {
    const BEGINS_AT_BLANKS: bool = R::BEGINS_AT_BLANKS;

    #[inline(always)]
    fn adjust(self, classes: &mut Classes, text: &[u8], at: usize) {
        mark_unclear(self.automaton, classes, text, at);
        self.rule.adjust(classes);
        classes.both &= !classes.unclear;
    }

    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        let starts = self.rule.starts(classes, text, at);
        // What follows white space decides whether its last character, of up to three bytes, starts
        // something.
        let before = classes.unclear >> 1 & classes.space;
        let unclear = classes.unclear | before | before >> 1 | before >> 2;
        starts & below_first(unclear) | 1
    }
}

impl Rule for Metaspace {
    const BEGINS_AT_BLANKS: bool = true;

    #[inline(always)]
    fn starts(self, classes: Classes, _: &[u8], _: usize) -> u64 {
        classes.begins_of_blanks() | 1
    }
}

impl Rule for Digits {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_between_digits(classes, classes.number & !classes.inner, text, at)
    }
}

impl Rule for DigitRuns {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        let first = classes.number & !(classes.number << 1);
        starts_between_digits(classes, first, text, at)
    }
}

/// GPT-2's starts on each text between digits, and the starts of these.
#[inline(always)]
fn starts_between_digits(classes: Classes, of_digits: u64, text: &[u8], at: usize) -> u64 {
    let Classes {
        letter,
        number,
        space,
        blank,
        ..
    } = classes;
    let unlike = |of: u64| of & !(of << 1);
    let other = !(letter | number | space);
    let visible = (unlike(letter) | unlike(other)) & !(blank << 1);
    // White space before a digit ends its text, and stays together.
    let last = classes.last_of(space, !(number >> 1));
    let mut starts = visible | of_digits | unlike(space) | last;
    starts = with_whole_contractions(starts, classes.apostrophe, text, at, contraction);
    starts & classes.certain_of_space(space) | 1
}

impl Rule for Qwen35 {
    #[inline(always)]
    fn adjust(self, classes: &mut Classes) {
        classes.letter |= classes.mark;
    }

    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_like_cl100k::<1>(classes, text, at)
    }
}

impl Rule for Tekken {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_like_o200k::<1, false>(classes, text, at)
    }
}

impl Rule for KimiK2 {
    #[inline(always)]
    fn adjust(self, classes: &mut Classes) {
        classes.cut_out = classes.han;
        classes.letter &= !classes.han;
        classes.slash = 0;
    }

    #[inline(always)]
    fn starts(self, mut classes: Classes, text: &[u8], at: usize) -> u64 {
        classes.both &= !classes.cut_out;
        starts_like_o200k::<3, true>(classes, text, at)
    }
}

impl Rule for DeepSeekV3 {
    #[inline(always)]
    fn adjust(self, classes: &mut Classes) {
        let cut_out = classes.han | classes.kana;
        classes.cut_out = cut_out;
        classes.letter = (classes.letter | classes.mark) & !cut_out;
        // They begin words, or stand between pre-tokens.
        classes.unclear |= classes.control;
    }

    #[inline(always)]
    fn starts(self, classes: Classes, _: &[u8], _: usize) -> u64 {
        let Shared {
            mut starts,
            certain,
            taken,
        } = shared_starts::<3>(&classes);
        let Classes {
            letter,
            number,
            blank,
            inner,
            high,
            cut_out,
            ..
        } = classes;
        let space = classes.space & !taken;
        let level = space & !classes.newline;
        // White space before a digit or an ideograph ends its text, and stays together.
        let first_level = level & !(level << 1);
        let together = classes.last_of(space, level & (number | cut_out) >> 1);
        starts &= !together | first_level;
        // A symbol joins a word only if both are ASCII, and then the word ends with ASCII.
        let other = !(letter | number | classes.space | cut_out);
        let single = other & !(other << 1) & !(blank << 1);
        let after_single = (single << 1).wrapping_add(inner) & !inner & letter;
        let of_ascii = letter & !high;
        let joined = single << 1 & !(high << 1) & of_ascii;
        starts |= after_single & !joined;
        starts |= joined.wrapping_add(of_ascii) & !of_ascii & letter;
        starts & certain | 1
    }
}
