//! What pieces were encoded to: three tables of fixed size, exact, for one thread at a time.
//!
//! Short pieces, of up to 15 bytes and 5 ids, lie two to a cache line with their keys beside their
//! ids; a probe reads that line and no more, so texts made to collide cost misses and nothing else.
//! Those of up to 31 bytes and 10 ids have a line each in a second table. Longer ones go to a
//! third, whose keys and ids lie in two rings: what is written last overwrites what is oldest.
//! Pieces above `MAX_CACHED_BYTES` are never kept, so memory is bounded by construction whatever
//! the text.

use crate::kernel::Kernel;
use crate::keyed_hash::HashKeys;
use crate::zeroed_table::{Zeroable, ZeroedTable};

/// Longer pieces are not kept.
pub const MAX_CACHED_BYTES: usize = 256;
/// Pieces up to this length are keys of the first table.
pub const MAX_SHORT_BYTES: usize = 15;
const MAX_MIDDLE_BYTES: usize = 31;
/// Ids that a value holds, 24 bits each.
const SHORT_IDS: usize = 5;
const MIDDLE_IDS: usize = 10;

/// The sizes of the tables, as powers of two.
#[derive(Clone, Copy)]
struct Bits {
    short: u32,
    middle: u32,
    long: u32,
    key_ring: u32,
    id_ring: u32,
}

const FULL: Bits = Bits {
    short: 17,
    middle: 16,
    long: 15,
    key_ring: 20,
    id_ring: 19,
};
/// Made within microseconds; the rings hold several of the longest pieces.
const SMALL: Bits = Bits {
    short: 9,
    middle: 8,
    long: 6,
    key_ring: 12,
    id_ring: 11,
};

/// How many pieces one cache can hold.
pub const MAX_ENTRIES: usize = (2 << FULL.short) + (1 << FULL.middle) + (1 << FULL.long);

/// The ids of a short piece, three bytes each, and how many they are in the last byte.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Value(pub [u8; 16]);

/// Two short pieces, in one cache line. A key of 0 is none.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Bucket {
    pub keys: [u128; 2],
    pub values: [Value; 2],
}

/// One piece of the second table; its length is the last byte of its key, 0 for none.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct MiddleSlot {
    key: [u8; 32],
    ids: [[u8; 3]; MIDDLE_IDS],
    n_ids: u8,
}

// SAFETY: zeros are a value of integers and arrays of them.
unsafe impl Zeroable for Bucket {}
// SAFETY: as above.
unsafe impl Zeroable for MiddleSlot {}

/// Of the third table; free while `n_ids` is 0.
#[derive(Clone, Copy, Default)]
struct LongSlot {
    hash: u64,
    key_at: u64,
    ids_at: u64,
    key_bytes: u32,
    n_ids: u32,
}

pub struct PieceCache {
    bits: Bits,
    keys: HashKeys,
    short: ZeroedTable<Bucket>,
    middle: ZeroedTable<MiddleSlot>,
    long: Box<[LongSlot]>,
    key_ring: Box<[u8]>,
    id_ring: Box<[u32]>,
    /// How many bytes and ids were ever written; places in the rings are these, modulo their size.
    keys_written: u64,
    ids_written: u64,
    /// A bit for each bucket: whether a short piece of it has had too many ids for the first
    /// table. Most have not, and need not be looked for elsewhere.
    spilled: Box<[u64]>,
    pub entries: usize,
}

impl Value {
    /// How many ids it has: 1 to 5.
    #[inline(always)]
    pub fn count(&self) -> usize {
        usize::from(self.0[15])
    }

    /// The ids and, behind them, zeros.
    #[inline(always)]
    pub fn unpacked(&self) -> [u32; 8] {
        let value = u128::from_le_bytes(self.0);
        std::array::from_fn(|place| match place {
            0..SHORT_IDS => (value >> (24 * place)) as u32 & 0xFF_FFFF,
            _ => 0,
        })
    }

    /// None where there are too many.
    fn of(ids: &[u32]) -> Option<Value> {
        if ids.len() > SHORT_IDS {
            return None;
        }
        let shifted = ids
            .iter()
            .enumerate()
            .map(|(place, &id)| u128::from(id) << (24 * place));
        let value = shifted.fold((ids.len() as u128) << 120, |value, id| value | id);
        Some(Value(value.to_le_bytes()))
    }
}

/// Finds the buckets of short pieces.
pub struct Lookup<'c, K> {
    kernel: K,
    keys: HashKeys,
    shift: u32,
    short: &'c [Bucket],
}

