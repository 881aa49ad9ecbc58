//! Where the pieces of a text end, found a batch at a time before any is looked up.
//!
//! Where the next piece ends cannot be predicted; found in batches, this does not hold up the
//! look-ups, and their waits for memory overlap. A piece is a pre-token, or a part of one where
//! `cuts.rs` shows that its parts merge alone.

use std::marker::PhantomData;

use crate::block_classes::{BLOCK, classes};
use crate::block_scan::BlockGrammar;
use crate::cuts::Cuts;
use crate::kernel::{Kernel, OnKernel};
use crate::parts::{WriteParts, flags, write_all_parts};
use crate::scan::Grammar;

/// Pieces that are found before they are looked up, and room for those of one more block.
pub const BATCH: usize = 256;
/// Bytes of a batch at most. Where a piece ends is told by the bits of a `u32` below `INSIDE`.
pub const MAX_BATCH_BYTES: usize = 1 << 29;
/// Of an end: what ends there begins inside a pre-token.
pub const INSIDE: u32 = 1 << 30;
/// Of an end: what ends there is a part of a pre-token, see `cuts.rs`.
pub const PART: u32 = 1 << 31;

/// Room for a batch and one more block.
pub type Ends = [u32; BATCH + BLOCK];

/// A part of a text; see `Encoder::encode_between`.
#[derive(Clone, Copy)]
pub struct Window {
    pub at: usize,
    pub end: usize,
    pub max_overhang: usize,
}

impl Window {
    pub fn whole(text: &str) -> Window {
        Window {
            at: 0,
            end: text.len(),
            max_overhang: 0,
        }
    }

    /// How many of the pieces of a batch that starts at `start` belong to the window, and whether
    /// one was left out for its length.
    #[inline(always)]
    pub fn pieces(&self, start: usize, ends: &[u32]) -> (usize, bool) {
        let mut n = ends.len();
        if start + offset_of(n, ends) <= self.end {
            return (n, false);
        }
        let mut piece = n;
        while piece > 0 {
            piece -= 1;
            // A part goes with the pre-token that it is of.
            if ends[piece] & INSIDE == 0 {
                if start + offset_of(piece, ends) < self.end {
                    break;
                }
                n = piece;
            }
        }
        // All parts of the pre-token from `piece` on: between them another scan may not begin.
        let (first, last) = (start + offset_of(piece, ends), start + offset_of(n, ends));
        if last > self.end && last - first > self.max_overhang {
            return (piece, true);
        }
        (n, false)
    }
}

/// Where the first `n` pieces of a batch end, from its start.
#[inline(always)]
pub fn offset_of(n: usize, ends: &[u32]) -> usize {
    match n {
        0 => 0,
        _ => (ends[n - 1] & !(PART | INSIDE)) as usize,
    }
}

/// Writes to `ends` where the pieces from the boundary `start` on end, counted from there: those
/// that start before `text_end`, up to a batch of them, and perhaps some more. Answers how many; none
/// where the first is for `encode_long`.
pub struct FindEnds<'a, G> {
    pub grammar: PhantomData<G>,
    pub cuts: &'a Cuts,
    pub text: &'a [u8],
    pub start: usize,
    pub text_end: usize,
    pub ends: &'a mut Ends,
}

impl<G: Grammar + BlockGrammar> OnKernel for FindEnds<'_, G> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        let FindEnds {
            cuts,
            text,
            start,
            text_end,
            ends,
            ..
        } = self;
        let (mut at, mut n, mut inside) = (start, 0, 0);
        while n < BATCH && at < text_end && at - start < MAX_BATCH_BYTES {
            let classes = classes(kernel, text, at);
            let starts = G::starts(classes, text, at);
            let behind_first = starts & (starts - 1);
            let base = (at - start) as u32;
            let places = ends[n..].first_chunk_mut::<BLOCK>();
            let places = places.expect("room for a block behind a batch");
            if classes.is_wide || inside != 0 {
                let (n_written, inside_behind) = kernel.run(WriteParts {
                    cuts,
                    classes: &classes,
                    starts,
                    inside,
                    text: &text[at..],
                    base,
                    places,
                });
                if n_written > 0 {
                    (n, inside) = (n + n_written, inside_behind);
                    at = start + offset_of(n, ends);
                    continue;
                }
            } else if behind_first != 0 {
                kernel.write_places(behind_first, base, places);
                n += behind_first.count_ones() as usize;
                at += 63 - behind_first.leading_zeros() as usize;
                continue;
            }
            let end = G::advance(text, at);
            if end - start > MAX_BATCH_BYTES {
                break;
            }
            let pre_token = &text[at..end];
            if pre_token.len() <= BLOCK || pre_token.is_ascii() {
                ends[n] = (end - start) as u32 | flags(0, inside);
                n += 1;
            } else {
                let n_parts = write_all_parts(cuts, pre_token, inside, base, &mut ends[n..]);
                let Some(n_parts) = n_parts else {
                    break;
                };
                n += n_parts;
            }
            (at, inside) = (end, 0);
        }
        if inside != 0 {
            // A batch ends with a pre-token, so the parts of one that goes on are left to the next.
            while ends[n - 1] & INSIDE != 0 {
                n -= 1;
            }
            n -= 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_whole_pre_tokens_and_leaves_out_one_that_is_too_long_beyond_it() {
        // Pre-tokens of 4 bytes, of 2 + 3 + 20 in parts, and of 1.
        let ends = [4, 6 | PART, 9 | PART | INSIDE, 29 | PART | INSIDE, 30];
        let pieces = |end: usize, max_overhang: usize| {
            let window = Window {
                at: 100,
                end: 100 + end,
                max_overhang,
            };
            window.pieces(100, &ends)
        };
        for max_overhang in [0, 24, 25, 100] {
            assert_eq!(pieces(4, max_overhang), (1, false));
            assert_eq!(pieces(29, max_overhang), (4, false));
            assert_eq!(pieces(30, max_overhang), (5, false));
            for end in 5..29 {
                let expected = if max_overhang < 25 {
                    (1, true)
                } else {
                    (4, false)
                };
                assert_eq!(pieces(end, max_overhang), expected, "{end}");
            }
        }
        assert_eq!(pieces(2, 3), (0, true));
        assert_eq!(pieces(2, 4), (1, false));
    }
}
