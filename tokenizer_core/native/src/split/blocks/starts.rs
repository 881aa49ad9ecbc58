//! Where pre-tokens start in a block of 64 bytes, by arithmetic on the bits of its classes.
//!
//! ```text
//! block <- the 64 bytes from `at` on, which is a boundary: nothing before it matters
//! letter, number, space, ... <- a word of bits for each class                  (`classes`)
//! starts <- first(letter) | first(number) | first(other) | first(space)        x & !(x << 1)
//! starts <- starts without those that the character before joins: a blank, a single symbol
//! starts <- starts with each contraction whole
//! certain <- the bits before what the bytes after the block could change
//! return starts & certain | 1                  the next block begins at the last of them
//! ```
//!
//! `starts` must agree with `Grammar::advance` on every text; the tests and a fuzzer compare them.
//! It departs from the above:
//!
//! 1. Of white space, the last character belongs to what follows (`last_of`), and some patterns
//!    end a pre-token after its last newline.
//! 2. Newlines after symbols belong to these: a sum carries through a run of them (`taken`).
//! 3. Digits go by three: one shift for each further group.
//! 4. Where arithmetic does not apply (a digit outside ASCII in a group of three, a combining mark,
//!    cases where o200k would look ahead) the certain starts end before it. A block whose only start is
//!    its own leaves one pre-token to `advance`.
//! 5. The next block may begin within a run of letters instead (`may_go_on_inside`).

use crate::split::blocks::classes::{BLOCK, Classes};
use crate::split::rules::{contraction, contraction_of_any_case};
use crate::split::{Cl100k, Gpt2, Grammar, Llama3, O200k, Qwen2};

/// With at least this many bytes after the last start, continuing among them is faster than reading
/// them again.
const WORTH_GOING_ON: u32 = 20;

/// A split pattern that can be followed block by block.
pub trait BlockGrammar: Grammar {
    /// Whether pre-tokens begin at runs of blanks and nowhere else.
    const BEGINS_AT_BLANKS: bool = false;

    /// Changes classes that the grammar has otherwise, before `starts`.
    #[inline(always)]
    fn adjust(self, _classes: &mut Classes, _text: &[u8], _at: usize) {}

    /// The bits of the certain starts in the block of `text` at `at`, which is a boundary. Bit 0 is
    /// always set.
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64;
}

impl BlockGrammar for Gpt2 {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        let Classes {
            letter,
            number,
            space,
            blank,
            ..
        } = classes;
        let unlike = |of: u64| of & !(of << 1);
        let other = !(letter | number | space);
        // A blank is joined by what follows it.
        let visible = (unlike(letter) | unlike(number) | unlike(other)) & !(blank << 1);
        let mut starts = visible | unlike(space) | classes.last_of(space, !0);
        starts = with_whole_contractions(starts, classes.apostrophe, text, at, contraction);
        starts & classes.certain_of_space(space) | 1
    }
}

impl BlockGrammar for Cl100k {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_like_cl100k::<3>(classes, text, at)
    }
}

impl BlockGrammar for Llama3 {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_like_cl100k::<3>(classes, text, at)
    }
}

impl BlockGrammar for Qwen2 {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_like_cl100k::<1>(classes, text, at)
    }
}

impl BlockGrammar for O200k {
    #[inline(always)]
    fn starts(self, classes: Classes, text: &[u8], at: usize) -> u64 {
        starts_like_o200k::<3, true>(classes, text, at)
    }
}

/// The relatives of o200k differ in how many digits go together and in whether words end with
/// contractions.
#[inline(always)]
pub fn starts_like_o200k<const DIGITS: usize, const CONTRACTIONS: bool>(
    classes: Classes,
    text: &[u8],
    at: usize,
) -> u64 {
    let Shared {
        mut starts,
        certain,
        taken,
    } = shared_starts::<DIGITS>(&classes);
    let Classes {
        letter,
        upper,
        inner,
        ..
    } = classes;
    let of_lower = letter & !upper;
    starts |= upper & !inner & (of_lower << 1);
    // Left to the scanner: a mark, which may be part of a word or of symbols; an upper-case
    // letter after one without case; `/` after a newline that belongs to symbols.
    let upper_after_both = upper & !inner & (classes.both << 1);
    let unclear = classes.mark | upper_after_both | classes.slash & (taken << 1);
    let mut apostrophes = match CONTRACTIONS {
        true => classes.apostrophe & (letter << 1),
        false => 0,
    };
    while apostrophes != 0 {
        let position = apostrophes.trailing_zeros() as usize;
        apostrophes &= apostrophes - 1;
        if let Some(end) = contraction_of_any_case(text, at + position) {
            starts = restart(starts, position, end - at);
            // An apostrophe right after one belongs to no word.
            apostrophes &= !bit(end - at);
        }
    }
    starts & certain & below_first(unclear) | 1
}

