//! Counted words -> merges: byte-level BPE learned exactly and incrementally.
//!
//! **Layout.** All words are in one flat arena of symbols, each word ended by `BOUNDARY`. A symbol
//! covers as many positions as symbols were merged into it since the arena was last compacted
//! (`spans`), and is stored at the first and at the last of them. So its neighbours are found
//! without links: the right one after its last position, the left one before its first. Words are
//! ordered by falling count, so the count of a position is that of its group of words; lists of
//! positions ascend, and a cursor over the groups advances with them.
//!
//! **Occurrences.** Every occurrence of a pair (x, y) arises in the step that makes the younger of
//! the two, so the list of its positions is complete from the beginning. An entry goes stale when
//! one of the two is merged away; the symbols at its positions show that. This is exact because
//! merging a symbol overwrites its first position: by the product, which is younger than any pair
//! of an older entry, or by `DEAD`.
//!
//! **Epochs.** Counts of existing pairs only fall. So only pairs that reach a threshold when they
//! arise get a list, a count and an entry in the queue. When the queue is empty the arena is
//! compacted, the threshold is lowered, and the pairs that reach it are counted anew. The many
//! pairs that never come near the top cost nothing, and lists stay a fraction of the arena. The
//! threshold decides time and memory, never the result.
//!
//! **The tie rule** is that of `tokenizer_core/training/learn_merges.py`, which is the reference.

mod epochs;
mod merging;
mod pair_numbers;
mod pair_queue;
mod symbols;
#[cfg(test)]
mod tests;
mod ties;

use std::ops::Range;

use crate::mem::growth::{Grow, NoMemory, collected, filled};
use pair_numbers::PairNumbers;
use pair_queue::{Pair, PairQueue};
use symbols::{N_BYTES, Unsigned};
use ties::TieOrder;
pub use ties::{TieBreak, TokenTable};

/// Why nothing was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnError {
    /// The progress callback said so.
    Cancelled,
    /// The sum of all symbols counted does not fit 64 bits.
    CountOverflow,
    NoMemory,
}

impl From<NoMemory> for LearnError {
    fn from(_: NoMemory) -> LearnError {
        LearnError::NoMemory
    }
}

/// The rules that decide the merges, in addition to the counts.
#[derive(Clone, Debug)]
pub struct Rules {
    pub tie_break: TieBreak,
    /// Learning ends when no pair is left that occurs so often; at least 1.
    pub min_frequency: u64,
    /// Pairs whose product would have more bytes are never merged.
    pub max_token_length: usize,
    /// Applied, in order, before any merge is learned: pairs of symbols as in `Learned`, each of
    /// bytes and earlier products.
    pub first_merges: Vec<(u32, u32)>,
}

impl Rules {
    /// The tie rule and nothing else.
    pub fn new(tie_break: TieBreak) -> Rules {
        Rules {
            tie_break,
            min_frequency: 1,
            max_token_length: usize::MAX,
            first_merges: Vec::new(),
        }
    }
}

/// The merges in order, and the words after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Pairs of symbols: 0-255 are bytes, `256 + k` is the product of merge `k`. The first ones are
    /// those that were given.
    pub merges: Vec<(u32, u32)>,
    /// The bytes of all symbols.
    pub tokens: TokenTable,
    /// Whether learning ended because the rules allowed no further pair.
    pub no_pair_left: bool,
    /// Tokens of all words counted, repetitions included: after the merges that were given, and
    /// after each that was learned.
    pub token_counts: Vec<u64>,
}

/// Settings for time and memory, which never change the result.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Each epoch's threshold is the highest possible count divided by this.
    pub threshold_divisor: u64,
    /// Arenas up to this many symbols have all their pairs listed at once.
    pub small_arena: usize,
    /// A threshold is raised until so many pairs, for each merge that is left, reach it ...
    pub pairs_per_merge: usize,
    /// ... and so many more.
    pub min_pairs: usize,
    /// Up to this many possible pairs are counted in a square.
    pub dense_pairs: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            threshold_divisor: 32,
            small_arena: 1 << 18,
            pairs_per_merge: 4,
            min_pairs: 1 << 12,
            dense_pairs: 1 << 21,
        }
    }
}

