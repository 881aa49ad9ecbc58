//! A table of words and how often each was seen.
//!
//! A word of up to 15 bytes is its own key: its bytes, and its length in the last byte. A longer
//! one has its hash and its position in a common text as key. So most lookups touch one slot.

use std::fs::File;
use std::io;
use std::path::Path;

use super::counted_words::{CountedWords, LONGEST_NUMBER, push_number, read_number};
use super::sorted_runs::write_run;
use crate::mem::growth::{NoMemory, filled};
use crate::mem::hash::HashKeys;
use crate::mem::prefetch::prefetch;
use crate::split::{Scanner, finders};
use crate::stop::Stopped;

const LONGEST_SHORT: usize = 15;
/// In the second half of a key; the length of a short word stays far below.
const IS_LONG: u64 = 1 << 63;
/// Keys made ahead of their lookups, so that slots are fetched from memory meanwhile.
const PENDING: usize = 32;
const FIRST_SLOTS: usize = 1 << 12;

/// `count` 0 is an empty slot.
#[derive(Clone, Copy)]
struct Slot {
    key: [u64; 2],
    count: u64,
}

const EMPTY: Slot = Slot {
    key: [0; 2],
    count: 0,
};

impl Slot {
    #[inline(always)]
    fn is_long(&self) -> bool {
        self.key[1] & IS_LONG != 0
    }

    /// Its word, which is in `text` or, where it is short, is written to `short`.
    fn word<'a>(&self, text: &'a [u8], short: &'a mut [u8; 16]) -> &'a [u8] {
        if self.is_long() {
            return self.long_word(text);
        }
        *short = (u128::from(self.key[1]) << 64 | u128::from(self.key[0])).to_le_bytes();
        &short[..usize::from(short[15])]
    }

    fn long_word<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let mut rest = &text[(self.key[1] & !IS_LONG) as usize..];
        let len = read_number(&mut rest);
        &rest[..len as usize]
    }
}

/// Open addressing, at most three quarters full, nothing ever removed.
pub(super) struct WordTable {
    hash_keys: HashKeys,
    slots: Vec<Slot>,
    n_words: usize,
    /// Each longer word once: its length, then its bytes.
    text: Vec<u8>,
}

impl WordTable {
    /// An empty table with its own hash keys: the order of slots in one table is random in another.
    /// (With the same keys, adding a table to one half as large fills the beginning of that first,
    /// and probing there becomes quadratic.)
    pub(super) fn new() -> Result<WordTable, NoMemory> {
        Ok(WordTable {
            hash_keys: HashKeys::random(),
            slots: filled(EMPTY, FIRST_SLOTS)?,
            n_words: 0,
            text: Vec::new(),
        })
    }

    /// Distinct words.
    pub(super) fn len(&self) -> usize {
        self.n_words
    }

