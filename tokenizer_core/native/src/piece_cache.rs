//! What pieces were encoded to: one cache for all threads of an encoder, exact and bounded.
//!
//! Short pieces, of up to 15 bytes and 6 ids, or more that end alike, lie two to a cache line with
//! their ids beside them; a probe reads that line and no more. Those of up to 31 bytes and 12 ids have a line each in a
//! second table. Longer ones are in `long_cache.rs`.
//!
//! Entries are never overwritten. A table without room is followed by one of twice the size with
//! the same entries, and at its greatest size by an empty one, so memory is bounded whatever the
//! text. Texts made to collide cost misses and nothing else.

use std::io;
use std::sync::Arc;

use crate::kernel::{AnyKernel, Kernel, OnKernel, Portable};
use crate::keyed_hash::HashKeys;
use crate::packed_ids::{MiddleValue, Value, word, words};
use crate::write_once::{Line, WriteOnceTable};

/// Pieces up to this length are keys of the first table.
pub const MAX_SHORT_BYTES: usize = 15;
/// Pieces up to this length may be keys of the second.
pub const MAX_MIDDLE_BYTES: usize = 31;

/// Lines of a table at first and at most, as powers of two; a line is 64 bytes.
const SHORT_BITS: (u32, u32) = (14, 19);
const MIDDLE_BITS: (u32, u32) = (14, 18);
/// More than this is not taken before it is needed.
const MAX_FIRST_BITS: u32 = 18;

/// How many pieces a cache can hold.
pub const MAX_ENTRIES: usize =
    (ShortTable::SLOTS_PER_LINE << SHORT_BITS.1) + (MiddleTable::SLOTS_PER_LINE << MIDDLE_BITS.1);

type ShortTable = WriteOnceTable<2>;
type MiddleTable = WriteOnceTable<4>;

/// A piece of the second table: its bytes, and its length in the last of 32.
pub type MiddleKey = [u64; 4];

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
    /// Where a short piece would be.
    #[inline(always)]
    pub fn line_of(&self, kernel: impl Kernel, key: u128) -> &'c Line {
        let place = (kernel.hash(&self.keys, key) >> self.shift) as usize;
        // SAFETY: there are `1 << (64 - self.shift)` lines.
        unsafe { self.lines.get_unchecked(place) }
    }

    /// Which line this is.
    pub fn place_of(&self, line: &Line) -> usize {
        (std::ptr::from_ref(line).addr() - self.lines.as_ptr().addr()) / size_of::<Line>()
    }

    pub fn any_line(&self) -> &'c Line {
        &self.lines[0]
    }

    /// A key that no short piece has, with the line of this longer piece in the second table, which
    /// is asked for; any for a piece that could not stand there.
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
    /// Begins with the ids of some short tokens, and with room for as many again and more.
    pub fn seeded<'t>(
        kernel: AnyKernel,
        seeds: impl ExactSizeIterator<Item = (&'t [u8], u32)>,
    ) -> PieceCache {
        let bits = seeds.len().next_power_of_two().trailing_zeros() + 1;
        let mut short = ShortTable::new(bits.clamp(SHORT_BITS.0, MAX_FIRST_BITS));
        let keys = HashKeys::random();
        seed(&mut short, &keys, kernel, seeds);
        PieceCache {
            keys,
            short: Arc::new(short),
            middle: Arc::new(MiddleTable::new(MIDDLE_BITS.0)),
        }
    }

    /// What follows this one where it is full: twice as large, or empty but for the seeds. Fails
    /// where there is no memory.
    pub fn successor<'t>(
        &self,
        kernel: AnyKernel,
        seeds: impl Iterator<Item = (&'t [u8], u32)>,
    ) -> io::Result<PieceCache> {
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

    /// Counts what was put in the first table and in the second.
    pub fn add_to_entries(&self, n_short: usize, n_middle: usize) {
        self.short.add_to_entries(n_short);
        self.middle.add_to_entries(n_middle);
    }

    /// Whether it should be followed by another.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.short.is_full() || self.middle.is_full()
    }

    /// What finds the lines of short pieces.
    #[inline(always)]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup {
            cache: self,
            keys: self.keys,
            shift: 64 - self.short.line_bits(),
            lines: self.short.lines(),
        }
    }

    /// The ids of a short piece that stands beyond its own line.
    #[inline]
    pub fn get_beyond(&self, key: u128, line: usize) -> Option<Value> {
        let value = self.short.get_beyond(line, &words(key))?;
        Some(Value::from_words(value))
    }

    /// Keeps the ids of a short piece. False if they do not fit or there is no room: it is now to be
    /// kept in the second table.
    pub fn put_short(&self, key: u128, line: usize, ids: &[u32]) -> bool {
        let is_put = Value::of(ids)
            .is_some_and(|value| self.short.put(line, &words(key), &value.as_words()));
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

    /// Where a piece of the second table would be.
    #[inline(always)]
    pub fn middle_line(&self, key: &MiddleKey) -> usize {
        (self.keys.of_words(*key) >> (64 - self.middle.line_bits())) as usize
    }

    #[inline]
    pub fn get_middle(&self, key: &MiddleKey, line: usize) -> Option<MiddleValue> {
        self.middle.get(line, key).map(MiddleValue::from_words)
    }

    /// Whether a piece that could be in the second table may be among the long ones.
    #[inline(always)]
    pub fn may_be_long(&self, line: usize) -> bool {
        self.middle.may_be_elsewhere(line)
    }

    /// Keeps the ids of a piece of the second table. False if they are too many or there is no
    /// room: it is now to be kept among the long ones.
    pub fn put_middle(&self, key: &MiddleKey, line: usize, ids: &[u32]) -> bool {
        let value = MiddleValue::words_of(ids);
        let is_put = value.is_some_and(|value| self.middle.put(line, key, &value));
        if !is_put {
            self.middle.mark_elsewhere(line);
        }
        is_put
    }
}