impl<K: Kernel> Lookup<'_, K> {
    /// Where a short piece would be.
    #[inline(always)]
    pub fn bucket_of(&self, key: K::Key) -> usize {
        (self.kernel.hash(&self.keys, key) >> self.shift) as usize
    }

    /// Asks for a bucket before it is needed.
    #[inline(always)]
    pub fn prefetch(&self, bucket: usize) {
        prefetch(self.short, bucket);
    }
}

/// Asks for an element before it is needed.
#[inline(always)]
fn prefetch<T>(slots: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = slots.as_ptr().wrapping_add(at);
        // SAFETY: the instruction reads nothing that a program can see and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slots, at);
}

impl PieceCache {
    pub fn new() -> PieceCache {
        PieceCache::of_size(FULL)
    }

    /// A small one, that is soon thrown away.
    pub fn for_one_call() -> PieceCache {
        PieceCache::of_size(SMALL)
    }

    fn of_size(bits: Bits) -> PieceCache {
        PieceCache {
            bits,
            keys: HashKeys::random(),
            short: ZeroedTable::new(1 << bits.short),
            middle: ZeroedTable::new(1 << bits.middle),
            long: vec![LongSlot::default(); 1 << bits.long].into(),
            key_ring: vec![0; 1 << bits.key_ring].into(),
            id_ring: vec![0; 1 << bits.id_ring].into(),
            keys_written: 0,
            ids_written: 0,
            spilled: vec![0; (1 << bits.short) / 64].into(),
            entries: 0,
        }
    }

    /// What finds the buckets of pieces.
    #[inline(always)]
    pub fn lookup<K: Kernel>(&self, kernel: K) -> Lookup<'_, K> {
        Lookup {
            kernel,
            keys: self.keys,
            shift: 64 - self.bits.short,
            short: &self.short,
        }
    }

    /// The ids of a short piece whose bucket is known.
    #[inline(always)]
    pub fn get_short<K: Kernel>(&self, kernel: K, key: K::Key, bucket: usize) -> Option<&Value> {
        kernel.find(&self.short[bucket], key)
    }

    /// Keeps the ids of a short piece if they are few; the older of two in its bucket gives way.
    /// Returns whether it did.
    pub fn put_short(&mut self, key: u128, bucket: usize, ids: &[u32]) -> bool {
        let Some(value) = Value::of(ids) else {
            self.spilled[bucket / 64] |= 1 << (bucket % 64);
            return false;
        };
        let Bucket { keys, values } = &mut self.short[bucket];
        if keys[0] != key {
            self.entries += usize::from(keys[1] == 0);
            (keys[1], values[1]) = (keys[0], values[0]);
        }
        (keys[0], values[0]) = (key, value);
        true
    }

    /// Whether a short piece may be in the second or third table.
    #[inline(always)]
    pub fn may_have_spilled(&self, bucket: usize) -> bool {
        self.spilled[bucket / 64] >> (bucket % 64) & 1 != 0
    }

    /// Asks for the place of a piece in the second or third table before it is needed.
    #[inline(never)]
    pub fn prefetch_longer(&self, piece: &[u8]) {
        let hash = self.keys.of_bytes(piece);
        if piece.len() <= MAX_MIDDLE_BYTES {
            prefetch(&self.middle, (hash >> (64 - self.bits.middle)) as usize);
        } else {
            prefetch(&self.long, (hash >> (64 - self.bits.long)) as usize);
        }
    }

    /// Calls `take` with the ids of a piece of the second or third table; whether there are any.
    #[inline]
    pub fn get_longer(&self, piece: &[u8], take: impl FnOnce(&[u32])) -> bool {
        let hash = self.keys.of_bytes(piece);
        if piece.len() <= MAX_MIDDLE_BYTES {
            let slot = &self.middle[(hash >> (64 - self.bits.middle)) as usize];
            if slot.key == middle_key(piece) {
                let n_ids = usize::from(slot.n_ids);
                if n_ids == 0 {
                    return self.get_long(piece, hash, take);
                }
                let ids = slot.ids.map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]));
                take(&ids[..n_ids]);
                return true;
            }
            return false;
        }
        self.get_long(piece, hash, take)
    }

    fn get_long(&self, piece: &[u8], hash: u64, take: impl FnOnce(&[u32])) -> bool {
        let slot = &self.long[(hash >> (64 - self.bits.long)) as usize];
        if slot.hash != hash || slot.key_bytes as usize != piece.len() || slot.n_ids == 0 {
            return false;
        }
        // What has been overwritten since is gone.
        if self.keys_written - slot.key_at > self.key_ring.len() as u64
            || self.ids_written - slot.ids_at > self.id_ring.len() as u64
        {
            return false;
        }
        let key_at = slot.key_at as usize % self.key_ring.len();
        if self.key_ring[key_at..key_at + piece.len()] != *piece {
            return false;
        }
        let ids_at = slot.ids_at as usize % self.id_ring.len();
        take(&self.id_ring[ids_at..ids_at + slot.n_ids as usize]);
        true
    }

    /// Keeps the ids of a piece of at most `MAX_CACHED_BYTES` that is not in the first table.
    pub fn put_longer(&mut self, piece: &[u8], ids: &[u32]) {
        let hash = self.keys.of_bytes(piece);
        if piece.len() <= MAX_MIDDLE_BYTES {
            let slot = &mut self.middle[(hash >> (64 - self.bits.middle)) as usize];
            self.entries += usize::from(slot.key[31] == 0);
            slot.key = middle_key(piece);
            slot.n_ids = 0;
            if ids.len() <= MIDDLE_IDS {
                for (place, id) in slot.ids.iter_mut().zip(ids) {
                    place.copy_from_slice(&id.to_le_bytes()[..3]);
                }
                slot.n_ids = ids.len() as u8;
                return;
            }
        }
        let key_at = ring_place(&mut self.keys_written, piece.len(), self.key_ring.len());
        let ids_at = ring_place(&mut self.ids_written, ids.len(), self.id_ring.len());
        let start = key_at as usize % self.key_ring.len();
        self.key_ring[start..start + piece.len()].copy_from_slice(piece);
        let start = ids_at as usize % self.id_ring.len();
        self.id_ring[start..start + ids.len()].copy_from_slice(ids);
        let slot = &mut self.long[(hash >> (64 - self.bits.long)) as usize];
        self.entries += usize::from(slot.n_ids == 0);
        *slot = LongSlot {
            hash,
            key_at,
            ids_at,
            key_bytes: piece.len() as u32,
            n_ids: ids.len() as u32,
        };
    }
}

