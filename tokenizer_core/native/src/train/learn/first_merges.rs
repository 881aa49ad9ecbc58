//! Merges that the caller gives, applied to the words before any merge is learned.

use std::collections::HashMap;

use super::symbols::N_BYTES;
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

    /// Replaces `symbols` by those of `word` after all given merges.
    ///
    /// The pair of the lowest rank in the word is merged at all its positions, left to right, then
    /// the next one: as no merge makes a pair of a lower rank, this equals applying each merge in
    /// order.
    pub(super) fn apply(&self, word: &[u8], symbols: &mut Vec<u32>) -> Result<(), NoMemory> {
        symbols.clear();
        symbols.try_reserve(word.len())?;
        symbols.extend(word.iter().copied().map(u32::from));
        if self.ranks.is_empty() {
            return Ok(());
        }
        let rank_of = |pair: &[u32]| self.ranks.get(&(pair[0], pair[1])).copied();
        while let Some(rank) = symbols.windows(2).filter_map(rank_of).min() {
            let (mut read, mut write) = (0, 0);
            while read < symbols.len() {
                let here = symbols.get(read..read + 2);
                if here.and_then(rank_of) == Some(rank) {
                    symbols[write] = N_BYTES as u32 + rank;
                    read += 2;
                } else {
                    symbols[write] = symbols[read];
                    read += 1;
                }
                write += 1;
            }
            symbols.truncate(write);
        }
        Ok(())
    }
}
