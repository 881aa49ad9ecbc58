//! The bytes of a compiled file, which never change once they are here.
//!
//! Mapping an ordinary file is unsound: its owner can change memory that was checked, and a truncated
//! file ends the process at the next read. So a file is read once, into memory of the process. Only a
//! sealed memfd (Linux) is mapped: not even its owner can write, shrink or grow it, and all processes that
//! map it share its pages.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

#[cfg(target_os = "linux")]
use memmap2::MmapMut;
use memmap2::MmapRaw;

#[cfg(target_os = "linux")]
use crate::mem::huge_pages;
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
    /// The mapping begins at `start` of a reserved range.
    Sealed {
        reserved: MmapRaw,
        start: usize,
        n_blocks: usize,
    },
}

impl Image {
    /// Of a file that has whole blocks; None for any other size.
    pub fn of(mut file: &File) -> io::Result<Option<Image>> {
        // Before the size is read, which cannot change then.
        let is_sealed = is_sealed(file);
        let n_bytes = file.metadata()?.len();
        if n_bytes == 0 || n_bytes % size_of::<Block>() as u64 != 0 || n_bytes > MAX_BYTES {
            return Ok(None);
        }
        if is_sealed {
            let memory = map_sealed(file, n_bytes as usize)?;
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
        matches!(self.memory, Memory::Sealed { .. })
    }

    /// The memory does not move as long as the image exists.
    pub fn blocks(&self) -> &[Block] {
        match &self.memory {
            Memory::Copied(blocks) => blocks,
            Memory::Sealed {
                reserved,
                start,
                n_blocks,
            } => {
                // SAFETY: so many blocks were mapped there, at a page, and the seals of the file keep its
                // size and its content.
                unsafe {
                    std::slice::from_raw_parts(reserved.as_ptr().add(*start).cast(), *n_blocks)
                }
            }
        }
    }
}

/// Maps a sealed file at a large page, and asks for large pages: in small ones, encoding takes some
/// hundredths longer.
#[cfg(target_os = "linux")]
fn map_sealed(file: &File, n_bytes: usize) -> io::Result<Memory> {
    use std::os::fd::AsRawFd;
    let reserved = MmapRaw::from(MmapMut::map_anon(n_bytes + huge_pages::PAGE)?);
    let start = reserved.as_ptr().align_offset(huge_pages::PAGE);
    let first = reserved.as_mut_ptr().wrapping_add(start);
    // SAFETY: replaces pages of `reserved`, which has a large page more than this and which nothing has
    // used yet; unmapping it later unmaps these too.
    let mapped = unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED);
        libc::mmap(
            first.cast(),
            n_bytes,
            protection,
            flags,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    huge_pages::collapse(first, n_bytes);
    Ok(Memory::Sealed {
        reserved,
        start,
        n_blocks: n_bytes / size_of::<Block>(),
    })
}

#[cfg(not(target_os = "linux"))]
fn map_sealed(_file: &File, _n_bytes: usize) -> io::Result<Memory> {
    Err(io::ErrorKind::Unsupported.into())
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
