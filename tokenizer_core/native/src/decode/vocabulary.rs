//! id -> bytes, for decoding, and bytes -> id, for pre-tokens that are taken whole.

use std::mem::MaybeUninit;

use crate::decode::{DecodeTables, Measure};
use crate::mem::growth::{Grow, NoMemory};
use crate::mem::hash::HashKeys;
use crate::mem::sections::{Reader, Unusable, Writer, all, check};
use crate::mem::table::Table;
use crate::merge::pair_table::ID_BITS;

/// The bytes of every id; an id without a token has none.
pub struct Vocabulary {
    bytes: Table<u8>,
    /// Where the bytes of each id begin; one more than there are ids.
    starts: Table<u32>,
    tables: DecodeTables,
}

impl Vocabulary {
    /// Of `(id, bytes)` in any order; ids are below 2^20, so the tables can always be held. Panics if the
    /// bytes are 4 GB or more.
    pub fn new(mut tokens: Vec<(u32, &[u8])>) -> Vocabulary {
        tokens.sort_by_key(|token| token.0);
        let n_ids = tokens.last().map_or(0, |token| token.0 as usize + 1);
        let mut starts = vec![0; n_ids + 1];
        let mut bytes = Vec::new();
        let mut next = 0;
        for (id, token) in tokens {
            let id = id as usize;
            starts[next..=id].fill(position(bytes.len()));
            bytes.extend_from_slice(token);
            next = id + 1;
        }
        starts[next..].fill(position(bytes.len()));
        let tables = DecodeTables::new(&bytes, &starts);
        Vocabulary {
            bytes: bytes.into(),
            starts: starts.into(),
            tables,
        }
    }

    pub fn write(&self, to: &mut Writer) {
        to.table(&self.bytes);
        to.table(&self.starts);
        self.tables.write(to);
    }

    pub fn read(from: &mut Reader) -> Result<Vocabulary, Unusable> {
        let (bytes, starts): (Table<u8>, Table<u32>) = (from.table()?, from.table()?);
        let are_ends = starts.first() == Some(&0)
            && starts.last().map(|&end| end as usize) == Some(bytes.len());
        check(
            are_ends && starts.is_sorted(),
            "a token is beyond the bytes",
        )?;
        check(starts.len() - 1 <= 1 << ID_BITS, "an id is too large")?;
        let tables = DecodeTables::read(from, &bytes, &starts)?;
        Ok(Vocabulary {
            bytes,
            starts,
            tables,
        })
    }

    /// One more than the largest id.
    pub fn n_ids(&self) -> usize {
        self.starts.len() - 1
    }

    /// The bytes of an id; empty when it has no token.
    #[inline]
    pub fn token(&self, id: u32) -> &[u8] {
        let id = id as usize;
        if id >= self.n_ids() {
            return &[];
        }
        &self.bytes[self.starts[id] as usize..self.starts[id + 1] as usize]
    }

    /// The size of decoded `ids`, or the index of the first without a token as an error.
    pub fn measure(&self, ids: &[u32]) -> Result<Measure, usize> {
        self.tables.measure(ids, |id| self.token(id))
    }

    /// Writes the bytes of `ids` from the start of `out` as far as there is room, and returns how
    /// many.
    pub fn fill(&self, ids: &[u32], out: &mut [MaybeUninit<u8>]) -> usize {
        self.tables.fill(ids, out, |id| self.token(id))
    }

    /// Appends the bytes of `ids`.
    pub fn append(&self, ids: &[u32], out: &mut Vec<u8>) -> Result<(), NoMemory> {
        let Ok(Measure { n_bytes, .. }) = self.measure(ids) else {
            return ids
                .iter()
                .try_for_each(|&id| out.try_extend(self.token(id)));
        };
        out.try_reserve(n_bytes)?;
        let n_written = self.fill(ids, &mut out.spare_capacity_mut()[..n_bytes]);
        // SAFETY: `fill` wrote this many bytes after the end, within the capacity.
        unsafe { out.set_len(out.len() + n_written) };
        Ok(())
    }
}

