//! What pieces were encoded to: two tables of fixed size, exact, for one thread at a time.
//!
//! Pieces of up to 15 bytes are their own key, 16 bytes with the length in the last; a bucket is
//! one cache line of two keys and two values of up to four ids. A probe reads that line and no
//! more, so texts made to collide cost misses and nothing else. Longer pieces, and those of more
//! ids, go to a second table whose keys and ids lie in two rings: what is written last overwrites
//! what is oldest. Pieces above `MAX_CACHED_BYTES` are never kept, so memory is bounded by
//! construction whatever the text.

use crate::keyed_hash::HashKeys;

/// Longer pieces are not kept.
pub const MAX_CACHED_BYTES: usize = 256;
/// Pieces up to this length are keys of the first table.
pub const MAX_SHORT_BYTES: usize = 15;

const SHORT_BUCKET_BITS: u32 = 16;
const LONG_SLOT_BITS: u32 = 15;
const KEY_RING_BYTES: usize = 1 << 20;
const ID_RING: usize = 1 << 19;

/// How many pieces one cache can hold.
pub const MAX_ENTRIES: usize = (2 << SHORT_BUCKET_BITS) + (1 << LONG_SLOT_BITS);

/// Words of a bucket: two keys, two values.
const BUCKET: usize = 4;
const ID_MASK: u32 = (1 << 20) - 1;
const COUNT_SHIFT: u32 = 20;
/// The value of a short piece whose ids are too many for the first table.
const IN_LONG: u128 = 0;

/// A short piece as a key: its bytes, and its length in the last. Never 0, which is a free slot.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ShortKey(u128);

/// Four ids, of which `count` are valid.
#[derive(Clone, Copy)]
pub struct ShortIds {
    pub ids: [u32; 4],
    pub count: usize,
}

impl ShortKey {
    /// The key of no piece: the length in its last byte is none a short piece has.
    pub const NONE: ShortKey = ShortKey(u128::MAX);

    /// The key of `text[start..end]`, which has 1 to 15 bytes.
    #[inline(always)]
    pub fn of(text: &[u8], start: usize, end: usize) -> ShortKey {
        let length = end - start;
        debug_assert!((1..=MAX_SHORT_BYTES).contains(&length));
        let bytes = match text[start..].first_chunk::<16>() {
            Some(block) => u128::from_le_bytes(*block) & MASKS[length & 15],
            None => {
                let mut block = [0; 16];
                block[..length].copy_from_slice(&text[start..end]);
                u128::from_le_bytes(block)
            }
        };
        ShortKey(bytes | (length as u128) << 120)
    }
}

static MASKS: [u128; 16] = {
    let mut masks = [0; 16];
    let mut length = 1;
    while length < 16 {
        masks[length] = u128::MAX >> (128 - 8 * length);
        length += 1;
    }
    masks
};

pub struct PieceCache {
    keys: HashKeys,
    /// Buckets from `first_bucket` on, so that each is one cache line.
    short: Vec<u128>,
    first_bucket: usize,
    long: Vec<LongSlot>,
    key_ring: Vec<u8>,
    id_ring: Vec<u32>,
    /// How many bytes and ids were ever written; places in the rings are these, modulo their size.
    keys_written: u64,
    ids_written: u64,
    pub entries: usize,
}

/// Free while `n_ids` is 0.
#[derive(Clone, Copy, Default)]
struct LongSlot {
    hash: u64,
    key_at: u64,
    ids_at: u64,
    key_bytes: u32,
    n_ids: u32,
}

impl PieceCache {
    pub fn new() -> PieceCache {
        // Zeroed memory comes from the system page by page, as it is touched.
        let short = vec![0u128; (BUCKET << SHORT_BUCKET_BITS) + BUCKET];
        let past_line = short.as_ptr() as usize & 63;
        PieceCache {
            keys: HashKeys::random(),
            first_bucket: ((64 - past_line) & 63) / 16,
            short,
            long: vec![LongSlot::default(); 1 << LONG_SLOT_BITS],
            key_ring: vec![0; KEY_RING_BYTES],
            id_ring: vec![0; ID_RING],
            keys_written: 0,
            ids_written: 0,
            entries: 0,
        }
    }

    /// Where a short piece would be.
    #[inline(always)]
    pub fn bucket_of(&self, key: ShortKey) -> usize {
        let hash = self.keys.of_u128(key.0);
        self.first_bucket + BUCKET * (hash >> (64 - SHORT_BUCKET_BITS)) as usize
    }

    /// The ids of a short piece whose bucket is known. Both keys are compared and a value chosen
    /// without a branch: which of the two it is cannot be predicted.
    #[inline(always)]
    pub fn get_short(&self, key: ShortKey, bucket: usize) -> Option<ShortIds> {
        let bucket = self.bucket(bucket);
        let (is_first, is_second) = (bucket[0] == key.0, bucket[1] == key.0);
        let value = std::hint::select_unpredictable(is_second, bucket[3], bucket[2]);
        let first = value as u32;
        let count = (first >> COUNT_SHIFT) as usize;
        if !(is_first | is_second) | (count == 0) {
            return None;
        }
        let ids = [
            first & ID_MASK,
            (value >> 32) as u32,
            (value >> 64) as u32,
            (value >> 96) as u32,
        ];
        Some(ShortIds { ids, count })
    }

