//! Merging few symbols: vectors find the lowest of all pairs before each merge.
//!
//! ```text
//! for each pair: codes[position] <- rank << 8 | position       or NO_CODE
//! while more than `at_most` symbols are left
//!     position <- that of the lowest code                      the lowest rank, then the leftmost
//!     if it has no rank: stop
//!     ids[position] <- the product of the rank; the symbol after it is gone
//!     codes[position], codes[the one before] <- the ranks of their new pairs
//! return the ids that are left
//! ```
//!
//! The code departs from this:
//!
//! 1. Symbols keep their positions. A bit says which remain, and counting zeros finds neighbours.
//! 2. Only whole vectors read and write the codes (`set`, `lowest`), so that 16 of them stay in
//!    registers: loading a vector from memory where one number has just been written waits for that
//!    write, and for every look-up before it.
//! 3. The lines of both new pairs are prefetched before either is read: neither waits for the other.

use crate::merge::pair_table::{NO_RANK, PairTable};

/// Up to `N` symbols while they merge, a multiple of eight and at most 64.
pub struct ShortMerge<const N: usize> {
    ids: [u32; N],
    codes: [u32; N],
    n: usize,
}

const NO_CODE: u32 = u32::MAX;
const MAX: usize = 64;

/// Windows of this are all ones at one position and zeros elsewhere.
const ONES_AMID_ZEROS: [u32; 2 * MAX] = {
    let mut row = [0; 2 * MAX];
    row[MAX] = u32::MAX;
    row
};

impl<const N: usize> ShortMerge<N> {
    #[inline(always)]
    pub fn empty() -> Self {
        const { assert!(N <= MAX && N.is_multiple_of(8)) };
        ShortMerge {
            ids: [0; N],
            codes: [NO_CODE; N],
            n: 0,
        }
    }

    #[inline(always)]
    pub fn of(ids: &[u32], pairs: &PairTable) -> Self {
        let mut short = Self::empty();
        for &id in ids {
            short.push(id, pairs);
        }
        short
    }

    #[inline(always)]
    pub fn push(&mut self, id: u32, pairs: &PairTable) {
        if self.n > 0 {
            let previous = self.n - 1;
            self.codes[previous] = code(pairs.rank(self.ids[previous], id), previous);
        }
        self.ids[self.n] = id;
        self.n += 1;
    }

    /// Starts from the ids of bytes, `start`, and the ranks of each pair of bytes.
    #[inline(always)]
    pub fn start_from_bytes(&mut self, piece: &[u8], start: &[u32; 256], start_ranks: &[u32]) {
        self.n = piece.len();
        for (id, &byte) in self.ids.iter_mut().zip(piece) {
            *id = start[byte as usize];
        }
        for (position, pair) in piece.windows(2).enumerate() {
            let rank = start_ranks[usize::from(pair[0]) << 8 | usize::from(pair[1])];
            self.codes[position] = code(rank, position);
        }
    }

    /// Merges until `at_most` symbols are left or no pair has a rank.
    #[inline(always)]
    pub fn merge(&mut self, pairs: &PairTable, at_most: usize) -> &[u32] {
        let ShortMerge { ids, codes, n } = self;
        let mut left: u64 = u64::MAX >> (64 - *n);
        let mut n_left = *n;
        while n_left > at_most {
            let lowest = lowest(codes);
            let rank = lowest >> 8;
            if rank == NO_RANK {
                break;
            }
            let position = (lowest & 0xFF) as usize % N;
            let id = pairs.product(rank);
            let after = left & (u64::MAX << position << 1);
            let gone = after.trailing_zeros() as usize;
            left &= !(1 << gone);
            let after = after & (after - 1);
            let ahead = left & ((1 << position) - 1);
            n_left -= 1;
            ids[position] = id;
            let next = after.trailing_zeros() as usize % N;
            let previous = (63 ^ ahead.leading_zeros() as usize) % N;
            pairs.prefetch(id, ids[next]);
            pairs.prefetch(ids[previous], id);
            set(codes, gone, NO_CODE);
            let next_code = if after != 0 {
                code(pairs.rank(id, ids[next]), position)
            } else {
                NO_CODE
            };
            set(codes, position, next_code);
            if ahead != 0 {
                set(
                    codes,
                    previous,
                    code(pairs.rank(ids[previous], id), previous),
                );
            }
        }
        let mut n_out = 0;
        while left != 0 {
            ids[n_out] = ids[left.trailing_zeros() as usize];
            n_out += 1;
            left &= left - 1;
        }
        &ids[..n_out]
    }
}

