//! Pre-tokens that are found whole, and their pieces.

use std::ops::Range;

use crate::mem::growth::NoMemory;
use crate::split::parts::{may_have_parts, write_parts};
use crate::split::pieces::{BATCH, Cutting, Ends, FindPieces, Found, MAX_BATCH_BYTES};
use crate::stop::Stopped;

/// Up to a batch of pre-tokens, one after the other in the text, or copied so that they are.
pub struct PreTokens<'t> {
    text: &'t [u8],
    /// Where there is something between them in the text, or a mark after each.
    copies: Option<Vec<u8>>,
    mark: Option<u8>,
    /// Where the first of them starts, in the text or in the copies.
    pub start: usize,
    /// Where each ends, from `start` on.
    pub ends: [usize; BATCH],
    pub n: usize,
    n_bytes: usize,
    /// Whether one may have a character outside ASCII.
    pub is_wide: bool,
}

impl<'t> PreTokens<'t> {
    /// None yet. `drops` says that some of the text may belong to none.
    pub fn of(text: &'t [u8], drops: bool, mark: Option<u8>) -> PreTokens<'t> {
        PreTokens {
            text,
            copies: (drops || mark.is_some()).then(Vec::new),
            mark,
            start: 0,
            ends: [0; BATCH],
            n: 0,
            n_bytes: 0,
            is_wide: false,
        }
    }

    /// Begins a batch with what follows in the text.
    fn clear(&mut self) {
        if self.copies.is_none() {
            self.start += self.n.checked_sub(1).map_or(0, |last| self.ends[last]);
        }
        (self.n, self.n_bytes, self.is_wide) = (0, 0, false);
    }

    pub fn is_full(&self) -> bool {
        self.n >= BATCH || self.n_bytes >= MAX_BATCH_BYTES
    }

    /// The text or the copies, with any bytes after them.
    pub fn bytes(&self) -> &[u8] {
        self.copies.as_deref().unwrap_or(self.text)
    }

    /// Appends one; they must not be full.
    pub fn push(&mut self, range: Range<usize>) -> Result<(), NoMemory> {
        let at = self.n_bytes;
        self.n_bytes += range.len() + usize::from(self.mark.is_some());
        if let Some(copies) = &mut self.copies {
            if copies.len() <= self.n_bytes {
                copies.try_reserve(self.n_bytes + 1)?;
                copies.resize(copies.capacity(), 0);
            }
            let room = &mut copies[at..];
            room[..range.len()].copy_from_slice(&self.text[range.clone()]);
            room[range.len()] = self.mark.unwrap_or(0);
        }
        self.ends[self.n] = self.n_bytes;
        self.n += 1;
        self.is_wide = true;
        Ok(())
    }
}

/// The pieces of the pre-tokens that `find` appends, up to a batch at a time; none at the end.
pub struct PiecesOf<'t, 'a, F> {
    pub find: F,
    pub pre_tokens: PreTokens<'t>,
    pub cutting: Cutting<'a>,
    /// Pre-tokens of the batch whose pieces were given.
    pub n_given: usize,
}

impl<F> FindPieces for PiecesOf<'_, '_, F>
where
    F: FnMut(&mut PreTokens) -> Result<(), Stopped>,
{
    fn next_batch(&mut self, ends: &mut Ends) -> Result<Option<Found<'_>>, Stopped> {
        if self.n_given == self.pre_tokens.n {
            self.pre_tokens.clear();
            (self.find)(&mut self.pre_tokens)?;
            if self.pre_tokens.n == 0 {
                return Ok(None);
            }
            self.n_given = 0;
        }
        let found = &self.pre_tokens;
        let (text, boundaries) = (found.bytes(), self.cutting.boundaries);
        let end_of = |number: usize| found.start + found.ends[number];
        let start = self.n_given.checked_sub(1).map_or(found.start, end_of);
        let (mut n, mut at, mut n_given) = (0, start, self.n_given);
        while n < BATCH && n_given < found.n {
            let end = end_of(n_given);
            let pre_token = &text[at..end];
            if end - start > MAX_BATCH_BYTES {
                break;
            } else if !found.is_wide || !may_have_parts(pre_token) {
                ends[n] = (end - start) as u32;
                n += 1;
            } else {
                let (offset, room) = ((at - start) as u32, &mut ends[n..]);
                let (n_parts, last) = write_parts(boundaries, pre_token, 0, 0, offset, room);
                if last < pre_token.len() {
                    break;
                }
                n += n_parts;
            }
            (at, n_given) = (end, n_given + 1);
        }
        if n == 0 {
            let piece = start..end_of(n_given);
            self.n_given = n_given + 1;
            return Ok(Some(Found::Long { text, piece }));
        }
        self.n_given = n_given;
        Ok(Some(Found::Batch { text, start, n }))
    }
}
