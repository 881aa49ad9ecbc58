//! Where the pieces of a text end, found a batch at a time before any is looked up.
//!
//! Where the next piece ends cannot be predicted. Found in batches, the ends do not delay the
//! look-ups, whose waits for memory overlap. A piece is a pre-token, or a part of one where
//! `merge/boundaries.rs` shows that its parts merge separately.

use crate::merge::boundaries::{Boundaries, Meeting, length_from};
use crate::simd::{Instructions, Kernel, Work};
use crate::split::automaton::{Automaton, Rules};
use crate::split::blocks::classes::{BLOCK, Blocks, Classes, classes};
use crate::split::blocks::ruled::{
    DeepSeekV3, DigitRuns, Digits, KimiK2, Metaspace, Qwen35, Ruled, Tekken,
};
use crate::split::blocks::starts::BlockGrammar;
use crate::split::{Cl100k, Gpt2, Llama3, O200k, Qwen2, Scanner};

/// Pieces in a batch; the ends have room for those of one more block.
pub const BATCH: usize = 256;
/// Bytes of a batch at most: an end is the bits of a `u32` below `INSIDE`.
pub const MAX_BATCH_BYTES: usize = 1 << 29;
/// Flag of an end: the piece begins inside a pre-token.
pub const INSIDE: u32 = 1 << 30;
/// Flag of an end: the piece is a part of a pre-token.
pub const PART: u32 = 1 << 31;

/// The bits of an end without its flags.
pub const END: u32 = !(PART | INSIDE);

/// Room for a batch and one more block.
pub type Ends = [u32; BATCH + BLOCK];

/// Where the first `n` pieces of a batch end.
#[inline(always)]
pub fn offset_of(n: usize, ends: &[u32]) -> usize {
    match n {
        0 => 0,
        _ => (ends[n - 1] & END) as usize,
    }
}

/// Finds the pieces of a text with one pattern. The compiler repeats these two functions for each pattern,
/// and compiles the caller, which merges the pieces, once.
pub trait PieceFinder {
    /// Runs `FindEnds` for the text from `start` on; `cuts` is its `boundaries` and `marks_parts`.
    fn find_ends(
        &self,
        kernel: Kernel,
        cuts: (&Boundaries, bool),
        text: &[u8],
        start: usize,
        ends: &mut Ends,
    ) -> usize;

    /// Where the pre-token that starts at `at` ends.
    fn end_of_piece(&self, text: &[u8], at: usize) -> usize;
}

impl<G: BlockGrammar> PieceFinder for G {
    fn find_ends(
        &self,
        kernel: Kernel,
        (boundaries, marks_parts): (&Boundaries, bool),
        text: &[u8],
        start: usize,
        ends: &mut Ends,
    ) -> usize {
        kernel.run(FindEnds {
            grammar: *self,
            boundaries,
            marks_parts,
            text,
            start,
            ends,
        })
    }

    // Called for few pre-tokens: one copy for all instruction sets is as fast.
    #[inline(never)]
    fn end_of_piece(&self, text: &[u8], at: usize) -> usize {
        self.advance(text, at)
    }
}

/// Runs `work` with the finder of a scanner. An automaton without rules for blocks has none; the result is
/// then the automaton.
pub fn with_finder<'a, T>(
    scanner: Scanner<'a>,
    work: impl FnOnce(&dyn PieceFinder) -> T,
) -> Result<T, &'a Automaton> {
    fn ruled<R>(automaton: &Automaton, rule: R) -> Ruled<'_, R> {
        Ruled { automaton, rule }
    }
    let automaton = match scanner {
        Scanner::Gpt2 => return Ok(work(&Gpt2)),
        Scanner::Cl100k => return Ok(work(&Cl100k)),
        Scanner::Llama3 => return Ok(work(&Llama3)),
        Scanner::Qwen2 => return Ok(work(&Qwen2)),
        Scanner::O200k => return Ok(work(&O200k)),
        Scanner::Automaton(automaton) => automaton,
    };
    match automaton.rules() {
        Some(Rules::Metaspace) => Ok(work(&ruled(automaton, Metaspace))),
        Some(Rules::Digits) => Ok(work(&ruled(automaton, Digits))),
        Some(Rules::DigitRuns) => Ok(work(&ruled(automaton, DigitRuns))),
        Some(Rules::Qwen35) => Ok(work(&ruled(automaton, Qwen35))),
        Some(Rules::Tekken) => Ok(work(&ruled(automaton, Tekken))),
        Some(Rules::KimiK2) => Ok(work(&ruled(automaton, KimiK2))),
        Some(Rules::DeepSeekV3) => Ok(work(&ruled(automaton, DeepSeekV3))),
        // `Automaton::finds_words` handles the rules of Clip.
        Some(Rules::Clip) | None => Err(automaton),
    }
}

