//! Merging many symbols: O(n log n) at most, without recursion, and close to linear on real text.
//!
//! ```text
//! symbols <- a linked list of the ids, each with the rank of the pair that it begins
//! queue <- the pairs that have a rank, as (rank, position)
//! while more than `at_most` symbols are left
//!     (rank, position) <- the least of the queue               the lowest rank, then the leftmost
//!     if the symbol there has another rank: continue           the pair has changed since
//!     symbol <- the product of the rank; the one after it is gone
//!     queue <- queue and the new pairs, of the symbol before and of this one
//! return the ids that are left
//! ```
//!
//! The queue departs from a heap, which at a million entries misses the cache at every step of every
//! pop, so that twice the text took three times as long:
//!
//! 1. Pairs go into buckets by rank, and a bucket is sorted when it is opened: it fits the cache, and
//!    its positions mostly are in order already.
//! 2. A bucket keeps positions alone; their ranks are read when it is opened.
//! 3. Pairs that come later than their bucket was opened wait in a small heap.
//! 4. The symbol of a pair that comes soon is prefetched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::mem::growth::{Grow, NoMemory};
use crate::mem::huge_pages;
use crate::mem::prefetch::prefetch;
use crate::merge::pair_table::NO_RANK;

const GONE: u32 = u32::MAX;
/// Buckets at most, and symbols for each.
const MAX_BUCKET_BITS: u32 = 12;
const SYMBOLS_PER_BUCKET: usize = 16;
/// Buckets keep room for at most this many positions in total.
const MAX_KEPT: usize = 1 << 18;

/// Memory for merging, kept between pieces.
#[derive(Default)]
pub struct LongMerge {
    symbols: Vec<Symbol>,
    queue: PairQueue,
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    /// Of the pair it begins; `NO_RANK` if that does not merge, or the symbol was merged away.
    rank: u32,
    before: u32,
    after: u32,
}

impl LongMerge {
    /// Merges `ids` until `at_most` are left or no pair has a rank; `n_ranks` is more than any.
    pub fn merge(
        &mut self,
        ids: &mut Vec<u32>,
        at_most: usize,
        n_ranks: usize,
        rank_of: impl Fn(u32, u32) -> u32,
        product_of: impl Fn(u32) -> u32,
    ) -> Result<(), NoMemory> {
        let LongMerge { symbols, queue } = self;
        let n = ids.len();
        assert!(n < GONE as usize, "4 GiB or more at once");
        queue.start(n, n_ranks)?;
        symbols.clear();
        symbols.try_reserve_exact(n)?;
        huge_pages::advise(symbols.as_ptr(), symbols.capacity());
        symbols.extend((0u32..).zip(&*ids).map(|(position, &id)| {
            Symbol {
                id,
                rank: ids
                    .get(position as usize + 1)
                    .map_or(NO_RANK, |&next| rank_of(id, next)),
                before: position.wrapping_sub(1),
                after: position + 1,
            }
        }));
        for (position, symbol) in (0..).zip(&*symbols) {
            queue.push(symbol.rank, position)?;
        }
        let mut n_left = n;
        while n_left > at_most {
            let Some((rank, position)) = queue.pop(|position| symbols[position as usize].rank)?
            else {
                break;
            };
            if let Some(soon) = queue.position_given_soon() {
                prefetch(symbols.as_ptr().wrapping_add(soon as usize));
            }
            let position = position as usize;
            // The pair at this position has changed since.
            if symbols[position].rank != rank {
                continue;
            }
            let id = product_of(rank);
            let Symbol { before, after, .. } = symbols[position];
            let gone = &mut symbols[after as usize];
            let next = gone.after;
            (gone.id, gone.rank) = (GONE, NO_RANK);
            n_left -= 1;
            if before != GONE {
                let previous = &mut symbols[before as usize];
                previous.rank = rank_of(previous.id, id);
                queue.push(previous.rank, before)?;
            }
            let mut rank = NO_RANK;
            if let Some(next) = symbols.get_mut(next as usize) {
                next.before = position as u32;
                rank = rank_of(id, next.id);
                queue.push(rank, position as u32)?;
            }
            symbols[position] = Symbol {
                id,
                rank,
                before,
                after: next,
            };
        }
        ids.clear();
        let left = symbols.iter().filter(|symbol| symbol.id != GONE);
        ids.extend(left.map(|symbol| symbol.id));
        Ok(())
    }
}

/// Pairs as `rank << 40 | position`, the least first.
#[derive(Default)]
struct PairQueue {
    /// The positions of pending pairs, by the higher bits of their rank, in any order. The pair at
    /// such a position may since have a rank of another bucket; then that bucket has the position
    /// too.
    buckets: Vec<Vec<u32>>,
    shift: u32,
    /// Buckets before this one have been opened.
    n_opened: usize,
    /// The bucket that was opened last, sorted, and how much of it was returned.
    open: Vec<u64>,
    n_given: usize,
    /// Pairs that came after their bucket was opened: their rank is close to that of the pair that
    /// made them.
    late: BinaryHeap<Reverse<u64>>,
}

