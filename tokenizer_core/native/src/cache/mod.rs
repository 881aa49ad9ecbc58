//! What pieces were encoded to: one cache for all threads of an encoder, exact and bounded.
//!
//! ```text
//! short table: pieces of up to 15 bytes, a line of 64 bytes has two slots
//!
//!   byte 0        16        32          48          64
//!        | key 0  | key 1  | value 0   | value 1   |      up to 6 ids in each value,
//!        +--------+--------+-----------+-----------+      or up to 15 that end in equal ids
//!
//! wide entry: one short piece with more ids has the line to itself
//!        | key    | claimed|        value          |      up to 12 ids, or more that end alike
//!
//! middle table: pieces of up to 31 bytes, a line has one slot
//!        |       key       |        value          |
//!
//! key    the bytes, then zeros; the last byte is minus the length (short) or the length (middle)
//! value  words of 64 bits with three ids of 20 bits each; the last 4 bits of the last word are the count
//!
//! a look-up reads the line that the hash names, then at most 3 neighbours in the same 256 bytes
//! ```
//!
//! Longer pieces are in `long`, which one call at a time owns; `call_cache` decides the tier of a piece.
//!
//! Entries are never overwritten. A table without room is followed by one of twice the size with
//! the same entries, and at its greatest size by an empty one, so memory is bounded for any
//! text. Texts made to collide cost misses and nothing else.

pub mod call_cache;
pub mod key;
pub mod long;
pub mod packed_ids;
pub mod probe;
#[cfg(target_arch = "x86_64")]
mod probe_avx2;
pub mod table;

use std::ops::Range;
use std::sync::Arc;

use crate::cache::key::{MAX_MIDDLE_BYTES, MAX_SHORT_BYTES, MiddleKey, middle_key, word, words};
use crate::cache::packed_ids::{MiddleValue, Value};
use crate::cache::probe::Probe;
use crate::cache::table::{Line, NARROW, PROBED_LINES, Slot, WriteOnceTable};
use crate::mem::growth::NoMemory;
use crate::mem::hash::HashKeys;
use crate::simd::{Kernel, Portable, Work};

// The last byte of a key is minus the length.
const _: () = assert!(((MAX_SHORT_BYTES as u8).wrapping_neg() as u64) << 56 & NARROW != 0);

/// Lines of a table at first and at most, as powers of two; a line has 64 bytes. The first second table
/// is one large page: in small ones, each first write after a read interrupts all other threads, a
/// tenth of the time of two threads with text never seen.
const SHORT_BITS: (u32, u32) = (14, 19);
const MIDDLE_BITS: (u32, u32) = (15, 18);

/// Of the first and the second table of a small cache. It holds some thousand pieces: entering the seeds
/// takes as long as merging these.
const SMALL_BITS: (u32, u32) = (12, 10);

/// A new cache has at most this many tokens: a quarter of the greatest table, so that the words of the
/// texts have room beside them.
pub const MAX_SEEDS: usize = ShortTable::SLOTS_PER_LINE << (SHORT_BITS.1 - 2);

/// How many pieces a cache can hold.
pub const MAX_ENTRIES: usize =
    (ShortTable::SLOTS_PER_LINE << SHORT_BITS.1) + (MiddleTable::SLOTS_PER_LINE << MIDDLE_BITS.1);

type ShortTable = WriteOnceTable<2>;
type MiddleTable = WriteOnceTable<4>;

pub struct PieceCache {
    keys: HashKeys,
    short: Arc<ShortTable>,
    middle: Arc<MiddleTable>,
}

/// Finds the lines of short pieces.
#[derive(Clone, Copy)]
pub struct Lookup<'c> {
    cache: &'c PieceCache,
    keys: HashKeys,
    shift: u32,
    lines: &'c [Line],
}