    /// Its size in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.text.capacity()
    }

    /// All words and counts as a sorted run; the table is empty after.
    pub(super) fn spill(&mut self, folder: &Path) -> io::Result<File> {
        let empty = filled(EMPTY, FIRST_SLOTS)?;
        let mut taken: Vec<Slot> = std::mem::replace(&mut self.slots, empty);
        taken.retain(|slot| slot.count > 0);
        let text = std::mem::take(&mut self.text);
        self.n_words = 0;
        taken.sort_unstable_by(|a, b| {
            let (mut of_a, mut of_b) = ([0; 16], [0; 16]);
            a.word(&text, &mut of_a).cmp(b.word(&text, &mut of_b))
        });
        write_run(folder, |run| {
            let mut short = [0; 16];
            taken
                .iter()
                .try_for_each(|slot| run.push(slot.word(&text, &mut short), slot.count))
        })
    }

    /// Counts every pre-token of `text`.
    pub(super) fn count_text(&mut self, scanner: Scanner, text: &str) -> Result<(), Stopped> {
        let bytes = text.as_bytes();
        let mut short = [([0; 2], 0); PENDING];
        let mut long: [(&[u8], u64); PENDING] = [(&[], 0); PENDING];
        let (mut n_short, mut n_long, mut counted) = (0, 0, Ok(()));
        let split = finders::for_each(scanner, text, |word| {
            if counted.is_err() {
                return;
            }
            if word.len() <= LONGEST_SHORT {
                let start = word.as_ptr().addr() - bytes.as_ptr().addr();
                let key = short_key(bytes, start, word.len());
                let hash = hash_short(self.hash_keys, key);
                self.prefetch(hash);
                short[n_short] = (key, hash);
                n_short += 1;
                if n_short == PENDING {
                    counted = self.add_short_words(&short);
                    n_short = 0;
                }
            } else {
                let hash = self.hash_keys.of_bytes(word);
                self.prefetch(hash);
                long[n_long] = (word, hash);
                n_long += 1;
                if n_long == PENDING {
                    counted = self.add_long_words(&long);
                    n_long = 0;
                }
            }
        });
        split?;
        counted?;
        self.add_short_words(&short[..n_short])?;
        Ok(self.add_long_words(&long[..n_long])?)
    }

    /// Counts one word `count` times.
    #[cfg(test)]
    pub(super) fn add(&mut self, word: &[u8], count: u64) {
        if word.len() <= LONGEST_SHORT {
            let key = short_key(word, 0, word.len());
            self.reserve(1).unwrap();
            self.add_short_word(key, hash_short(self.hash_keys, key), count);
        } else {
            self.reserve(1).unwrap();
            let added = self.add_long_word(word, self.hash_keys.of_bytes(word), count);
            added.unwrap();
        }
    }

    /// Adds the counts of another table.
    pub(super) fn add_all(&mut self, other: &WordTable) -> Result<(), NoMemory> {
        let mut taken = other.taken();
        let mut pending = [(EMPTY, 0); PENDING];
        loop {
            let mut n_pending = 0;
            for (place, slot) in pending.iter_mut().zip(&mut taken) {
                let hash = match slot.is_long() {
                    false => hash_short(self.hash_keys, slot.key),
                    true => self.hash_keys.of_bytes(other.long_word(slot)),
                };
                self.prefetch(hash);
                *place = (*slot, hash);
                n_pending += 1;
            }
            if n_pending == 0 {
                return Ok(());
            }
            self.reserve(n_pending)?;
            for (slot, hash) in &pending[..n_pending] {
                if slot.is_long() {
                    self.add_long_word(other.long_word(slot), *hash, slot.count)?;
                } else {
                    self.add_short_word(slot.key, *hash, slot.count);
                }
            }
        }
    }

    /// The slots that have a word; the texts of those that come next are prefetched.
    fn taken(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| {
            if let Some(soon) = self.slots.get(at + PENDING) {
                self.prefetch_text(soon);
            }
            (slot.count > 0).then_some(slot)
        })
    }

    /// The words and counts, without what only the counting needed.
    pub(super) fn into_words(self) -> Result<CountedWords, NoMemory> {
        let taken = self.slots.iter().filter(|slot| slot.count > 0);
        let size = taken.map(|slot| {
            let short = (slot.key[1] >> 56) as usize;
            // A length and a count of one byte each are usual.
            if slot.is_long() { 1 } else { short + 2 }
        });
        let size = size.sum::<usize>() + self.text.len();
        let mut words = CountedWords::with_room(size + size / 64)?;
        for slot in self.taken() {
            words.push(slot.word(&self.text, &mut [0; 16]), slot.count)?;
        }
        Ok(words)
    }

    fn add_short_words(&mut self, pending: &[([u64; 2], u64)]) -> Result<(), NoMemory> {
        self.reserve(pending.len())?;
        for &(key, hash) in pending {
            self.add_short_word(key, hash, 1);
        }
        Ok(())
    }

    /// There is room for it.
    #[inline(always)]
    fn add_short_word(&mut self, key: [u64; 2], hash: u64, count: u64) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.key == key {
                slot.count += count;
                return;
            }
            if slot.count == 0 {
                *slot = Slot { key, count };
                self.n_words += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn add_long_words(&mut self, pending: &[(&[u8], u64)]) -> Result<(), NoMemory> {
        self.reserve(pending.len())?;
        for &(_, hash) in pending {
            let slot = &self.slots[hash as usize & (self.slots.len() - 1)];
            if slot.key[0] == hash {
                self.prefetch_text(slot);
            }
        }
        for &(word, hash) in pending {
            self.add_long_word(word, hash, 1)?;
        }
        Ok(())
    }

    /// There is room for its slot.
    fn add_long_word(&mut self, word: &[u8], hash: u64, count: u64) -> Result<(), NoMemory> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.count == 0 {
                break;
            }
            if slot.key[0] == hash && slot.is_long() && self.long_word(&slot) == word {
                self.slots[at].count += count;
                return Ok(());
            }
            at = (at + 1) & mask;
        }
        self.text.try_reserve(word.len() + LONGEST_NUMBER)?;
        let key = [hash, IS_LONG | self.text.len() as u64];
        self.slots[at] = Slot { key, count };
        self.n_words += 1;
        push_number(&mut self.text, word.len() as u64);
        self.text.extend_from_slice(word);
        Ok(())
    }

    fn long_word(&self, slot: &Slot) -> &[u8] {
        slot.long_word(&self.text)
    }

    #[inline(always)]
    fn reserve(&mut self, n_more: usize) -> Result<(), NoMemory> {
        if (self.n_words + n_more) * 4 > self.slots.len() * 3 {
            self.grow()?;
        }
        Ok(())
    }

    #[cold]
    fn grow(&mut self) -> Result<(), NoMemory> {
        let size = self.slots.len() * 2;
        let slots = std::mem::replace(&mut self.slots, filled(EMPTY, size)?);
        for slot in slots.into_iter().filter(|slot| slot.count > 0) {
            let hash = match slot.is_long() {
                true => slot.key[0],
                false => hash_short(self.hash_keys, slot.key),
            };
            let mut at = hash as usize & (size - 1);
            while self.slots[at].count > 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = slot;
        }
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let at = hash as usize & (self.slots.len() - 1);
        prefetch(self.slots.as_ptr().wrapping_add(at));
    }

    #[inline(always)]
    fn prefetch_text(&self, slot: &Slot) {
        if slot.is_long() {
            let at = (slot.key[1] & !IS_LONG) as usize;
            prefetch(self.text.as_ptr().wrapping_add(at));
        }
    }
}

#[inline(always)]
fn hash_short(keys: HashKeys, key: [u64; 2]) -> u64 {
    keys.of_u128(u128::from(key[1]) << 64 | u128::from(key[0]))
}

/// The key of the word of `len` bytes, at most 15, at `start` of `text`.
#[inline(always)]
fn short_key(text: &[u8], start: usize, len: usize) -> [u64; 2] {
    let bytes = match text.get(start..start + 16) {
        Some(bytes) => <[u8; 16]>::try_from(bytes).expect("16 bytes"),
        None => {
            let mut bytes = [0; 16];
            bytes[..len].copy_from_slice(&text[start..start + len]);
            bytes
        }
    };
    let word = u128::from_le_bytes(bytes) & ((1 << (8 * len)) - 1);
    [word as u64, (word >> 64) as u64 | (len as u64) << 56]
}
