//! Between epochs: the arena is filled or compacted, and the pairs that reach the threshold are
//! counted and listed.

use std::collections::BTreeMap;

use super::pair_numbers::{PairNumbers, hash_pair};
use super::pair_queue::{Pair, PairQueue};
use super::symbols::Unsigned;
use super::ties::TieOrder;
use super::{Group, Learner, NO_NEIGHBOUR, Rules, Tuning};
use crate::mem::growth::{Grow, NoMemory, collected, filled, with_room};
use crate::mem::prefetch::prefetch;
use crate::merge::{Merge, MergeScratch, Merger, WINDOW};

/// The sketch has a bucket for each symbol of the arena, up to this many (16 MB).
const MAX_BUCKETS: usize = 1 << 22;
const BATCH: usize = 64;
const NO_NUMBER: u32 = u32::MAX;

impl<S: Unsigned, P: Unsigned> Learner<S, P> {
    pub(super) fn new<'a, W>(words: W, rules: &Rules, tuning: Tuning) -> Result<Self, NoMemory>
    where
        W: Iterator<Item = (&'a [u8], u64)> + Clone,
    {
        let mut order = TieOrder::new(rules.tie_break);
        let mut first_merges: Vec<Merge> = with_room(rules.first_merges.len())?;
        for &(left, right) in &rules.first_merges {
            let product = order.push(left as usize, right as usize)?;
            first_merges.push((left, right, product as u32));
        }
        let n_symbols = order.keys.len();
        let bytes = std::array::from_fn(|byte| byte as u32);
        let merger = Merger::of_all(bytes, &first_merges);
        let (mut scratch, mut merged) = (MergeScratch::default(), Vec::new());
        // Where the words of each count begin: counts fall along the arena.
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        for (word, count) in words.clone() {
            if word.len() > 1 {
                *sizes.entry(count).or_default() += word.len() + 1;
            }
        }
        let mut end = 1;
        let mut groups = with_room(sizes.len())?;
        for (&count, size) in sizes.iter_mut().rev() {
            let start = end;
            end += *size;
            groups.push(Group { end, count });
            *size = start;
        }
        let mut symbols = filled(Self::boundary(), end)?;
        let mut n_tokens = 0;
        for (word, count) in words {
            let mut n_left = word.len();
            if n_left > 1 {
                let next = sizes.get_mut(&count).expect("counted above");
                let split = &mut symbols[*next..*next + n_left];
                *next += n_left + 1;
                if first_merges.is_empty() {
                    for (symbol, &byte) in split.iter_mut().zip(word) {
                        *symbol = S::of(usize::from(byte));
                    }
                } else {
                    merged.clear();
                    if word.len() <= WINDOW {
                        merger.encode(word, &mut scratch, |ids| merged.try_extend(ids))??;
                    } else {
                        let n_bytes = |id| order.tokens.get(id as usize).len();
                        let check = || Ok::<(), NoMemory>(());
                        merger.encode_long(word, &mut scratch, n_bytes, check, &mut merged)?;
                    }
                    n_left = merged.len();
                    for (symbol, &id) in split.iter_mut().zip(&merged) {
                        *symbol = S::of(id as usize);
                    }
                }
            }
            n_tokens += n_left as u64 * count;
        }
        let mut learner = Learner {
            tuning,
            order,
            symbols,
            groups,
            spans: filled(P::of(1), n_symbols)?,
            n_tokens,
            min_frequency: rules.min_frequency.max(1),
            max_token_length: rules.max_token_length,
            threshold: 0,
            pairs: Vec::new(),
            positions: Vec::new(),
            free: 0..0,
            table: PairNumbers::new()?,
            queue: PairQueue::default(),
            before: filled(NO_NEIGHBOUR, n_symbols)?,
            after: filled(NO_NEIGHBOUR, n_symbols)?,
            seen_before: Vec::new(),
            seen_after: Vec::new(),
            hits: Vec::new(),
        };
        if !first_merges.is_empty() {
            learner.compact(); // the merges left room behind the words
        }
        Ok(learner)
    }

    /// Calls `visit(position, left, right, count)` for every pair of the compacted arena.
    #[inline(always)]
    fn for_each_pair(
        symbols: &[S],
        groups: &[Group],
        mut visit: impl FnMut(usize, S, S, u64) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let mut position = 1;
        for group in groups {
            let mut left = Self::boundary();
            while position < group.end {
                let right = symbols[position];
                if left != Self::boundary() && right != Self::boundary() {
                    visit(position - 1, left, right, group.count)?;
                }
                left = right;
                position += 1;
            }
        }
        Ok(())
    }

    fn choose_threshold(&self, highest: u64) -> u64 {
        if self.symbols.len() <= self.tuning.small_arena {
            return self.min_frequency;
        }
        (highest / self.tuning.threshold_divisor.max(2)).max(self.min_frequency)
    }

    pub(super) fn begin_next_epoch(&mut self, n_left: usize) -> Result<(), NoMemory> {
        self.pairs = Vec::new();
        self.positions = Vec::new();
        self.free = 0..0;
        self.hits = Vec::new();
        self.table = PairNumbers::new()?;
        self.queue.clear();
        self.compact();
        // Every pair that had reached the old threshold was merged, or has fallen below it.
        let highest = self.threshold - 1;
        self.threshold = self.choose_threshold(highest);
        self.list_pairs(highest, n_left)
    }

    /// Moves the symbols together: each covers one position again, and words of one are dropped.
    fn compact(&mut self) {
        let boundary = Self::boundary();
        let (mut read, mut write) = (1, 1);
        for group in &mut self.groups {
            while read < group.end {
                let start = write;
                loop {
                    let symbol = self.symbols[read];
                    self.symbols[write] = symbol;
                    write += 1;
                    if symbol == boundary {
                        read += 1;
                        break;
                    }
                    read += self.spans[symbol.get()].get();
                }
                if write - start <= 2 {
                    write = start;
                }
            }
            group.end = write;
        }
        self.symbols.truncate(write);
        self.symbols.shrink_to_fit();
        self.groups
            .dedup_by(|later, earlier| later.end == earlier.end);
        self.spans.fill(P::of(1));
    }

    /// Finds the pairs that reach the threshold, with their counts and positions, and queues them.
    pub(super) fn list_pairs(&mut self, highest: u64, n_left: usize) -> Result<(), NoMemory> {
        if self.spans.len().pow(2) <= self.tuning.dense_pairs {
            self.list_pairs_by_square()?;
        } else {
            self.list_pairs_by_sketch(highest, n_left)?;
        }
        for (number, pair) in (0..).zip(&self.pairs) {
            self.table.get_or_insert(pair.left, pair.right, number)?;
            self.queue.add(number, pair, &self.order)?;
        }
        Ok(())
    }

    /// With few symbols all pairs have a position in a square.
    fn list_pairs_by_square(&mut self) -> Result<(), NoMemory> {
        let side = self.spans.len();
        let mut sums = filled((0_u64, 0_u64), side * side)?;
        Self::for_each_pair(&self.symbols, &self.groups, |_, left, right, count| {
            let sum = &mut sums[left.get() * side + right.get()];
            sum.0 += count;
            sum.1 += 1;
            Ok(())
        })?;
        if self.threshold == 0 {
            let highest = sums.iter().map(|sum| sum.0).max().unwrap_or(0);
            self.threshold = self.choose_threshold(highest);
        }
        let mut numbers = filled(NO_NUMBER, side * side)?;
        for (code, &(count, len)) in sums.iter().enumerate() {
            let (left, right) = (S::of(code / side), S::of(code % side));
            if len > 0 && count >= self.threshold && self.may_be_merged(left, right) {
                numbers[code] = self.pairs.len() as u32;
                self.pairs.try_push(Pair {
                    count,
                    start: 0,
                    len,
                    left,
                    right,
                })?;
            }
        }
        drop(sums);
        let mut ends = lay_out_lists(&mut self.pairs, &mut self.positions)?;
        let positions = &mut self.positions;
        Self::for_each_pair(&self.symbols, &self.groups, |position, left, right, _| {
            let number = numbers[left.get() * side + right.get()];
            if number != NO_NUMBER {
                let end = &mut ends[number as usize];
                positions[*end] = P::of(position);
                *end += 1;
            }
            Ok(())
        })
    }

    /// With many symbols most pairs are ruled out before they need an entry of their own: sums
    /// over hash buckets bound the counts of the pairs in them from above.
    fn list_pairs_by_sketch(&mut self, highest: u64, n_left: usize) -> Result<(), NoMemory> {
        let n_buckets = self.symbols.len().next_power_of_two().min(MAX_BUCKETS);
        let mut sketch = filled(0_u32, n_buckets)?;
        Self::for_each_pair(&self.symbols, &self.groups, |_, left, right, count| {
            let sum = &mut sketch[bucket_of(left, right, n_buckets)];
            *sum = sum.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            Ok(())
        })?;
        if self.threshold == 0 {
            // The first epoch, after many merges that were given. The sums bound the counts.
            let highest = sketch.iter().max().map_or(0, |&sum| u64::from(sum));
            self.threshold = self.choose_threshold(highest);
        }
        if self.symbols.len() > self.tuning.small_arena {
            let enough_pairs = n_left * self.tuning.pairs_per_merge + self.tuning.min_pairs;
            self.threshold = self
                .threshold
                .max(threshold_for(enough_pairs, highest, &sketch)?);
        }
        let enough = u32::try_from(self.threshold).unwrap_or(u32::MAX);
        let mut found: Vec<(P, u32)> = Vec::new();
        let mut batch = Batch::new();
        let (order, longest) = (&self.order, self.max_token_length);
        let (pairs, table) = (&mut self.pairs, &mut self.table);
        let mut count_batch = |batch: &mut Batch<S>| {
            let is_likely = |seen: &Seen<S>| {
                sketch[bucket_of(seen.left, seen.right, n_buckets)] >= enough
                    && order.fits(seen.left.get(), seen.right.get(), longest)
            };
            for seen in batch.retain(is_likely) {
                table.prefetch(seen.left, seen.right);
            }
            for seen in batch.seen() {
                let next = pairs.len() as u32;
                let number = table.get_or_insert(seen.left, seen.right, next)?;
                if number == next {
                    pairs.try_push(Pair {
                        count: 0,
                        start: 0,
                        len: 0,
                        left: seen.left,
                        right: seen.right,
                    })?;
                }
                let pair = &mut pairs[number as usize];
                pair.count += seen.count;
                pair.len += 1;
                found.try_push((P::of(seen.position), number))?;
            }
            batch.clear();
            Ok(())
        };
        Self::for_each_pair(
            &self.symbols,
            &self.groups,
            |position, left, right, count| {
                prefetch(&raw const sketch[bucket_of(left, right, n_buckets)]);
                let is_full = batch.push(Seen {
                    position,
                    left,
                    right,
                    count,
                });
                if is_full {
                    count_batch(&mut batch)
                } else {
                    Ok(())
                }
            },
        )?;
        count_batch(&mut batch)?;
        drop(sketch);
        self.table = PairNumbers::new()?;
        let mut numbers = filled(NO_NUMBER, self.pairs.len())?;
        let (mut old, mut kept) = (0, 0);
        let threshold = self.threshold;
        self.pairs.retain(|pair| {
            let keep = pair.count >= threshold;
            if keep {
                numbers[old] = kept;
                kept += 1;
            }
            old += 1;
            keep
        });
        let mut ends = lay_out_lists(&mut self.pairs, &mut self.positions)?;
        for (position, number) in found {
            let number = numbers[number as usize];
            if number != NO_NUMBER {
                let end = &mut ends[number as usize];
                self.positions[*end] = position;
                *end += 1;
            }
        }
        Ok(())
    }
}

/// A pair at a position of the arena.
#[derive(Clone, Copy)]
struct Seen<S> {
    position: usize,
    left: S,
    right: S,
    count: u64,
}

/// Pairs that wait for memory together, one step after the other.
struct Batch<S> {
    seen: [Seen<S>; BATCH],
    len: usize,
}

impl<S: Unsigned> Batch<S> {
    fn new() -> Self {
        let none = Seen {
            position: 0,
            left: S::of(0),
            right: S::of(0),
            count: 0,
        };
        Batch {
            seen: [none; BATCH],
            len: 0,
        }
    }