/// Calls `visit` with the pre-tokens of a text, in order.
pub fn for_each<'t>(finder: &dyn PieceFinder, text: &'t [u8], mut visit: impl FnMut(&'t [u8])) {
    let (boundaries, mut ends, mut at) = (Boundaries::none(), [0; BATCH + BLOCK], 0);
    while at < text.len() {
        let cuts = (&boundaries, false);
        let n = finder.find_ends(Kernel::chosen(), cuts, text, at, &mut ends);
        let start = at;
        for &end in &ends[..n] {
            let end = start + (end & END) as usize;
            visit(&text[at..end]);
            at = end;
        }
        if n == 0 {
            at = finder.end_of_piece(text, start);
            visit(&text[start..at]);
        }
    }
}

/// Writes to `ends` where the pieces from the boundary `start` on end, counted from there: up to a
/// batch of them, and perhaps some more. Returns how many; 0 if the first is too long for a batch.
pub struct FindEnds<'a, G> {
    pub grammar: G,
    pub boundaries: &'a Boundaries,
    /// Whether it matters that a piece is a part; otherwise ends may lack that flag.
    pub marks_parts: bool,
    pub text: &'a [u8],
    pub start: usize,
    pub ends: &'a mut Ends,
}

impl<G: BlockGrammar, K: Blocks> Work<K> for FindEnds<'_, G> {
    type Output = usize;

    #[inline(always)]
    fn run(self, kernel: K) -> usize {
        if G::BEGINS_AT_BLANKS {
            return find_ends_between_blanks(kernel, self);
        }
        let FindEnds {
            grammar,
            boundaries,
            text,
            start,
            ends,
            ..
        } = self;
        let (mut at, mut n, mut inside) = (start, 0, 0);
        while n < BATCH && at < text.len() && at - start < MAX_BATCH_BYTES {
            let mut classes = classes(kernel, text, at);
            grammar.adjust(&mut classes, text, at);
            let starts = grammar.starts(classes, text, at);
            let after_first = starts & (starts - 1);
            let base = (at - start) as u32;
            let positions = ends[n..].first_chunk_mut::<BLOCK>();
            let positions = positions.expect("room for a block after a batch");
            if classes.is_wide || inside != 0 {
                let (n_written, inside_after) = kernel.run(WriteParts {
                    boundaries,
                    classes: &classes,
                    starts,
                    inside,
                    text: &text[at..],
                    base,
                    positions,
                });
                if n_written > 0 {
                    (n, inside) = (n + n_written, inside_after);
                    at = start + offset_of(n, ends);
                    continue;
                }
            } else if after_first != 0 {
                kernel.write_positions(after_first, base, positions);
                n += after_first.count_ones() as usize;
                let is_last = at + classes.valid == text.len();
                at += 63 - after_first.leading_zeros() as usize;
                if !is_last {
                    continue;
                }
                // Another block would show nothing new of the last pre-token.
            }
            let end = grammar.end_of_piece(text, at);
            if end - start > MAX_BATCH_BYTES {
                break;
            }
            let pre_token = &text[at..end];
            if pre_token.len() <= BLOCK || pre_token.is_ascii() {
                ends[n] = (end - start) as u32 | flags(0, inside);
                n += 1;
            } else {
                let base = (at - start) as u32;
                let n_parts = write_all_parts(boundaries, pre_token, inside, base, &mut ends[n..]);
                let Some(n_parts) = n_parts else {
                    break;
                };
                n += n_parts;
            }
            (at, inside) = (end, 0);
        }
        if inside != 0 {
            // A batch ends with a pre-token: the next one begins with the one that continues.
            while ends[n - 1] & INSIDE != 0 {
                n -= 1;
            }
            n -= 1;
        }
        n
    }
}

