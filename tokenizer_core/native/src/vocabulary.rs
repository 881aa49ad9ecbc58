//! id -> bytes, for decoding, and bytes -> id, for pre-tokens that are taken whole.

use crate::keyed_hash::HashKeys;

/// The bytes of every id; an id without a token has none.
pub struct Vocabulary {
    bytes: Vec<u8>,
    /// Where the bytes of each id begin; one more than there are ids.
    starts: Vec<usize>,
    /// The first 16 bytes of each token, copied whole where there is room: a copy of known length
    /// is one instruction, and nine in ten tokens are shorter.
    heads: Vec<[u8; 16]>,
}

impl Vocabulary {
    /// Of `(id, bytes)` in any order; ids are below 2^20, so the tables can always be held.
    pub fn new(mut tokens: Vec<(u32, &[u8])>) -> Vocabulary {
        tokens.sort_by_key(|token| token.0);
        let n_ids = tokens.last().map_or(0, |token| token.0 as usize + 1);
        let mut starts = vec![0; n_ids + 1];
        let mut heads = vec![[0; 16]; n_ids];
        let mut bytes = Vec::new();
        let mut next = 0;
        for (id, token) in tokens {
            let id = id as usize;
            starts[next..=id].fill(bytes.len());
            let head = token.len().min(16);
            heads[id][..head].copy_from_slice(&token[..head]);
            bytes.extend_from_slice(token);
            next = id + 1;
        }
        starts[next..].fill(bytes.len());
        Vocabulary {
            bytes,
            starts,
            heads,
        }
    }

    /// One more than the largest id.
    pub fn n_ids(&self) -> usize {
        self.heads.len()
    }

    /// The bytes of an id; empty when it has no token.
    #[inline]
    pub fn token(&self, id: u32) -> &[u8] {
        let id = id as usize;
        if id >= self.n_ids() {
            return &[];
        }
        &self.bytes[self.starts[id]..self.starts[id + 1]]
    }

    /// How many bytes `ids` decode to; the index of the first id without a token as an error.
    pub fn decoded_len(&self, ids: &[u32]) -> Result<usize, usize> {
        let mut total = 0;
        for (index, &id) in ids.iter().enumerate() {
            let length = self.token(id).len();
            if length == 0 {
                return Err(index);
            }
            total += length;
        }
        Ok(total)
    }

    /// Writes the bytes of `ids` to `out`, which is as long as `decoded_len` said.
    pub fn decode_into(&self, ids: &[u32], out: &mut [u8]) {
        let mut at = 0;
        for &id in ids {
            let length = self.token(id).len();
            if length <= 16 && at + 16 <= out.len() {
                // What is written behind the token is overwritten by the next one.
                out[at..at + 16].copy_from_slice(&self.heads[id as usize]);
            } else {
                out[at..at + length].copy_from_slice(self.token(id));
            }
            at += length;
        }
    }
}

/// bytes -> id of the tokens that encoding can produce, in a table at most half full.
pub struct TokenTable {
    /// `tag << 32 | id`; the tag is other bits of the hash than those that choose the slot.
    slots: Vec<u64>,
    shift: u32,
    keys: HashKeys,
    longest: usize,
}

const EMPTY: u64 = u64::MAX;

impl TokenTable {
    /// Of ids whose bytes `vocabulary` has.
    pub fn new(vocabulary: &Vocabulary, ids: &[u32]) -> TokenTable {
        let bits = (2 * ids.len().max(8)).next_power_of_two().trailing_zeros();
        let mut table = TokenTable {
            slots: vec![EMPTY; 1 << bits],
            shift: 64 - bits,
            keys: HashKeys::random(),
            longest: 0,
        };
        for &id in ids {
            let token = vocabulary.token(id);
            table.longest = table.longest.max(token.len());
            let hash = table.keys.of_bytes(token);
            let mut at = (hash >> table.shift) as usize;
            while table.slots[at] != EMPTY {
                at = (at + 1) & (table.slots.len() - 1);
            }
            table.slots[at] = hash << 32 | u64::from(id);
        }
        table
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

    #[test]
    fn gaps_have_no_token_and_decoding_names_the_first() {
        let vocabulary = Vocabulary::new(vec![(5, b"five"), (0, b"zero"), (2, b"two")]);
        assert_eq!(vocabulary.n_ids(), 6);
        assert_eq!(vocabulary.token(5), b"five");
        assert_eq!(vocabulary.decoded_len(&[0, 5, 2]), Ok(11));
        assert_eq!(vocabulary.decoded_len(&[0, 5, 3, 9]), Err(2));
        assert_eq!(vocabulary.decoded_len(&[u32::MAX]), Err(0));
    }

    #[test]
    fn decoding_writes_exactly_the_bytes() {
        let long = [b'x'; 40];
        let edge = [b'e'; 16];
        let vocabulary = Vocabulary::new(vec![(0, b"a"), (1, &long), (2, &edge), (3, b"bc")]);
        for ids in [
            &[0, 1, 2, 3, 0][..],
            &[0; 40],
            &[3, 3, 1],
            &[2],
            &[1, 0],
            &[],
        ] {
            let mut out = vec![0; vocabulary.decoded_len(ids).unwrap()];
            vocabulary.decode_into(ids, &mut out);
            let expected: Vec<u8> = ids
                .iter()
                .flat_map(|&id| vocabulary.token(id).to_vec())
                .collect();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn tokens_are_found_whole_and_nothing_else_is() {
        let names: Vec<Vec<u8>> = (0..5000u32)
            .map(|i| format!("{i:05}").repeat(1 + i as usize % 9).into_bytes())
            .collect();
        let vocabulary = Vocabulary::new((0..).zip(names.iter().map(Vec::as_slice)).collect());
        let ids: Vec<u32> = (0..5000).filter(|id| id % 2 == 0).collect();
        let table = TokenTable::new(&vocabulary, &ids);
        for (id, name) in (0..).zip(&names) {
            let expected = (id % 2 == 0).then_some(id);
            assert_eq!(table.get(&vocabulary, name), expected);
            assert_eq!(table.get(&vocabulary, &[name, &b"\0"[..]].concat()), None);
            assert_eq!(table.get(&vocabulary, &name[1..]), None);
        }
    }
}
