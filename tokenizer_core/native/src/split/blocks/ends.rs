//! Where the pieces of a text end, found 64 bytes at a time.

use crate::merge::boundaries::{Boundaries, Meeting};
use crate::simd::{Instructions, Work};
use crate::split::blocks::classes::{BLOCK, Blocks, Classes, classes};
use crate::split::blocks::starts::BlockGrammar;
use crate::split::parts::{flags, write_parts};
use crate::split::pieces::{
    BATCH, Cutting, Ends, FindPieces, Found, INSIDE, MAX_BATCH_BYTES, offset_of,
};
use crate::stop::Stopped;

/// The pieces of a text, by a pattern that can be followed block by block.
pub struct BlockPieces<'a, G> {
    pub grammar: G,
    pub cutting: Cutting<'a>,
    pub text: &'a [u8],
    pub at: usize,
}

impl<G: BlockGrammar> FindPieces for BlockPieces<'_, G> {
    fn next_batch(&mut self, ends: &mut Ends) -> Result<Option<Found<'_>>, Stopped> {
        let (text, start) = (self.text, self.at);
        if start == text.len() {
            return Ok(None);
        }
        let n = self.cutting.kernel.run(FindEnds {
            grammar: self.grammar,
            boundaries: self.cutting.boundaries,
            marks_parts: self.cutting.marks_parts,
            text,
            start,
            ends,
        });
        if n == 0 {
            self.at = end_of_piece(self.grammar, text, start);
            let piece = start..self.at;
            return Ok(Some(Found::Long { text, piece }));
        }
        self.at += offset_of(n, ends);
        Ok(Some(Found::Batch { text, start, n }))
    }
}

/// Where the pre-token that starts at `at` ends. Called for few: one copy for all instruction sets
/// is as fast.
#[inline(never)]
fn end_of_piece(grammar: impl BlockGrammar, text: &[u8], at: usize) -> usize {
    grammar.advance(text, at)
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
            let end = end_of_piece(grammar, text, at);
            if end - start > MAX_BATCH_BYTES {
                break;
            }
            let pre_token = &text[at..end];
            if pre_token.len() <= BLOCK || pre_token.is_ascii() {
                ends[n] = (end - start) as u32 | flags(0, inside);
                n += 1;
            } else {
                let base = (at - start) as u32;
                let room = &mut ends[n..];
                let (n_parts, last) = write_parts(boundaries, pre_token, 0, inside, base, room);
                if last < pre_token.len() {
                    break;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Kernel;
    use crate::split::Grammar;
    use crate::split::automaton::{Automaton, Behavior, StepTables};
    use crate::split::blocks::ruled::{Metaspace, Ruled};
    use crate::split::parts::tests::some_cuts;
    use crate::split::pieces::END;

    /// Every pre-token ends somewhere, nothing that may merge is cut, and parts are marked.
    #[test]
    fn pre_tokens_between_blanks_end_where_they_should_and_are_cut_nowhere_else() {
        #[rustfmt::skip]
        const PARTS: [&str; 24] = [
            "a", "the", "B", "1", "42", ".", "(", ");", "\n", "\t", " ", " ", "  ", "é", "ж",
            "слово", "中", "文", "字", "。", "ก", "\u{301}", "🙂",
            "a long word without any blank or sign in it",
        ];
        let automaton = metaspace();
        let grammar = Ruled {
            automaton: &automaton,
            rule: Metaspace,
        };
        let mut next = crate::random::below(3);
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