impl<'c> Lookup<'c> {
    /// The line of a short piece.
    #[inline(always)]
    pub fn line_of(&self, kernel: impl Probe, key: u128) -> &'c Line {
        let position = (kernel.hash(&self.keys, key) >> self.shift) as usize;
        // SAFETY: there are `1 << (64 - self.shift)` lines.
        unsafe { self.lines.get_unchecked(position) }
    }

    /// Finds a short piece in the lines next to its own.
    #[inline(always)]
    pub fn find_beyond(
        &self,
        kernel: impl Probe,
        key: &u128,
        line: &Line,
    ) -> Option<(&'c Line, Slot)> {
        let (own, mut before) = (self.number_of(line), line);
        for position in 1..PROBED_LINES {
            // A piece is put in another line only if this one has no free slot.
            if before.has_room::<2>() {
                break;
            }
            let line = &self.lines[own ^ position];
            if let Some(slot) = kernel.find(line, key) {
                return Some((line, slot));
            }
            before = line;
        }
        None
    }

    /// The value of the piece `text[range]` in the second table, given its key and line in the
    /// first.
    #[inline(always)]
    pub fn middle_value(
        &self,
        text: &[u8],
        range: Range<usize>,
        key: u128,
        line: &Line,
    ) -> Option<MiddleValue> {
        let (length, cache) = (range.len(), self.cache);
        let is_short = length <= MAX_SHORT_BYTES;
        if length > MAX_MIDDLE_BYTES || is_short && !cache.may_be_middle(self.number_of(line)) {
            return None;
        }
        let middle_key = middle_key(text, range.start, length);
        let middle_line = if is_short {
            cache.middle_line(&middle_key)
        } else {
            key as u32 as usize
        };
        cache.get_middle(&middle_key, middle_line)
    }

    /// Which line this is.
    pub fn number_of(&self, line: &Line) -> usize {
        (std::ptr::from_ref(line).addr() - self.lines.as_ptr().addr()) / size_of::<Line>()
    }

    pub fn any_line(&self) -> &'c Line {
        &self.lines[0]
    }

    /// A key that no short piece has. It holds the line of this longer piece in the second table,
    /// which is prefetched; a piece too long for that table gets any key.
    #[inline(never)]
    pub fn key_of_longer(&self, text: &[u8], start: usize, length: usize) -> u128 {
        let mut key = (MAX_SHORT_BYTES as u128 + 1) << 120;
        if length <= MAX_MIDDLE_BYTES {
            let line = self.cache.middle_line(&middle_key(text, start, length));
            self.cache.middle.prefetch(line);
            key |= line as u128;
        }
        key
    }
}

impl PieceCache {
    /// Starts with the ids of some short tokens, at most `MAX_SEEDS`, and with room for three times as
    /// many others or more.
    pub fn seeded<'t>(
        kernel: Kernel,
        seeds: impl ExactSizeIterator<Item = (&'t [u8], u32)>,
    ) -> Result<PieceCache, NoMemory> {
        let bits = seeds.len().next_power_of_two().trailing_zeros() + 2;
        let mut short = ShortTable::new(bits.clamp(SHORT_BITS.0, SHORT_BITS.1))?;
        let keys = HashKeys::random();
        seed(&mut short, &keys, kernel, seeds);
        Ok(PieceCache {
            keys,
            short: Arc::new(short),
            middle: Arc::new(MiddleTable::new(MIDDLE_BITS.0)?),
        })
    }

    /// Without seeds, 320 kB: for a process that encodes little.
    pub fn small() -> Result<PieceCache, NoMemory> {
        Ok(PieceCache {
            keys: HashKeys::random(),
            short: Arc::new(ShortTable::new(SMALL_BITS.0)?),
            middle: Arc::new(MiddleTable::new(SMALL_BITS.1)?),
        })
    }

    /// The successor of a full cache: twice as large, or empty but for the seeds. Fails without
    /// memory.
    pub fn successor<'t>(
        &self,
        kernel: Kernel,
        seeds: impl ExactSizeIterator<Item = (&'t [u8], u32)>,
    ) -> Result<PieceCache, NoMemory> {
        if self.short.line_bits() < SHORT_BITS.0 {
            return PieceCache::seeded(kernel, seeds);
        }
        let keys = &self.keys;
        let mut short = grown(&self.short, SHORT_BITS.1, |key| {
            hash(kernel, keys, word(*key))
        })?;
        let middle = grown(&self.middle, MIDDLE_BITS.1, |key| keys.of_words(*key))?;
        // Only an empty table has no other owner.
        if let Some(short) = Arc::get_mut(&mut short)
            && short.n_entries() == 0
        {
            seed(short, keys, kernel, seeds);
        }
        Ok(PieceCache {
            keys: *keys,
            short,
            middle,
        })
    }

    pub fn n_entries(&self) -> usize {
        self.short.n_entries() + self.middle.n_entries()
    }

    /// Adds to the number of entries of the first and of the second table.
    pub fn add_to_entries(&self, n_short: usize, n_middle: usize) {
        self.short.add_to_entries(n_short);
        self.middle.add_to_entries(n_middle);
    }

