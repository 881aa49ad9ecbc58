//! Byte-pair merging: always the pair of the lowest rank, the leftmost of equals.
//!
//! Both kinds of tokenizer become one table, (id, id) -> rank, and a product id for each rank.
//!
//! Kind `merges` brings the table: rank is the place in the list. Of kind `ranks` any two
//! neighbours may merge whose bytes joined have a rank. Yet for each token only one pair ever
//! does. Say neighbours (a, b) merge to t. Until then no merge crossed the ends of t's bytes, as
//! symbols never part again; so the merges within them are those of t's bytes merged alone: the
//! lowest of all pairs, where it lies within, is the lowest within. Merging t alone passes through
//! at most one state of two symbols, and (a, b) is that state. So tokens are taken by rising
//! length, each is merged alone with the pairs known so far (all that are shorter, which is all it
//! can hold), and the last pair is its entry; a token that gets stuck before is never a product.
//! Ranks need not rise with length for this, and no limit on rank is put while merging: a pair of
//! higher rank may have to come first.

use crate::atoms::Atoms;
use crate::keyed_hash::HashKeys;
use crate::long_merge::LongMerge;

/// Ids are below this: two of them and a rank fit one word.
pub const ID_BITS: u32 = 20;
/// Ranks are below this less one.
pub const RANK_BITS: u32 = 24;
pub const NO_RANK: u32 = (1 << RANK_BITS) - 1;

/// Up to this many symbols are merged by scanning, more in `long_merge`. The scan costs n^2 at the
/// speed of vector minima, and one word of bits says which symbols are left.
const MAX_SCAN: usize = 64;

/// Why no table could be made; the message is for people.
#[derive(Debug)]
pub struct TooManyMerges(pub usize);

/// Merges the bytes of one piece to ids.
pub struct Merger {
    /// The id of each byte.
    start: Box<[u32; 256]>,
    /// The rank of each pair of bytes, `first << 8 | second`: the first look-up of every piece.
    start_ranks: Box<[u32]>,
    pairs: PairTable,
    /// rank -> id.
    product: Vec<u32>,
    atoms: Atoms,
}

/// Two neighbours that merge.
pub struct Pair {
    pub left: u32,
    pub right: u32,
    pub rank: u32,
}

/// Memory for merging, kept between pieces.
#[derive(Default)]
pub struct MergeScratch {
    ids: Vec<u32>,
    long: LongMerge,
}

impl MergeScratch {
    /// Gives memory back that one very long piece has taken.
    fn shrink(&mut self) {
        const KEPT: usize = 1 << 16;
        if self.ids.capacity() > KEPT {
            *self = MergeScratch::default();
        }
    }
}

impl Merger {
    /// Kind `merges`: `(left id, right id, product id)` in order of rank.
    pub fn from_merges(
        start: [u32; 256],
        merges: &[(u32, u32, u32)],
    ) -> Result<Merger, TooManyMerges> {
        if merges.len() >= NO_RANK as usize {
            return Err(TooManyMerges(merges.len()));
        }
        let mut merger = Merger::without_pairs(start, merges.len());
        for (rank, &(left, right, _)) in merges.iter().enumerate() {
            merger.pairs.insert(left, right, rank as u32);
        }
        merger.product = merges.iter().map(|&(_, _, product)| product).collect();
        merger.fill_start_ranks();
        Ok(merger)
    }

    /// Kind `ranks`: all tokens that encoding can produce, single bytes included, with their ids,
    /// which are their ranks. See the top of the file.
    pub fn from_ranks(start: [u32; 256], tokens: &[(&[u8], u32)]) -> Merger {
        let mut merger = Merger::without_pairs(start, tokens.len());
        merger.product = (0..=tokens.iter().map(|t| t.1).max().unwrap_or(0)).collect();
        let mut by_length: Vec<(&[u8], u32)> =
            tokens.iter().copied().filter(|t| t.0.len() > 1).collect();
        by_length.sort_by_key(|t| t.0.len());
        let (pairs, longer) =
            by_length.split_at(by_length.iter().take_while(|t| t.0.len() == 2).count());
        for &(token, id) in pairs {
            let (left, right) = (start[token[0] as usize], start[token[1] as usize]);
            merger.pairs.insert(left, right, id);
        }
        merger.fill_start_ranks();
        let mut scratch = MergeScratch::default();
        for &(token, id) in longer {
            if let Some((left, right)) = merger.last_pair(token, &mut scratch) {
                merger.pairs.insert(left, right, id);
            }
        }
        merger
    }

