//! Byte-pair merging: always the pair of the lowest rank, the leftmost of equals.
//!
//! Both kinds of tokenizer become one table, (id, id) -> rank, and a product id for each rank.
//!
//! Kind `merges` brings the table: the rank is the index in the list. With kind `ranks` any two
//! neighbours may merge whose joined bytes have a rank. Yet for each token only one pair ever does.
//! Say neighbours (a, b) merge to t. Until then no merge crossed the ends of t's bytes, as symbols
//! never part again. So the merges within them are those of t's bytes merged separately: if the
//! lowest of all pairs is within them, it is also the lowest within. Merging t separately passes
//! through at most one state of two symbols, and (a, b) is that state.
//!
//! So for kind `ranks` tokens are taken by rising length, each is merged with the pairs known so
//! far (those of all shorter tokens, the only ones it can contain), and the last pair is its entry.
//! A token that gets stuck before is never a product. Ranks need not rise with length for this, and
//! merging has no limit on ranks: a pair of higher rank may have to come first.
//!
//! For kind `merges` only the last pair of each token stays. Lists that were made from ranks have
//! every way to split a token, more than twice as many as there are tokens (Llama 3). Without those
//! the products are in the order of their ids, and the table is half as large.

mod atoms;
pub mod boundaries;
mod long;
pub mod pair_table;
mod short;
mod windows;

use std::thread;

use crate::mem::growth::NoMemory;
use crate::mem::sections::{Reader, Unusable, Writer, all, check};
use crate::mem::table::Table;
use crate::merge::atoms::Atoms;
use crate::merge::long::LongMerge;
use crate::merge::pair_table::{ID_BITS, NO_RANK, Pair, PairTable};
use crate::merge::short::ShortMerge;
pub use crate::merge::windows::WINDOW;

/// Up to this many symbols are merged by scanning, more in `long`. The scan costs n^2 at the speed
/// of vector minima, and one word of bits says which symbols remain.
const MAX_SHORT: usize = 64;
/// Up to this many, which is most pieces, by scanning what fits one or two registers.
const MAX_SHORTEST: usize = 16;
/// From this many tokens on, merging them takes ten times as long as starting a thread.
const MANY_TOKENS: usize = 4096;

/// A rank for each two bytes.
const N_START_RANKS: usize = 1 << 16;

/// `(left id, right id, product id)`.
pub type Merge = (u32, u32, u32);

/// The byte after a piece that ends a word, in a vocabulary that marks these (CLIP's `</w>`). No
/// text has it.
pub const END_OF_WORD: u8 = 0xFF;

/// Why no table could be made; the message is for people.
#[derive(Debug)]
pub struct TooManyMerges(pub usize);

/// For each of these tokens, in the order of their ranks, how many bytes the left side of the merge
/// has that makes it; 0 if none does. None if one of the 256 bytes is no token, or with more tokens
/// than there are ids.
pub fn left_sizes(tokens: &[&[u8]]) -> Option<Vec<u32>> {
    if tokens.len() > 1 << ID_BITS {
        return None;
    }
    let mut start = [NO_RANK; 256];
    for (rank, token) in (0..).zip(tokens) {
        if let [byte] = token {
            start[usize::from(*byte)] = rank;
        }
    }
    if start.contains(&NO_RANK) {
        return None;
    }
    let ranked: Vec<(&[u8], u32)> = tokens.iter().copied().zip(0..).collect();
    let mut sizes = vec![0; tokens.len()];
    for pair in Merger::from_ranks(start, &ranked).pairs() {
        sizes[pair.rank as usize] = tokens[pair.left as usize].len() as u32;
    }
    Some(sizes)
}

/// Merges the bytes of one piece to ids.
pub struct Merger {
    /// The id of each byte.
    start: Box<[u32; 256]>,
    /// The rank of each pair of bytes, `first << 8 | second`: the first look-up of every piece.
    start_ranks: Table<u32>,
    pairs: PairTable,
    atoms: Atoms,
    /// While the tables are built: whether merging comes to each id, by id.
    made: Vec<bool>,
}

/// Memory for merging, kept between pieces.
#[derive(Default)]
pub struct MergeScratch {
    ids: Vec<u32>,
    long: LongMerge,
}

impl MergeScratch {
    /// Frees the memory that enlarged windows have taken.
    fn shrink(&mut self) {
        const KEPT: usize = 2 * WINDOW;
        if self.ids.capacity() > KEPT {
            *self = MergeScratch::default();
        }
    }
}

