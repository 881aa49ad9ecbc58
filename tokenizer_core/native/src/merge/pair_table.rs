//! The pairs that merge: (id, id) -> rank, and rank -> the id that the two become.
//!
//! Merging waits for this table more than for anything else, so it is small: memory beyond the
//! processor's second cache takes longer to arrive than all the arithmetic of a merge.

use crate::mem::hash::HashKeys;
use crate::mem::prefetch::prefetch;
use crate::mem::sections::{Reader, Unusable, Writer, all, check};
use crate::mem::table::Table;
use crate::mem::zeroed::ZeroedTable;

/// Ids are below this: two of them and a rank fit one word.
pub const ID_BITS: u32 = 20;
/// Ranks are below this less one.
const RANK_BITS: u32 = 24;
pub const NO_RANK: u32 = (1 << RANK_BITS) - 1;

const EMPTY: u64 = u64::MAX;
/// In place of the first product: the products are listed.
const LISTED: u64 = u64::MAX;
/// Bits of the filter for each slot, as a power of two.
const FILTER_BITS: u32 = 3;

/// Two neighbours that merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub left: u32,
    pub right: u32,
    pub rank: u32,
}

/// A word a slot, at most two thirds full: `left << 44 | right << 24 | rank`. Half as full was no
/// faster, and slower where it doubled the table.
///
/// About half of the pairs looked up do not merge. A filter with a bit for each hash, made of more
/// bits of the hash than choose the slot, answers nine in ten of those from a table an eighth of
/// the size. Buckets of a cache line, compared at once without a filter or a branch, need half the
/// memory and were slower: with a branch the processor continues with the next merge before the
/// line arrives, and it usually predicts right.
pub struct PairTable {
    may_be: Table<u64>,
    slots: Table<u64>,
    shift: u32,
    keys: HashKeys,
    products: Products,
    n_ranks: usize,
}

/// rank -> id.
enum Products {
    /// The ids are in the order of the ranks, from this one on, as in most vocabularies: no memory
    /// to wait for.
    From(u32),
    Listed(Table<u32>),
}

impl Products {
    fn new(listed: Vec<u32>) -> Products {
        let first = listed.first().copied().unwrap_or(0);
        if (first..).zip(&listed).all(|(id, listed)| id == *listed) {
            Products::From(first)
        } else {
            Products::Listed(listed.into())
        }
    }
}

impl PairTable {
    /// With room for `n_pairs`; `products` are the ids by rank.
    pub fn new(n_pairs: usize, products: Vec<u32>) -> PairTable {
        let n_slots = (3 * n_pairs.max(64) / 2).next_power_of_two();
        let mut slots = ZeroedTable::new(n_slots);
        slots.fill(EMPTY);
        PairTable {
            may_be: vec![0; n_slots << FILTER_BITS >> 6].into(),
            slots: Table::zeroed(slots),
            shift: 64 - n_slots.trailing_zeros(),
            keys: HashKeys::random(),
            n_ranks: products.len(),
            products: Products::new(products),
        }
    }

    pub fn write(&self, to: &mut Writer) {
        let (first, listed) = match &self.products {
            Products::From(first) => (u64::from(*first), &[][..]),
            Products::Listed(listed) => (LISTED, &listed[..]),
        };
        let [key, other_key] = self.keys.to_words();
        to.table(&[key, other_key, self.n_ranks as u64, first]);
        to.table(listed);
        to.table(&self.may_be);
        to.table(&self.slots);
    }

    /// An empty slot ends every search, and each rank has a product below `n_ids`.
    pub fn read(from: &mut Reader, n_ids: usize) -> Result<PairTable, Unusable> {
        let [key, other_key, n_ranks, first] = from.array::<u64, 4>()?;
        let listed: Table<u32> = from.table()?;
        let (may_be, slots): (Table<u64>, Table<u64>) = (from.table()?, from.table()?);
        let n_listed = if first == LISTED { n_ranks } else { 0 };
        let are_ids = match first {
            LISTED => all(&listed, |&id| (id as usize) < n_ids),
            first => first.saturating_add(n_ranks) <= n_ids as u64,
        };
        check(
            are_ids && listed.len() as u64 == n_listed && n_ranks < u64::from(NO_RANK),
            "a product is no id",
        )?;
        let n_slots = slots.len();
        check(
            n_slots.is_power_of_two()
                && n_slots >= 64
                && may_be.len() == n_slots << FILTER_BITS >> 6,
            "the pairs have another size",
        )?;
        let has_rank = |&slot: &u64| slot == EMPTY || slot & u64::from(NO_RANK) < n_ranks;
        check(
            slots.contains(&EMPTY) && all(&slots, has_rank),
            "a pair has no rank",
        )?;
        Ok(PairTable {
            may_be,
            shift: 64 - n_slots.trailing_zeros(),
            slots,
            keys: HashKeys::from_words([key, other_key]),
            products: match first {
                LISTED => Products::Listed(listed),
                first => Products::From(first as u32),
            },
            n_ranks: n_ranks as usize,
        })
    }

