//! UTF-8 of text in the widths that Python stores (PEP 393): an array of code points, of as many
//! bytes each as the largest needs.
//!
//! Python itself makes the UTF-8 of a `str` in two copies, in small pages, and keeps it for as long
//! as the `str` lives. For a long text outside ASCII that takes a tenth to nearly a half of the
//! time of encoding it. This is several times as fast, and its memory ends with the call.

use std::mem::MaybeUninit;

use crate::mem::huge_pages;
use crate::mem::prefetch::prefetch;
use crate::simd::{Instructions, Kernel, Portable, Work};
use crate::stop::Stopped;

/// A code point in one of Python's widths.
pub trait CodePoint: Copy + Into<u32> + Send + Sync + std::ops::BitOr<Output = Self> {
    /// The most bytes of UTF-8 that one has.
    const MAX_BYTES: usize;

    /// How many bytes of UTF-8 these have in addition to one each; and whether one is a surrogate.
    fn measure(points: &[Self]) -> (usize, bool);
}

/// Counts in the width of the array, so that a vector holds as many counts as possible; a block is
/// so short that its sum fits.
macro_rules! code_point {
    ($Width:ty, $block:literal) => {
        impl CodePoint for $Width {
            const MAX_BYTES: usize = if size_of::<$Width>() == 4 {
                4
            } else {
                1 + size_of::<$Width>()
            };

            #[inline(always)]
            fn measure(points: &[$Width]) -> (usize, bool) {
                let (mut n_more, mut any_surrogate) = (0, false);
                for block in points.chunks($block) {
                    let (mut more, mut surrogates): ($Width, $Width) = (0, 0);
                    for &point in block {
                        more += <$Width>::from(point >= 0x80);
                        if <$Width>::BITS > 8 {
                            more += <$Width>::from(point >= 0x800_u32 as $Width);
                            let is_surrogate =
                                point & 0xFFFF_F800_u32 as $Width == 0xD800_u32 as $Width;
                            surrogates |= <$Width>::from(is_surrogate);
                        }
                        if <$Width>::BITS > 16 {
                            more += <$Width>::from(point >= 0x1_0000_u32 as $Width);
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

code_point!(u8, 128);
code_point!(u16, 4096);
code_point!(u32, 4096);

/// Code points processed together.
pub const POINTS: usize = 16;

/// The most bytes of their UTF-8. This many are written, and there must be room for them.
pub const WIDEST: usize = 4 * POINTS;

/// Code points that room is made for together.
const CHUNK: usize = 4096;

/// Points are prefetched this many ahead, beyond the page up to which the processor does so by itself: a
/// thirtieth of the time of tweets and code seen before.
const AHEAD: usize = 512;

/// Bytes that the UTF-8 of four code points may be.
pub const ROW: usize = 16;

/// Writing the UTF-8 of several code points at once, with each instruction set.
///
/// # Safety
/// `write_utf8` writes as many bytes as it returns, and they are UTF-8 unless it reports a
/// surrogate.
pub unsafe trait WriteUtf8: Instructions {
    /// Writes the UTF-8 of these points, perhaps followed by other bytes. Returns how many bytes the
    /// UTF-8 has, and whether a point is a surrogate.
    #[inline(always)]
    fn write_utf8<U: CodePoint>(self, points: &[U; POINTS], out: &mut Out) -> (usize, bool) {
        let all = points.iter().fold(0, |all, &point| all | point.into());
        if all < 0x80 {
            put(out, 0, points.map(|point| point.into() as u8));
            return (POINTS, false);
        }
        let mut at = 0;
        for four in points.map(Into::into).as_chunks().0 {
            // Each row is written whole, and `at` grows by at most its length.
            let (row, length) = self.utf8_of_four(*four);
            put(out, at, row);
            at += length;
        }
        (at, U::measure(points).1)
    }

    /// The UTF-8 of four code points, followed by anything, and its length.
    #[inline(always)]
    fn utf8_of_four(self, codes: [u32; 4]) -> ([u8; ROW], usize) {
        utf8_of_four(codes)
    }
}

// SAFETY: the trait's own functions write what they return.
unsafe impl WriteUtf8 for Portable {}

/// Why a text has no UTF-8.
#[derive(Debug, PartialEq)]
pub enum NoUtf8 {
    Surrogate,
    Stopped(Stopped),
}

impl<E: Into<Stopped>> From<E> for NoUtf8 {
    fn from(error: E) -> NoUtf8 {
        NoUtf8::Stopped(error.into())
    }
}

/// Appends the UTF-8 of `points`; fails where one is a surrogate, which has none.
pub fn append_utf8<U: CodePoint>(
    kernel: Kernel,
    points: &[U],
    out: &mut Vec<u8>,
) -> Result<(), NoUtf8> {
    let before = out.len();
    for (position, chunk) in points.chunks(CHUNK).enumerate() {
        // Room for any code points.
        let room = chunk.len() * U::MAX_BYTES + WIDEST;
        if out.capacity() - out.len() < room {
            // For the rest, if it resembles the part so far, or this chunk, and some more; or for
            // this chunk.
            let (done, written) = match position * CHUNK {
                0 => (chunk.len(), chunk.len() + U::measure(chunk).0),
                done => (done, out.len() - before),
            };
            let left = points.len() - position * CHUNK;
            let estimate = left.div_ceil(CHUNK) * (written / done.div_ceil(CHUNK)) / 16 * 17 + room;
            out.try_reserve(estimate)
                .or_else(|_| out.try_reserve_exact(room))
                .map_err(Stopped::from)?;
            huge_pages::advise(out.as_ptr(), out.capacity());
        }
        let (written, any_surrogate) = kernel.run(Write {
            points: chunk,
            out: out.spare_capacity_mut(),
        });
        if any_surrogate {
            return Err(NoUtf8::Surrogate);
        }
        // SAFETY: `Write` has written so many bytes after the first ones.
        unsafe { out.set_len(out.len() + written) };
    }
    Ok(())
}

/// Writes the UTF-8 of code points to the start of `out`. Returns how many bytes it has, and
/// whether a code point is a surrogate, for which the bytes are not UTF-8.
struct Write<'c, U> {
    points: &'c [U],
    out: &'c mut [MaybeUninit<u8>],
}

impl<U: CodePoint, K: WriteUtf8> Work<K> for Write<'_, U> {
    type Output = (usize, bool);

    #[inline(always)]
    fn run(self, kernel: K) -> (usize, bool) {
        let Write { points, out } = self;
        let (blocks, rest) = points.as_chunks::<POINTS>();
        let (mut at, mut any_surrogate) = (0, U::measure(rest).1);
        for block in blocks {
            prefetch(block.as_ptr().wrapping_add(AHEAD));
            let out = out[at..].first_chunk_mut().expect("room");
            let (written, is_surrogate) = kernel.write_utf8(block, out);
            at += written;
            any_surrogate |= is_surrogate;
        }
        for &point in rest {
            let (row, length) = utf8_of_four([point.into(), 0, 0, 0]);
            put(out[at..].first_chunk_mut().expect("room"), 0, row);
            at += length - 3;
        }
        (at, any_surrogate)
    }
}

/// The destination of the UTF-8 of some code points.
pub type Out = [MaybeUninit<u8>; WIDEST];

/// Writes a row to `out` from `at` on.
#[inline(always)]
pub fn put(out: &mut Out, at: usize, row: [u8; ROW]) {
    *out[at..].first_chunk_mut().expect("room") = row.map(MaybeUninit::new);
}

/// The UTF-8 of four code points, followed by anything, and its length.
#[inline(always)]
fn utf8_of_four(codes: [u32; 4]) -> ([u8; ROW], usize) {
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

/// A shuffle that joins the bytes of four characters of up to four bytes each, by the number of
/// bytes after the first: for each character a lower bit and, in the upper half, a higher bit.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub static JOINING: [[u8; ROW]; 256] = {
    let mut table = [[0x80; ROW]; 256];
    let mut lengths = 0;
    while lengths < 256 {
        let (mut at, mut character) = (0, 0);
        while character < 4 {
            let n_after = (lengths >> character & 1) + 2 * (lengths >> (4 + character) & 1);
            let mut byte = 0;
            while byte <= n_after {
                table[lengths][at] = (4 * character + byte) as u8;
                at += 1;
                byte += 1;
            }
            character += 1;
        }
        lengths += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn utf8_of<U: CodePoint>(kernel: Kernel, points: &[U]) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        append_utf8(kernel, points, &mut out)
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
                let points: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(utf8_of(kernel, &points).unwrap(), text.as_bytes());
            }
        }
    }

    #[test]
    fn texts_of_each_width_and_any_length() {
        let mut random = crate::random::below(3);
        #[rustfmt::skip]
        let all = [
            'a', ' ', 'é', 'ÿ', 'Ж', '߿', 'ࠀ', '中', '\u{ffff}', '\u{10000}', '🙂',
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
                let points: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(utf8_of(kernel, &points).unwrap(), text.as_bytes());
                if let Ok(points) = points
                    .iter()
                    .map(|&u| u16::try_from(u))
                    .collect::<Result<Vec<_>, _>>()
                {
                    assert_eq!(utf8_of(kernel, &points).unwrap(), text.as_bytes());
                }
                if let Ok(points) = points
                    .iter()
                    .map(|&u| u8::try_from(u))
                    .collect::<Result<Vec<_>, _>>()
                {
                    assert_eq!(utf8_of(kernel, &points).unwrap(), text.as_bytes());
                }
            }
        }
    }

    #[test]
    fn memory_is_made_for_what_grows_after_an_ascii_beginning() {
        for kernel in Kernel::all() {
            for filler in ["a", "中", "🙂"] {
                let text = "a".repeat(CHUNK) + &filler.repeat(3 * CHUNK + 5) + "é";
                let points: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(utf8_of(kernel, &points).unwrap(), text.as_bytes());
            }
        }
    }

    #[test]
    fn a_surrogate_anywhere_is_seen() {
        for kernel in Kernel::all() {
            for surrogate in [0xD800u16, 0xDBFF, 0xDC00, 0xDFFF] {
                for position in [0, 15, 16, 17, 4095, 4096, 9_999] {
                    let mut points = vec![u16::from(b'a'); 10_000];
                    assert_eq!(utf8_of(kernel, &points).unwrap().len(), 10_000);
                    points[position] = surrogate;
                    assert_eq!(utf8_of(kernel, &points), None);
                    let wide: Vec<u32> = points.iter().map(|&point| point.into()).collect();
                    assert_eq!(utf8_of(kernel, &wide), None);
                }
            }
        }
    }
}
