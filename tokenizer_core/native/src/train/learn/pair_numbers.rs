//! From a pair of symbols to the number of the pair.

use super::symbols::Unsigned;
use crate::mem::growth::{NoMemory, filled};

/// (left, right) -> number of the pair. Open addressing; nothing is ever removed before `clear`.
pub(super) struct PairNumbers {
    keys: Vec<u64>,
    values: Vec<u32>,
    len: usize,
}

const NO_KEY: u64 = u64::MAX;

#[inline(always)]
pub(super) fn hash_pair(key: u64) -> u64 {
    let mixed = (key ^ (key >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 32)
}

#[inline(always)]
pub(super) fn key_of<S: Unsigned>(left: S, right: S) -> u64 {
    ((left.get() as u64) << 32) | right.get() as u64
}

impl PairNumbers {
    pub(super) fn new() -> Result<Self, NoMemory> {
        Ok(PairNumbers {
            keys: filled(NO_KEY, 1 << 10)?,
            values: filled(0, 1 << 10)?,
            len: 0,
        })
    }

    #[inline(always)]
    fn slot_of(&self, key: u64) -> usize {
        let mask = self.keys.len() - 1;
        let mut slot = hash_pair(key) as usize & mask;
        while self.keys[slot] != key && self.keys[slot] != NO_KEY {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> Option<u32> {
        let slot = self.slot_of(key);
        (self.keys[slot] == key).then(|| self.values[slot])
    }

    /// The value of `key`, which is `value` if there was none.
    pub(super) fn get_or_insert(&mut self, key: u64, value: u32) -> Result<u32, NoMemory> {
        let slot = self.slot_of(key);
        if self.keys[slot] == key {
            return Ok(self.values[slot]);
        }
        self.keys[slot] = key;
        self.values[slot] = value;
        self.len += 1;
        if self.len * 2 > self.keys.len() {
            self.grow()?;
        }
        Ok(value)
    }

    fn grow(&mut self) -> Result<(), NoMemory> {
        let size = self.keys.len() * 2;
        let (keys, values) = (filled(NO_KEY, size)?, filled(0, size)?);
        let keys = std::mem::replace(&mut self.keys, keys);
        let values = std::mem::replace(&mut self.values, values);
        for (key, value) in keys.into_iter().zip(values) {
            if key != NO_KEY {
                let slot = self.slot_of(key);
                self.keys[slot] = key;
                self.values[slot] = value;
            }
        }
        Ok(())
    }
}
