//! The ids of a piece as packed values of the tables.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::cache::key::{MAX_MIDDLE_BYTES, MAX_SHORT_BYTES, word, words};
use crate::cache::table::{Line, Slot};
use crate::merge::pair_table::ID_BITS;

/// Ids in a word, `ID_BITS` each. The bits left over in the last word hold the number of ids, those
/// in the word before it the rest of that number.
const WORD_IDS: usize = 3;
const COUNT_SHIFT: u32 = WORD_IDS as u32 * ID_BITS;
const SHORT_IDS: usize = 2 * WORD_IDS;
const MIDDLE_IDS: usize = 4 * WORD_IDS;
const COUNT_BITS: u32 = u64::BITS - COUNT_SHIFT;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
const _: () = assert!(MAX_SHORT_BYTES as u64 <= MAX_COUNT);

/// The ids of a short piece: 1 to 6; or up to 15 if the sixth and all after it are equal, as in a
/// run of blanks where each is a token.
#[derive(Clone, Copy)]
pub struct Value(u128);

impl Value {
    /// Reads the value in a slot.
    #[inline(always)]
    pub fn read(words: &[AtomicU64; 2]) -> Value {
        Value::from_words([words[0].load(Relaxed), words[1].load(Relaxed)])
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
    #[cfg(test)]
    pub fn count(self) -> usize {
        count_of(words(self.0)[1])
    }

    /// The ids, followed by anything.
    #[inline(always)]
    pub fn unpacked<const N: usize>(self) -> [u32; N] {
        let words = words(self.0);
        std::array::from_fn(|position| id_at(&words, position.min(SHORT_IDS - 1)))
    }

    /// None where they do not fit.
    pub fn of(ids: &[u32]) -> Option<Value> {
        packed(ids, MAX_SHORT_BYTES).map(Value::from_words)
    }
}

/// The ids of a piece of the second table, or of a wide entry: 1 to 12; or up to 31 if the twelfth
/// and all after it are equal.
pub struct MiddleValue {
    ids: [u32; MIDDLE_IDS],
    n_ids: usize,
}

impl MiddleValue {
    pub const STORED: usize = MIDDLE_IDS;
    pub const MAX_IDS: usize = MAX_MIDDLE_BYTES;

    /// The first ids, of which the last stands for all after it, followed by anything; and the
    /// number of all ids, at most `MAX_IDS`.
    #[inline(always)]
    pub fn padded(self) -> ([u32; MIDDLE_IDS], usize) {
        (self.ids, self.n_ids)
    }

    /// The ids.
    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u32> {
        let same = std::iter::repeat(self.ids[MIDDLE_IDS - 1]);
        self.ids.into_iter().chain(same).take(self.n_ids).collect()
    }

    #[inline(always)]
    pub fn from_words(words: [u64; 4]) -> MiddleValue {
        MiddleValue {
            ids: std::array::from_fn(|position| id_at(&words, position)),
            // The bound makes sinks sound for any words.
            n_ids: (count_of(words[3]) | count_of(words[2]) << COUNT_BITS).min(Self::MAX_IDS),
        }
    }