fn position(n_bytes: usize) -> u32 {
    u32::try_from(n_bytes).expect("tokens of less than 4 GB")
}

/// bytes -> id of the tokens that encoding can produce, in a table at most half full.
pub struct TokenTable {
    /// `tag << 32 | id`; the tag is other bits of the hash than those that choose the slot.
    slots: Table<u64>,
    shift: u32,
    keys: HashKeys,
    longest: usize,
}

const EMPTY: u64 = u64::MAX;

impl TokenTable {
    /// Of ids whose bytes `vocabulary` has.
    pub fn new(vocabulary: &Vocabulary, ids: &[u32]) -> TokenTable {
        let bits = (2 * ids.len().max(8)).next_power_of_two().trailing_zeros();
        let (mut slots, shift, keys) = (vec![EMPTY; 1 << bits], 64 - bits, HashKeys::random());
        let mut longest = 0;
        for &id in ids {
            let token = vocabulary.token(id);
            longest = longest.max(token.len());
            let hash = keys.of_bytes(token);
            let mut at = (hash >> shift) as usize;
            while slots[at] != EMPTY {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = hash << 32 | u64::from(id);
        }
        TokenTable {
            slots: slots.into(),
            shift,
            keys,
            longest,
        }
    }

    pub fn write(&self, to: &mut Writer) {
        let [key, other_key] = self.keys.to_words();
        to.table(&[key, other_key, self.longest as u64]);
        to.table(&self.slots);
    }

    /// An empty slot ends every search; the bytes of a token are compared.
    pub fn read(from: &mut Reader, n_ids: usize) -> Result<TokenTable, Unusable> {
        let [key, other_key, longest] = from.array()?;
        let slots: Table<u64> = from.table()?;
        let is_id = |&slot: &u64| slot == EMPTY || (slot as u32 as usize) < n_ids;
        check(
            slots.len().is_power_of_two()
                && slots.len() > 1
                && slots.contains(&EMPTY)
                && all(&slots, is_id),
            "a whole token is none",
        )?;
        Ok(TokenTable {
            shift: 64 - slots.len().trailing_zeros(),
            slots,
            keys: HashKeys::from_words([key, other_key]),
            longest: longest as usize,
        })
    }

    /// The id of the token that has exactly these bytes.
    #[inline]
    pub fn get(&self, vocabulary: &Vocabulary, piece: &[u8]) -> Option<u32> {
        if piece.len() > self.longest {
            return None;
        }
        let hash = self.keys.of_bytes(piece);
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return None;
            }
            if slot >> 32 == hash & 0xFFFF_FFFF && vocabulary.token(slot as u32) == piece {
                return Some(slot as u32);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of every length around that of a slot and that of a size byte.
    fn lengths() -> Vec<Vec<u8>> {
        (1..40)
            .chain([126, 127, 128, 129, 255, 256, 300])
            .map(|length| (0..length).map(|at| b'a' + (at % 23) as u8).collect())
            .collect()
    }

    #[test]
    fn filling_less_room_than_needed_stops_at_its_end() {
        let tokens = lengths();
        let vocabulary = Vocabulary::new((0..).zip(tokens.iter().map(Vec::as_slice)).collect());
        let ids: Vec<u32> = (0..46).chain(0..46).chain([u32::MAX, 3]).collect();
        let whole: Vec<u8> = ids
            .iter()
            .flat_map(|&id| vocabulary.token(id).to_vec())
            .collect();
        for room in 0..whole.len() {
            let mut out = vec![MaybeUninit::new(0); room];
            let n_written = vocabulary.fill(&ids[..], &mut out);
            assert!(n_written <= room && room - n_written < 300);
            // SAFETY: all of it was given a value.
            let written: Vec<u8> = out
                .iter()
                .map(|byte| unsafe { byte.assume_init() })
                .collect();
            assert_eq!(written[..n_written], whole[..n_written]);
        }
    }
}
