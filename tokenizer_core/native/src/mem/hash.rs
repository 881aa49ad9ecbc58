//! Keyed hashing: tables and caches whose slots nobody outside the process can choose.
//!
//! The keys are random for each process, or for each compiled file, so a text or a vocabulary made to collide under one key
//! collides no more than any other. A hash is one multiplication to 128 bits, both halves joined:
//! the mixing step of wyhash. That is enough where a flood of collisions costs misses and never a
//! wrong id.

use std::hash::{BuildHasher, RandomState};

/// The random keys of a table.
#[derive(Clone, Copy)]
pub struct HashKeys {
    first: u64,
    second: u64,
}

impl HashKeys {
    /// Fresh keys from the standard library's source of randomness.
    pub fn random() -> HashKeys {
        let state = RandomState::new();
        HashKeys {
            first: state.hash_one(1u64) | 1,
            second: state.hash_one(2u64) | 1,
        }
    }

    pub fn to_words(self) -> [u64; 2] {
        [self.first, self.second]
    }

    pub fn from_words([first, second]: [u64; 2]) -> HashKeys {
        HashKeys { first, second }
    }

    /// As two round keys of AES.
    #[inline(always)]
    pub fn as_words(&self) -> [u128; 2] {
        let (first, second) = (u128::from(self.first), u128::from(self.second));
        [first << 64 | second, second << 64 | first]
    }

    #[inline(always)]
    pub fn of_u64(self, value: u64) -> u64 {
        fold(value ^ self.first, self.second)
    }

    #[inline(always)]
    pub fn of_u128(self, value: u128) -> u64 {
        fold(
            value as u64 ^ self.first,
            (value >> 64) as u64 ^ self.second,
        )
    }

    #[inline(always)]
    pub fn of_words(self, words: [u64; 4]) -> u64 {
        let [a, b, c, d] = words;
        let hash = fold(a ^ self.first, b ^ self.second);
        fold(c ^ hash, d ^ self.second)
    }

    /// Of any bytes; the length takes part, so that zero bytes at the end do.
    #[inline]
    pub fn of_bytes(self, bytes: &[u8]) -> u64 {
        let mut hash = self.first ^ bytes.len() as u64;
        let (whole, rest) = bytes.as_chunks::<16>();
        for block in whole {
            let value = u128::from_le_bytes(*block);
            hash = fold(value as u64 ^ hash, (value >> 64) as u64 ^ self.second);
        }
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        let value = u128::from_le_bytes(last);
        fold(value as u64 ^ hash, (value >> 64) as u64 ^ self.second)
    }
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
