//! Looking a short piece up in its line: the steps that vector instructions shorten.

use crate::cache::key::words;
use crate::cache::packed_ids::Value;
use crate::cache::table::{Line, Slot};
use crate::mem::hash::HashKeys;
use crate::simd::{Instructions, Portable};

pub trait Probe: Instructions {
    /// The key of the piece `text[start..start + length]`, of 1 to 15 bytes.
    #[inline(always)]
    fn key(self, text: &[u8], start: usize, length: usize) -> u128 {
        match text[start..].first_chunk() {
            Some(block) => self.key_in(block, length),
            None => {
                let mut block = [0; 16];
                block[..length].copy_from_slice(&text[start..start + length]);
                self.key_in(&block, length)
            }
        }
    }

    /// The key of the first `length` bytes of `block`, 1 to 15: they, zeros, and in the last of 16
    /// bytes minus their number.
    fn key_in(self, block: &[u8; 16], length: usize) -> u128;

    fn hash(self, keys: &HashKeys, key: u128) -> u64;

    /// Where the value of a short piece stands in this line.
    fn find(self, line: &Line, key: &u128) -> Option<Slot>;

    /// The first eight ids of the value there, and anything after its last.
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8];
}

impl Probe for Portable {
    #[inline(always)]
    fn key_in(self, block: &[u8; 16], length: usize) -> u128 {
        let bytes = u128::from_le_bytes(*block) & (u128::MAX >> (128 - 8 * length));
        bytes | u128::from((length as u8).wrapping_neg()) << 120
    }

    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        keys.of_u128(key)
    }

    #[inline(always)]
    fn find(self, line: &Line, key: &u128) -> Option<Slot> {
        line.find(&words(*key))
    }

    #[inline(always)]
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8] {
        Value::read(line.words_in(slot)).unpacked()
    }
}
