//! Parts of pre-tokens as pieces: where `merge/boundaries.rs` shows that nothing merges across.

use crate::merge::boundaries::{Boundaries, Meeting};
use crate::split::blocks::classes::BLOCK;
use crate::split::pieces::{INSIDE, MAX_BATCH_BYTES, PART};
use crate::unicode::length_from;

/// Whether looking up the parts of a pre-token pays: it is long, or of a script without spaces (from
/// U+3000 on), in which a part is found more often than the whole: twice as fast for Chinese.
#[inline(always)]
pub fn may_have_parts(pre_token: &[u8]) -> bool {
    match pre_token {
        [first, second, ..] if pre_token.len() > 6 => {
            (*first.max(second) >= 0xE3 || pre_token.len() > BLOCK) && !pre_token.is_ascii()
        }
        _ => false,
    }
}

/// Writes to `ends` where the parts of a pre-token from `from` on end, counted from there, each plus
/// `base`: as many as there is room for. Returns how many, and where the last of them ends. `inside` is
/// 1 if the first begins inside the pre-token.
#[inline(never)]
pub fn write_parts(
    boundaries: &Boundaries,
    pre_token: &[u8],
    from: usize,
    mut inside: u32,
    base: u32,
    ends: &mut [u32],
) -> (usize, usize) {
    let (mut n, mut at, mut last) = (0, from, from);
    let mut before = Meeting::at_start(&pre_token[from..]);
    while n < ends.len() && last < pre_token.len() {
        at = pre_token.len().min(at + length_from(pre_token[at]));
        if at - from > MAX_BATCH_BYTES {
            break;
        }
        // The end of the pre-token needs no proof.
        let is_cut = at < pre_token.len();
        if is_cut {
            let after = Meeting::at(pre_token, at);
            let is_plain = before.is_ascii() && after.is_ascii();
            let may_join = is_plain || boundaries.may_join(before, after) & 1 != 0;
            before = after;
            if may_join {
                continue;
            }
        }
        ends[n] = (base + (at - from) as u32) | flags(is_cut.into(), inside);
        (n, last, inside) = (n + 1, at, 1);
    }
    (n, last)
}

/// The flags of an end: whether it is a cut, and whether its piece began inside a pre-token.
#[inline(always)]
pub fn flags(is_cut: u32, began_inside: u32) -> u32 {
    const { assert!(PART == 1 << 31 && INSIDE == 1 << 30) };
    (is_cut | began_inside) << 31 | began_inside << 30
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::merge::pair_table::Pair;
    use crate::split::pieces::END;

    const CHARACTERS: [&str; 6] = ["中", "文", "字", "é", "a", " "];

    /// 中文, 文é and é文 may join, among others.
    pub fn some_cuts() -> Boundaries {
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
    fn parts_of_a_pre_token_are_written_as_far_as_there_is_room() {
        let (boundaries, base) = (some_cuts(), 7);
        let mut next = crate::random::below(3);
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
                let found = write_parts(&boundaries, text.as_bytes(), 0, inside, base, &mut ends);
                let n = room.min(expected.len());
                let end = expected[..n].last().map_or(0, |end| (end & END) - base);
                assert_eq!(found, (n, end as usize));
                assert_eq!(ends[..n], expected[..n], "{text}");
            }
        }
        assert!((20..1900).contains(&n_alone), "{n_alone}");
    }
}
