//! One merge: it changes words and the counts of neighbours, and makes new pairs.

use super::pair_queue::Pair;
use super::symbols::Unsigned;
use super::{Group, Hit, Learner, NO_NEIGHBOUR, Neighbour};
use crate::mem::growth::{Grow, NoMemory};
use crate::mem::prefetch::prefetch;

const NOWHERE: u64 = u64::MAX;
/// How many entries ahead the arena is fetched while a list is walked.
const PREFETCH_DISTANCE: usize = 16;

impl<S: Unsigned, P: Unsigned> Learner<S, P> {
    pub(super) fn merge(&mut self, index: u32) -> Result<(), NoMemory> {
        let pair = self.pairs[index as usize];
        self.pairs[index as usize].count = 0;
        let product = S::of(self.order.push(pair.left.get(), pair.right.get())?);
        let span = self.spans[pair.left.get()].get() + self.spans[pair.right.get()].get();
        self.spans.try_push(P::of(span))?;
        self.before.try_push(NO_NEIGHBOUR)?;
        self.after.try_push(NO_NEIGHBOUR)?;
        self.replace(&pair, product)?;
        if pair.len as usize > self.free.len() {
            self.free = pair.start as usize..(pair.start + pair.len) as usize;
        }
        let more =
            self.add_pairs_before(pair.left, product)? | self.add_pairs_after(&pair, product)?;
        if more {
            self.write_positions();
        }
        for symbol in self.seen_before.drain(..) {
            self.before[symbol.get()] = NO_NEIGHBOUR;
        }
        for symbol in self.seen_after.drain(..) {
            self.after[symbol.get()] = NO_NEIGHBOUR;
        }
        self.hits.clear();
        Ok(())
    }