impl Merger {
    /// Kind `merges`: the merges in order of rank, and all tokens that encoding can produce, single
    /// bytes included, with their ids. With `by_characters`, a character that is a token starts as
    /// that token, and any other as its bytes.
    pub fn from_merges(
        start: [u32; 256],
        merges: &[Merge],
        tokens: &[(&[u8], u32)],
        by_characters: bool,
    ) -> Result<Merger, TooManyMerges> {
        if merges.len() >= NO_RANK as usize {
            return Err(TooManyMerges(merges.len()));
        }
        let atoms = if by_characters {
            Atoms::of_characters(tokens.iter().copied())
        } else {
            Atoms::none()
        };
        let mut all = Merger {
            atoms,
            ..Merger::of_all(start, merges)
        };
        let n_ids = tokens.iter().map(|token| token.1 + 1).max().unwrap_or(0);
        let mut last_pairs = vec![None; n_ids as usize];
        let mut made = vec![false; n_ids as usize];
        for (&(_, id), pair) in tokens.iter().zip(all.last_pairs(tokens)) {
            let (left, right) = pair.unwrap_or((u32::MAX, u32::MAX));
            last_pairs[id as usize] = Some((left, right));
            let rank = pair.map_or(NO_RANK, |_| all.pairs.rank(left, right));
            made[id as usize] = rank != NO_RANK && all.pairs.product(rank) == id;
        }
        for id in start {
            made[id as usize] = true;
        }
        let (n_merges, mut merges) = (merges.len(), merges.to_vec());
        merges.retain(|&(left, right, product)| {
            // Of a product that is not among the tokens nothing is known.
            let last = last_pairs.get(product as usize).copied().flatten();
            last.is_none_or(|last| last == (left, right))
        });
        let atoms = std::mem::replace(&mut all.atoms, Atoms::none());
        let pruned = if merges.len() == n_merges {
            all
        } else {
            Merger::of_all(start, &merges)
        };
        Ok(Merger {
            made,
            atoms,
            ..pruned
        })
    }

    /// Kind `merges`, with every pair, also those that no text ever reaches.
    pub fn of_all(start: [u32; 256], merges: &[Merge]) -> Merger {
        let products = || merges.iter().map(|&(_, _, product)| product);
        // Ids that rise with the ranks can be the ranks, which saves looking them up.
        let are_ranks = products().is_sorted_by(|one, next| one < next);
        let mut merger = if are_ranks {
            let n_ids = products().next_back().map_or(0, |last| last + 1);
            Merger::without_pairs(start, merges.len(), (0..n_ids).collect())
        } else {
            Merger::without_pairs(start, merges.len(), products().collect())
        };
        for (position, &(left, right, product)) in (0..).zip(merges) {
            let rank = if are_ranks { product } else { position };
            merger.pairs.insert(left, right, rank);
        }
        merger.fill_start_ranks();
        merger
    }

    /// Kind `ranks`: all tokens that encoding can produce, single bytes included, with their ids,
    /// which are their ranks. See the top of the file.
    pub fn from_ranks(start: [u32; 256], tokens: &[(&[u8], u32)]) -> Merger {
        let ids = 0..tokens.iter().map(|t| t.1 + 1).max().unwrap_or(0);
        let mut made = vec![false; ids.len()];
        let mut merger = Merger::without_pairs(start, tokens.len(), ids.collect());
        let mut by_length: Vec<(&[u8], u32)> =
            tokens.iter().copied().filter(|t| t.0.len() > 1).collect();
        by_length.sort_by_key(|t| t.0.len());
        let (pairs, longer) =
            by_length.split_at(by_length.iter().take_while(|t| t.0.len() == 2).count());
        for &(token, id) in pairs {
            let (left, right) = (start[token[0] as usize], start[token[1] as usize]);
            made[id as usize] |= merger.pairs.insert(left, right, id);
        }
        merger.fill_start_ranks();
        // Tokens of one length hold none of each other: only shorter ones are merged within them.
        for as_long in longer.chunk_by(|one, next| one.0.len() == next.0.len()) {
            for (&(_, id), pair) in as_long.iter().zip(merger.last_pairs(as_long)) {
                if let Some((left, right)) = pair {
                    made[id as usize] |= merger.pairs.insert(left, right, id);
                }
            }
        }
        for id in start {
            made[id as usize] = true;
        }
        merger.made = made;
        merger
    }

