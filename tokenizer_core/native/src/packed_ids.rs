//! The ids of a piece as they stand in the tables of the cache.

use crate::pair_table::ID_BITS;
use crate::write_once::Line;

/// Ids that a word holds, `ID_BITS` each; the last word has their number in the bits left over.
const WORD_IDS: usize = 3;
const COUNT_SHIFT: u32 = WORD_IDS as u32 * ID_BITS;
const SHORT_IDS: usize = 2 * WORD_IDS;
const MIDDLE_IDS: usize = 4 * WORD_IDS;
const _: () = assert!(MIDDLE_IDS < 1 << (u64::BITS - COUNT_SHIFT));

/// The ids of a short piece: 1 to 6.
#[derive(Clone, Copy)]
pub struct Value(pub u128);

impl Value {
    /// The value that stands in a line for the key of a short piece.
    #[inline(always)]
    pub fn find(line: &Line, key: u128) -> Option<Value> {
        line.get(&words(key)).map(Value::from_words)
    }

    #[inline(always)]
    pub fn from_words(words: [u64; 2]) -> Value {
        Value(word(words))
    }

    #[inline(always)]
    pub fn as_words(self) -> [u64; 2] {
        words(self.0)
    }

    /// How many ids it has.
    #[inline(always)]
    pub fn count(self) -> usize {
        (self.0 >> (u64::BITS + COUNT_SHIFT)) as usize
    }

    /// The ids and, behind them, zeros.
    #[inline(always)]
    pub fn unpacked(self) -> [u32; 8] {
        let words = words(self.0);
        std::array::from_fn(|place| match place {
            0..SHORT_IDS => id_at(&words, place),
            _ => 0,
        })
    }

    /// None where there are too many.
    pub fn of(ids: &[u32]) -> Option<Value> {
        packed(ids).map(Value::from_words)
    }
}

/// The ids of a piece of the second table: 1 to 12.
pub struct MiddleValue {
    ids: [u32; MIDDLE_IDS],
    n_ids: usize,
}

impl MiddleValue {
    pub fn ids(&self) -> &[u32] {
        &self.ids[..self.n_ids]
    }

    #[inline]
    pub fn from_words(words: [u64; 4]) -> MiddleValue {
        MiddleValue {
            ids: std::array::from_fn(|place| id_at(&words, place)),
            n_ids: (words[3] >> COUNT_SHIFT) as usize,
        }
    }

    /// None where there are too many.
    pub fn words_of(ids: &[u32]) -> Option<[u64; 4]> {
        packed(ids)
    }
}

fn packed<const WORDS: usize>(ids: &[u32]) -> Option<[u64; WORDS]> {
    debug_assert!(ids.iter().all(|id| id >> ID_BITS == 0));
    if ids.len() > WORDS * WORD_IDS {
        return None;
    }
    let mut words = [0; WORDS];
    words[WORDS - 1] = (ids.len() as u64) << COUNT_SHIFT;
    for (place, &id) in ids.iter().enumerate() {
        words[place / WORD_IDS] |= u64::from(id) << (ID_BITS as usize * (place % WORD_IDS));
    }
    Some(words)
}

#[inline(always)]
fn id_at(words: &[u64], place: usize) -> u32 {
    let word = words[place / WORD_IDS] >> (ID_BITS as usize * (place % WORD_IDS));
    word as u32 & ((1 << ID_BITS) - 1)
}

#[inline(always)]
pub fn words(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

#[inline(always)]
pub fn word(words: [u64; 2]) -> u128 {
    u128::from(words[0]) | u128::from(words[1]) << 64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{AnyKernel, Kernel, OnKernel};

    struct IdsOf(Value);

    impl OnKernel for IdsOf {
        type Output = [u32; 8];

        fn run<K: Kernel>(self, kernel: K) -> [u32; 8] {
            kernel.ids_of(self.0)
        }
    }

    #[test]
    fn ids_come_back_as_they_were_packed_by_every_kernel() {
        let largest = (1 << ID_BITS) - 1;
        for n in 1..=MIDDLE_IDS + 1 {
            let ids: Vec<u32> = (0..n as u32)
                .map(|i| {
                    if i % 3 == 1 {
                        largest
                    } else {
                        (i * 77_777) % largest
                    }
                })
                .collect();
            assert_eq!(Value::of(&ids).is_some(), n <= SHORT_IDS);
            if let Some(value) = Value::of(&ids) {
                let value = Value::from_words(value.as_words());
                assert_eq!(value.unpacked()[..value.count()], ids);
                for kernel in AnyKernel::all() {
                    assert_eq!(kernel.run(IdsOf(value))[..n], ids, "{}", kernel.name());
                }
            }
            assert_eq!(MiddleValue::words_of(&ids).is_some(), n <= MIDDLE_IDS);
            if let Some(words) = MiddleValue::words_of(&ids) {
                assert_eq!(MiddleValue::from_words(words).ids(), ids);
            }
        }
    }
}