impl PairQueue {
    fn start(&mut self, n_symbols: usize, n_ranks: usize) -> Result<(), NoMemory> {
        let bits = (n_symbols / SYMBOLS_PER_BUCKET)
            .max(1)
            .ilog2()
            .min(MAX_BUCKET_BITS);
        self.shift = (usize::BITS - n_ranks.leading_zeros()).saturating_sub(bits);
        let n_buckets = (n_ranks >> self.shift) + 1;
        let mut n_kept = 0;
        for bucket in &mut self.buckets {
            n_kept += bucket.capacity();
            bucket.clear();
        }
        if n_kept > MAX_KEPT {
            self.buckets.clear();
        }
        self.buckets.try_reserve(n_buckets)?;
        self.buckets.resize_with(n_buckets, Vec::new);
        (self.n_opened, self.n_given) = (0, 0);
        self.open.clear();
        self.late.clear();
        Ok(())
    }

    #[inline]
    fn push(&mut self, rank: u32, position: u32) -> Result<(), NoMemory> {
        if rank == NO_RANK {
            return Ok(());
        }
        let entry = u64::from(rank) << 40 | u64::from(position);
        let bucket = (rank >> self.shift) as usize;
        if bucket >= self.n_opened {
            self.buckets[bucket].try_push(position)
        } else {
            self.late.try_reserve(1)?;
            self.late.push(Reverse(entry));
            Ok(())
        }
    }

    #[inline]
    fn pop(&mut self, rank_at: impl Fn(u32) -> u32) -> Result<Option<(u32, u32)>, NoMemory> {
        loop {
            let next = self.open.get(self.n_given).copied();
            let entry = match self.late.peek() {
                Some(&Reverse(late)) if next.is_none_or(|next| late < next) => {
                    self.late.pop();
                    late
                }
                _ => match next {
                    Some(next) => {
                        self.n_given += 1;
                        next
                    }
                    // All late pairs rank below those in the buckets, which are empty.
                    None if self.open_next(&rank_at)? => continue,
                    None => return Ok(None),
                },
            };
            return Ok(Some(((entry >> 40) as u32, entry as u32)));
        }
    }

    /// The position that `pop` will probably return some steps from now: late enough to be fetched,
    /// and early enough not to be evicted.
    #[inline]
    fn position_given_soon(&self) -> Option<u32> {
        self.open.get(self.n_given + 8).map(|&entry| entry as u32)
    }

    /// Opens the next bucket with a pending pair; false without one.
    fn open_next(&mut self, rank_at: impl Fn(u32) -> u32) -> Result<bool, NoMemory> {
        self.open.clear();
        self.n_given = 0;
        while let Some(bucket) = self.buckets.get(self.n_opened) {
            self.n_opened += 1;
            self.open.try_reserve(bucket.len())?;
            for &position in bucket {
                let rank = rank_at(position);
                if rank != NO_RANK && (rank >> self.shift) as usize + 1 == self.n_opened {
                    self.open.push(u64::from(rank) << 40 | u64::from(position));
                }
            }
            if !self.open.is_empty() {
                self.open.sort_unstable();
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least pair of all, looked for again before each step.
    fn merge_slowly(mut ids: Vec<u32>, rank_of: impl Fn(u32, u32) -> u32) -> Vec<u32> {
        loop {
            let ranked = ids.windows(2).map(|pair| rank_of(pair[0], pair[1]));
            let (rank, position) = ranked.zip(0..).min().unwrap_or((NO_RANK, 0));
            if rank == NO_RANK {
                return ids;
            }
            ids.splice(position..position + 2, [256 + rank]);
        }
    }

    #[test]
    fn any_order_of_ranks_gives_what_the_definition_gives() {
        let mut random = crate::random::below(3);
        let mut merger = LongMerge::default();
        for round in 0..400 {
            // Merge number r makes id 256 + r of any two ids, whose own ranks may be lower or
            // higher, and some ranks are far apart.
            let n_ranks = 1 + random(60);
            let gap = [1, 1, 7, 4000][round % 4];
            let mut pairs: Vec<(u32, u32)> = Vec::new();
            for _ in 0..n_ranks {
                let mut id = || match random(4) {
                    0 => 256 + (random(n_ranks) * gap) as u32,
                    letter => letter as u32,
                };
                pairs.push((id(), id()));
            }
            let rank_of = |left, right| {
                let found = pairs.iter().position(|&pair| pair == (left, right));
                found.map_or(NO_RANK, |position| (position * gap) as u32)
            };
            for length in [2, 3, 20, 70, 300] {
                let ids: Vec<u32> = (0..length).map(|_| 1 + random(3) as u32).collect();
                let mut merged = ids.clone();
                let product_of = |rank| 256 + rank;
                let done = merger.merge(&mut merged, 1, n_ranks * gap, rank_of, product_of);
                assert_eq!(done, Ok(()));
                assert_eq!(merged, merge_slowly(ids, rank_of));
            }
        }
    }

    #[test]
    fn it_stops_where_it_is_told_to() {
        let rank_of = |left, right| if left == right { left } else { NO_RANK };
        for at_most in 1..20 {
            let mut ids = vec![1; 16];
            let mut merger = LongMerge::default();
            let done = merger.merge(&mut ids, at_most, 100, rank_of, |rank| rank + 1);
            assert_eq!(done, Ok(()));
            assert_eq!(ids.len(), at_most.min(16));
        }
    }
}
