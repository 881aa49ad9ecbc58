//! Where the pieces of a text end, found a batch at a time before any is looked up.
//!
//! Where the next piece ends cannot be predicted; found in batches, this does not hold up the
//! look-ups, and their waits for memory overlap. A piece is a pre-token, or a part of one where
//! `cuts.rs` shows that its parts merge alone.

use std::marker::PhantomData;

use crate::encode::parts::{WriteParts, flags, write_all_parts};
use crate::merge::boundaries::Cuts;
use crate::simd::Work;
use crate::split::Grammar;
use crate::split::blocks::classes::{BLOCK, Blocks, classes};
use crate::split::blocks::starts::BlockGrammar;

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

/// Where the first `n` pieces of a batch end, from its start.
#[inline(always)]
pub fn offset_of(n: usize, ends: &[u32]) -> usize {
    match n {
        0 => 0,
        _ => (ends[n - 1] & !(PART | INSIDE)) as usize,
    }
}

/// Writes to `ends` where the pieces from the boundary `start` on end, counted from there: up to a
/// batch of them, and perhaps some more. Answers how many; none
/// where the first is for `encode_long`.
pub struct FindEnds<'a, G> {
    pub grammar: PhantomData<G>,
    pub cuts: &'a Cuts,
    pub text: &'a [u8],
    pub start: usize,
    pub ends: &'a mut Ends,
}

impl<G: Grammar + BlockGrammar, K: Blocks> Work<K> for FindEnds<'_, G> {
    type Output = usize;

    #[inline(always)]
    fn run(self, kernel: K) -> usize {
        let FindEnds {
            cuts,
            text,
            start,
            ends,
            ..
        } = self;
        let (mut at, mut n, mut inside) = (start, 0, 0);
        while n < BATCH && at < text.len() && at - start < MAX_BATCH_BYTES {
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
