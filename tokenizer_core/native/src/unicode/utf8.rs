//! UTF-8 of text as Python keeps it: an array of code points, of as many bytes each as its largest
//! needs.
//!
//! Python itself makes UTF-8 of a `str` in two copies, in small pages, and keeps it for as long as
//! the `str` lives. Of a long text in other than ASCII that takes a tenth to nearly a half of the time
//! of encoding it; this is several times as fast, and what it makes is gone with the call.

use std::mem::MaybeUninit;

use crate::mem::huge_pages;
use crate::simd::{Instructions, Kernel, Portable, Work};

/// A code point as an array of Python keeps it.
pub trait CodeUnit: Copy + Into<u32> + Send + Sync + std::ops::BitOr<Output = Self> {
    /// Bytes of UTF-8 that one has at most.
    const MAX_BYTES: usize;

    /// How many bytes of UTF-8 these have beyond one each; and whether one is a surrogate.
    fn measure(units: &[Self]) -> (usize, bool);
}

/// Counts in units of its own, so that a vector holds as many as there can be; a block is so
/// short that its sum fits one.
macro_rules! code_unit {
    ($Unit:ty, $block:literal) => {
        impl CodeUnit for $Unit {
            const MAX_BYTES: usize = if size_of::<$Unit>() == 4 {
                4
            } else {
                1 + size_of::<$Unit>()
            };

            #[inline(always)]
            fn measure(units: &[$Unit]) -> (usize, bool) {
                let (mut n_more, mut any_surrogate) = (0, false);
                for block in units.chunks($block) {
                    let (mut more, mut surrogates): ($Unit, $Unit) = (0, 0);
                    for &unit in block {
                        more += <$Unit>::from(unit >= 0x80);
                        if <$Unit>::BITS > 8 {
                            more += <$Unit>::from(unit >= 0x800_u32 as $Unit);
                            let is_surrogate =
                                unit & 0xFFFF_F800_u32 as $Unit == 0xD800_u32 as $Unit;
                            surrogates |= <$Unit>::from(is_surrogate);
                        }
                        if <$Unit>::BITS > 16 {
                            more += <$Unit>::from(unit >= 0x1_0000_u32 as $Unit);
                        }
                    }
                    n_more += more as usize;
                    any_surrogate |= surrogates != 0;
                }
                (n_more, any_surrogate)
            }
        }
    };
}

code_unit!(u8, 128);
code_unit!(u16, 4096);
code_unit!(u32, 4096);

/// Units looked at together.
pub const UNITS: usize = 16;

/// Bytes that their UTF-8 may be. So many are written, and there must be room for them.
pub const WIDEST: usize = 4 * UNITS;

/// Units for which room is made together.
const CHUNK: usize = 4096;

/// Bytes that the UTF-8 of four code points may be.
pub const ROW: usize = 16;

/// Writing the UTF-8 of several units at once, with each set of instructions.
pub trait WriteUtf8: Instructions {
    /// Writes the UTF-8 of these units, and anything behind it; how many bytes it is, and whether a unit
    /// is a surrogate, of which something else is written.
    fn write_utf8<U: CodeUnit>(self, units: &[U; UNITS], out: &mut Out) -> (usize, bool);
}

impl WriteUtf8 for Portable {
    #[inline(always)]
    fn write_utf8<U: CodeUnit>(self, units: &[U; UNITS], out: &mut Out) -> (usize, bool) {
        let all = units.iter().fold(0, |all, &unit| all | unit.into());
        if all < 0x80 {
            put(out, 0, units.map(|unit| unit.into() as u8));
            return (UNITS, false);
        }
        let mut at = 0;
        for four in units.map(Into::into).as_chunks().0 {
            let (row, length) = utf8_of_four(*four);
            put(out, at, row);
            at += length;
        }
        (at, U::measure(units).1)
    }
}

/// Why there is no UTF-8 of a text.
#[derive(Debug, PartialEq)]
pub enum NoUtf8 {
    Surrogate,
    Memory,
}

/// Appends the UTF-8 of `units`; fails where one is a surrogate, which has none.
pub fn append_utf8<U: CodeUnit>(
    kernel: Kernel,
    units: &[U],
    out: &mut Vec<u8>,
) -> Result<(), NoUtf8> {
    let before = out.len();
    for (place, chunk) in units.chunks(CHUNK).enumerate() {
        // There is room for whatever they are.
        let room = chunk.len() * U::MAX_BYTES + WIDEST;
        if out.capacity() - out.len() < room {
            // For what is left, if it is like what there was, or like this chunk, and some more; or
            // for this chunk.
            let (done, written) = match place * CHUNK {
                0 => (chunk.len(), chunk.len() + U::measure(chunk).0),
                done => (done, out.len() - before),
            };
            let left = units.len() - place * CHUNK;
            let estimate = left.div_ceil(CHUNK) * (written / done.div_ceil(CHUNK)) / 16 * 17 + room;
            out.try_reserve(estimate)
                .or_else(|_| out.try_reserve_exact(room))
                .map_err(|_| NoUtf8::Memory)?;
            huge_pages::advise(out.as_ptr(), out.capacity());
        }
        let (written, any_surrogate) = kernel.run(Write {
            units: chunk,
            out: out.spare_capacity_mut(),
        });
        if any_surrogate {
            return Err(NoUtf8::Surrogate);
        }
        // SAFETY: so many bytes were written behind what there was.
        unsafe { out.set_len(out.len() + written) };
    }
    Ok(())
}