/// The key of `text[start..start + length]`, of at most 31 bytes, in the second table.
#[inline(always)]
pub fn middle_key(text: &[u8], start: usize, length: usize) -> MiddleKey {
    let mut padded = [0; 32];
    let bytes = match text[start..].first_chunk::<32>() {
        Some(bytes) => bytes,
        None => {
            padded[..length].copy_from_slice(&text[start..start + length]);
            &padded
        }
    };
    let half = |place: usize| {
        let n_bytes = length.saturating_sub(16 * place).min(16);
        let half = bytes[16 * place..].first_chunk().expect("16 bytes");
        u128::from_le_bytes(*half) & u128::MAX.checked_shr(128 - 8 * n_bytes as u32).unwrap_or(0)
    };
    let ([a, b], [c, d]) = (words(half(0)), words(half(1) | (length as u128) << 120));
    [a, b, c, d]
}

/// The table itself while it has room, then one of twice the size with its entries, and at the
/// greatest size an empty one.
fn grown<const WORDS: usize>(
    table: &Arc<WriteOnceTable<WORDS>>,
    max_bits: u32,
    hash: impl Fn(&[u64; WORDS]) -> u64,
) -> io::Result<Arc<WriteOnceTable<WORDS>>> {
    let bits = table.line_bits();
    Ok(if !table.is_full() {
        table.clone()
    } else if bits < max_bits {
        let line_of = |key: &[u64; WORDS]| (hash(key) >> (64 - bits - 1)) as usize;
        Arc::new(table.copied(bits + 1, line_of)?)
    } else {
        Arc::new(WriteOnceTable::try_new(bits)?)
    })
}

fn seed<'t>(
    table: &mut ShortTable,
    keys: &HashKeys,
    kernel: AnyKernel,
    seeds: impl Iterator<Item = (&'t [u8], u32)>,
) {
    let shift = 64 - table.line_bits();
    for (token, id) in seeds {
        // Only the hash differs between kernels.
        let key = Portable.key(token, 0, token.len());
        let line = (hash(kernel, keys, key) >> shift) as usize;
        let value = Value::of(&[id]).expect("one id");
        table.put_alone(line, &words(key), &value.as_words());
    }
}