    /// Writes `product` over every occurrence of `pair`, left to right, and notes what it touches.
    fn replace(&mut self, pair: &Pair<S>, product: S) -> Result<(), NoMemory> {
        let left_span = self.spans[pair.left.get()].get();
        let right_span = self.spans[pair.right.get()].get();
        let span = left_span + right_span;
        let list = pair.start as usize..(pair.start + pair.len) as usize;
        let mut group = 0;
        // Noted one after: whether the right neighbour is replaced too must be known.
        let mut previous = None;
        for entry in list.clone() {
            if entry + PREFETCH_DISTANCE < list.end {
                let soon = self.positions[entry + PREFETCH_DISTANCE].get();
                prefetch(self.symbols.as_ptr().wrapping_add(soon));
            }
            let position = self.positions[entry].get();
            if self.symbols[position] != pair.left
                || self.symbols[position + left_span] != pair.right
            {
                continue;
            }
            if right_span > 1 {
                self.symbols[position + left_span] = Self::dead();
            }
            self.symbols[position] = product;
            self.symbols[position + span - 1] = product;
            if let Some(previous) = previous {
                self.note(previous, span, product, &mut group)?;
            }
            previous = Some(position);
        }
        if let Some(previous) = previous {
            self.note(previous, span, product, &mut group)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn note(
        &mut self,
        position: usize,
        span: usize,
        product: S,
        group: &mut usize,
    ) -> Result<(), NoMemory> {
        if position >= self.groups[*group].end {
            *group = find_group(&self.groups, *group, position);
        }
        let count = self.groups[*group].count;
        self.n_tokens -= count;
        let mut left = self.symbols[position - 1];
        let right = self.symbols[position + span];
        if left == product {
            left = Self::boundary(); // noted by that one, as its right neighbour
        }
        if left != Self::boundary() {
            let neighbour = &mut self.before[left.get()];
            if neighbour.cursor == 0 {
                self.seen_before.try_push(left)?;
            }
            neighbour.count += count;
            neighbour.cursor += 1;
        }
        if right != Self::boundary() {
            let neighbour = &mut self.after[right.get()];
            if neighbour.cursor == 0 {
                self.seen_after.try_push(right)?;
            }
            neighbour.count += count;
            neighbour.cursor += 1;
        }
        self.hits.try_push(Hit {
            position: P::of(position),
            left,
            right,
        })
    }

    fn add_pairs_before(&mut self, merged_left: S, product: S) -> Result<bool, NoMemory> {
        let mut any = false;
        for i in 0..self.seen_before.len() {
            let symbol = self.seen_before[i];
            let neighbour = self.before[symbol.get()];
            self.lower(symbol, merged_left, neighbour.count);
            let start = self.add_pair(symbol, product, neighbour)?;
            any |= start != NOWHERE;
            self.before[symbol.get()].cursor = start;
        }
        Ok(any)
    }

    fn add_pairs_after(&mut self, merged: &Pair<S>, product: S) -> Result<bool, NoMemory> {
        let mut any = false;
        for i in 0..self.seen_after.len() {
            let symbol = self.seen_after[i];
            let neighbour = self.after[symbol.get()];
            // The product was followed by another one, whose first symbol this was.
            let stood = if symbol == product {
                merged.left
            } else {
                symbol
            };
            self.lower(merged.right, stood, neighbour.count);
            let start = self.add_pair(product, symbol, neighbour)?;
            any |= start != NOWHERE;
            self.after[symbol.get()].cursor = start;
        }
        Ok(any)
    }

    fn lower(&mut self, left: S, right: S, by: u64) {
        if let Some(number) = self.table.get(left, right) {
            let count = &mut self.pairs[number as usize].count;
            // The merged pair itself is at 0 and may be met: `aa` in `aaa`.
            *count = count.saturating_sub(by);
        }
    }

    /// Whether the product of these two is not too long.
    pub(super) fn may_be_merged(&self, left: S, right: S) -> bool {
        (self.order).fits(left.get(), right.get(), self.max_token_length)
    }

    /// Adds a pair if it reaches the threshold and may be merged; where its positions begin, or
    /// NOWHERE.
    fn add_pair(&mut self, left: S, right: S, neighbour: Neighbour) -> Result<u64, NoMemory> {
        if neighbour.count < self.threshold || !self.may_be_merged(left, right) {
            return Ok(NOWHERE);
        }
        let len = neighbour.cursor;
        let start = self.take_room(len as usize)? as u64;
        let number = self.pairs.len() as u32;
        let pair = Pair {
            count: neighbour.count,
            start,
            len,
            left,
            right,
        };
        self.table.get_or_insert(left, right, number)?;
        self.queue.add(number, &pair, &self.order)?;
        self.pairs.try_push(pair)?;
        Ok(start)
    }

    /// Where a new list of `len` positions begins.
    fn take_room(&mut self, len: usize) -> Result<usize, NoMemory> {
        if len <= self.free.len() {
            self.free.start += len;
            return Ok(self.free.start - len);
        }
        let start = self.positions.len();
        self.positions.try_reserve(len)?;
        self.positions.resize(start + len, P::of(0));
        Ok(start)
    }

    fn write_positions(&mut self) {
        for hit in &self.hits {
            if hit.left != Self::boundary() {
                let cursor = &mut self.before[hit.left.get()].cursor;
                if *cursor != NOWHERE {
                    let position = hit.position.get() - self.spans[hit.left.get()].get();
                    self.positions[*cursor as usize] = P::of(position);
                    *cursor += 1;
                }
            }
            if hit.right != Self::boundary() {
                let cursor = &mut self.after[hit.right.get()].cursor;
                if *cursor != NOWHERE {
                    self.positions[*cursor as usize] = hit.position;
                    *cursor += 1;
                }
            }
        }
    }
}

/// The group of `position`, which is after group `from`.
fn find_group(groups: &[Group], from: usize, position: usize) -> usize {
    let mut step = 1;
    let mut low = from + 1;
    while low + step < groups.len() && groups[low + step].end <= position {
        low += step;
        step *= 2;
    }
    let high = (low + step + 1).min(groups.len());
    low + groups[low..high].partition_point(|group| group.end <= position)
}