    fn without_pairs(start: [u32; 256], n_pairs: usize, products: Vec<u32>) -> Merger {
        Merger {
            start: Box::new(start),
            start_ranks: vec![NO_RANK; N_START_RANKS].into(),
            pairs: PairTable::new(n_pairs, products),
            atoms: Atoms::none(),
            made: Vec::new(),
        }
    }

    /// Kind `merges`, where a piece that ends a word has `END_OF_WORD` after its bytes. `ends` has
    /// the id that each byte becomes before that mark, and `mark` is an id that no token has.
    ///
    /// The mark joins the byte before it first: these merges rank below all others. All merges are
    /// kept: how a token is spelt does not tell whether it ends a word.
    pub fn with_word_ends(
        mut start: [u32; 256],
        merges: &[Merge],
        ends: &[(u8, u32)],
        mark: u32,
    ) -> Result<Merger, TooManyMerges> {
        start[usize::from(END_OF_WORD)] = mark;
        let of_end = |&(byte, end): &(u8, u32)| (start[usize::from(byte)], mark, end);
        let mut all: Vec<Merge> = ends.iter().map(of_end).collect();
        // In the order of products, which may then be the ranks.
        all.sort_unstable_by_key(|merge| merge.2);
        all.extend_from_slice(merges);
        if all.len() >= NO_RANK as usize {
            return Err(TooManyMerges(all.len()));
        }
        Ok(Merger::of_all(start, &all))
    }

    /// Lets characters start as their tokens where that changes nothing; from then on pieces must
    /// be UTF-8. `tokens` are those that encoding can produce, `bytes_of` gives those of an id.
    pub fn find_atoms<'v>(
        &mut self,
        tokens: impl Iterator<Item = (&'v [u8], u32)>,
        bytes_of: impl Fn(u32) -> &'v [u8],
    ) {
        let merge = |left, right| {
            let rank = self.pairs.rank(left, right);
            (rank != NO_RANK).then(|| (rank, self.pairs.product(rank)))
        };
        self.atoms = Atoms::new(&self.start, tokens, merge, self.pairs.iter(), bytes_of);
        self.made = Vec::new();
    }

    pub fn write(&self, to: &mut Writer) {
        to.table(&self.start[..]);
        to.table(&self.start_ranks);
        self.pairs.write(to);
        self.atoms.write(to);
    }

    /// Of ids below `n_ids`; the next one marks the end of a word.
    pub fn read(from: &mut Reader, n_ids: usize) -> Result<Merger, Unusable> {
        let (start, start_ranks): ([u32; 256], Table<u32>) = (from.array()?, from.table()?);
        check(
            start.iter().all(|&id| id as usize <= n_ids),
            "a byte is no id",
        )?;
        let pairs = PairTable::read(from, n_ids)?;
        let is_rank = |&rank: &u32| rank == NO_RANK || (rank as usize) < pairs.n_ranks();
        check(
            start_ranks.len() == N_START_RANKS && all(&start_ranks, is_rank),
            "a rank of two bytes is none",
        )?;
        Ok(Merger {
            start: Box::new(start),
            start_ranks,
            pairs,
            atoms: Atoms::read(from, n_ids)?,
            made: Vec::new(),
        })
    }

