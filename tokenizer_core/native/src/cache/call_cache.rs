//! The tier that keeps the ids of a piece, and the cache of one call for pieces that neither table
//! has.

use std::ops::Range;

use crate::cache::PieceCache;
use crate::cache::key::{MAX_MIDDLE_BYTES, MAX_SHORT_BYTES, MiddleKey, middle_key};
use crate::cache::long::{LongCache, MAX_CACHED_BYTES};

/// A piece that neither table has.
pub struct MissedPiece<'t> {
    pub text: &'t [u8],
    pub range: Range<usize>,
    pub is_part: bool,
    pub tier: Tier,
}

/// The cache tier of a piece.
pub enum Tier {
    Short { key: u128, line: usize },
    Middle { line: usize },
    Long,
    None,
}

impl Tier {
    /// Of a piece of this length, given its key from `Lookup`.
    #[inline(always)]
    pub fn of(n_bytes: usize, key: u128, line: impl FnOnce() -> usize) -> Tier {
        if n_bytes <= MAX_SHORT_BYTES {
            let line = line();
            Tier::Short { key, line }
        } else if n_bytes <= MAX_MIDDLE_BYTES {
            Tier::Middle {
                line: key as u32 as usize,
            }
        } else if n_bytes <= MAX_CACHED_BYTES {
            Tier::Long
        } else {
            Tier::None
        }
    }
}

impl MissedPiece<'_> {
    pub fn bytes(&self) -> &[u8] {
        &self.text[self.range.clone()]
    }

    fn middle_key(&self) -> MiddleKey {
        middle_key(self.text, self.range.start, self.range.len())
    }
}

/// The cache of one call: long pieces, and the number of entries it has made in the shared cache.
#[derive(Default)]
pub struct LocalCache {
    /// Made when a long piece is met.
    long: Option<LongCache>,
    /// Entries made in the first and the second table, not yet added to their counts.
    n_entered: [usize; 2],
}

impl LocalCache {
    /// What `take` returns for the ids of a piece that neither table has, if they are here.
    #[inline(always)]
    pub fn find<T>(
        &self,
        piece: &MissedPiece,
        cache: &PieceCache,
        take: impl FnOnce(&[u32]) -> T,
    ) -> Option<T> {
        let may_be_long = match piece.tier {
            Tier::Short { line, .. } => {
                cache.may_be_middle(line)
                    && cache.may_be_long(cache.middle_line(&piece.middle_key()))
            }
            Tier::Middle { line } => cache.may_be_long(line),
            Tier::Long => true,
            Tier::None => false,
        };
        let long = self.long.as_ref().filter(|_| may_be_long)?;
        long.get(piece.bytes()).map(take)
    }

    /// Keeps the ids of a piece.
    pub fn keep(&mut self, piece: &MissedPiece, cache: &PieceCache, ids: &[u32]) {
        let middle = match piece.tier {
            Tier::Short { key, line } => {
                if cache.put_short(key, line, ids) {
                    self.n_entered[0] += 1;
                    return;
                }
                let key = piece.middle_key();
                Some((key, cache.middle_line(&key)))
            }
            Tier::Middle { line } => Some((piece.middle_key(), line)),
            Tier::Long => None,
            Tier::None => return,
        };
        if middle.is_some_and(|(key, line)| cache.put_middle(&key, line, ids)) {
            self.n_entered[1] += 1;
        } else {
            // Without memory for the cache it keeps none.
            if self.long.is_none() {
                self.long = LongCache::new().ok();
            }
            if let Some(long) = &mut self.long {
                long.put(piece.bytes(), ids);
            }
        }
    }

    /// Adds the new entries to the counts of the shared cache.
    pub fn count_entries(&mut self, cache: &PieceCache) {
        let [n_short, n_middle] = std::mem::take(&mut self.n_entered);
        cache.add_to_entries(n_short, n_middle);
    }
}