    /// Whether it needs a successor.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.short.is_full() || self.middle.is_full()
    }

    /// Finds the lines of short pieces.
    #[inline(always)]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup {
            cache: self,
            keys: self.keys,
            shift: 64 - self.short.line_bits(),
            lines: self.short.lines(),
        }
    }

    /// Keeps the ids of a short piece. Returns false if they do not fit or the lines are full; the
    /// caller then keeps them in the second table.
    pub fn put_short(&self, key: u128, line: usize, ids: &[u32]) -> bool {
        let key = words(key);
        let is_put = match Value::of(ids) {
            Some(value) => self.short.put(line, &key, &value.as_words()),
            None => MiddleValue::words_of(ids)
                .is_some_and(|value| self.short.put_wide(line, &key, &value)),
        };
        if !is_put {
            self.short.mark_elsewhere(line);
        }
        is_put
    }

    /// Whether a short piece may be in the second table.
    #[inline(always)]
    pub fn may_be_middle(&self, line: usize) -> bool {
        self.short.may_be_elsewhere(line)
    }

    /// The line of a piece of the second table.
    #[inline(always)]
    pub fn middle_line(&self, key: &MiddleKey) -> usize {
        (self.keys.of_words(*key) >> (64 - self.middle.line_bits())) as usize
    }

    /// The ids of a piece of the second table.
    #[inline(always)]
    pub fn get_middle(&self, key: &MiddleKey, line: usize) -> Option<MiddleValue> {
        self.middle.get(line, key).map(MiddleValue::from_words)
    }

    /// Whether a piece of the second table may be among the long ones.
    #[inline(always)]
    pub fn may_be_long(&self, line: usize) -> bool {
        self.middle.may_be_elsewhere(line)
    }

    /// Keeps the ids of a piece of the second table. Returns false if they are too many or the
    /// lines are full; the caller then keeps them among the long ones.
    pub fn put_middle(&self, key: &MiddleKey, line: usize, ids: &[u32]) -> bool {
        let value = MiddleValue::words_of(ids);
        let is_put = value.is_some_and(|value| self.middle.put(line, key, &value));
        if !is_put {
            self.middle.mark_elsewhere(line);
        }
        is_put
    }
}

/// The table itself if it has room; otherwise one of twice the size with its entries, or at the
/// greatest size an empty one.
fn grown<const WORDS: usize>(
    table: &Arc<WriteOnceTable<WORDS>>,
    max_bits: u32,
    hash: impl Fn(&[u64; WORDS]) -> u64,
) -> Result<Arc<WriteOnceTable<WORDS>>, NoMemory> {
    let bits = table.line_bits();
    Ok(if !table.is_full() {
        table.clone()
    } else if bits < max_bits {
        let line_of = |key: &[u64; WORDS]| (hash(key) >> (64 - bits - 1)) as usize;
        Arc::new(table.copied(bits + 1, line_of)?)
    } else {
        Arc::new(WriteOnceTable::new(bits)?)
    })
}

fn seed<'t>(
    table: &mut ShortTable,
    keys: &HashKeys,
    kernel: Kernel,
    mut seeds: impl Iterator<Item = (&'t [u8], u32)>,
) {
    // The lines of a group are prefetched together, as in `encode/probe.rs`.
    const GROUP: usize = 32;
    let shift = 64 - table.line_bits();
    let mut group = [(0, 0, 0); GROUP];
    loop {
        let mut n = 0;
        for (entry, (token, id)) in group.iter_mut().zip(seeds.by_ref()) {
            // Only the hash differs between kernels.
            let key = Portable.key(token, 0, token.len());
            let line = (hash(kernel, keys, key) >> shift) as usize;
            table.prefetch(line);
            *entry = (key, line, id);
            n += 1;
        }
        for &(key, line, id) in &group[..n] {
            let value = Value::of(&[id]).expect("one id");
            table.put_alone(line, &words(key), &value.as_words());
        }
        if n < GROUP {
            return;
        }
    }
}

fn hash(kernel: Kernel, keys: &HashKeys, key: u128) -> u64 {
    struct Hash<'k>(&'k HashKeys, u128);
    impl<K: Probe> Work<K> for Hash<'_> {
        type Output = u64;

        #[inline(always)]
        fn run(self, kernel: K) -> u64 {
            kernel.hash(self.0, self.1)
        }
    }
    kernel.run(Hash(keys, key))
}

#[cfg(test)]
mod tests;