    fn without_pairs(start: [u32; 256], n_pairs: usize) -> Merger {
        Merger {
            start: Box::new(start),
            start_ranks: vec![NO_RANK; 1 << 16].into(),
            pairs: PairTable::with_room_for(n_pairs),
            product: Vec::new(),
            atoms: Atoms::none(),
        }
    }

    /// Lets characters start as their tokens where that changes nothing; from here on pieces must
    /// be UTF-8. `tokens` are those that encoding can produce, `bytes_of` gives those of an id.
    pub fn find_atoms<'v>(
        &mut self,
        tokens: impl Iterator<Item = (&'v [u8], u32)>,
        bytes_of: impl Fn(u32) -> &'v [u8],
    ) {
        let merge = |left, right| {
            let rank = self.pairs.rank(left, right);
            (rank != NO_RANK).then(|| (rank, self.product[rank as usize]))
        };
        self.atoms = Atoms::new(&self.start, tokens, merge, self.pairs.iter(), bytes_of);
    }

    /// All pairs that merge.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs.iter()
    }

    fn fill_start_ranks(&mut self) {
        for first in 0..256 {
            for second in 0..256 {
                self.start_ranks[first << 8 | second] =
                    self.pairs.rank(self.start[first], self.start[second]);
            }
        }
    }

    /// The last two symbols that merging `token` alone comes to; None when it stops before.
    fn last_pair(&self, token: &[u8], scratch: &mut MergeScratch) -> Option<(u32, u32)> {
        let mut found = None;
        self.merge(token, scratch, 2, |ids| {
            if let [left, right] = *ids {
                found = Some((left, right));
            }
        });
        found
    }

    /// Whether merging the bytes of a token comes to its id and nothing else. Before `find_atoms`,
    /// since tokens need not be UTF-8.
    pub fn makes(&self, token: &[u8], id: u32, scratch: &mut MergeScratch) -> bool {
        let mut is_made = false;
        self.merge(token, scratch, 1, |ids| is_made = ids == [id]);
        is_made
    }

    /// Calls `take` once with the ids of a piece of at least one byte.
    #[inline(always)]
    pub fn encode(&self, piece: &[u8], scratch: &mut MergeScratch, take: impl FnOnce(&[u32])) {
        self.merge(piece, scratch, 1, take);
    }

    /// Merges until `at_most` symbols are left or no pair has a rank.
    #[inline(always)]
    fn merge(
        &self,
        piece: &[u8],
        scratch: &mut MergeScratch,
        at_most: usize,
        take: impl FnOnce(&[u32]),
    ) {
        if piece.len() <= MAX_SCAN {
            let mut scan = Scan::new();
            if piece.is_ascii() {
                scan.start_from_bytes(self, piece);
            } else {
                self.atoms
                    .start(&self.start, piece, |id| scan.push(self, id));
            }
            take(scan.merge(self, at_most));
            return;
        }
        scratch.ids.clear();
        self.atoms
            .start(&self.start, piece, |id| scratch.ids.push(id));
        if scratch.ids.len() <= MAX_SCAN {
            let mut scan = Scan::new();
            for &id in &scratch.ids {
                scan.push(self, id);
            }
            take(scan.merge(self, at_most));
        } else {
            self.merge_long(scratch, at_most);
            take(&scratch.ids);
        }
        scratch.shrink();
    }

    #[inline(never)]
    fn merge_long(&self, scratch: &mut MergeScratch, at_most: usize) {
        scratch.long.merge(
            &mut scratch.ids,
            at_most,
            self.product.len(),
            |left, right| self.pairs.rank(left, right),
            |rank| self.product[rank as usize],
        );
    }
}

