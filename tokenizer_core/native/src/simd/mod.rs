//! The few steps of encoding that vector instructions shorten.
//!
//! A kernel is a value that exists only where the processor has its instructions. What is generic
//! over kernels is compiled once for each, and gives the same with each but for the hashes, which
//! nothing outside one process sees.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::sync::LazyLock;

use crate::cache::packed_ids::{Value, words};
use crate::cache::table::{Line, Slot};
use crate::mem::keyed_hash::HashKeys;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx512::Avx512;
use crate::split::blocks::classes::{ASCII, BLOCK, Classes, High, from_words};
use crate::unicode::utf8::{CodeUnit, Out, UNITS, put, utf8_of_four};

pub trait Kernel: Copy {
    /// The classes of `text[at..at + 64]`, or of what is left of it; those of characters outside
    /// ASCII are left open.
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High);

    /// Writes the places of the bits of `bits`, plus `base`, from the start of `places` on; what
    /// lies behind them may be overwritten.
    fn write_places(self, bits: u64, base: u32, places: &mut [u32; BLOCK]);

    /// The key of the piece `text[start..start + length]`, of 1 to 15 bytes.
    #[inline(always)]
    fn key(self, text: &[u8], start: usize, length: usize) -> u128 {
        match text[start..].first_chunk() {
            Some(block) => self.key_in(block, length),
            None => {
                let mut block = [0; 16];
                block[..length].copy_from_slice(&text[start..start + length]);
                self.key_in(&block, length)
            }
        }
    }

    /// The key of the first `length` bytes of `block`, 1 to 15: they, zeros, and in the last of 16
    /// bytes minus their number.
    fn key_in(self, block: &[u8; 16], length: usize) -> u128;

    fn hash(self, keys: &HashKeys, key: u128) -> u64;

    /// Where the value of a short piece stands in this line.
    fn find(self, line: &Line, key: &u128) -> Option<Slot>;

    /// The first eight ids of the value there, and anything behind its last.
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8];

    /// Writes the UTF-8 of these units, and anything behind it; how many bytes it is, and whether a unit
    /// is a surrogate, of which something else is written.
    fn write_utf8<U: CodeUnit>(self, units: &[U; UNITS], out: &mut Out) -> (usize, bool);

    /// Does work; with vectors as a function of its own.
    fn run<W: OnKernel>(self, work: W) -> W::Output;
}

/// The kernel of this processor.
#[derive(Clone, Copy)]
pub enum AnyKernel {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable(Portable),
}

impl AnyKernel {
    /// Those that this processor has, the fastest first.
    pub fn all() -> Vec<AnyKernel> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx512::detect().map(AnyKernel::Avx512));
            all.extend(Avx2::detect().map(AnyKernel::Avx2));
        }
        all.push(AnyKernel::Portable(Portable));
        all
    }

    /// The one to use, fixed for as long as the process runs: the fastest, or the one that
    /// TOKENIZER_KERNEL names, so that the others are tested on a processor that has better ones.
    pub fn chosen() -> AnyKernel {
        static CHOSEN: LazyLock<AnyKernel> = LazyLock::new(|| {
            let all = AnyKernel::all();
            let asked = std::env::var("TOKENIZER_KERNEL").unwrap_or_default();
            let named = all.iter().find(|kernel| kernel.name() == asked);
            *named.unwrap_or(&all[0])
        });
        *CHOSEN
    }

    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            AnyKernel::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            AnyKernel::Avx2(_) => "avx2",
            AnyKernel::Portable(_) => "portable",
        }
    }
}

/// Work that is compiled for each kernel; for those with vectors as a function of its own, which does
/// not share the registers of a long one.
pub trait OnKernel {
    type Output;

    /// Must be `#[inline(always)]`, as must all it calls that uses the kernel: what is not inlined
    /// is compiled without the kernel's instructions.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

impl AnyKernel {
    #[inline]
    pub fn run<W: OnKernel>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            AnyKernel::Avx512(kernel) => kernel.run(work),
            #[cfg(target_arch = "x86_64")]
            AnyKernel::Avx2(kernel) => kernel.run(work),
            AnyKernel::Portable(kernel) => kernel.run(work),
        }
    }
}

/// Plain arithmetic, on any processor.
#[derive(Clone, Copy)]
pub struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    fn ascii(self, text: &[u8], at: usize) -> (Classes, High) {
        let bytes = &text[at..text.len().min(at + BLOCK)];
        let mut words = [0u64; 8];
        let mut high = High::default();
        for (place, eight) in bytes.chunks(8).enumerate() {
            let mut classes = 0;
            for (i, &byte) in eight.iter().enumerate() {
                let class = ASCII.get(usize::from(byte)).copied().unwrap_or(0);
                classes |= u64::from(class) << (8 * i);
                high.all |= u64::from(byte >> 7) << (8 * place + i);
            }
            let bits = transposed(classes);
            for (bit, word) in words.iter_mut().enumerate() {
                *word |= (bits >> (8 * bit) & 0xFF) << (8 * place);
            }
        }
        (from_words(words, bytes.len()), high)
    }

    #[inline(always)]
    fn write_places(self, mut bits: u64, base: u32, places: &mut [u32; BLOCK]) {
        // Eight at a time, needed or not: whether one more is there cannot be predicted.
        for eight in places.as_chunks_mut::<8>().0 {
            for place in eight {
                *place = base + bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
            }
            if bits == 0 {
                return;
            }
        }
    }

    #[inline(always)]
    fn key_in(self, block: &[u8; 16], length: usize) -> u128 {
        let bytes = u128::from_le_bytes(*block) & (u128::MAX >> (128 - 8 * length));
        bytes | u128::from((length as u8).wrapping_neg()) << 120
    }

    #[inline(always)]
    fn hash(self, keys: &HashKeys, key: u128) -> u64 {
        keys.of_u128(key)
    }

    #[inline(always)]
    fn find(self, line: &Line, key: &u128) -> Option<Slot> {
        line.find(&words(*key))
    }

    #[inline(always)]
    fn ids_in(self, line: &Line, slot: Slot) -> [u32; 8] {
        Value::read(line.words_in(slot)).unpacked()
    }

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

    #[inline(always)]
    fn run<W: OnKernel>(self, work: W) -> W::Output {
        work.run(self)
    }
}

/// Eight bytes as a square of bits, turned so that bit i of byte k becomes bit k of byte i: by
/// exchanging what lies across the diagonal, of pairs of bits, then of fours, then of halves.
#[inline(always)]
fn transposed(square: u64) -> u64 {
    let exchanged = |square: u64, mask: u64, by: u32| {
        let different = (square ^ (square >> by)) & mask;
        square ^ different ^ (different << by)
    };
    let square = exchanged(square, 0x00AA_00AA_00AA_00AA, 7);
    let square = exchanged(square, 0x0000_CCCC_0000_CCCC, 14);
    exchanged(square, 0x0000_0000_F0F0_F0F0, 28)
}
