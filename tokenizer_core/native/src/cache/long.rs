//! What long pieces were encoded to: for one thread at a time, of fixed size.
//!
//! Keys and ids are in two rings: new entries overwrite the oldest ones.

use crate::mem::growth::{NoMemory, filled};
use crate::mem::hash::HashKeys;

/// Longer pieces are not kept.
pub const MAX_CACHED_BYTES: usize = 256;

const SLOT_BITS: u32 = 15;
/// The rings hold many of the longest pieces.
const KEY_RING: usize = 1 << 20;
const ID_RING: usize = 1 << 19;

/// Free while `n_ids` is 0.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    key_at: u64,
    ids_at: u64,
    key_bytes: u32,
    n_ids: u32,
}

pub struct LongCache {
    keys: HashKeys,
    slots: Box<[Slot]>,
    key_ring: Box<[u8]>,
    id_ring: Box<[u32]>,
    /// Bytes and ids written since the start; modulo the size of the ring they are positions.
    keys_written: u64,
    ids_written: u64,
}

impl LongCache {
    pub fn new() -> Result<LongCache, NoMemory> {
        Ok(LongCache {
            keys: HashKeys::random(),
            slots: filled(Slot::default(), 1 << SLOT_BITS)?.into(),
            key_ring: filled(0, KEY_RING)?.into(),
            id_ring: filled(0, ID_RING)?.into(),
            keys_written: 0,
            ids_written: 0,
        })
    }

    pub fn get(&self, piece: &[u8]) -> Option<&[u32]> {
        let hash = self.keys.of_bytes(piece);
        let slot = &self.slots[(hash >> (64 - SLOT_BITS)) as usize];
        if slot.hash != hash || slot.key_bytes as usize != piece.len() || slot.n_ids == 0 {
            return None;
        }
        // The entry may have been overwritten since.
        if self.keys_written - slot.key_at > KEY_RING as u64
            || self.ids_written - slot.ids_at > ID_RING as u64
        {
            return None;
        }
        let key_at = slot.key_at as usize % KEY_RING;
        let ids_at = slot.ids_at as usize % ID_RING;
        (self.key_ring[key_at..key_at + piece.len()] == *piece)
            .then(|| &self.id_ring[ids_at..ids_at + slot.n_ids as usize])
    }

    /// Keeps the ids of a piece of at most `MAX_CACHED_BYTES`.
    pub fn put(&mut self, piece: &[u8], ids: &[u32]) {
        let hash = self.keys.of_bytes(piece);
        let key_at = ring_position(&mut self.keys_written, piece.len(), KEY_RING);
        let ids_at = ring_position(&mut self.ids_written, ids.len(), ID_RING);
        let start = key_at as usize % KEY_RING;
        self.key_ring[start..start + piece.len()].copy_from_slice(piece);
        let start = ids_at as usize % ID_RING;
        self.id_ring[start..start + ids.len()].copy_from_slice(ids);
        self.slots[(hash >> (64 - SLOT_BITS)) as usize] = Slot {
            hash,
            key_at,
            ids_at,
            key_bytes: piece.len() as u32,
            n_ids: ids.len() as u32,
        };
    }
}

/// Takes `n` consecutive positions of a ring, from its beginning if its end is too short.
fn ring_position(written: &mut u64, n: usize, size: usize) -> u64 {
    let left = size - *written as usize % size;
    if left < n {
        *written += left as u64;
    }
    let position = *written;
    *written += n as u64;
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_back_until_the_rings_come_round() {
        let mut cache = LongCache::new().unwrap();
        let piece = |i: usize| format!("{i}-").repeat(1 + i % 40).into_bytes();
        let ids = |i: usize| {
            (0..=(i % 97) as u32)
                .map(|k| k + i as u32)
                .collect::<Vec<_>>()
        };
        let n = 60_000;
        for i in 0..n {
            assert_eq!(cache.get(&piece(i)), None);
            cache.put(&piece(i), &ids(i));
            assert_eq!(cache.get(&piece(i)), Some(&ids(i)[..]));
        }
        let found = |range: std::ops::Range<usize>| {
            range
                .filter(|&i| {
                    let found = cache.get(&piece(i));
                    found.inspect(|found| assert_eq!(**found, ids(i))).is_some()
                })
                .count()
        };
        assert_eq!(found(0..n / 2), 0);
        assert!(found(n - 2000..n) > 1500);
    }
}