fn hash(kernel: AnyKernel, keys: &HashKeys, key: u128) -> u64 {
    struct Hash<'k>(&'k HashKeys, u128);
    impl OnKernel for Hash<'_> {
        type Output = u64;

        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) -> u64 {
            kernel.hash(self.0, self.1)
        }
    }
    kernel.run(Hash(keys, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of(piece: &[u8]) -> Vec<u32> {
        (0..1 + piece.len() % 13)
            .map(|i| piece[i % piece.len()] as u32 + i as u32 + (i as u32 % 2) * 0xFF_FF00)
            .map(|id| id & 0xF_FFFF)
            .collect()
    }

    #[test]
    fn keys_tell_lengths_zero_bytes_and_what_stands_behind_apart() {
        let text = b"abc\0\0 and so on, for more than thirty-two bytes, some of them behind";
        assert!(Portable.key(text, 0, 3) != Portable.key(text, 0, 4));
        assert!(Portable.key(text, 3, 1) != Portable.key(text, 3, 2));
        assert!(Portable.key(text, 0, 3) == Portable.key(b"abc", 0, 3));
        assert!(Portable.key(text, 0, 15) == Portable.key(&text[..15], 0, 15));
        for length in 1..=MAX_MIDDLE_BYTES {
            let key = middle_key(text, 3, length);
            assert_eq!(key, middle_key(&text[3..3 + length], 0, length));
            let mut padded = [0; 32];
            padded[..length].copy_from_slice(&text[3..3 + length]);
            padded[31] = length as u8;
            let expected = padded.as_chunks::<8>().0.iter();
            assert!(expected.map(|word| u64::from_le_bytes(*word)).eq(key));
        }
    }

    #[test]
    fn every_kernel_makes_the_same_keys() {
        struct KeyOf<'t>(&'t [u8], usize, usize);
        impl OnKernel for KeyOf<'_> {
            type Output = u128;

            fn run<K: Kernel>(self, kernel: K) -> u128 {
                kernel.key(self.0, self.1, self.2)
            }
        }
        let text: Vec<u8> = (0..40).map(|i| (i * 37 % 256) as u8 | 1).collect();
        for kernel in AnyKernel::all() {
            for start in 0..text.len() {
                for length in 1..=MAX_SHORT_BYTES.min(text.len() - start) {
                    let key = kernel.run(KeyOf(&text, start, length));
                    assert_eq!(key, Portable.key(&text, start, length), "{}", kernel.name());
                    let bytes = key.to_le_bytes();
                    assert_eq!(bytes[..length], text[start..start + length]);
                    assert!(bytes[length..15].iter().all(|&byte| byte == 0));
                    assert_eq!(bytes[15], (length as u8).wrapping_neg());
                }
            }
        }
    }

    /// Enters pieces, looks them up, and lets the cache grow, as encoding does.
    #[test]
    fn what_was_put_comes_back_or_is_missed_never_wrong() {
        for kernel in AnyKernel::all() {
            let seeds = [(&b"seed"[..], 7), (b"other seed", 8)];
            let mut cache = PieceCache::seeded(kernel, seeds.into_iter());
            let place = |cache: &PieceCache, piece: &[u8]| {
                // Of a longer piece any will do.
                let key = Portable.key(piece, 0, piece.len().min(MAX_SHORT_BYTES));
                let shift = 64 - cache.short.line_bits();
                (key, (hash(kernel, &cache.keys, key) >> shift) as usize)
            };
            let get_short = |cache: &PieceCache, piece: &[u8]| {
                let (key, line) = place(cache, piece);
                let line_of_it = &cache.short.lines()[line];
                let found = Portable.find(line_of_it, &key);
                let found = found.map(|slot| Value::read(line_of_it.words_in(slot)));
                let found = found.or_else(|| cache.get_beyond(key, line))?;
                Some(found.unpacked::<MAX_SHORT_BYTES>()[..found.count()].to_vec())
            };
            let (mut n_grown, mut n_kept) = (0, 0);
            for round in 0..2 {
                let mut n_hits = 0;
                for i in 0u32..90_000 {
                    let piece = format!("{i}-").repeat(1 + i as usize % 5).into_bytes();
                    let (ids, is_short) = (ids_of(&piece), piece.len() <= MAX_SHORT_BYTES);
                    if piece.len() > MAX_MIDDLE_BYTES {
                        continue;
                    }
                    let middle = middle_key(&piece, 0, piece.len());
                    let middle_line = cache.middle_line(&middle);
                    let is_elsewhere = !is_short || cache.may_be_middle(place(&cache, &piece).1);
                    let found = match is_short.then(|| get_short(&cache, &piece)).flatten() {
                        None if is_elsewhere => {
                            let found = cache.get_middle(&middle, middle_line);
                            found.map(|value| value.ids().to_vec())
                        }
                        found => found,
                    };
                    if let Some(found) = found {
                        assert_eq!(found, ids);
                        n_hits += 1;
                        continue;
                    }
                    let (key, line) = place(&cache, &piece);
                    let is_kept = is_short && cache.put_short(key, line, &ids)
                        || cache.put_middle(&middle, middle_line, &ids);
                    n_kept += u32::from(round == 0 && is_kept);
                    assert!(is_kept || cache.may_be_long(middle_line));
                    if cache.is_full() {
                        n_grown += 1;
                        cache = cache.successor(kernel, seeds.into_iter()).unwrap();
                        assert_eq!(get_short(&cache, b"seed"), Some(vec![7]));
                    }
                }
                assert!(
                    round == 0 || n_hits > n_kept / 10 * 9,
                    "{n_hits} of {n_kept}"
                );
            }
            assert!(n_grown >= 2 && n_kept > 50_000);
        }
    }

    #[test]
    fn at_its_greatest_size_a_full_table_is_followed_by_an_empty_one() {
        let table = Arc::new(WriteOnceTable::<4>::new(4));
        for i in 1..200u64 {
            table.put((i % 16) as usize, &[i, 0, 0, 1], &[i; 4]);
        }
        let hash = |key: &[u64; 4]| key[0] << 60;
        assert!(table.is_full());
        assert_eq!(grown(&table, 4, hash).unwrap().n_entries(), 0);
        assert_eq!(grown(&table, 5, hash).unwrap().n_entries(), 16);
        assert!(!grown(&table, 5, hash).unwrap().is_full());
    }
}