/// As `FindEnds`, where pre-tokens begin at runs of blanks. Such a pre-token may be a page of code or a
/// chapter in Chinese, so it is cut wherever words, numbers and symbols meet and nothing merges
/// across. Runs of one kind stay whole, and blanks and tabs with what follows them: more parts would
/// take more look-ups. Scanning continues from any character, so nothing is read twice.
#[inline(always)]
fn find_ends_between_blanks<G>(kernel: impl Blocks, task: FindEnds<'_, G>) -> usize {
    let FindEnds {
        boundaries,
        marks_parts,
        text,
        start,
        ends,
        ..
    } = task;
    let is_begin = start == 0 || text[start] == b' ' && text[start - 1] != b' ';
    let (mut at, mut n, mut inside) = (start, 0, u32::from(!is_begin));
    while n < BATCH && at < text.len() && at - start < MAX_BATCH_BYTES {
        let classes = classes(kernel, text, at);
        let Classes { inner, high, .. } = classes;
        let starts = classes.begins_of_blanks();
        let differs = |of: u64| of ^ of << 1;
        let kinds = differs(classes.letter) | differs(classes.number) | differs(classes.space);
        let mut cuts = kinds & !((classes.space & !classes.newline) << 1);
        if classes.is_wide || high != 0 && starts == 0 {
            // Of a script without blanks, probably.
            cuts |= high | high << 1;
        }
        let valid = u64::MAX >> (BLOCK - classes.valid);
        let starts = starts & valid & !1;
        let mut left = cuts & !inner & !starts & valid & !1;
        let mut cuts = 0;
        while left != 0 {
            let position = left.trailing_zeros();
            left &= left - 1;
            let after = Meeting::at(text, at + position as usize);
            let may_join = if high << 1 >> position & 1 == 0 {
                boundaries.may_join_ascii(after)
            } else {
                let before = (!inner & ((1 << position) - 1)).leading_zeros() as usize;
                let before = Meeting::after_nothing(text, at + (before ^ (BLOCK - 1)));
                boundaries.may_join(before, after)
            };
            cuts |= u64::from(!may_join & 1) << position;
        }
        let found = starts | cuts;
        let positions = ends[n..].first_chunk_mut::<BLOCK>();
        let positions = positions.expect("room for a block after a batch");
        kernel.write_positions(found, (at - start) as u32, positions);
        let n_found = found.count_ones() as usize;
        if marks_parts {
            let mut left = found;
            for end in &mut positions[..n_found] {
                let is_cut = (cuts >> left.trailing_zeros()) as u32 & 1;
                left &= left - 1;
                *end |= flags(is_cut, inside);
                inside = is_cut;
            }
        }
        n += n_found;
        let last = 63 - (!inner & valid).leading_zeros() as usize;
        if at + classes.valid == text.len() {
            ends[n] = (text.len() - start) as u32 | flags(0, inside);
            return n + 1;
        }
        // The next block begins with the last character of this one: two characters decide.
        at += last;
    }
    n
}

/// Writes where the pre-tokens of a block and their parts end, each plus `base`: up to the last
/// pre-token that starts, or to the last part after which scanning may continue.
pub struct WriteParts<'a> {
    pub boundaries: &'a Boundaries,
    pub classes: &'a Classes,
    /// The starts of pre-tokens, the first of them at 0.
    pub starts: u64,
    /// 1 if the piece that starts at 0 begins inside a pre-token, otherwise 0.
    pub inside: u32,
    /// The text from the block on.
    pub text: &'a [u8],
    pub base: u32,
    pub positions: &'a mut [u32; BLOCK],
}

impl<K: Instructions> Work<K> for WriteParts<'_> {
    /// How many ends there are, and `inside` of the piece after the last of them.
    type Output = (usize, u32);

    #[inline(always)]
    fn run(self, _: K) -> (usize, u32) {
        let WriteParts {
            boundaries, starts, ..
        } = self;
        const ROOM: usize = BLOCK + size_of::<Meeting>();
        let mut padded = [0; ROOM];
        let text = match self.text.first_chunk::<ROOM>() {
            Some(text) => text,
            None => {
                padded[..self.text.len()].copy_from_slice(self.text);
                &padded
            }
        };
        let Classes { inner, high, .. } = *self.classes;
        // A pre-token can be cut next to a character outside ASCII.
        let may_cut = !inner & (high | high << 1) & !starts;
        // Examined are these positions, the characters before them (those outside ASCII are such
        // positions themselves, or starts), and the starts of pre-tokens.
        let before = may_cut >> 1 & !inner;
        let looked_at = self.classes.may_go_on_inside(starts);
        let mut left = (starts | may_cut | before) & looked_at & !1;
        let (mut n, mut began_inside) = (0, self.inside);
        let mut before = Meeting::at_start(text);
        while left != 0 {
            let position = left.trailing_zeros();
            left &= left - 1;
            let after = Meeting::at(text, position as usize);
            let may_join = boundaries.may_join(before, after);
            before = after;
            let is_cut = (may_cut >> position) as u32 & !may_join & 1;
            let is_end = (starts >> position) as u32 & 1 | is_cut;
            self.positions[n % BLOCK] = (self.base + position) | flags(is_cut, began_inside);
            n += is_end as usize;
            // A position that is no end tells the next one nothing.
            began_inside = if is_end != 0 { is_cut } else { began_inside };
        }
        (n, began_inside)
    }
}

