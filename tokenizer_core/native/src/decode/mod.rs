//! Ids to bytes: their number in one pass, the bytes in another.
//!
//! Both passes read one small table for each id, without a branch that depends on the token: the
//! first a byte of size and kind, the second a slot of 16 bytes, which is copied whole for a token
//! of any length and holds that length in its last byte.
//!
//! `streams` decodes ids that arrive in parts, `rows` those of several texts.

pub mod rows;
pub mod stop_strings;
pub mod streams;
pub mod text;
pub mod vocabulary;

use std::mem::MaybeUninit;

use crate::mem::sections::{Reader, Unusable, Writer, check};
use crate::mem::table::Table;

/// Bytes of a slot; a token shorter than that fits.
const SLOT: usize = 16;
/// In the last byte of a slot: the token does not fit.
const LONG: u8 = 0xff;

/// In a size byte: the token is not ASCII; it does not exist, or its size does not fit.
const NOT_ASCII: u8 = 0x80;
const UNUSUAL: u8 = 0x40;
const SIZE: u8 = UNUSUAL - 1;

/// Ids that are decoded together.
const GROUP: usize = 8;

/// The size of decoded ids.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    pub n_bytes: usize,
    pub is_ascii: bool,
}

/// The tables of a vocabulary.
pub struct DecodeTables {
    /// Of each id, about the bytes of its token.
    sizes: Table<u8>,
    slots: Table<[u8; SLOT]>,
}

impl DecodeTables {
    /// Of the bytes of each id from 0 on, empty for an id without a token: `starts` says where they begin
    /// and the last ones end.
    pub fn new(bytes: &[u8], starts: &[u32]) -> DecodeTables {
        let (sizes, slots): (Vec<u8>, Vec<_>) = sizes_and_slots(bytes, starts).unzip();
        DecodeTables {
            sizes: sizes.into(),
            slots: slots.into(),
        }
    }

    pub fn write(&self, to: &mut Writer) {
        to.table(&self.sizes);
        to.table(&self.slots);
    }

    /// They must be those that `new` makes: the length in a slot says how far `fill` writes, and bytes that
    /// are ASCII by their size become a `str` unchecked.
    pub fn read(from: &mut Reader, bytes: &[u8], starts: &[u32]) -> Result<DecodeTables, Unusable> {
        let (sizes, slots): (Table<u8>, Table<_>) = (from.table()?, from.table()?);
        let n_ids = starts.len() - 1;
        let entries = sizes.iter().copied().zip(slots.iter().copied());
        let are_equal = sizes.len() == n_ids
            && slots.len() == n_ids
            && entries.eq(sizes_and_slots(bytes, starts));
        check(are_equal, "the tables of decoding are of other tokens")?;
        Ok(DecodeTables { sizes, slots })
    }

    /// The size of decoded `ids`, or the index of the first without a token as an error. `token`
    /// gives the bytes of an id.
    pub fn measure<'v>(
        &self,
        ids: &[u32],
        token: impl Fn(u32) -> &'v [u8],
    ) -> Result<Measure, usize> {
        const BLOCK: usize = 1 << 12;
        let (mut n_bytes, mut all_kinds) = (0, 0);
        for (number, block) in ids.chunks(BLOCK).enumerate() {
            let (mut sum, mut kinds) = (0, 0);
            for &id in block {
                let size = *self.sizes.get(id as usize).unwrap_or(&UNUSUAL);
                kinds |= size;
                sum += usize::from(size & SIZE);
            }
            if kinds & UNUSUAL != 0 {
                sum = 0;
                for (index, &id) in (number * BLOCK..).zip(block) {
                    match token(id).len() {
                        0 => return Err(index),
                        length => sum += length,
                    }
                }
            }
            n_bytes += sum;
            all_kinds |= kinds;
        }
        let is_ascii = all_kinds & NOT_ASCII == 0;
        Ok(Measure { n_bytes, is_ascii })
    }

    /// Writes the bytes of `ids` from the start of `out`, and nothing after its end. Returns how
    /// many: `out.len()` if `measure` said so of the same ids.
    // Inlined into its caller, decoding Chinese takes a tenth longer.
    #[inline(never)]
    pub fn fill<'v>(
        &self,
        ids: &[u32],
        out: &mut [MaybeUninit<u8>],
        token: impl Fn(u32) -> &'v [u8],
    ) -> usize {
        let (mut at, mut index) = (0, 0);
        // In groups, with one check for room each.
        while index + GROUP <= ids.len() && at + GROUP * SLOT <= out.len() {
            let before = index;
            for _ in 0..GROUP {
                let Some(slot) = self.slots.get(ids[index] as usize) else {
                    break;
                };
                if slot[SLOT - 1] == LONG {
                    break;
                }
                // SAFETY: a slot is copied whole; the next token overwrites the bytes after this
                // one. The group had room for this many slots, and `at` has grown by less than a
                // slot for each before this one.
                unsafe { out.as_mut_ptr().add(at).cast::<[u8; SLOT]>().write(*slot) };
                at += usize::from(slot[SLOT - 1]);
                index += 1;
            }
            if index < before + GROUP {
                let Some(end) = write_token(token(ids[index]), out, at) else {
                    return at;
                };
                at = end;
                index += 1;
            }
        }
        for &id in &ids[index..] {
            let Some(end) = write_token(token(id), out, at) else {
                return at;
            };
            at = end;
        }
        at
    }
}

fn sizes_and_slots(bytes: &[u8], starts: &[u32]) -> impl Iterator<Item = (u8, [u8; SLOT])> {
    const LAST: u32 = u8::BITS * (SLOT as u32 - 1);
    let ends = starts.windows(2);
    ends.map(|ends| {
        let token = &bytes[ends[0] as usize..ends[1] as usize];
        let first = match bytes[ends[0] as usize..].first_chunk() {
            Some(first) => *first,
            None => std::array::from_fn(|at| token.get(at).copied().unwrap_or(0)),
        };
        // As a number: written byte by byte and then read as a whole, it would wait for the writes.
        let n_kept = token.len().min(SLOT - 1) as u32;
        let kept = u128::from_le_bytes(first) & ((1 << (u8::BITS * n_kept)) - 1);
        let is_short = token.len() < SLOT;
        let last = if is_short { token.len() as u8 } else { LONG };
        let is_ascii = match is_short {
            true => kept & u128::from_le_bytes([NOT_ASCII; SLOT]) == 0,
            false => token.is_ascii(),
        };
        let is_usual = (1..=SIZE.into()).contains(&token.len());
        let size = if is_usual { token.len() as u8 } else { UNUSUAL };
        let kind = if is_ascii { 0 } else { NOT_ASCII };
        (kind | size, (kept | u128::from(last) << LAST).to_le_bytes())
    })
}

/// Writes one token if there is room; returns where it ends.
fn write_token(token: &[u8], out: &mut [MaybeUninit<u8>], at: usize) -> Option<usize> {
    let end = at + token.len();
    for (position, byte) in out.get_mut(at..end)?.iter_mut().zip(token) {
        position.write(*byte);
    }
    Some(end)
}
