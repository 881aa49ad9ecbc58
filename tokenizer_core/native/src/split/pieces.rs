//! Pieces: what is looked up and merged. A piece is a pre-token, or a part of one where
//! `merge/boundaries.rs` shows that its parts merge separately.
//!
//! Where the next piece ends cannot be predicted. Found in batches, before any is looked up, the ends
//! do not delay the look-ups, whose waits for memory overlap.

use std::ops::Range;

use crate::merge::boundaries::Boundaries;
use crate::simd::Kernel;
use crate::split::blocks::classes::BLOCK;
use crate::stop::Stopped;

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

/// How a vocabulary has its pieces made.
#[derive(Clone, Copy)]
pub struct Cutting<'a> {
    pub kernel: Kernel,
    pub boundaries: &'a Boundaries,
    /// Whether it matters that a piece is a part; otherwise ends may lack that flag.
    pub marks_parts: bool,
    /// The byte after each pre-token, if the vocabulary marks the ends of words.
    pub mark: Option<u8>,
}

/// Finds the pieces of a text, a batch at a time. The compiler repeats this for each pattern, and
/// compiles the caller, which looks the pieces up, once.
pub trait FindPieces {
    /// Writes to `ends` where the next pieces end, counted from where the first starts: up to a batch
    /// of them, and perhaps some more. None after the last.
    fn next_batch(&mut self, ends: &mut Ends) -> Result<Option<Found<'_>>, Stopped>;
}

/// What was found.
pub enum Found<'f> {
    /// `n` pieces of `text` from `start` on.
    Batch {
        text: &'f [u8],
        start: usize,
        n: usize,
    },
    /// A pre-token that is too long for a batch.
    Long { text: &'f [u8], piece: Range<usize> },
}