    /// Whether a short piece that `get_short` did not find has ids in the second table.
    pub fn has_in_long(&self, key: ShortKey) -> bool {
        let bucket = self.bucket(self.bucket_of(key));
        (bucket[0] == key.0 && bucket[2] == IN_LONG) || (bucket[1] == key.0 && bucket[3] == IN_LONG)
    }

    #[inline(always)]
    fn bucket(&self, at: usize) -> &[u128; BUCKET] {
        self.short[at..].first_chunk().expect("a whole bucket")
    }

    /// Asks for a bucket before it is needed.
    #[inline(always)]
    pub fn prefetch(&self, bucket: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line: *const u128 = &self.short[bucket];
            // SAFETY: the instruction reads nothing that a program can see and faults at no
            // address; this one is that of an element besides.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = bucket;
    }

    /// Keeps the ids of a short piece; the older of two in its bucket gives way.
    pub fn put_short(&mut self, key: ShortKey, piece: &[u8], ids: &[u32]) {
        let mut value = IN_LONG;
        if ids.len() <= 4 {
            for (place, &id) in ids.iter().enumerate() {
                value |= u128::from(id) << (32 * place);
            }
            value |= (ids.len() as u128) << COUNT_SHIFT;
        } else {
            self.put_long(piece, ids);
        }
        let at = self.bucket_of(key);
        let bucket = &mut self.short[at..at + BUCKET];
        if bucket[0] != key.0 {
            self.entries += usize::from(bucket[1] == 0);
            (bucket[1], bucket[3]) = (bucket[0], bucket[2]);
        }
        (bucket[0], bucket[2]) = (key.0, value);
    }

    /// The ids of a piece of the second table.
    #[inline]
    pub fn get_long(&self, piece: &[u8]) -> Option<&[u32]> {
        let hash = self.keys.of_bytes(piece);
        let slot = &self.long[(hash >> (64 - LONG_SLOT_BITS)) as usize];
        if slot.hash != hash || slot.key_bytes as usize != piece.len() || slot.n_ids == 0 {
            return None;
        }
        // What has been overwritten since is gone.
        if self.keys_written - slot.key_at > KEY_RING_BYTES as u64
            || self.ids_written - slot.ids_at > ID_RING as u64
        {
            return None;
        }
        let key_at = slot.key_at as usize % KEY_RING_BYTES;
        if self.key_ring[key_at..key_at + piece.len()] != *piece {
            return None;
        }
        let ids_at = slot.ids_at as usize % ID_RING;
        Some(&self.id_ring[ids_at..ids_at + slot.n_ids as usize])
    }

    /// Keeps the ids of a piece of at most `MAX_CACHED_BYTES`, of which there are no more.
    pub fn put_long(&mut self, piece: &[u8], ids: &[u32]) {
        let hash = self.keys.of_bytes(piece);
        let key_at = ring_place(&mut self.keys_written, piece.len(), KEY_RING_BYTES);
        let ids_at = ring_place(&mut self.ids_written, ids.len(), ID_RING);
        let start = key_at as usize % KEY_RING_BYTES;
        self.key_ring[start..start + piece.len()].copy_from_slice(piece);
        let start = ids_at as usize % ID_RING;
        self.id_ring[start..start + ids.len()].copy_from_slice(ids);
        let slot = &mut self.long[(hash >> (64 - LONG_SLOT_BITS)) as usize];
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

    fn key(piece: &[u8]) -> ShortKey {
        ShortKey::of(piece, 0, piece.len())
    }

    #[test]
    fn keys_tell_lengths_zero_bytes_and_what_stands_behind_apart() {
        let text = b"abc\0\0 and so on, for more than sixteen bytes";
        assert!(ShortKey::of(text, 0, 3) != ShortKey::of(text, 0, 4));
        assert!(ShortKey::of(text, 3, 4) != ShortKey::of(text, 3, 5));
        assert!(ShortKey::of(text, 0, 3) == key(b"abc"));
        assert!(ShortKey::of(text, 0, 15) == key(&text[..15]));
    }

    #[test]
    fn what_was_put_comes_back_or_is_missed_never_wrong() {
        let mut cache = PieceCache::new();
        let pieces: Vec<Vec<u8>> = (0u32..300_000)
            .map(|i| format!("{i}").repeat(1 + i as usize % 12).into_bytes())
            .filter(|piece| piece.len() <= 60)
            .collect();
        let ids_of = |piece: &[u8]| -> Vec<u32> {
            (0..1 + piece.len() % 7)
                .map(|i| piece[i % piece.len()] as u32 + i as u32)
                .collect()
        };
        let mut hits = 0;
        for round in 0..2 {
            for piece in &pieces {
                let ids = ids_of(piece);
                if piece.len() <= MAX_SHORT_BYTES {
                    let bucket = cache.bucket_of(key(piece));
                    if let Some(found) = cache.get_short(key(piece), bucket) {
                        assert_eq!(found.ids[..found.count], ids);
                        hits += 1;
                    } else if cache.has_in_long(key(piece)) {
                        assert!(ids.len() > 4);
                        assert!(cache.get_long(piece).is_none_or(|found| found == ids));
                    }
                    cache.put_short(key(piece), piece, &ids);
                } else {
                    if let Some(found) = cache.get_long(piece) {
                        assert_eq!(found, ids);
                        hits += 1;
                    }
                    cache.put_long(piece, &ids);
                }
            }
            assert!(round == 0 || hits > 10_000);
        }
        assert!(cache.entries <= MAX_ENTRIES);
    }
}
