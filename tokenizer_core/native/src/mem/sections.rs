//! The form of a compiled file: tables one after the other, each at a multiple of 64 bytes.
//!
//! ```text
//! magic | layout | key, 32 bytes | checksum | number of sections      one block
//! bytes of each section                                              u64 each, to whole blocks
//! sections                                                           each to whole blocks
//! ```
//!
//! Writer and reader go through the sections in the same order, so that these have no names. The checksum
//! detects accidents only: whoever may write the file can compute it. What reads a section checks every
//! number that unsafe code, a loop or an index depends on.

use std::sync::Arc;

use crate::mem::image::{Block, Image};
use crate::mem::table::{Plain, Table};

/// A file that cannot be used, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable(pub &'static str);

/// Differs where the order of bytes does.
const MAGIC: u64 = u64::from_le_bytes(*b"\x89BPEtab\n");
const BLOCK: usize = size_of::<Block>();
/// Where the checksum is in the first block, in words; it covers all after it.
const CHECKSUM: usize = 6;

/// A hash of the sources of the crate and the 32 bytes that a caller gives: a file with others was made by
/// other code or of something else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub layout: u64,
    pub key: [u8; 32],
}

impl Identity {
    fn as_words(&self) -> [u64; 6] {
        let key = self.key.as_chunks::<8>().0;
        let word = |at: usize| u64::from_ne_bytes(key[at]);
        [MAGIC, self.layout, word(0), word(1), word(2), word(3)]
    }
}

#[derive(Default)]
pub struct Writer {
    sizes: Vec<u64>,
    blocks: Vec<Block>,
}

impl Writer {
    pub fn table<T: Plain>(&mut self, values: &[T]) {
        let bytes = bytes_of(values);
        self.sizes.push(bytes.len() as u64);
        self.blocks.extend(bytes.chunks(BLOCK).map(Block::of));
    }

    /// All of the file.
    pub fn finish(self, identity: &Identity) -> Vec<u8> {
        let mut sizes = Writer::default();
        sizes.table(&self.sizes);
        let mut head = Block([0; 8]);
        head.0[..CHECKSUM].copy_from_slice(&identity.as_words());
        head.0[CHECKSUM + 1] = self.sizes.len() as u64;
        let mut blocks = [&[head], &sizes.blocks[..], &self.blocks].concat();
        blocks[0].0[CHECKSUM] = checksum_of(&blocks);
        bytes_of(&blocks).to_vec()
    }
}

fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: values of `Plain` types have no padding, so that all their bytes are initialized.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

pub struct Reader {
    image: Arc<Image>,
    sizes: Vec<u64>,
    next: usize,
    /// Where the next section begins, in bytes.
    at: usize,
}

impl Reader {
    pub fn new(image: Image, identity: &Identity) -> Result<Reader, Unusable> {
        let blocks = image.blocks();
        let head = blocks.first().ok_or(Unusable("it is empty"))?.0;
        if head[0] != MAGIC {
            return Err(Unusable("it is no compiled tokenizer of this machine"));
        }
        if head[..CHECKSUM] != identity.as_words() {
            return Err(Unusable("it was made by other code or of another source"));
        }
        if head[CHECKSUM] != checksum_of(blocks) {
            return Err(Unusable("its checksum does not fit"));
        }
        let n = head[CHECKSUM + 1] as usize;
        let n_blocks = n.div_ceil(8);
        let sizes = blocks[1..].get(..n_blocks);
        let sizes = sizes.ok_or(Unusable("its sections are beyond its end"))?;
        let sizes = sizes.iter().flat_map(|block| block.0).take(n).collect();
        Ok(Reader {
            image: Arc::new(image),
            sizes,
            next: 0,
            at: (1 + n_blocks) * BLOCK,
        })
    }

    pub fn table<T: Plain>(&mut self) -> Result<Table<T>, Unusable> {
        const { assert!(align_of::<T>() <= BLOCK) };
        let wrong = Unusable("a section is missing or has another size");
        let n_bytes = *self.sizes.get(self.next).ok_or(wrong)? as usize;
        let table = Table::of_image(&self.image, self.at, n_bytes).ok_or(wrong)?;
        self.next += 1;
        self.at += n_bytes.next_multiple_of(BLOCK);
        Ok(table)
    }

    /// A section of exactly `N` values, copied.
    pub fn array<T: Plain, const N: usize>(&mut self) -> Result<[T; N], Unusable> {
        let wrong = Unusable("a section has another number of values");
        self.table()?.first_chunk().copied().ok_or(wrong)
    }

    pub fn is_at_end(&self) -> bool {
        self.next == self.sizes.len() && self.at == size_of_val(self.image.blocks())
    }

    pub fn is_shared(&self) -> bool {
        self.image.is_shared()
    }
}

/// Gives changed content its checksum. For tests and the fuzz targets.
#[doc(hidden)]
pub fn reseal(content: &mut [u8]) {
    let blocks: Vec<Block> = content.chunks(BLOCK).map(Block::of).collect();
    let at = CHECKSUM * size_of::<u64>();
    content[at..][..size_of::<u64>()].copy_from_slice(&checksum_of(&blocks).to_ne_bytes());
}

/// Of all words after that of the checksum: eight chains of steps that each keep every difference.
fn checksum_of(blocks: &[Block]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut sums = [0; 8];
    let (head, rest) = blocks.split_first().expect("a block");
    for (sum, word) in sums.iter_mut().zip(head.0).skip(CHECKSUM + 1) {
        *sum = step(*sum, word);
    }
    for block in rest {
        for (sum, word) in sums.iter_mut().zip(block.0) {
            *sum = step(*sum, word);
        }
    }
    sums.into_iter().fold(blocks.len() as u64, step)
}

/// Fails unless `fits`.
pub fn check(fits: bool, why: &'static str) -> Result<(), Unusable> {
    fits.then_some(()).ok_or(Unusable(why))
}

/// Whether all values do; without a branch for each, so that vectors compare them.
pub fn all<T>(values: &[T], fits: impl Fn(&T) -> bool) -> bool {
    values.iter().fold(true, |all, value| all & fits(value))
}