    /// More than any rank.
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// All pairs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Pair> {
        let filled = self.slots.iter().filter(|slot| **slot != EMPTY);
        filled.map(|slot| Pair {
            left: (slot >> (ID_BITS + RANK_BITS)) as u32,
            right: (slot >> RANK_BITS) as u32 & ((1 << ID_BITS) - 1),
            rank: *slot as u32 & NO_RANK,
        })
    }

    /// Keeps the existing rank of a pair: the lower one, as ranks come in order. Returns whether
    /// the pair is new.
    pub fn insert(&mut self, left: u32, right: u32, rank: u32) -> bool {
        debug_assert!(left >> ID_BITS == 0 && right >> ID_BITS == 0 && rank < NO_RANK);
        let key = key(left, right);
        let hash = self.keys.of_u64(key);
        let (word, bit) = self.filter_position(hash);
        self.may_be.values_mut()[word] |= 1 << bit;
        let mut at = self.slot_of(hash);
        while self.slots[at] != EMPTY {
            if self.slots[at] >> RANK_BITS == key {
                return false;
            }
            at = self.slot_after(at);
        }
        self.slots.values_mut()[at] = key << RANK_BITS | u64::from(rank);
        true
    }

    /// `NO_RANK` when the pair does not merge.
    #[inline(always)]
    pub fn rank(&self, left: u32, right: u32) -> u32 {
        let key = key(left, right);
        let hash = self.keys.of_u64(key);
        let (word, bit) = self.filter_position(hash);
        if self.may_be[word] >> bit & 1 == 0 {
            return NO_RANK;
        }
        let mut at = self.slot_of(hash);
        loop {
            let slot = self.slots[at];
            if slot >> RANK_BITS == key {
                return slot as u32 & NO_RANK;
            }
            if slot == EMPTY {
                return NO_RANK;
            }
            at = self.slot_after(at);
        }
    }

    /// Prefetches the slot of a pair.
    #[inline(always)]
    pub fn prefetch(&self, left: u32, right: u32) {
        let hash = self.keys.of_u64(key(left, right));
        prefetch(self.slots.as_ptr().wrapping_add(self.slot_of(hash)));
    }

    /// The id that a pair of this rank becomes.
    #[inline(always)]
    pub fn product(&self, rank: u32) -> u32 {
        match &self.products {
            Products::From(first) => first + rank,
            Products::Listed(ids) => ids[rank as usize],
        }
    }

    /// The word of the filter, and the bit in it.
    #[inline(always)]
    fn filter_position(&self, hash: u64) -> (usize, u64) {
        let position = hash >> (self.shift - FILTER_BITS);
        ((position >> 6) as usize, position & 63)
    }

    #[inline(always)]
    fn slot_of(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline(always)]
    fn slot_after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[inline(always)]
fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << ID_BITS | u64::from(right)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Pairs of few ids, so that most have neighbours in the table, and of the largest ids.
    fn random_pairs(n: usize, seed: u64) -> Vec<(u32, u32)> {
        let mut random = crate::random::below(seed);
        let mut id = || {
            let id = random(300) as u32;
            if id < 290 { id } else { (1 << ID_BITS) - id }
        };
        (0..n).map(|_| (id(), id())).collect()
    }

    #[test]
    fn a_table_gives_what_was_put_in_first_and_nothing_else() {
        for n in [0, 1, 63, 64, 65, 1000, 20_000] {
            let pairs = random_pairs(n, n as u64);
            let mut table = PairTable::new(n, vec![0; n]);
            let mut expected: HashMap<(u32, u32), u32> = HashMap::new();
            for (rank, &(left, right)) in (0..).zip(&pairs) {
                let is_new = !expected.contains_key(&(left, right));
                assert_eq!(table.insert(left, right, rank), is_new);
                expected.entry((left, right)).or_insert(rank);
            }
            for (left, right) in random_pairs(100_000, 7).into_iter().chain(pairs) {
                let rank = expected.get(&(left, right)).copied().unwrap_or(NO_RANK);
                assert_eq!(table.rank(left, right), rank);
                table.prefetch(left, right);
            }
            let mut listed: Vec<Pair> = table.iter().collect();
            let mut all: Vec<Pair> = expected
                .into_iter()
                .map(|((left, right), rank)| Pair { left, right, rank })
                .collect();
            listed.sort();
            all.sort();
            assert_eq!(listed, all);
        }
    }

    #[test]
    fn pairs_that_meet_in_a_slot_are_told_apart_beyond_the_last_slot() {
        // All slots but one are full: nearly every look-up continues to others, past the end to the
        // start.
        let mut table = PairTable::new(64, vec![0; 127]);
        assert_eq!(table.slots.len(), 128);
        for rank in 0..127 {
            table.insert(rank, 2 * rank, rank);
        }
        for rank in 0..127 {
            assert_eq!(table.rank(rank, 2 * rank), rank);
            assert_eq!(table.rank(rank, 2 * rank + 1), NO_RANK);
            assert_eq!(
                table.rank(2 * rank, rank),
                if rank == 0 { 0 } else { NO_RANK }
            );
        }
    }

    #[test]
    fn products_are_those_given_in_order_or_not() {
        for products in [
            vec![],
            vec![300],
            vec![256, 257, 258],
            vec![256, 257, 256],
            vec![5, 4],
        ] {
            let table = PairTable::new(products.len(), products.clone());
            assert_eq!(table.n_ranks(), products.len());
            for (rank, product) in (0..).zip(products) {
                assert_eq!(table.product(rank), product);
            }
        }
    }
}