    /// None where they do not fit.
    pub fn words_of(ids: &[u32]) -> Option<[u64; 4]> {
        packed(ids, MAX_MIDDLE_BYTES)
    }
}

/// Packs up to `max_ids` ids; those that exceed the words must equal the last one that fits.
fn packed<const WORDS: usize>(ids: &[u32], max_ids: usize) -> Option<[u64; WORDS]> {
    debug_assert!(ids.iter().all(|id| id >> ID_BITS == 0));
    let n_kept = WORDS * WORD_IDS;
    let (kept, same) = ids.split_at(ids.len().min(n_kept));
    if ids.len() > max_ids || same.iter().any(|id| id != &kept[n_kept - 1]) {
        return None;
    }
    let mut words = [0; WORDS];
    words[WORDS - 1] = (ids.len() as u64 & MAX_COUNT) << COUNT_SHIFT;
    words[WORDS - 2] = (ids.len() as u64 >> COUNT_BITS) << COUNT_SHIFT;
    for (position, &id) in kept.iter().enumerate() {
        words[position / WORD_IDS] |= u64::from(id) << (ID_BITS as usize * (position % WORD_IDS));
    }
    Some(words)
}

#[inline(always)]
fn id_at(words: &[u64], position: usize) -> u32 {
    let word = words[position / WORD_IDS] >> (ID_BITS as usize * (position % WORD_IDS));
    word as u32 & ((1 << ID_BITS) - 1)
}

/// The number of ids in a slot, at most 15.
#[inline(always)]
pub fn count_in(line: &Line, slot: Slot) -> usize {
    count_of(line.words_in(slot)[1].load(Relaxed))
}

#[inline(always)]
fn count_of(last_word: u64) -> usize {
    (last_word >> COUNT_SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::probe::Probe;
    use crate::simd::{Kernel, Work};

    struct IdsOf(Value);

    impl<K: Probe> Work<K> for IdsOf {
        type Output = ([u32; 8], usize);

        fn run(self, kernel: K) -> ([u32; 8], usize) {
            let [low, high] = self.0.as_words();
            let first = line_of([7, 1, 7, 2], [low, high, !low, !high]);
            let second = line_of([7, 2, 7, 1], [!low, !high, low, high]);
            let [first, second] = [first, second].map(|line| {
                let slot = kernel.find(&line, &word([7, 1])).expect("its key");
                (kernel.ids_in(&line, slot), count_in(&line, slot))
            });
            assert_eq!(first, second);
            first
        }
    }

    fn line_of(keys: [u64; 4], values: [u64; 4]) -> Line {
        Line {
            keys: keys.map(AtomicU64::new),
            values: values.map(AtomicU64::new),
        }
    }

    fn some_ids(n: usize) -> Vec<u32> {
        let largest = (1 << ID_BITS) - 1;
        let id = |i: u32| {
            if i % 3 == 1 {
                largest
            } else {
                i * 77_777 % largest
            }
        };
        (0..n as u32).map(id).collect()
    }

    fn assert_comes_back(value: Value, ids: &[u32]) {
        let value = Value::from_words(value.as_words());
        let unpacked: [u32; MAX_SHORT_BYTES] = value.unpacked();
        assert_eq!(unpacked[..value.count()], *ids);
        for kernel in Kernel::all() {
            let (found, count) = kernel.run(IdsOf(value));
            assert_eq!(count, ids.len());
            let n = count.min(found.len());
            assert_eq!(found[..n], ids[..n], "{}", kernel.name());
            let is_more_the_same = ids[n..].iter().all(|id| *id == found[7]);
            assert!(is_more_the_same, "{}", kernel.name());
        }
    }

    #[test]
    fn ids_come_back_as_they_were_packed_by_every_kernel() {
        for n in 1..=MIDDLE_IDS + 1 {
            let ids = some_ids(n);
            assert_eq!(Value::of(&ids).is_some(), n <= SHORT_IDS);
            if let Some(value) = Value::of(&ids) {
                assert_comes_back(value, &ids);
            }
            assert_eq!(MiddleValue::words_of(&ids).is_some(), n <= MIDDLE_IDS);
            if let Some(words) = MiddleValue::words_of(&ids) {
                assert_eq!(MiddleValue::from_words(words).to_vec(), ids);
            }
        }
    }

    #[test]
    fn only_a_whole_key_is_found_by_every_kernel() {
        struct Find(Line, u128);
        impl<K: Probe> Work<K> for Find {
            type Output = Option<usize>;

            fn run(self, kernel: K) -> Option<usize> {
                kernel.find(&self.0, &self.1).map(Slot::offset)
            }
        }
        for kernel in Kernel::all() {
            for keys in [
                [1, 2, 3, 4],
                [1, 4, 3, 2],
                [3, 2, 1, 4],
                [2, 1, 1, 2],
                [0; 4],
            ] {
                for (low, high) in (1..5).flat_map(|low| (1..5).map(move |high| (low, high))) {
                    let slot = keys.chunks(2).position(|key| key == [low, high]);
                    let found = kernel.run(Find(line_of(keys, [0; 4]), word([low, high])));
                    assert_eq!(found, slot.map(|slot| 16 * slot), "{}", kernel.name());
                }
            }
        }
    }

    #[test]
    fn more_ids_of_a_middle_piece_fit_where_the_last_are_the_same() {
        for n_before in 0..=MIDDLE_IDS {
            for n_same in 1..=MAX_MIDDLE_BYTES + 1 {
                let mut ids = some_ids(n_before);
                ids.extend(std::iter::repeat_n(220, n_same));
                let words = MiddleValue::words_of(&ids);
                let fits = ids.len() <= MIDDLE_IDS
                    || (n_before < MIDDLE_IDS && ids.len() <= MAX_MIDDLE_BYTES);
                assert_eq!(words.is_some(), fits, "{ids:?}");
                if let Some(words) = words {
                    assert_eq!(MiddleValue::from_words(words).to_vec(), ids);
                }
            }
        }
    }

    #[test]
    fn more_ids_fit_where_the_last_are_the_same() {
        for n_before in 0..=SHORT_IDS {
            for n_same in 1..=MAX_SHORT_BYTES + 1 {
                let mut ids = some_ids(n_before);
                ids.extend(std::iter::repeat_n(220, n_same));
                let fits = ids.len() <= SHORT_IDS
                    || (n_before < SHORT_IDS && ids.len() <= MAX_SHORT_BYTES);
                assert_eq!(Value::of(&ids).is_some(), fits, "{ids:?}");
                if let Some(value) = Value::of(&ids) {
                    assert_comes_back(value, &ids);
                }
            }
        }
    }
}
