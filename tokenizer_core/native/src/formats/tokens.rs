//! Many short strings of bytes without an object for each.

use crate::mem::growth::{NoMemory, with_room};

/// Strings of bytes, one after the other.
pub struct Tokens {
    /// Those of one that is not counted yet are at the end.
    pub bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Tokens {
    pub fn with_room(n_tokens: usize, n_bytes: usize) -> Result<Tokens, NoMemory> {
        Ok(Tokens {
            bytes: with_room(n_bytes)?,
            ends: with_room(n_tokens)?,
        })
    }

    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Counts what was appended to `bytes` since the last call as one.
    pub fn end(&mut self) {
        self.ends.push(self.bytes.len() as u32);
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count()).map(|index| self.get(index))
    }
}
