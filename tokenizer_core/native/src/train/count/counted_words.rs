//! Distinct words with their counts, packed: the output of counting and the input of learning.

use crate::mem::growth::{Grow, NoMemory, with_room};

/// The most bytes of a number.
pub(super) const LONGEST_NUMBER: usize = 10;

/// Three columns, and the position after them.
pub type Columns = ([Vec<u8>; 3], usize);

/// Words, each once, with how often each occurs; one after the other in one block of memory as
/// length, bytes, count, the numbers in seven bits a byte.
#[derive(Clone, Debug, Default)]
pub struct CountedWords {
    packed: Vec<u8>,
    n_words: usize,
    n_occurrences: u64,
    n_bytes: u64,
}

impl CountedWords {
    /// With room for words of `size` bytes, lengths and counts included.
    pub fn with_room(size: usize) -> Result<CountedWords, NoMemory> {
        Ok(CountedWords {
            packed: with_room(size)?,
            ..CountedWords::default()
        })
    }

    /// Adds a word that is not there yet, with a count of at least 1.
    pub fn push(&mut self, word: &[u8], count: u64) -> Result<(), NoMemory> {
        self.packed.try_reserve(word.len() + 2 * LONGEST_NUMBER)?;
        push_number(&mut self.packed, word.len() as u64);
        self.packed.extend_from_slice(word);
        push_number(&mut self.packed, count);
        self.n_words += 1;
        // Sums that do not fit are refused by the learner; they must not look small here.
        self.n_occurrences = self.n_occurrences.saturating_add(count);
        let size = count.saturating_mul(word.len() as u64);
        self.n_bytes = self.n_bytes.saturating_add(size);
        Ok(())
    }

    /// Gives back memory that was kept for words to come.
    pub(super) fn shrink(&mut self) {
        self.packed.shrink_to_fit();
    }

    /// Distinct words.
    pub fn len(&self) -> usize {
        self.n_words
    }

    pub fn is_empty(&self) -> bool {
        self.n_words == 0
    }

    /// The sum of all counts.
    pub fn n_occurrences(&self) -> u64 {
        self.n_occurrences
    }

    /// Bytes of all occurrences.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// The same words in the order of their bytes.
    pub fn sorted(&self) -> Result<CountedWords, NoMemory> {
        let mut order: Vec<(&[u8], u64)> = with_room(self.n_words)?;
        order.extend(self);
        order.sort_unstable();
        let mut words = CountedWords::with_room(self.packed.len())?;
        for (word, count) in order {
            words.push(word, count)?;
        }
        Ok(words)
    }

    /// Whether each word comes before the next in the order of their bytes.
    pub fn is_sorted(&self) -> bool {
        self.iter().is_sorted_by(|a, b| a.0 < b.0)
    }

    /// Up to `n_words` words, which are UTF-8, from `position` on, the first being at 0: characters of
    /// each (u32), count of each (u64), both little-endian, all of them joined, and the position after.
    pub fn columns(&self, position: usize, n_words: usize) -> Result<Columns, NoMemory> {
        let is_first = |&&byte: &&u8| byte & 0xC0 != 0x80; // of a character
        let (mut lengths, mut counts, mut text) = (Vec::new(), Vec::new(), Vec::new());
        let mut words = Words(self.packed.get(position..).unwrap_or_default());
        for (word, count) in words.by_ref().take(n_words) {
            let length = word.iter().filter(is_first).count() as u32;
            lengths.try_extend(&length.to_le_bytes())?;
            counts.try_extend(&count.to_le_bytes())?;
            text.try_extend(word)?;
        }
        Ok(([lengths, counts, text], self.packed.len() - words.0.len()))
    }

    pub fn iter(&self) -> Words<'_> {
        Words(&self.packed)
    }
}

impl<'a> IntoIterator for &'a CountedWords {
    type Item = (&'a [u8], u64);
    type IntoIter = Words<'a>;

    fn into_iter(self) -> Words<'a> {
        self.iter()
    }
}

/// The words with their counts, in no particular order.
#[derive(Clone)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = (&'a [u8], u64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let len = read_number(&mut self.0) as usize;
        let (word, rest) = self.0.split_at(len);
        self.0 = rest;
        Some((word, read_number(&mut self.0)))
    }
}

/// Seven bits a byte, the lowest first; the eighth bit says that more follow.
#[inline]
pub(super) fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes what `push_number` wrote from the beginning of `bytes`.
#[inline]
pub(super) fn read_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}
