//! A table that many threads read and fill at the same time, without a lock and without waiting.
//!
//! A slot is written once and never changes again, so no reader can see half an entry: the last
//! word of a key is written after everything else, and a thread that has read it sees the rest. A
//! wide entry is written the same way to both slots of a line. A full table is replaced as a whole,
//! see `cache`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::mem::growth::{NoMemory, collected};
use crate::mem::prefetch::prefetch;
use crate::mem::zeroed::{Zeroable, ZeroedTable};

/// A cache line of one slot or two: first the keys, then the values.
#[repr(C, align(64))]
pub struct Line {
    pub keys: [AtomicU64; LINE_WORDS / 2],
    pub values: [AtomicU64; LINE_WORDS / 2],
}

const LINE_WORDS: usize = 8;

/// One of the two slots of a line.
#[derive(Clone, Copy)]
pub struct Slot(usize);

impl Slot {
    /// This bit says that it is the second slot; other bits may be set too.
    pub const SECOND: usize = size_of::<[u64; 2]>();

    #[inline(always)]
    pub fn from_bits(bits: usize) -> Slot {
        Slot(bits)
    }

    /// The offset of its value from the first value, in bytes.
    #[inline(always)]
    pub fn offset(self) -> usize {
        self.0 & Slot::SECOND
    }
}

/// An entry is in one of this many lines: its own, or a neighbour if all lines before that are
/// full. They share one small block of memory.
pub const PROBED_LINES: usize = 4;

// SAFETY: zeros are a value of atomic integers.
unsafe impl Zeroable for Line {}

/// Keys and values have `WORDS` words each, 2 or 4. The last word of a key is neither 0, which says
/// that a slot is free, nor `CLAIMED`; of two words it has the bit `NARROW`.
pub struct WriteOnceTable<const WORDS: usize> {
    lines: ZeroedTable<Line>,
    /// A bit for each line: whether an entry of it is in another table.
    overflowed: Box<[AtomicU64]>,
    n_entries: AtomicUsize,
    n_refused: AtomicUsize,
}

/// The last word of a key while a slot is being written, and of the second slot of a wide entry.
const CLAIMED: u64 = u64::MAX;

/// Set in the last word of every key of two words, but for those of wide entries, so that nothing else
/// finds these.
pub const NARROW: u64 = 1 << 63;

impl<const WORDS: usize> WriteOnceTable<WORDS> {
    pub const SLOTS_PER_LINE: usize = LINE_WORDS / (2 * WORDS);

    /// With `1 << line_bits` lines, at least `PROBED_LINES`.
    pub fn new(line_bits: u32) -> Result<WriteOnceTable<WORDS>, NoMemory> {
        assert!(1 << line_bits >= PROBED_LINES);
        let n_words = (1usize << line_bits).div_ceil(64);
        let overflowed = collected((0..n_words).map(|_| AtomicU64::new(0)))?;
        Ok(WriteOnceTable {
            lines: ZeroedTable::try_new(1 << line_bits).map_err(|_| NoMemory)?,
            overflowed: overflowed.into(),
            n_entries: AtomicUsize::new(0),
            n_refused: AtomicUsize::new(0),
        })
    }

    pub fn line_bits(&self) -> u32 {
        self.lines.len().trailing_zeros()
    }

    /// How many entries it has.
    pub fn n_entries(&self) -> usize {
        self.n_entries.load(Ordering::Relaxed)
    }

    /// Adds to the number of entries. `put` leaves this to its caller, who adds many at once:
    /// threads would wait for each other to count.
    pub fn add_to_entries(&self, n: usize) {
        self.n_entries.fetch_add(n, Ordering::Relaxed);
    }

    /// Whether a key of this line may be in another table, see `mark_elsewhere`.
    #[inline]
    pub fn may_be_elsewhere(&self, line: usize) -> bool {
        self.overflowed[line / 64].load(Ordering::Relaxed) >> (line % 64) & 1 != 0
    }

    pub fn mark_elsewhere(&self, line: usize) {
        self.overflowed[line / 64].fetch_or(1 << (line % 64), Ordering::Relaxed);
    }