/// The first `n_merges` merges over these words, those that are given included; fewer if no pair is
/// left.
///
/// `words` gives each distinct word once with its count (at least 1) and is iterated over several
/// times. `after_merge` is called with the number of merges so far, and ends the run with `false`.
pub fn learn<'a, W>(
    words: W,
    n_merges: usize,
    rules: &Rules,
    tuning: Tuning,
    after_merge: &mut dyn FnMut(usize) -> bool,
) -> Result<Learned, LearnError>
where
    W: Iterator<Item = (&'a [u8], u64)> + Clone,
{
    let (mut total, mut positions) = (0_u128, 1_usize);
    for (word, count) in words.clone() {
        total += word.len() as u128 * u128::from(count);
        positions += word.len() + 1;
    }
    if total > u128::from(u64::MAX) {
        return Err(LearnError::CountOverflow);
    }
    // Two ids above the symbols are BOUNDARY and DEAD.
    let n_symbols = N_BYTES + n_merges.max(rules.first_merges.len());
    let narrow_symbols = n_symbols + 2 <= usize::from(u16::MAX);
    if positions > u32::MAX as usize {
        Learner::<u32, u64>::new(words, rules, tuning)?.run(rules, n_merges, after_merge)
    } else if narrow_symbols {
        Learner::<u16, u32>::new(words, rules, tuning)?.run(rules, n_merges, after_merge)
    } else {
        Learner::<u32, u32>::new(words, rules, tuning)?.run(rules, n_merges, after_merge)
    }
}

/// The words that occur `count` times end at position `end`.
#[derive(Clone, Copy)]
struct Group {
    end: usize,
    count: u64,
}

/// One symbol next to the product of a merge.
#[derive(Clone, Copy)]
struct Neighbour {
    count: u64,
    /// First how many positions there are; then where in `positions` the next is written.
    cursor: u64,
}

const NO_NEIGHBOUR: Neighbour = Neighbour {
    count: 0,
    cursor: 0,
};

/// One position where the merge was applied; `BOUNDARY` stands for a side that makes no new pair here.
#[derive(Clone, Copy)]
struct Hit<S, P> {
    position: P,
    left: S,
    right: S,
}

struct Learner<S, P> {
    tuning: Tuning,
    order: TieOrder,
    symbols: Vec<S>,
    groups: Vec<Group>,
    spans: Vec<P>,
    n_tokens: u64,
    min_frequency: u64,
    max_token_length: usize,
    threshold: u64,
    pairs: Vec<Pair<S>>,
    positions: Vec<P>,
    /// A part of `positions` where the list of a merged pair was; new lists are written there.
    free: Range<usize>,
    table: PairNumbers<S>,
    queue: PairQueue,
    before: Vec<Neighbour>,
    after: Vec<Neighbour>,
    seen_before: Vec<S>,
    seen_after: Vec<S>,
    hits: Vec<Hit<S, P>>,
}

impl<S: Unsigned, P: Unsigned> Learner<S, P> {
    fn boundary() -> S {
        S::of(S::MAX)
    }

    fn dead() -> S {
        S::of(S::MAX - 1)
    }

    fn run(
        mut self,
        rules: &Rules,
        n_merges: usize,
        after_merge: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Learned, LearnError> {
        let mut merges = collected(rules.first_merges.iter().copied())?;
        let mut token_counts = filled(self.n_tokens, 1)?;
        if merges.len() < n_merges {
            self.list_pairs(u64::MAX, n_merges - merges.len())?;
        }
        while merges.len() < n_merges {
            let popped = self.queue.pop(&self.pairs, &self.order, self.threshold)?;
            let Some(index) = popped else {
                if self.threshold <= self.min_frequency {
                    break;
                }
                self.begin_next_epoch(n_merges - merges.len())?;
                continue;
            };
            let pair = self.pairs[index as usize];
            merges.try_push((pair.left.get() as u32, pair.right.get() as u32))?;
            self.merge(index)?;
            token_counts.try_push(self.n_tokens)?;
            if !after_merge(merges.len()) {
                return Err(LearnError::Cancelled);
            }
        }
        Ok(Learned {
            no_pair_left: merges.len() < n_merges,
            merges,
            token_counts,
            tokens: self.order.tokens,
        })
    }
}