#[inline(always)]
fn middle_key(piece: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    key[..piece.len()].copy_from_slice(piece);
    key[31] = piece.len() as u8;
    key
}

/// Takes `n` places in a row from a ring, at its beginning when its end has no room for them.
fn ring_place(written: &mut u64, n: usize, size: usize) -> u64 {
    let left = size - *written as usize % size;
    if left < n {
        *written += left as u64;
    }
    let place = *written;
    *written += n as u64;
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Portable;

    fn key(piece: &[u8]) -> u128 {
        Portable.key(piece, 0, piece.len())
    }

    #[test]
    fn keys_tell_lengths_zero_bytes_and_what_stands_behind_apart() {
        let text = b"abc\0\0 and so on, for more than sixteen bytes";
        assert!(Portable.key(text, 0, 3) != Portable.key(text, 0, 4));
        assert!(Portable.key(text, 3, 1) != Portable.key(text, 3, 2));
        assert!(Portable.key(text, 0, 3) == key(b"abc"));
        assert!(Portable.key(text, 0, 15) == key(&text[..15]));
        assert!(middle_key(b"a") != middle_key(b"a\0"));
    }

    #[test]
    fn what_was_put_comes_back_or_is_missed_never_wrong() {
        check(PieceCache::new(), 300);
        check(PieceCache::for_one_call(), 0);
    }

    fn check(mut cache: PieceCache, n_hits: usize) {
        let pieces: Vec<Vec<u8>> = (0u32..8_000)
            .map(|i| format!("{i}").repeat(1 + i as usize % 20).into_bytes())
            .filter(|piece| piece.len() <= 90)
            .collect();
        let ids_of = |piece: &[u8]| -> Vec<u32> {
            (0..1 + piece.len() % 13)
                .map(|i| piece[i % piece.len()] as u32 + i as u32 + (i as u32 % 2) * 0xFF_FF00)
                .map(|id| id & 0xF_FFFF)
                .collect()
        };
        let mut hits = [0; 3];
        for round in 0..2 {
            for piece in &pieces {
                let ids = ids_of(piece);
                let is_short = piece.len() <= MAX_SHORT_BYTES;
                let bucket = if is_short {
                    cache.lookup(Portable).bucket_of(key(piece))
                } else {
                    0
                };
                let found = cache.get_short(Portable, key(piece), bucket);
                if let Some(value) = found.filter(|_| is_short) {
                    assert_eq!(value.unpacked()[..value.count()], ids);
                    hits[0] += 1;
                } else if cache.get_longer(piece, |found| assert_eq!(found, ids)) {
                    hits[if ids.len() <= MIDDLE_IDS && piece.len() < 32 {
                        1
                    } else {
                        2
                    }] += 1;
                }
                if !is_short || !cache.put_short(key(piece), bucket, &ids) {
                    cache.put_longer(piece, &ids);
                }
            }
            assert!(round == 0 || hits.iter().all(|&n| n >= n_hits), "{hits:?}");
        }
        assert!(cache.entries <= MAX_ENTRIES);
    }
}