#[inline(always)]
fn code(rank: u32, position: usize) -> u32 {
    rank << 8 | position as u32
}

/// `codes[position] = code`, by whole vectors.
#[inline(always)]
fn set<const N: usize>(codes: &mut [u32; N], position: usize, code: u32) {
    let here = &ONES_AMID_ZEROS[MAX - position % N..][..N];
    for (old, here) in codes.iter_mut().zip(here) {
        *old = *old & !here | code & here;
    }
}

/// Halved until one is left, which compiles to vectors however the loops are unrolled.
#[inline(always)]
fn lowest<const N: usize>(codes: &[u32; N]) -> u32 {
    let (eights, _) = codes.as_chunks::<8>();
    let eight = eights.iter().fold([NO_CODE; 8], |lowest, codes| {
        std::array::from_fn(|i| lowest[i].min(codes[i]))
    });
    let four: [u32; 4] = std::array::from_fn(|i| eight[i].min(eight[i + 4]));
    let two: [u32; 2] = std::array::from_fn(|i| four[i].min(four[i + 2]));
    two[0].min(two[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least pair of all, looked for again before each step.
    fn merge_slowly(mut ids: Vec<u32>, pairs: &PairTable, at_most: usize) -> Vec<u32> {
        while ids.len() > at_most {
            let ranked = ids.windows(2).map(|pair| pairs.rank(pair[0], pair[1]));
            let (rank, position) = ranked.zip(0..).min().unwrap_or((NO_RANK, 0));
            if rank == NO_RANK {
                break;
            }
            ids.splice(position..position + 2, [pairs.product(rank)]);
        }
        ids
    }

    fn check<const N: usize>(ids: &[u32], pairs: &PairTable) {
        for at_most in 1..4 {
            let expected = merge_slowly(ids.to_vec(), pairs, at_most);
            let mut short = ShortMerge::<N>::of(ids, pairs);
            assert_eq!(short.merge(pairs, at_most), expected, "{ids:?}");
        }
    }

    #[test]
    fn every_length_and_any_order_of_ranks_give_what_the_definition_gives() {
        let mut random = crate::random::below(5);
        for round in 0..120 {
            // Any two ids there are become any other, so ranks rise and fall along the way; with
            // few pairs much is left over, with many all becomes one.
            let n_pairs = 1 + random(60);
            let mut id = |products: usize| match random(4) {
                0 => 100 + random(products) as u32,
                letter => letter as u32,
            };
            let products = (100..100 + n_pairs as u32).collect();
            let mut pairs = PairTable::new(n_pairs, products);
            for rank in 0..n_pairs as u32 {
                pairs.insert(id(n_pairs), id(n_pairs), rank);
            }
            for length in 1..=64 {
                let ids: Vec<u32> = (0..length)
                    .map(|i| 1 + id(9) % (1 + (round + i) % 3))
                    .collect();
                if length <= 16 {
                    check::<16>(&ids, &pairs);
                }
                check::<64>(&ids, &pairs);
            }
        }
    }

    #[test]
    fn bytes_start_as_their_ids_and_with_the_ranks_of_their_pairs() {
        let start: [u32; 256] = std::array::from_fn(|byte| 300 - byte as u32);
        let mut pairs = PairTable::new(2, vec![400, 401]);
        pairs.insert(start[98], start[97], 0);
        pairs.insert(start[97], 400, 1);
        let mut start_ranks = vec![NO_RANK; 1 << 16];
        start_ranks[98 << 8 | 97] = 0;
        for (piece, expected) in [
            (&b"a"[..], vec![start[97]]),
            (b"ab", vec![start[97], start[98]]),
            (b"aba", vec![401]),
            (b"aabaabab", vec![start[97], 401, 401, start[98]]),
        ] {
            let mut short = ShortMerge::<16>::empty();
            short.start_from_bytes(piece, &start, &start_ranks);
            assert_eq!(short.merge(&pairs, 1), expected);
        }
    }
}
