//! Ids as the text of a JSON array, without white space.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::mem::growth::collected;

/// The most bytes of an id and the comma after it.
const LONGEST: usize = 11;

/// Ids below this have their text made once: all ids of today's vocabularies. 2 MiB.
const N_WORDS: u32 = 1 << 18;

/// The digits of each id and a comma, the first in the low byte; their number in the highest byte.
/// Rendering takes a third of the time that dividing by a hundred takes.
static WORDS: OnceLock<Vec<u64>> = OnceLock::new();

/// Those words; none without memory for them, and rendering then takes longer.
fn words() -> &'static [u64] {
    if WORDS.get().is_none() {
        let Ok(words) = collected((0..N_WORDS).map(make_word)) else {
            return &[];
        };
        let _ = WORDS.set(words); // or another thread has made them
    }
    WORDS.get().map_or(&[], Vec::as_slice)
}

/// How many bytes `write` writes for these ids.
pub fn n_bytes(ids: &[u32]) -> usize {
    let n_bytes: usize = ids.chunks(1 << 12).map(n_bytes_of_chunk).sum();
    // The closing bracket overwrites the last comma.
    1 + n_bytes.max(1)
}

/// The bytes of the digits and commas. Comparisons of ids that are not too large become vectors, which is
/// faster than reading the table.
fn n_bytes_of_chunk(ids: &[u32]) -> usize {
    let (mut n_bytes, mut bits) = (2 * ids.len() as u32, 0);
    for &id in ids {
        bits |= id;
        n_bytes += u32::from(id >= 10) + u32::from(id >= 100) + u32::from(id >= 1000);
        n_bytes += u32::from(id >= 10_000) + u32::from(id >= 100_000);
    }
    if bits < 1 << 19 {
        n_bytes as usize
    } else {
        ids.iter().map(|&id| n_digits(id) + 1).sum()
    }
}

/// Writes the array of the ids, `[1,22,333]`, to `out`.
///
/// Panics unless `out` has the length that `n_bytes` says; otherwise it fills all of `out`.
pub fn write(ids: &[u32], out: &mut [MaybeUninit<u8>]) {
    assert!(out.len() >= 2);
    out[0].write(b'[');
    let (words, mut at) = (words(), 1);
    for &id in ids {
        let rest = &mut out[at..];
        at += match (words.get(id as usize), rest.first_chunk_mut()) {
            // A whole word is written, and the next id overwrites what follows the comma.
            (Some(word), Some(start)) => {
                *start = word.to_le_bytes().map(MaybeUninit::new);
                (word >> 56) as usize
            }
            _ => write_last(id, rest),
        };
    }
    let end = at.max(2);
    assert_eq!(end, out.len());
    out[end - 1].write(b']');
}

/// Writes an id without a word, or one near the end of the array.
#[cold]
fn write_last(id: u32, out: &mut [MaybeUninit<u8>]) -> usize {
    let mut digits = [0; LONGEST];
    let n_bytes = write_digits(id, &mut digits);
    for (position, byte) in out[..n_bytes].iter_mut().zip(digits) {
        position.write(byte);
    }
    n_bytes
}

fn make_word(id: u32) -> u64 {
    let mut digits = [0; LONGEST];
    let n_bytes = write_digits(id, &mut digits);
    let mut word = [0; 8];
    word[..n_bytes].copy_from_slice(&digits[..n_bytes]);
    word[7] = n_bytes as u8;
    u64::from_le_bytes(word)
}

fn n_digits(id: u32) -> usize {
    id.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Writes `id` and a comma to the beginning of `digits`; returns how many bytes they are.
fn write_digits(id: u32, digits: &mut [u8; LONGEST]) -> usize {
    let n_digits = n_digits(id);
    let mut number = id;
    for digit in digits[..n_digits].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits[n_digits] = b',';
    n_digits + 1
}
