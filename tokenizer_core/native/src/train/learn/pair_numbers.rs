//! From a pair of symbols to the number of the pair.

use super::symbols::Unsigned;
use crate::mem::growth::{NoMemory, filled};
use crate::mem::prefetch::prefetch;

/// (left, right) -> number of the pair. Open addressing, at most half full; nothing is ever removed.
pub(super) struct PairNumbers<S> {
    slots: Vec<Slot<S>>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Slot<S> {
    pair: (S, S),
    number: u32,
}

/// The number of an empty slot.
const NO_PAIR: u32 = u32::MAX;

#[inline(always)]
pub(super) fn hash_pair<S: Unsigned>(left: S, right: S) -> u64 {
    let key = ((left.get() as u64) << 32) | right.get() as u64;
    let mixed = (key ^ (key >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 32)
}

impl<S: Unsigned> PairNumbers<S> {
    pub(super) fn new() -> Result<Self, NoMemory> {
        Ok(PairNumbers {
            slots: empty_slots(1 << 10)?,
            len: 0,
        })
    }

    /// The slot of the pair, or the empty one where it would be.
    #[inline(always)]
    fn slot_of(&self, left: S, right: S) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash_pair(left, right) as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.pair == (left, right) || slot.number == NO_PAIR {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, left: S, right: S) {
        let at = hash_pair(left, right) as usize & (self.slots.len() - 1);
        prefetch(self.slots.as_ptr().wrapping_add(at));
    }

    #[inline(always)]
    pub(super) fn get(&self, left: S, right: S) -> Option<u32> {
        let number = self.slots[self.slot_of(left, right)].number;
        (number != NO_PAIR).then_some(number)
    }

    /// The number of the pair, which is `number` if there was none.
    #[inline(always)]
    pub(super) fn get_or_insert(
        &mut self,
        left: S,
        right: S,
        number: u32,
    ) -> Result<u32, NoMemory> {
        let at = self.slot_of(left, right);
        let slot = &mut self.slots[at];
        if slot.number != NO_PAIR {
            return Ok(slot.number);
        }
        let pair = (left, right);
        *slot = Slot { pair, number };
        self.len += 1;
        if self.len * 2 > self.slots.len() {
            self.grow()?;
        }
        Ok(number)
    }

    #[cold]
    fn grow(&mut self) -> Result<(), NoMemory> {
        let slots = empty_slots(self.slots.len() * 2)?;
        for slot in std::mem::replace(&mut self.slots, slots) {
            if slot.number != NO_PAIR {
                let at = self.slot_of(slot.pair.0, slot.pair.1);
                self.slots[at] = slot;
            }
        }
        Ok(())
    }
}

fn empty_slots<S: Unsigned>(n: usize) -> Result<Vec<Slot<S>>, NoMemory> {
    let empty = Slot {
        pair: (S::of(0), S::of(0)),
        number: NO_PAIR,
    };
    filled(empty, n)
}
