//! The steps of a look-up that vector instructions shorten.

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
                let block = match text.last_chunk() {
                    // Without a copy of any length, which is a call.
                    Some(last) => u128::from_le_bytes(*last) >> (8 * (start + 16 - text.len())),
                    None => {
                        let mut block = [0; 16];
                        block[..length].copy_from_slice(&text[start..start + length]);
                        u128::from_le_bytes(block)
                    }
                };
                self.key_in(&block.to_le_bytes(), length)
            }
        }
    }

    /// The key of the first `length` bytes of `block`, 1 to 15: the bytes, then zeros, and minus
    /// the length in the last of 16 bytes.
    #[inline(always)]
    fn key_in(self, block: &[u8; 16], length: usize) -> u128 {
        let bytes = u128::from_le_bytes(*block) & (u128::MAX >> (128 - 8 * length));
        bytes | u128::from((length as u8).wrapping_neg()) << 120
    }

    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        keys.of_u128(key)
    }

    /// The slot of a short piece in this line.
    #[inline(always)]
    fn find(self, line: &Line, key: &u128) -> Option<Slot> {
        line.find(&words(*key))
    }

    /// The first eight ids of the value in the slot, followed by anything.
    #[inline(always)]
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8] {
        Value::read(line.words_in(slot)).unpacked()
    }
}

impl Probe for Portable {}

#[cfg(target_arch = "aarch64")]
impl Probe for crate::simd::Neon {}
