//! Counts on the disk if they are too many for memory: sorted runs, and merging them.
//!
//! A run is a file of words in the order of their bytes, each once with its count, written as in
//! `counted_words`. Its name is removed as soon as it is open, so that nothing stays in the folder,
//! however the process ends.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::counted_words::{CountedWords, push_number};
use crate::mem::growth::NoMemory;

const BUFFER_BYTES: usize = 1 << 16;

/// Makes an empty run in `folder`, lets `write` fill it, and gives it back to be read from its
/// beginning.
pub(super) fn write_run(
    folder: &Path,
    write: impl FnOnce(&mut RunWriter) -> io::Result<()>,
) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let path = folder.join(format!(".pretoken-run-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    remove_file(&path)?;
    let mut writer = RunWriter {
        file: BufWriter::with_capacity(BUFFER_BYTES, file),
        numbers: Vec::new(),
    };
    write(&mut writer)?;
    let mut file = writer
        .file
        .into_inner()
        .map_err(|error| error.into_error())?;
    file.rewind()?;
    Ok(file)
}

pub(super) struct RunWriter {
    file: BufWriter<File>,
    numbers: Vec<u8>,
}

impl RunWriter {
    /// Adds a word after all that come before it.
    pub(super) fn push(&mut self, word: &[u8], count: u64) -> io::Result<()> {
        self.numbers.clear();
        push_number(&mut self.numbers, word.len() as u64);
        self.file.write_all(&self.numbers)?;
        self.file.write_all(word)?;
        self.numbers.clear();
        push_number(&mut self.numbers, count);
        self.file.write_all(&self.numbers)
    }
}

/// The runs as one, in `folder`.
pub(super) fn join_runs(folder: &Path, runs: Vec<File>) -> io::Result<File> {
    write_run(folder, |writer| {
        merge_runs(runs, |word, count| writer.push(word, count))
    })
}

/// The sum of the runs, packed.
pub(super) fn sum_runs(runs: Vec<File>) -> io::Result<CountedWords> {
    let mut size = 0;
    for run in &runs {
        size += run.metadata()?.len();
    }
    // What is not written to takes no memory, and the rest is given back.
    let mut words = CountedWords::with_room(usize::try_from(size).unwrap_or(0))?;
    merge_runs(runs, |word, count| Ok(words.push(word, count)?))?;
    words.shrink();
    Ok(words)
}

/// Calls `take` with each word of the runs once, in order, with the sum of its counts.
fn merge_runs(
    runs: Vec<File>,
    mut take: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    for run in runs {
        let mut head = RunHead {
            rest: BufReader::with_capacity(BUFFER_BYTES, run),
            word: Vec::new(),
            count: 0,
        };
        if head.advance()? {
            heads.push(head);
        }
    }
    let mut word = Vec::new();
    let mut total = 0;
    while let Some(mut head) = heads.peek_mut() {
        if total > 0 && head.word != word {
            take(&word, total)?;
            total = 0;
        }
        if total == 0 {
            std::mem::swap(&mut word, &mut head.word);
        }
        total += head.count;
        if !head.advance()? {
            PeekMut::pop(head);
        }
    }
    if total > 0 {
        take(&word, total)?;
    }
    Ok(())
}

/// The next word of a run. The greatest of several is the one whose word comes first.
struct RunHead {
    rest: BufReader<File>,
    word: Vec<u8>,
    count: u64,
}

impl RunHead {
    /// Reads the next word; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        if self.rest.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let len = read_number(&mut self.rest)?;
        self.word.clear();
        self.word
            .try_reserve(len as usize)
            .map_err(NoMemory::from)?;
        self.word.resize(len as usize, 0);
        self.rest.read_exact(&mut self.word)?;
        self.count = read_number(&mut self.rest)?;
        Ok(true)
    }
}

impl Ord for RunHead {
    fn cmp(&self, other: &Self) -> Ordering {
        other.word.cmp(&self.word)
    }
}

impl PartialOrd for RunHead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RunHead {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl Eq for RunHead {}

fn read_number(input: &mut impl Read) -> io::Result<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let mut byte = [0];
        input.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7F) << shift;
        if byte[0] < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}
