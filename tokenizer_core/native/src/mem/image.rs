//! The bytes of a compiled file, which never change once they are here.
//!
//! Mapping an ordinary file is unsound: whoever may write it changes memory that was checked, and
//! truncating it ends the process at the next read. So a file is read once, into memory of the process.
//! Only a sealed memfd (Linux) is mapped: nobody can write, shrink or grow it, not even its owner, and
//! all processes that map it share its pages.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use memmap2::MmapRaw;

use crate::mem::zeroed::{Zeroable, ZeroedTable};

/// Larger files are refused before memory is reserved for them; the largest vocabulary has 20 MB.
const MAX_BYTES: u64 = 1 << 30;

/// Sections begin at multiples of this.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Block(pub [u64; 8]);

impl Block {
    /// Of at most as many bytes as it has; the rest are zeros.
    pub fn of(bytes: &[u8]) -> Block {
        let mut padded = [0; size_of::<Block>()];
        padded[..bytes.len()].copy_from_slice(bytes);
        let word = |at: usize| u64::from_ne_bytes(padded.as_chunks().0[at]);
        Block(std::array::from_fn(word))
    }
}

// SAFETY: zeros are a value of integers.
unsafe impl Zeroable for Block {}

pub struct Image {
    memory: Memory,
}

enum Memory {
    Copied(ZeroedTable<Block>),
    Sealed(MmapRaw),
}

impl Image {
    /// Of a file that has whole blocks; None for any other size.
    pub fn of(mut file: &File) -> io::Result<Option<Image>> {
        let n_bytes = file.metadata()?.len();
        if n_bytes == 0 || n_bytes % size_of::<Block>() as u64 != 0 || n_bytes > MAX_BYTES {
            return Ok(None);
        }
        if is_sealed(file) {
            let mapped = memmap2::MmapOptions::new().map_raw_read_only(file)?;
            let memory = Memory::Sealed(mapped);
            return Ok(Some(Image { memory }));
        }
        let fill = |bytes: &mut [u8]| {
            file.seek(SeekFrom::Start(0))?;
            file.read_exact(bytes)
        };
        Image::filled(n_bytes as usize / size_of::<Block>(), fill).map(Some)
    }

    /// A copy of whole blocks. For tests and the fuzz targets.
    #[doc(hidden)]
    pub fn copied(content: &[u8]) -> Image {
        let fill = |bytes: &mut [u8]| {
            bytes.copy_from_slice(content);
            Ok(())
        };
        Image::filled(content.len() / size_of::<Block>(), fill).expect("memory")
    }

    fn filled(
        n_blocks: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<Image> {
        let mut blocks = ZeroedTable::<Block>::try_new(n_blocks)?;
        let n_bytes = size_of_val(&*blocks);
        // SAFETY: the bytes of integers are bytes, any bytes are integers, and `blocks` is borrowed.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast::<u8>(), n_bytes) };
        fill(bytes)?;
        let memory = Memory::Copied(blocks);
        Ok(Image { memory })
    }

    pub fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Sealed(_))
    }

    /// The memory does not move as long as the image exists.
    pub fn blocks(&self) -> &[Block] {
        match &self.memory {
            Memory::Copied(blocks) => blocks,
            // SAFETY: a mapping begins at a page, the file had whole blocks when it was mapped, and its
            // seals keep its size and its content.
            Memory::Sealed(mapped) => unsafe {
                std::slice::from_raw_parts(
                    mapped.as_ptr().cast(),
                    mapped.len() / size_of::<Block>(),
                )
            },
        }
    }
}

#[cfg(target_os = "linux")]
fn is_sealed(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    const SEALS: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: asks for a number; a file that cannot have seals gives an error, which is -1.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals != -1 && seals & SEALS == SEALS
}

#[cfg(not(target_os = "linux"))]
fn is_sealed(_file: &File) -> bool {
    false
}