/// Writes the UTF-8 of units to the start of `out`; how many bytes it is, and whether a unit is a
/// surrogate, of which it has something else.
struct Write<'c, U> {
    units: &'c [U],
    out: &'c mut [MaybeUninit<u8>],
}

impl<U: CodeUnit, K: WriteUtf8> Work<K> for Write<'_, U> {
    type Output = (usize, bool);

    #[inline(always)]
    fn run(self, kernel: K) -> (usize, bool) {
        let Write { units, out } = self;
        let (blocks, rest) = units.as_chunks::<UNITS>();
        let (mut at, mut any_surrogate) = (0, U::measure(rest).1);
        for block in blocks {
            let out = out[at..].first_chunk_mut().expect("room");
            let (written, is_surrogate) = kernel.write_utf8(block, out);
            at += written;
            any_surrogate |= is_surrogate;
        }
        for &unit in rest {
            let (row, length) = utf8_of_four([unit.into(), 0, 0, 0]);
            put(out[at..].first_chunk_mut().expect("room"), 0, row);
            at += length - 3;
        }
        (at, any_surrogate)
    }
}

/// What the UTF-8 of some code points is written to.
pub type Out = [MaybeUninit<u8>; WIDEST];

/// Writes a row to `out` from `at` on.
#[inline(always)]
pub fn put(out: &mut Out, at: usize, row: [u8; ROW]) {
    *out[at..].first_chunk_mut().expect("room") = row.map(MaybeUninit::new);
}

/// The UTF-8 of four code points, and anything behind it, and how many bytes it is.
#[inline(always)]
pub fn utf8_of_four(codes: [u32; 4]) -> ([u8; ROW], usize) {
    let (mut bytes, mut at) = ([0; ROW], 0);
    for code in codes {
        let tail = |shift: u32| (code >> shift & 0x3F | 0x80) as u8;
        let (four, length) = match code {
            0..0x80 => ([code as u8, 0, 0, 0], 1),
            0x80..0x800 => ([(code >> 6 | 0xC0) as u8, tail(0), 0, 0], 2),
            0x800..0x1_0000 => ([(code >> 12 | 0xE0) as u8, tail(6), tail(0), 0], 3),
            _ => ([(code >> 18 | 0xF0) as u8, tail(12), tail(6), tail(0)], 4),
        };
        *bytes[at..].first_chunk_mut().expect("at most 12 before") = four;
        at += length;
    }
    (bytes, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf8_of<U: CodeUnit>(kernel: Kernel, units: &[U]) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        append_utf8(kernel, units, &mut out)
            .map_err(|error| assert_eq!(error, NoUtf8::Surrogate))
            .ok()?;
        assert_eq!(out.drain(..6).as_slice(), b"before");
        Some(out)
    }

    #[test]
    fn every_character_beside_any_other_on_every_kernel() {
        for kernel in Kernel::all() {
            for character in '\0'..=char::MAX {
                let text = format!("{character}a{character}é中🙂{character}{character}zzzzzzzzz");
                let units: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(utf8_of(kernel, &units).unwrap(), text.as_bytes());
            }
        }
    }

    #[test]
    fn texts_of_each_width_and_any_length() {
        let mut state = 3u64;
        let mut random = |n: usize| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let all = [
            'a',
            ' ',
            'é',
            'ÿ',
            'Ж',
            '߿',
            'ࠀ',
            '中',
            '\u{ffff}',
            '\u{10000}',
            '🙂',
        ];
        for kernel in Kernel::all() {
            for round in 0..4_000 {
                let (first, kinds) = (random(2), 1 + random(all.len()));
                let chosen = &all[first.min(kinds - 1)..kinds];
                let text: String = (0..random(100))
                    .map(|i| {
                        if i % 40 < 20 && round % 2 == 0 {
                            'x'
                        } else {
                            chosen[random(chosen.len())]
                        }
                    })
                    .collect();
                let units: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(utf8_of(kernel, &units).unwrap(), text.as_bytes());
                if let Ok(units) = units
                    .iter()
                    .map(|&u| u16::try_from(u))
                    .collect::<Result<Vec<_>, _>>()
                {
                    assert_eq!(utf8_of(kernel, &units).unwrap(), text.as_bytes());
                }
                if let Ok(units) = units
                    .iter()
                    .map(|&u| u8::try_from(u))
                    .collect::<Result<Vec<_>, _>>()
                {
                    assert_eq!(utf8_of(kernel, &units).unwrap(), text.as_bytes());
                }
            }
        }
    }

    #[test]
    fn memory_is_made_for_what_grows_behind_an_ascii_beginning() {
        for kernel in Kernel::all() {
            for filler in ["a", "中", "🙂"] {
                let text = "a".repeat(CHUNK) + &filler.repeat(3 * CHUNK + 5) + "é";
                let units: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(utf8_of(kernel, &units).unwrap(), text.as_bytes());
            }
        }
    }

    #[test]
    fn a_surrogate_anywhere_is_seen() {
        for kernel in Kernel::all() {
            for surrogate in [0xD800u16, 0xDBFF, 0xDC00, 0xDFFF] {
                for place in [0, 15, 16, 17, 4095, 4096, 9_999] {
                    let mut units = vec![u16::from(b'a'); 10_000];
                    assert_eq!(utf8_of(kernel, &units).unwrap().len(), 10_000);
                    units[place] = surrogate;
                    assert_eq!(utf8_of(kernel, &units), None);
                    let wide: Vec<u32> = units.iter().map(|&unit| unit.into()).collect();
                    assert_eq!(utf8_of(kernel, &wide), None);
                }
            }
        }
    }
}