/// Up to `MAX_SCAN` symbols while they merge. They stay where they are; a bit says which are left.
/// A code is `rank << 8 | place`, so the smallest code is the lowest rank, then the leftmost, and
/// where to merge.
struct Scan {
    ids: [u32; MAX_SCAN],
    codes: [u32; MAX_SCAN],
    n: usize,
}

impl Scan {
    #[inline(always)]
    fn new() -> Scan {
        Scan {
            ids: [0; MAX_SCAN],
            codes: [u32::MAX; MAX_SCAN],
            n: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, merger: &Merger, id: u32) {
        if self.n > 0 {
            let previous = self.n - 1;
            self.codes[previous] = merger.pairs.rank(self.ids[previous], id) << 8 | previous as u32;
        }
        self.ids[self.n] = id;
        self.n += 1;
    }

    #[inline(always)]
    fn start_from_bytes(&mut self, merger: &Merger, piece: &[u8]) {
        self.n = piece.len();
        for (id, &byte) in self.ids.iter_mut().zip(piece) {
            *id = merger.start[byte as usize];
        }
        for (place, pair) in piece.windows(2).enumerate() {
            let rank = merger.start_ranks[usize::from(pair[0]) << 8 | usize::from(pair[1])];
            self.codes[place] = rank << 8 | place as u32;
        }
    }

    #[inline(always)]
    fn merge(&mut self, merger: &Merger, at_most: usize) -> &[u32] {
        let Scan { ids, codes, n } = self;
        let mut left: u64 = u64::MAX >> (MAX_SCAN - *n);
        let mut n_left = *n;
        // Whole blocks of eight, so that the minimum is taken in vectors; unused codes are highest.
        let blocks = n.div_ceil(8) * 8;
        while n_left > at_most {
            let lowest = codes[..blocks].iter().copied().fold(u32::MAX, u32::min);
            let rank = lowest >> 8;
            if rank == NO_RANK {
                break;
            }
            let place = (lowest & 0xFF) as usize;
            let id = merger.product[rank as usize];
            let behind = left & (u64::MAX << place << 1);
            let gone = behind.trailing_zeros() as usize;
            left &= !(1 << gone);
            codes[gone] = u32::MAX;
            ids[place] = id;
            n_left -= 1;
            let behind = behind & (behind - 1);
            codes[place] = if behind != 0 {
                let next = behind.trailing_zeros() as usize;
                merger.pairs.rank(id, ids[next]) << 8 | place as u32
            } else {
                u32::MAX
            };
            let ahead = left & ((1 << place) - 1);
            if ahead != 0 {
                let previous = 63 - ahead.leading_zeros() as usize;
                codes[previous] = merger.pairs.rank(ids[previous], id) << 8 | previous as u32;
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

/// (id, id) -> rank in one word a slot, at most half full: `left << 44 | right << 24 | rank`.
///
/// Most pairs asked for do not merge. A bit for each hash, more of its bits than choose the slot,
/// answers nine in ten of them from a table an eighth of the size, which stays in the cache.
struct PairTable {
    may_be: Vec<u64>,
    slots: Vec<u64>,
    shift: u32,
    keys: HashKeys,
}

const EMPTY: u64 = u64::MAX;
/// Bits of the filter for each slot, as a power of two.
const FILTER_BITS: u32 = 3;

impl PairTable {
    fn with_room_for(n_pairs: usize) -> PairTable {
        let bits = (2 * n_pairs.max(64)).next_power_of_two().trailing_zeros();
        PairTable {
            may_be: vec![0; 1 << (bits + FILTER_BITS - 6)],
            slots: vec![EMPTY; 1 << bits],
            shift: 64 - bits,
            keys: HashKeys::random(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Pair> {
        let filled = self.slots.iter().filter(|slot| **slot != EMPTY);
        filled.map(|slot| Pair {
            left: (slot >> (ID_BITS + RANK_BITS)) as u32,
            right: (slot >> RANK_BITS) as u32 & ((1 << ID_BITS) - 1),
            rank: *slot as u32 & NO_RANK,
        })
    }

    #[inline(always)]
    fn key(left: u32, right: u32) -> u64 {
        u64::from(left) << ID_BITS | u64::from(right)
    }

    /// Keeps what is there when the pair already is: the lower rank, as ranks come in order.
    fn insert(&mut self, left: u32, right: u32, rank: u32) {
        debug_assert!(left >> ID_BITS == 0 && right >> ID_BITS == 0 && rank < NO_RANK);
        let key = Self::key(left, right);
        let hash = self.keys.of_u64(key);
        let bit = hash >> (self.shift - FILTER_BITS);
        self.may_be[(bit >> 6) as usize] |= 1 << (bit & 63);
        let mut at = (hash >> self.shift) as usize;
        while self.slots[at] != EMPTY {
            if self.slots[at] >> RANK_BITS == key {
                return;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = key << RANK_BITS | u64::from(rank);
    }

    /// `NO_RANK` when the pair does not merge.
    #[inline(always)]
    fn rank(&self, left: u32, right: u32) -> u32 {
        let key = Self::key(left, right);
        let hash = self.keys.of_u64(key);
        let bit = hash >> (self.shift - FILTER_BITS);
        if self.may_be[(bit >> 6) as usize] >> (bit & 63) & 1 == 0 {
            return NO_RANK;
        }
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = self.slots[at];
            if slot >> RANK_BITS == key {
                return slot as u32 & NO_RANK;
            }
            if slot == EMPTY {
                return NO_RANK;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_as_ids() -> [u32; 256] {
        std::array::from_fn(|byte| byte as u32)
    }

    fn encode(merger: &Merger, piece: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        merger.encode(piece, &mut MergeScratch::default(), |ids| found.extend(ids));
        let mut scratch = MergeScratch::default();
        scratch
            .ids
            .extend(piece.iter().map(|&byte| merger.start[byte as usize]));
        merger.merge_long(&mut scratch, 1);
        assert_eq!(scratch.ids, found, "scan and long merge differ");
        found
    }

    #[test]
    fn the_leftmost_of_equals_comes_first() {
        let merger = Merger::from_merges(bytes_as_ids(), &[(97, 97, 256), (256, 97, 257)]).unwrap();
        assert_eq!(encode(&merger, b"aaa"), [257]);
        assert_eq!(encode(&merger, b"aaaa"), [256, 256]);
        assert_eq!(encode(&merger, b"aaaaa"), [256, 257]);
    }

    #[test]
    fn greedy_longest_match_is_not_bpe() {
        let merges = [(98, 99, 256), (97, 98, 257), (257, 99, 258)];
        let merger = Merger::from_merges(bytes_as_ids(), &merges).unwrap();
        assert_eq!(encode(&merger, b"abc"), [97, 256]);
    }

    #[test]
    fn a_rank_lower_than_that_of_its_parts_still_merges() {
        // "ab" has to be made, at rank 300, before "abc" can be, at rank 260.
        let singles: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let mut tokens: Vec<(&[u8], u32)> = singles.iter().map(|t| &t[..]).zip(0..).collect();
        tokens.extend([(&b"ab"[..], 300), (b"abc", 260), (b"xyz", 270)]);
        let merger = Merger::from_ranks(bytes_as_ids(), &tokens);
        assert_eq!(encode(&merger, b"abc"), [260]);
        assert_eq!(encode(&merger, b"xyz"), [120, 121, 122]);
    }

    #[test]
    fn long_pieces_are_merged_without_recursion() {
        let merges = [(97, 97, 256), (256, 256, 257), (257, 257, 258)];
        let merger = Merger::from_merges(bytes_as_ids(), &merges).unwrap();
        let mut n = 0;
        merger.encode(&vec![97; 1 << 20], &mut MergeScratch::default(), |ids| {
            n = ids.len();
            assert!(ids.iter().all(|&id| id == 258));
        });
        assert_eq!(n, 1 << 17);
    }

    #[test]
    fn the_scan_covers_every_length_it_is_used_for() {
        let merges = [
            (97, 98, 256),
            (256, 256, 257),
            (98, 97, 258),
            (257, 97, 259),
        ];
        let merger = Merger::from_merges(bytes_as_ids(), &merges).unwrap();
        for length in 1..=MAX_SCAN {
            for step in 1..6 {
                let piece: Vec<u8> = (0..length).map(|i| b"aabab"[i * step % 5]).collect();
                encode(&merger, &piece);
            }
        }
    }
}
