//! The tie rule: which of several pairs with the same count comes first.

use std::cmp::Ordering;

use super::symbols::N_BYTES;
use crate::mem::growth::{Grow, NoMemory};

/// Which of several pairs with the highest count is merged first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TieBreak {
    /// The greatest (left bytes, right bytes), one side after the other.
    Lexicographic,
    /// The smallest pair of ids as the `tokenizers` library numbers them.
    HuggingFace,
}

/// The bytes of each symbol, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenTable {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TokenTable {
    fn of_bytes() -> Self {
        TokenTable {
            bytes: (0..=255).collect(),
            ends: (1..=N_BYTES).collect(),
        }
    }

    /// The number of symbols.
    #[allow(clippy::len_without_is_empty)] // the bytes are always there
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of symbol `id`.
    pub fn get(&self, id: usize) -> &[u8] {
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..self.ends[id]]
    }

    fn push_joined(&mut self, left: usize, right: usize) -> Result<(), NoMemory> {
        for id in [left, right] {
            let start = if id == 0 { 0 } else { self.ends[id - 1] };
            self.bytes.try_reserve(self.ends[id] - start)?;
            self.bytes.extend_from_within(start..self.ends[id]);
        }
        self.ends.try_push(self.bytes.len())
    }

    /// The first eight bytes as a number that orders as they do, padded with zeros: it cannot order
    /// two tokens with equal prefixes.
    fn prefix(&self, id: usize) -> u64 {
        let token = self.get(id);
        let mut first = [0; 8];
        let n = token.len().min(8);
        first[..n].copy_from_slice(&token[..n]);
        u64::from_be_bytes(first)
    }
}

/// What orders pairs of one count: the greatest comes first.
pub(super) struct TieOrder {
    tie_break: TieBreak,
    pub(super) tokens: TokenTable,
    /// The key of each symbol, which is compared first; equal keys of different symbols decide
    /// nothing.
    pub(super) keys: Vec<u64>,
}

impl TieOrder {
    pub(super) fn new(tie_break: TieBreak) -> Self {
        let tokens = TokenTable::of_bytes();
        let keys = match tie_break {
            TieBreak::Lexicographic => (0..N_BYTES).map(|byte| tokens.prefix(byte)).collect(),
            TieBreak::HuggingFace => {
                // The byte-to-unicode alphabet of GPT-2 maps printable bytes to themselves and the
                // others, in order, to characters after them.
                let is_own = |byte: &usize| matches!(byte, 33..=126 | 161..=172 | 174..=255);
                let (own, others): (Vec<_>, Vec<_>) = (0..N_BYTES).partition(is_own);
                let mut keys = vec![0; N_BYTES];
                for (rank, byte) in own.into_iter().chain(others).enumerate() {
                    keys[byte] = u64::MAX - rank as u64;
                }
                keys
            }
        };
        TieOrder {
            tie_break,
            tokens,
            keys,
        }
    }

    /// Adds the product of two symbols, and gives its id.
    pub(super) fn push(&mut self, left: usize, right: usize) -> Result<usize, NoMemory> {
        let id = self.keys.len();
        self.tokens.push_joined(left, right)?;
        self.keys.try_push(match self.tie_break {
            TieBreak::Lexicographic => self.tokens.prefix(id),
            TieBreak::HuggingFace => u64::MAX - id as u64,
        })?;
        Ok(id)
    }

    /// Whether the product of two symbols has at most `longest` bytes.
    #[inline(always)]
    pub(super) fn fits(&self, left: usize, right: usize, longest: usize) -> bool {
        longest == usize::MAX
            || self.tokens.get(left).len() + self.tokens.get(right).len() <= longest
    }

    pub(super) fn compare(&self, a: &Tied, b: &Tied) -> Ordering {
        (a.left_key.cmp(&b.left_key))
            .then_with(|| self.compare_tokens(a.left, b.left))
            .then_with(|| a.right_key.cmp(&b.right_key))
            .then_with(|| self.compare_tokens(a.right, b.right))
    }

    fn compare_tokens(&self, a: u32, b: u32) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        self.tokens.get(a as usize).cmp(self.tokens.get(b as usize))
    }
}

/// A pair among others of the same count.
#[derive(Clone, Copy)]
pub(super) struct Tied {
    pub(super) left_key: u64,
    pub(super) right_key: u64,
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) pair: u32,
}