    /// Whether so many entries were refused that the table needs a successor.
    pub fn is_full(&self) -> bool {
        self.n_refused.load(Ordering::Relaxed) > self.lines.len() / 32
    }

    /// Prefetches a line.
    #[inline(always)]
    pub fn prefetch(&self, line: usize) {
        prefetch(&self.lines[line]);
    }

    #[inline(always)]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The value of a key whose line this is.
    #[inline]
    pub fn get(&self, line: usize, key: &[u64; WORDS]) -> Option<[u64; WORDS]> {
        let found = self.lines[line].get(key);
        found.or_else(|| self.get_beyond(line, key))
    }

    /// The value of a key that is in a neighbouring line.
    #[inline]
    fn get_beyond(&self, line: usize, key: &[u64; WORDS]) -> Option<[u64; WORDS]> {
        for position in 1..PROBED_LINES {
            // An entry is put in another line only if this one has no free slot.
            if self.lines[line ^ (position - 1)].has_room::<WORDS>() {
                break;
            }
            let found = self.lines[line ^ position].get(key);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Enters a new key and its value. Returns whether one of its lines had a free slot.
    pub fn put(&self, line: usize, key: &[u64; WORDS], value: &[u64; WORDS]) -> bool {
        debug_assert!(!matches!(key[WORDS - 1], 0 | CLAIMED));
        debug_assert!(WORDS != 2 || key[WORDS - 1] & NARROW != 0);
        for position in 0..PROBED_LINES {
            if self.lines[line ^ position].put(key, value) {
                return true;
            }
        }
        self.n_refused.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// As `put`, and counted, while no other thread knows the table. It has no atomic operation, so
    /// that many such calls wait for memory together.
    pub fn put_alone(&mut self, line: usize, key: &[u64; WORDS], value: &[u64; WORDS]) {
        debug_assert!(WORDS != 2 || key[WORDS - 1] & NARROW != 0);
        for position in 0..PROBED_LINES {
            let Line { keys, values } = &mut self.lines[line ^ position];
            let slots = keys
                .chunks_exact_mut(WORDS)
                .zip(values.chunks_exact_mut(WORDS));
            for (keys, values) in slots {
                if *keys[WORDS - 1].get_mut() == 0 {
                    for (word, part) in keys.iter_mut().zip(key) {
                        *word.get_mut() = *part;
                    }
                    for (word, part) in values.iter_mut().zip(value) {
                        *word.get_mut() = *part;
                    }
                    *self.n_entries.get_mut() += 1;
                    return;
                }
            }
        }
        *self.n_refused.get_mut() += 1;
    }

    /// A table of `1 << line_bits` lines with the complete entries of this one; `line_of` gives the
    /// line of a key in the new table.
    pub fn copied(
        &self,
        line_bits: u32,
        line_of: impl Fn(&[u64; WORDS]) -> usize,
    ) -> Result<WriteOnceTable<WORDS>, NoMemory> {
        let mut copy = WriteOnceTable::new(line_bits)?;
        for line in self.lines.iter() {
            for slot in 0..Self::SLOTS_PER_LINE {
                let keys = &line.keys[slot * WORDS..];
                if !matches!(keys[WORDS - 1].load(Ordering::Acquire), 0 | CLAIMED) {
                    let mut key = std::array::from_fn(|word| keys[word].load(Ordering::Relaxed));
                    if WORDS == 2 && key[WORDS - 1] & NARROW == 0 {
                        key[WORDS - 1] |= NARROW;
                        let is_put =
                            copy.lines[line_of(&key)].put_wide(&[key[0], key[1]], &line.value(0));
                        *copy.n_entries.get_mut() += usize::from(is_put);
                    } else {
                        copy.put_alone(line_of(&key), &key, &line.value(slot));
                    }
                }
            }
        }
        Ok(copy)
    }
}

impl WriteOnceTable<2> {
    /// Enters a key with a value that takes both slots of its line. Returns whether both were free.
    /// `Line::get_wide` finds it.
    pub fn put_wide(&self, line: usize, key: &[u64; 2], value: &[u64; 4]) -> bool {
        self.lines[line].put_wide(key, value)
    }
}

impl Line {
    /// The value of `key`.
    #[inline(always)]
    pub fn get<const WORDS: usize>(&self, key: &[u64; WORDS]) -> Option<[u64; WORDS]> {
        self.slot_of(key).map(|slot| self.value(slot))
    }

    /// The slot of `key`, in a line of two.
    #[inline(always)]
    pub fn find(&self, key: &[u64; 2]) -> Option<Slot> {
        let slot = self.slot_of(key);
        slot.map(|slot| Slot::from_bits(slot * Slot::SECOND))
    }

    /// The value in a slot that was found.
    #[inline(always)]
    pub fn words_in(&self, slot: Slot) -> &[AtomicU64; 2] {
        let words = self.values[slot.offset() / size_of::<u64>()..].first_chunk();
        words.expect("two words in each slot")
    }

    #[inline(always)]
    fn slot_of<const WORDS: usize>(&self, key: &[u64; WORDS]) -> Option<usize> {
        let mut found = None;
        // No branch asks which slot it is: that cannot be predicted.
        for (slot, words) in self.keys.chunks_exact(WORDS).enumerate() {
            // The last word first: the others, and the value, were written before it.
            let mut difference = words[WORDS - 1].load(Ordering::Acquire) ^ key[WORDS - 1];
            for (word, part) in words[..WORDS - 1].iter().zip(key) {
                difference |= word.load(Ordering::Relaxed) ^ part;
            }
            if difference == 0 {
                found = Some(slot);
            }
        }
        found
    }

    /// Only of a slot whose key was read, which makes everything written before it visible.
    #[inline(always)]
    fn value<const WORDS: usize>(&self, slot: usize) -> [u64; WORDS] {
        let words = &self.values[slot * WORDS..];
        std::array::from_fn(|word| words[word].load(Ordering::Relaxed))
    }

    /// Whether a slot is free. If so, no entry of this line is in another one.
    #[inline(always)]
    pub fn has_room<const WORDS: usize>(&self) -> bool {
        let last = |words: &[AtomicU64]| words[WORDS - 1].load(Ordering::Relaxed);
        self.keys.chunks_exact(WORDS).any(|words| last(words) == 0)
    }

    /// The value of `key` if it takes the whole line.
    #[inline(always)]
    pub fn get_wide(&self, key: &[u64; 2]) -> Option<[u64; 4]> {
        let [first, last, ..] = &self.keys;
        let is_its = last.load(Ordering::Acquire) == key[1] & !NARROW
            && first.load(Ordering::Relaxed) == key[0];
        is_its.then(|| self.value(0))
    }

    fn put_wide(&self, key: &[u64; 2], value: &[u64; 4]) -> bool {
        debug_assert!(key[1] & NARROW != 0);
        let [first, last, _, last_of_second] = &self.keys;
        let is_free = |last: &AtomicU64| last.load(Ordering::Relaxed) == 0;
        let claim = |last: &AtomicU64| {
            let claimed = last.compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed);
            claimed.is_ok()
        };
        if !is_free(last) || !is_free(last_of_second) || !claim(last) {
            return false;
        }
        if !claim(last_of_second) {
            // Another thread took it since. The first slot stays claimed: a slot is never freed.
            return false;
        }
        for (word, part) in self.values.iter().zip(value) {
            word.store(*part, Ordering::Relaxed);
        }
        first.store(key[0], Ordering::Relaxed);
        last.store(key[1] & !NARROW, Ordering::Release);
        true
    }

    /// Writes to a free slot, if there is one.
    fn put<const WORDS: usize>(&self, key: &[u64; WORDS], value: &[u64; WORDS]) -> bool {
        let slots = self
            .keys
            .chunks_exact(WORDS)
            .zip(self.values.chunks_exact(WORDS));
        for (keys, values) in slots {
            let last = &keys[WORDS - 1];
            let claim = || last.compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed);
            if last.load(Ordering::Relaxed) == 0 && claim().is_ok() {
                for (word, part) in values.iter().zip(value) {
                    word.store(*part, Ordering::Relaxed);
                }
                for (word, part) in keys[..WORDS - 1].iter().zip(key) {
                    word.store(*part, Ordering::Relaxed);
                }
                last.store(key[WORDS - 1], Ordering::Release);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
