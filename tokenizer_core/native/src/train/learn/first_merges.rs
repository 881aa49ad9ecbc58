//! Merges that the caller gives, applied to the words before any merge is learned.

use std::collections::HashMap;

use super::symbols::{N_BYTES, Unsigned};
use crate::mem::growth::NoMemory;

/// Pairs of symbols with their ranks; the product of the pair of rank `k` is symbol `256 + k`.
pub(super) struct FirstMerges {
    ranks: HashMap<(u32, u32), u32>,
}

impl FirstMerges {
    pub(super) fn new(merges: &[(u32, u32)]) -> Result<FirstMerges, NoMemory> {
        let mut ranks = HashMap::new();
        ranks.try_reserve(merges.len())?;
        ranks.extend(merges.iter().copied().zip(0..));
        Ok(FirstMerges { ranks })
    }

    /// Applies all merges to the bytes of a word, in place; returns the number of symbols left, which
    /// are the first ones of `symbols`.
    ///
    /// The pair of the lowest rank in the word is merged at all its positions, left to right, then
    /// the next one: as no merge makes a pair of a lower rank, this equals applying each merge in
    /// order.
    pub(super) fn apply<S: Unsigned>(&self, symbols: &mut [S]) -> usize {
        let mut len = symbols.len();
        if self.ranks.is_empty() {
            return len;
        }
        let rank_of = |pair: &[S]| {
            let key = (pair[0].get() as u32, pair[1].get() as u32);
            self.ranks.get(&key).copied()
        };
        while let Some(rank) = symbols[..len].windows(2).filter_map(rank_of).min() {
            let (mut read, mut write) = (0, 0);
            while read < len {
                let here = symbols[..len].get(read..read + 2);
                if here.and_then(rank_of) == Some(rank) {
                    symbols[write] = S::of(N_BYTES + rank as usize);
                    read += 2;
                } else {
                    symbols[write] = symbols[read];
                    read += 1;
                }
                write += 1;
            }
            len = write;
        }
        len
    }
}