    /// Whether it is full now.
    #[inline(always)]
    fn push(&mut self, seen: Seen<S>) -> bool {
        self.seen[self.len] = seen;
        self.len += 1;
        self.len == BATCH
    }

    fn clear(&mut self) {
        self.len = 0;
    }

    fn seen(&self) -> &[Seen<S>] {
        &self.seen[..self.len]
    }

    /// Without a branch for each, which would be guessed wrong half the time.
    #[inline(always)]
    fn retain(&mut self, keep: impl Fn(&Seen<S>) -> bool) -> &[Seen<S>] {
        let mut n_kept = 0;
        for i in 0..self.len {
            let seen = self.seen[i];
            self.seen[n_kept] = seen;
            n_kept += usize::from(keep(&seen));
        }
        self.len = n_kept;
        self.seen()
    }
}

/// Gives each pair its part of `positions`; returns where the parts begin.
fn lay_out_lists<S, P: Unsigned>(
    pairs: &mut [Pair<S>],
    positions: &mut Vec<P>,
) -> Result<Vec<usize>, NoMemory> {
    let mut end = 0;
    let starts = pairs.iter_mut().map(|pair| {
        pair.start = end;
        end += pair.len;
        pair.start as usize
    });
    let starts = collected(starts)?;
    *positions = filled(P::of(0), end as usize)?;
    Ok(starts)
}

/// The lowest threshold, up to `highest`, that no more than about `n_pairs` reach.
fn threshold_for(n_pairs: usize, highest: u64, sketch: &[u32]) -> Result<u64, NoMemory> {
    let last = usize::try_from(highest).unwrap_or(usize::MAX).min(1 << 16);
    let mut sizes = filled(0_usize, last + 1)?;
    for &sum in sketch {
        sizes[last.min(sum as usize)] += 1;
    }
    let mut reached = 0;
    for threshold in (1..last).rev() {
        reached += sizes[threshold + 1];
        if reached + sizes[threshold] > n_pairs {
            return Ok(threshold as u64 + 1);
        }
    }
    Ok(1)
}

#[inline(always)]
fn bucket_of<S: Unsigned>(left: S, right: S, n_buckets: usize) -> usize {
    hash_pair(left, right) as usize & (n_buckets - 1)
}