/// Writes to `ends` where the parts of a pre-token end, each plus `base`. Returns how many there
/// are, or None without room for all. `inside` is 1 if the pre-token began earlier.
#[inline(never)]
pub fn write_all_parts(
    boundaries: &Boundaries,
    pre_token: &[u8],
    inside: u32,
    base: u32,
    ends: &mut [u32],
) -> Option<usize> {
    let (mut n, mut at, mut inside) = (0, 0, inside);
    let mut before = Meeting::at_start(pre_token);
    loop {
        at += length_from(pre_token[at]);
        if at >= pre_token.len() {
            break;
        }
        let after = Meeting::at(pre_token, at);
        let is_plain = before.is_ascii() && after.is_ascii();
        if !is_plain && boundaries.may_join(before, after) & 1 == 0 {
            *ends.get_mut(n)? = (base + at as u32) | flags(1, inside);
            (n, inside) = (n + 1, 1);
        }
        before = after;
    }
    *ends.get_mut(n)? = (base + pre_token.len() as u32) | flags(0, inside);
    Some(n + 1)
}

/// The flags of an end: whether it is a cut, and whether its piece began inside a pre-token.
#[inline(always)]
pub fn flags(is_cut: u32, began_inside: u32) -> u32 {
    const { assert!(PART == 1 << 31 && INSIDE == 1 << 30) };
    (is_cut | began_inside) << 31 | began_inside << 30
}

