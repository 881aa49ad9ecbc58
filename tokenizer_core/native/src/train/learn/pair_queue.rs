//! The order of merging: highest count first, then the tie rule.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::symbols::Unsigned;
use super::ties::{TieOrder, Tied};
use crate::mem::growth::{Grow, NoMemory};

/// A pair that reached the threshold when it arose. `count` is 0 once it is merged.
#[derive(Clone, Copy)]
pub(super) struct Pair<S> {
    pub(super) count: u64,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) left: S,
    pub(super) right: S,
}

/// Returns pairs by falling count, ties by the tie rule; counts may fall without notice.
///
/// A pair is queued under the count that it had when it was added. If the count has fallen when its
/// turn comes, it is queued again under the new one. Ties are compared only among pairs of the
/// highest count.
#[derive(Default)]
pub(super) struct PairQueue {
    waiting: BinaryHeap<(u64, u32)>,
    open_count: u64,
    open: Vec<Tied>,
}

impl PairQueue {
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.open.clear();
        self.open_count = 0;
    }

    pub(super) fn add<S: Unsigned>(
        &mut self,
        index: u32,
        pair: &Pair<S>,
        order: &TieOrder,
    ) -> Result<(), NoMemory> {
        if pair.count == self.open_count {
            self.open.try_push(tied(index, pair, order))?;
            sift_up(&mut self.open, order);
            Ok(())
        } else {
            self.wait(pair.count, index)
        }
    }

    fn wait(&mut self, count: u64, index: u32) -> Result<(), NoMemory> {
        self.waiting.try_reserve(1)?;
        self.waiting.push((count, index));
        Ok(())
    }

    /// The pair to merge next, or None without one of count `threshold` or more.
    pub(super) fn pop<S: Unsigned>(
        &mut self,
        pairs: &[Pair<S>],
        order: &TieOrder,
        threshold: u64,
    ) -> Result<Option<u32>, NoMemory> {
        loop {
            while let Some(index) = pop_greatest(&mut self.open, order) {
                let count = pairs[index as usize].count;
                if count == self.open_count {
                    return Ok(Some(index));
                }
                if count >= threshold {
                    self.wait(count, index)?;
                }
            }
            let Some(&(highest, _)) = self.waiting.peek() else {
                return Ok(None);
            };
            self.open_count = highest;
            while let Some(mut top) = self.waiting.peek_mut() {
                if top.0 != highest {
                    break;
                }
                let index = top.1;
                let pair = &pairs[index as usize];
                if pair.count < highest && pair.count >= threshold {
                    top.0 = pair.count;
                    continue;
                }
                PeekMut::pop(top);
                if pair.count == highest {
                    self.open.try_push(tied(index, pair, order))?;
                }
            }
            for position in (0..self.open.len() / 2).rev() {
                sift_down(&mut self.open, position, order);
            }
        }
    }
}

fn tied<S: Unsigned>(index: u32, pair: &Pair<S>, order: &TieOrder) -> Tied {
    let (left, right) = (pair.left.get(), pair.right.get());
    Tied {
        left_key: order.keys[left],
        right_key: order.keys[right],
        left: left as u32,
        right: right as u32,
        pair: index,
    }
}

// A binary heap by hand: that of the standard library cannot compare by means of a table.

fn sift_up(heap: &mut [Tied], order: &TieOrder) {
    let mut position = heap.len() - 1;
    while position > 0 {
        let parent = (position - 1) / 2;
        if order.compare(&heap[position], &heap[parent]) != Ordering::Greater {
            return;
        }
        heap.swap(position, parent);
        position = parent;
    }
}

fn sift_down(heap: &mut [Tied], mut position: usize, order: &TieOrder) {
    loop {
        let mut child = 2 * position + 1;
        if child >= heap.len() {
            return;
        }
        if child + 1 < heap.len() && order.compare(&heap[child + 1], &heap[child]).is_gt() {
            child += 1;
        }
        if order.compare(&heap[child], &heap[position]) != Ordering::Greater {
            return;
        }
        heap.swap(position, child);
        position = child;
    }
}

fn pop_greatest(heap: &mut Vec<Tied>, order: &TieOrder) -> Option<u32> {
    if heap.is_empty() {
        return None;
    }
    let greatest = heap.swap_remove(0);
    if !heap.is_empty() {
        sift_down(heap, 0, order);
    }
    Some(greatest.pair)
}