    /// All pairs that merge.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs.iter()
    }

    fn fill_start_ranks(&mut self) {
        let rank_of = |pair: usize| {
            let [left, right] = [pair >> 8, pair & 0xFF].map(|byte| self.start[byte]);
            self.pairs.rank(left, right)
        };
        self.start_ranks = (0..N_START_RANKS).map(rank_of).collect::<Vec<_>>().into();
    }

    /// The last pair of each token, by two threads where there are many.
    fn last_pairs(&self, tokens: &[(&[u8], u32)]) -> Vec<Option<(u32, u32)>> {
        let of = |tokens: &[(&[u8], u32)]| -> Vec<_> {
            let mut scratch = MergeScratch::default();
            let pair_of = |&(token, _): &(&[u8], u32)| self.last_pair(token, &mut scratch);
            tokens.iter().map(pair_of).collect()
        };
        if tokens.len() < MANY_TOKENS {
            return of(tokens);
        }
        let (first, second) = tokens.split_at(tokens.len() / 2);
        thread::scope(|scope| {
            let others = thread::Builder::new().spawn_scoped(scope, || of(second));
            let mut pairs = of(first);
            match others {
                Ok(others) => pairs.extend(others.join().expect("merging does not panic")),
                Err(_) => pairs.extend(of(second)),
            }
            pairs
        })
    }

    /// The last two symbols that merging `token` alone comes to; None when it stops before.
    fn last_pair(&self, token: &[u8], scratch: &mut MergeScratch) -> Option<(u32, u32)> {
        let mut found = None;
        let merged = self.merge(token, scratch, 2, |ids| {
            if let [left, right] = *ids {
                found = Some((left, right));
            }
        });
        merged.expect("memory for a token");
        found
    }

    /// Whether merging the bytes of this token comes to its id and nothing else. Before
    /// `find_atoms`.
    pub fn makes(&self, id: u32) -> bool {
        self.made[id as usize]
    }

    /// Calls `take` once with the ids of a piece of at least one byte and at most `WINDOW`.
    #[inline(always)]
    pub fn encode<T>(
        &self,
        piece: &[u8],
        scratch: &mut MergeScratch,
        take: impl FnOnce(&[u32]) -> T,
    ) -> Result<T, NoMemory> {
        self.merge(piece, scratch, 1, take)
    }

    /// Appends the ids of a piece of any length to `ids`; `n_bytes` gives the length of a token.
    /// `check` is called before each window.
    pub fn encode_long<E: From<NoMemory>>(
        &self,
        piece: &[u8],
        scratch: &mut MergeScratch,
        n_bytes: impl Fn(u32) -> usize,
        check: impl Fn() -> Result<(), E>,
        ids: &mut Vec<u32>,
    ) -> Result<(), E> {
        let MergeScratch { long, ids: own } = scratch;
        let merge = |part: &[u8], ids: &mut Vec<u32>| {
            check()?;
            self.start_symbols(part, ids)?;
            Ok(self.merge_long(long, ids, 1)?)
        };
        let done = windows::encode(piece, WINDOW, ids, own, merge, n_bytes);
        scratch.shrink();
        done
    }

    /// Merges until `at_most` symbols are left or no pair has a rank.
    #[inline(always)]
    fn merge<T>(
        &self,
        piece: &[u8],
        scratch: &mut MergeScratch,
        at_most: usize,
        take: impl FnOnce(&[u32]) -> T,
    ) -> Result<T, NoMemory> {
        if piece.len() <= MAX_SHORTEST {
            return Ok(self.merge_short::<MAX_SHORTEST, T>(piece, at_most, take));
        }
        if piece.len() <= MAX_SHORT && self.starts_from_bytes(piece) {
            return Ok(self.merge_short::<MAX_SHORT, T>(piece, at_most, take));
        }
        let MergeScratch { ids, long, .. } = scratch;
        self.start_symbols(piece, ids)?;
        Ok(match ids.len() {
            n if n <= MAX_SHORTEST => {
                let mut short = ShortMerge::<MAX_SHORTEST>::of(ids, &self.pairs);
                take(short.merge(&self.pairs, at_most))
            }
            n if n <= MAX_SHORT => {
                let mut short = ShortMerge::<MAX_SHORT>::of(ids, &self.pairs);
                take(short.merge(&self.pairs, at_most))
            }
            _ => {
                self.merge_long(long, ids, at_most)?;
                take(ids)
            }
        })
    }

    /// The symbols that a part of a piece starts as.
    #[inline(always)]
    fn start_symbols(&self, part: &[u8], ids: &mut Vec<u32>) -> Result<(), NoMemory> {
        ids.clear();
        ids.try_reserve(part.len())?;
        self.atoms.start(&self.start, part, |id| ids.push(id));
        Ok(())
    }

    #[inline(always)]
    fn starts_from_bytes(&self, piece: &[u8]) -> bool {
        piece.is_ascii() || self.atoms.are_none()
    }

    /// A piece of at most `N` bytes.
    #[inline(always)]
    fn merge_short<const N: usize, T>(
        &self,
        piece: &[u8],
        at_most: usize,
        take: impl FnOnce(&[u32]) -> T,
    ) -> T {
        let mut short = ShortMerge::<N>::empty();
        if self.starts_from_bytes(piece) {
            short.start_from_bytes(piece, &self.start, &self.start_ranks);
        } else {
            self.atoms
                .start(&self.start, piece, |id| short.push(id, &self.pairs));
        }
        take(short.merge(&self.pairs, at_most))
    }

    #[inline(never)]
    fn merge_long(
        &self,
        long: &mut LongMerge,
        ids: &mut Vec<u32>,
        at_most: usize,
    ) -> Result<(), NoMemory> {
        long.merge(
            ids,
            at_most,
            self.pairs.n_ranks(),
            |left, right| self.pairs.rank(left, right),
            |rank| self.pairs.product(rank),
        )
    }
}

#[cfg(test)]
mod tests;