/// Writes to `ends` where the parts of a pre-token from `start` to `end` end, counted from there,
/// up to a batch of them. Returns how many, and where the last of them ends; 0 parts if the first
/// is too long for a batch.
pub fn find_parts(
    boundaries: &Boundaries,
    text: &[u8],
    start: usize,
    end: usize,
    ends: &mut Ends,
) -> (usize, usize) {
    let (mut n, mut at, mut last_end) = (0, start, start);
    let mut before = Meeting::at_start(&text[at..]);
    while n < BATCH {
        at += length_from(text[at]);
        if at >= end || at - start > MAX_BATCH_BYTES {
            // The end of the pre-token needs no proof.
            if at >= end && end - start <= MAX_BATCH_BYTES {
                ends[n] = (end - start) as u32 | PART | INSIDE;
                (n, last_end) = (n + 1, end);
            }
            break;
        }
        let after = Meeting::at(text, at);
        let is_plain = before.is_ascii() && after.is_ascii();
        if !is_plain && boundaries.may_join(before, after) & 1 == 0 {
            ends[n] = (at - start) as u32 | PART | INSIDE;
            (n, last_end) = (n + 1, at);
        }
        before = after;
    }
    if n == 0 { (0, end) } else { (n, last_end) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::pair_table::Pair;
    use crate::split::Grammar;
    use crate::split::automaton::{Behavior, StepTables};

    const CHARACTERS: [&str; 6] = ["中", "文", "字", "é", "a", " "];

    /// 中文, 文é and é文 may join, among others.
    fn some_cuts() -> Boundaries {
        let pairs = [(0, 1), (1, 3), (3, 1), (4, 0), (2, 2)].map(|(left, right)| Pair {
            left,
            right,
            rank: 0,
        });
        Boundaries::new(pairs.into_iter(), [].into_iter(), |id| {
            CHARACTERS[id as usize].as_bytes()
        })
    }

    #[test]
    fn all_parts_of_a_pre_token_are_written_or_none() {
        let (boundaries, base) = (some_cuts(), 7);
        let mut state = 3usize;
        let mut next = |end: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % end
        };
        let mut n_alone = 0;
        for round in 0..2000 {
            let kinds = 1 + round % CHARACTERS.len();
            let text: Vec<&str> = (0..1 + next(40)).map(|_| CHARACTERS[next(kinds)]).collect();
            let mut at = 0;
            let mut positions = vec![];
            for (i, character) in text.iter().enumerate() {
                at += character.len();
                let is_cut = text.get(i + 1).is_none_or(|after| {
                    let both = [*character, *after].concat();
                    let after = Meeting::at(both.as_bytes(), character.len());
                    let before = Meeting::at_start(both.as_bytes());
                    !both.is_ascii() && boundaries.may_join(before, after) & 1 == 0
                });
                if is_cut {
                    positions.push(at as u32);
                }
            }
            n_alone += usize::from(positions.len() == 1);
            let inside = u32::from(round % 3 == 0);
            let flags = |part: usize| match part {
                0 if inside == 0 && positions.len() == 1 => 0,
                0 if inside == 0 => PART,
                _ => PART | INSIDE,
            };
            let expected = (0..)
                .zip(&positions)
                .map(|(part, &end)| (base + end) | flags(part));
            let expected: Vec<u32> = expected.collect();
            let text = text.concat();
            for room in [expected.len() - 1, expected.len(), expected.len() + 3] {
                let mut ends = vec![0; room];
                let n = write_all_parts(&boundaries, text.as_bytes(), inside, base, &mut ends);
                if room < expected.len() {
                    assert_eq!(n, None);
                } else {
                    assert_eq!(n, Some(expected.len()));
                    assert_eq!(ends[..expected.len()], expected, "{text}");
                }
            }
        }
        assert!((20..1900).contains(&n_alone), "{n_alone}");
    }

    /// Every pre-token ends somewhere, nothing that may merge is cut, and parts are marked.
    #[test]
    fn pre_tokens_between_blanks_end_where_they_should_and_are_cut_nowhere_else() {
        const PARTS: [&str; 24] = [
            "a",
            "the",
            "B",
            "1",
            "42",
            ".",
            "(",
            ");",
            "\n",
            "\t",
            " ",
            " ",
            "  ",
            "é",
            "ж",
            "слово",
            "中",
            "文",
            "字",
            "。",
            "ก",
            "\u{301}",
            "🙂",
            "a long word without any blank or sign in it",
        ];
        let automaton = metaspace();
        let grammar = Ruled {
            automaton: &automaton,
            rule: Metaspace,
        };
        let mut state = 3usize;
        let mut next = |end: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % end
        };
        let boundaries = some_cuts();
        let mut n_cuts = 0;
        for round in 0..3000 {
            let kinds: Vec<&str> = (0..1 + next(9)).map(|_| PARTS[next(PARTS.len())]).collect();
            let n_parts = [30, 200, 2000][round % 3];
            let text: String = (0..1 + next(n_parts))
                .map(|_| kinds[next(kinds.len())])
                .collect();
            let bytes = text.as_bytes();
            for kernel in Kernel::all() {
                let (mut at, mut expected) = (0, 0);
                while at < text.len() {
                    let ends = &mut [0; BATCH + BLOCK];
                    let n = kernel.run(FindEnds {
                        grammar,
                        boundaries: &boundaries,
                        marks_parts: true,
                        text: bytes,
                        start: at,
                        ends,
                    });
                    assert!(n > 0);
                    for number in 0..n {
                        let begin = at + offset_of(number, ends);
                        let end = at + offset_of(number + 1, ends);
                        assert!(begin < end && text.is_char_boundary(end));
                        // The pre-token that this is a part of.
                        let is_inside = begin > expected;
                        let pre_token_end = grammar.advance(bytes, expected);
                        assert!(end <= pre_token_end, "{text:?}");
                        let is_cut = end < pre_token_end;
                        let wanted = flags(is_cut.into(), is_inside.into());
                        assert_eq!(ends[number] & !END, wanted, "{text:?} at {begin}");
                        if is_cut {
                            n_cuts += 1;
                            let before = text[..end].chars().next_back().unwrap().len_utf8();
                            let before = Meeting::after_nothing(bytes, end - before);
                            let after = Meeting::at(bytes, end);
                            assert_eq!(boundaries.may_join(before, after) & 1, 0);
                        } else {
                            expected = end;
                        }
                    }
                    at += offset_of(n, ends);
                }
                assert_eq!(at, text.len());
            }
        }
        assert!(n_cuts > 100_000, "{n_cuts}");
    }

    /// ` *+[^ ]++| ++` with two classes, blanks and all others.
    fn metaspace() -> Automaton {
        const MATCHED: u32 = 1 << 31;
        // The states: none, first, blanks, others. The classes: others, blanks, the end.
        let moves = [[0, 0, 0], [3, 2, 0], [3, 2, MATCHED], [3, MATCHED, MATCHED]];
        let step = StepTables {
            moves: moves.concat(),
            behavior: Behavior::Isolated,
            invert: false,
            drops_unmatched: false,
        };
        let cuts = vec![false; 4];
        Automaton::build(&[0, 32, 33], &[0, 1, 0], vec![step], cuts, None).unwrap()
    }
}