/// These patterns differ in how they end white space at the end of a text, which no block decides.
#[inline(always)]
pub fn starts_like_cl100k<const DIGITS: usize>(classes: Classes, text: &[u8], at: usize) -> u64 {
    let Shared {
        mut starts,
        certain,
        ..
    } = shared_starts::<DIGITS>(&classes);
    starts = with_whole_contractions(
        starts,
        classes.apostrophe,
        text,
        at,
        contraction_of_any_case,
    );
    starts & certain | 1
}

/// What cl100k, llama3, qwen2 and o200k have in common: all but contractions and cases.
pub struct Shared {
    pub starts: u64,
    pub certain: u64,
    /// The newlines that belong to the symbols before them.
    pub taken: u64,
}

#[inline(always)]
pub fn shared_starts<const DIGITS: usize>(classes: &Classes) -> Shared {
    let Classes {
        letter,
        number,
        newline,
        blank,
        inner,
        ..
    } = *classes;
    let other = !(letter | number | classes.space | classes.cut_out);
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`: the sum carries from the first newline of a run that follows a
    // symbol through the run.
    let taken = newline & !newline.wrapping_add(other << 1 & newline);
    let space = classes.space & !taken;
    let newline = newline & !taken;
    let level = space & !newline;
    let mut certain = classes.certain_of_space(space);
    // `\s*[\r\n]+|\s+(?!\S)|\s`: through the last newline, then all but the last character.
    let after_newline = level & newline << 1;
    let mut starts = space & !(space << 1) | classes.last_of(space, level) | after_newline;
    starts |= classes.cut_out & !(classes.cut_out << 1);
    if level.wrapping_add(after_newline) & newline != 0 {
        starts = join_blank_lines(starts, after_newline, level, newline);
    }
    // `[^\r\n\p{L}\p{N}]?\p{L}+`: level space always joins a word, and a single symbol does
    // where no blank has taken it.
    let first_other = other & !(other << 1) & !(blank << 1);
    let after_single = (first_other << 1).wrapping_add(inner) & !inner;
    starts |= first_other | letter & !(letter << 1) & !(level << 1) & !after_single;
    if DIGITS == 1 {
        starts |= number & !inner;
    } else {
        let first = number & !(number << 1);
        starts |= first;
        let after_three = number & number << 1 & number << 2 & number << 3;
        if after_three != 0 {
            let mut third = first << 3 & after_three;
            while third != 0 {
                starts |= third;
                third = third << 3 & after_three;
            }
            // Outside ASCII a digit is more than a byte.
            certain &= below_first(number & (inner | inner >> 1));
        }
    }
    Shared {
        starts,
        certain,
        taken,
    }
}

/// Removes the starts after a newline of level space that another newline ends.
#[cold]
fn join_blank_lines(mut starts: u64, mut after_newline: u64, level: u64, newline: u64) -> u64 {
    while after_newline != 0 {
        let position = after_newline.trailing_zeros();
        after_newline &= after_newline - 1;
        let end = position + (level >> position).trailing_ones();
        if end < BLOCK as u32 && newline >> end & 1 != 0 {
            starts &= !(1 << position);
        }
    }
    starts
}

impl Classes {
    /// The bits that the end of the block leaves certain: of white space that reaches the end, only
    /// the first character surely starts something.
    #[inline(always)]
    pub fn certain_of_space(&self, space: u64) -> u64 {
        let unused = (BLOCK - self.valid) as u32;
        // `valid` is at least 1: a block is not empty, and its first character fits.
        let run = (!(space << unused)).leading_zeros().min(self.valid as u32);
        let end = self.valid as u32 - run;
        below(end as usize + usize::from(run > 0))
    }

    /// The positions up to the last of `starts`; or all, if scanning may continue from any of them
    /// though it is no start. That holds if all characters after the last start are letters without
    /// case, with perhaps one character before them that joins them: a run of letters continues,
    /// and o200k, which asks whether a lower-case letter came before, has met none.
    #[inline(always)]
    pub fn may_go_on_inside(&self, starts: u64) -> u64 {
        let up_to_last = u64::MAX >> starts.leading_zeros();
        let last = starts & !(up_to_last >> 1);
        let after = below(self.valid) & !up_to_last;
        let rest_of_first = self.inner & after & below_first(!self.inner & after);
        let after = after & !rest_of_first;
        let of_lower = self.letter & !self.both & !self.upper;
        // After a mark, a digit or an unclear character as the first, starts may be hidden; a
        // lower-case letter is one case.
        let unclear = self.mark | self.number | of_lower | self.unclear;
        let is_worth_it = after.count_ones() >= WORTH_GOING_ON;
        if is_worth_it && after & !self.both == 0 && last & unclear == 0 {
            below(self.valid)
        } else {
            up_to_last
        }
    }

    /// The starts of the last characters of those runs of `space` that something visible follows,
    /// restricted to `of`.
    #[inline(always)]
    pub fn last_of(&self, space: u64, of: u64) -> u64 {
        let mut last = space & !(space >> 1) & of;
        let mut wide = last & self.inner;
        if wide != 0 {
            last &= !wide;
            while wide != 0 {
                let position = wide.trailing_zeros();
                wide &= wide - 1;
                // The nearest byte before that is no inner one.
                last |= 1 << (63 - (!self.inner & ((1 << position) - 1)).leading_zeros());
            }
        }
        last
    }
}

/// The starts without those inside the contractions that `find` finds at an apostrophe that is a start,
/// and with the end of each.
#[inline(always)]
pub fn with_whole_contractions(
    mut starts: u64,
    apostrophe: u64,
    text: &[u8],
    at: usize,
    find: impl Fn(&[u8], usize) -> Option<usize>,
) -> u64 {
    let mut apostrophes = starts & apostrophe;
    while apostrophes != 0 {
        let position = apostrophes.trailing_zeros() as usize;
        apostrophes &= apostrophes - 1;
        if let Some(end) = find(text, at + position) {
            starts = restart(starts, position + 1, end - at);
        }
    }
    starts
}

/// Removes the starts from `position` on until `end`, and adds `end`.
#[inline(always)]
fn restart(starts: u64, position: usize, end: usize) -> u64 {
    starts & (below(position) | !below(end)) | bit(end)
}

#[inline(always)]
fn bit(position: usize) -> u64 {
    if position < BLOCK { 1 << position } else { 0 }
}

/// The bits below a position of at most 64.
#[inline(always)]
fn below(position: usize) -> u64 {
    if position < BLOCK {
        (1 << position) - 1
    } else {
        u64::MAX
    }
}

/// The bits below the lowest of `bits`; all bits if `bits` is empty.
#[inline(always)]
pub fn below_first(bits: u64) -> u64 {
    bits.wrapping_sub(1) & !bits
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::simd::{Kernel, Portable, Work};
    use crate::split::blocks::classes::{Blocks, classes};

    static KERNELS: LazyLock<Vec<Kernel>> = LazyLock::new(Kernel::all);

    struct StartsOf<'t, G>(G, &'t [u8], usize);

    impl<G: BlockGrammar, K: Blocks> Work<K> for StartsOf<'_, G> {
        /// And what may be gone on from.
        type Output = (u64, u64);

        #[inline(always)]
        fn run(self, kernel: K) -> (u64, u64) {
            let StartsOf(grammar, text, at) = self;
            let classes = classes(kernel, text, at);
            let starts = grammar.starts(classes, text, at);
            (starts, classes.may_go_on_inside(starts) & !classes.inner)
        }
    }

    /// Follows `text` block by block and compares with the scanner, on every kernel; returns how many
    /// pre-tokens the blocks found.
    fn compare(grammar: impl BlockGrammar, text: &str) -> usize {
        let bytes = text.as_bytes();
        let (mut pos, mut n_told) = (0, 0);
        while pos < bytes.len() {
            let (mut starts, inside) = StartsOf(grammar, bytes, pos).run(Portable);
            for kernel in KERNELS.iter() {
                let found = kernel.run(StartsOf(grammar, bytes, pos));
                assert_eq!(found, (starts, inside), "{} {text:?}", kernel.name());
            }
            assert_eq!(starts & 1, 1);
            let block = pos;
            let last = 63 - starts.leading_zeros() as usize;
            for position in (last + 1..BLOCK).filter(|position| inside >> position & 1 != 0) {
                let ends =
                    [last, position].map(|position| grammar.advance(bytes, block + position));
                assert_eq!(ends[0], ends[1], "from {block} + {position} in {text:?}");
            }
            loop {
                let end = grammar.advance(bytes, pos);
                starts &= starts - 1;
                if starts == 0 {
                    // The scanner decides, and the next pre-token begins at a boundary.
                    if pos == block {
                        pos = end;
                    }
                    break;
                }
                let found = block + starts.trailing_zeros() as usize;
                assert_eq!(found, end, "after {pos} in {text:?}");
                pos = end;
                n_told += 1;
            }
        }
        n_told
    }

    fn compare_all(text: &str) {
        compare(Gpt2, text);
        compare(Cl100k, text);
        compare(Llama3, text);
        compare(Qwen2, text);
        compare(O200k, text);
    }

    const PARTS: [&str; 64] = [
        " ", " ", "  ", "   ", "\n", "\n", "\n\n", "\r\n", "\t", "\u{3000}", "\u{a0}", "\u{85}",
        "a", "b", "the", "word", "B", "Cd", "EF", "xY", "s", "t", "'", "'s", "'S", "'ll", "'lL",
        "'re", "'vE", "'d", "'\u{17f}", "\u{17f}", "1", "12", "345", "6789", "²", "１", "٣", ".",
        "..", "!", ",", "/", "//", "\n/", "-", "\"", "(", "，", "。", "“", "中", "文字", "ひ",
        "ー", "é", "É", "ß", "Ж", "ы", "\u{301}", "ʰ", "🙂",
    ];

    #[test]
    fn blocks_agree_with_the_scanner_on_random_texts() {
        let mut next = crate::random::below(7);
        for round in 0..60_000 {
            // Few kinds of parts in a text make the rare neighbours meet.
            let kinds: Vec<&str> = (0..1 + next(9)).map(|_| PARTS[next(64)]).collect();
            let n_parts = if round % 10 == 0 { 200 } else { next(40) };
            let text: String = (0..n_parts).map(|_| kinds[next(kinds.len())]).collect();
            compare_all(&text);
        }
    }

    #[test]
    fn every_pair_and_triple_of_parts_agrees_at_every_place_of_a_block() {
        for first in PARTS {
            for second in PARTS {
                compare_all(&[first, second].concat().repeat(3));
                for padding in [0, 1, 57, 59, 60, 61, 62, 63] {
                    let text = ["x".repeat(padding).as_str(), first, second, "y z"].concat();
                    compare_all(&text);
                    compare_all(&text.replacen('x', "\n", 70));
                }
                for third in PARTS {
                    compare_all(&[first, second, third, first].concat());
                }
            }
        }
    }

    #[test]
    fn every_character_agrees_between_others() {
        for character in '\0'..=char::MAX {
            let text = format!("a{character}b {character}{character}1\n{character}.{character}A\t");
            compare_all(&text);
        }
    }

    #[test]
    #[ignore = "a minute; make test-arm runs it"]
    fn every_character_agrees_anywhere_in_whole_blocks() {
        for character in '\0'..=char::MAX {
            let text = format!("a{character}b {character}{character}1\n{character}.{character}A\t");
            compare_all(&text.repeat(7));
        }
    }

    #[test]
    fn what_goes_on_through_a_block_may_be_gone_on_from_where_no_case_matters() {
        fn last_positions(grammar: impl BlockGrammar, text: &str) -> Vec<usize> {
            let text = text.as_bytes();
            let block = classes(Portable, text, 0);
            let starts = grammar.starts(block, text, 0);
            let inside = block.may_go_on_inside(starts) & !block.inner;
            vec![
                63 - starts.leading_zeros() as usize,
                63 - inside.leading_zeros() as usize,
            ]
        }
        let run = "日本語".repeat(9);
        for (before, last) in [
            ("", 0),
            ("a 1 ", 3),
            ("x 「", 5),
            ("「", 0),
            ("a.", 1),
            ("a1A", 2),
        ] {
            let text = format!("{before}{run}");
            let positions = last_positions(O200k, &text);
            // The last character that is whole begins at most five bytes before the end.
            assert!(
                positions[0] == last && positions[1] >= 59,
                "{before}: {positions:?}"
            );
        }
        for before in ["a", "é", "\u{301}", "𝟏"] {
            let positions = last_positions(O200k, &format!("{before}{run}"));
            assert_eq!(positions, [0, 0], "{before}");
        }
        assert_eq!(last_positions(Cl100k, &format!("𝟏{run}")), [0, 0]);
        for within in ["a", "A", "é", "\u{301}", "Ж"] {
            let text = format!("x {}{within}{run}", "日本語".repeat(4));
            let [last, inside] = last_positions(O200k, &text)[..] else {
                panic!("two positions");
            };
            assert_eq!(last, inside, "{within}");
        }
    }

    #[test]
    fn blocks_tell_most_of_ordinary_text() {
        let text = "It's a plain text, with 1234 words and \"marks\".\n\n  He'll say: nothing!\n"
            .repeat(50);
        for n_told in [
            compare(Gpt2, &text),
            compare(Cl100k, &text),
            compare(O200k, &text),
        ] {
            assert!(n_told > 800, "{n_told}");
        }
    }
}
