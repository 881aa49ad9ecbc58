//! Text -> counted pre-tokens, in any number of threads.
//!
//! The caller cuts files where a cut changes nothing and hands out the parts as chunks. Each worker
//! reads chunks into its buffer, cuts out special tokens, splits by the pattern, and counts into
//! its table; the tables are joined at the end. The result does not depend on the chunks or on the
//! number of threads.
//!
//! With a ceiling, a table that comes near it is written to the disk, and all are added up at the
//! end (`sorted_runs`).

mod counted_words;
mod sorted_runs;
#[cfg(test)]
mod tests;
mod word_table;

use simdutf8::basic::from_utf8;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

pub use counted_words::{Columns, CountedWords, Words};
use sorted_runs::{join_runs, sum_runs};
use word_table::WordTable;

use crate::mem::growth::NoMemory;
use crate::split::Pattern;
use crate::stop::Stopped;

/// A thread joins this many runs to one, which bounds the open files.
const MAX_RUNS: usize = 32;
/// A table may double while a chunk is counted, and both copies exist while it does.
const GROWTH: usize = 3;

/// How much memory all tables may take, and the folder for the rest.
#[derive(Clone, Debug)]
pub struct Ceiling {
    pub memory_bytes: usize,
    pub folder: PathBuf,
}

/// What decides the counts of a chunk.
pub struct CountingRules {
    pattern: Arc<Pattern>,
    special_tokens: Option<AhoCorasick>,
}

impl CountingRules {
    /// Special tokens are found leftmost, then longest; none of them is empty.
    pub fn new(pattern: Arc<Pattern>, special_tokens: &[String]) -> Result<Self, BuildError> {
        let automaton = || {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(special_tokens)
        };
        let special_tokens = (!special_tokens.is_empty()).then(automaton).transpose()?;
        Ok(CountingRules {
            pattern,
            special_tokens,
        })
    }
}

/// A part of a file, by byte offsets, that can be counted by itself.
pub struct Chunk {
    pub file: Arc<File>,
    pub start: u64,
    pub end: u64,
}

/// What kept a chunk from being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkFailure {
    /// It is not UTF-8, or could not be read to its end.
    Unreadable,
    /// Splitting it takes too long.
    TooSlow,
}

/// Counting that did not get to its end.
#[derive(Debug)]
pub enum CountError {
    /// The first chunk, in the order they were handed out, that cannot be counted.
    Chunk(usize, ChunkFailure),
    /// A worker panicked.
    WorkerLost,
    /// The folder of the ceiling could not be used.
    Scratch(io::Error),
    /// No memory for the counts.
    NoMemory,
}

impl From<io::Error> for CountError {
    fn from(error: io::Error) -> CountError {
        match error.kind() {
            io::ErrorKind::OutOfMemory => CountError::NoMemory,
            _ => CountError::Scratch(error),
        }
    }
}

/// The sum of all chunks.
#[derive(Debug)]
pub struct Counted {
    pub words: CountedWords,
    /// How often a table was written to the disk.
    pub n_spills: u64,
    /// Stretches of text between special tokens; one that a cut divides is one.
    pub n_documents: u64,
}

/// Counts chunks in its own threads; dropping it ends them after their current chunks.
pub struct Counter {
    chunks: Option<SyncSender<(usize, Chunk)>>,
    workers: Vec<JoinHandle<Tally>>,
    progress: Arc<Progress>,
    n_chunks: usize,
}

#[derive(Default)]
struct Progress {
    bytes_done: AtomicU64,
    /// Chunks from this one on are not counted: one before them failed, or the counter is dropped.
    n_wanted: AtomicU64,
}

impl Counter {
    /// With up to `n_threads` threads. Fails if the system starts none.
    pub fn new(
        rules: CountingRules,
        n_threads: usize,
        ceiling: Option<Ceiling>,
    ) -> io::Result<Counter> {
        let n_threads = n_threads.max(1);
        let (sender, receiver) = sync_channel(2 * n_threads);
        let (rules, receiver) = (Arc::new(rules), Arc::new(Mutex::new(receiver)));
        let progress = Arc::new(Progress::default());
        progress.n_wanted.store(u64::MAX, Relaxed);
        let mut workers = Vec::new();
        for _ in 0..n_threads {
            let (rules, receiver) = (Arc::clone(&rules), Arc::clone(&receiver));
            let progress = Arc::clone(&progress);
            let share = ceiling.clone().map(|ceiling| Ceiling {
                memory_bytes: ceiling.memory_bytes / n_threads / GROWTH,
                ..ceiling
            });
            let tally = Tally::new(share)?;
            let work = move || work(&rules, &receiver, &progress, tally);
            match std::thread::Builder::new().spawn(work) {
                Ok(worker) => workers.push(worker),
                Err(error) if workers.is_empty() => return Err(error),
                Err(_) => break, // the others do its work
            }
        }
        Ok(Counter {
            chunks: Some(sender),
            workers,
            progress,
            n_chunks: 0,
        })
    }

    /// Hands out a chunk; waits while enough are in progress. False if a chunk has failed; `finish`
    /// then names it.
    pub fn submit(&mut self, chunk: Chunk) -> bool {
        let number = self.n_chunks;
        self.n_chunks += 1;
        let sent = self
            .chunks
            .as_ref()
            .map(|chunks| chunks.send((number, chunk)));
        matches!(sent, Some(Ok(()))) && self.progress.n_wanted.load(Relaxed) == u64::MAX
    }

    /// Bytes of the chunks counted so far.
    pub fn bytes_done(&self) -> u64 {
        self.progress.bytes_done.load(Relaxed)
    }

    /// The sum, when all chunks are counted.
    pub fn finish(mut self) -> Result<Counted, CountError> {
        self.chunks = None;
        let mut sum: Option<Tally> = None;
        let mut lost = false;
        for worker in std::mem::take(&mut self.workers) {
            match worker.join() {
                Ok(tally) => match &mut sum {
                    None => sum = Some(tally),
                    Some(sum) => sum.join(tally),
                },
                Err(_) => lost = true,
            }
        }
        let mut sum = sum.filter(|_| !lost).ok_or(CountError::WorkerLost)?;
        if let Some(error) = sum.error {
            return Err(error.into());
        }
        if let Some((number, failure)) = sum.failure {
            return Err(CountError::Chunk(number, failure));
        }
        let words = if sum.runs.is_empty() {
            sum.table.into_words().map_err(io::Error::from)?
        } else {
            sum.spill()?;
            sum_runs(sum.runs)?
        };
        Ok(Counted {
            words,
            n_spills: sum.n_spills,
            n_documents: sum.n_documents,
        })
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.progress.n_wanted.store(0, Relaxed);
        self.chunks = None;
        for worker in self.workers.drain(..) {
            // A panic has been printed already.
            let _ = worker.join();
        }
    }
}

/// What one worker has counted.
struct Tally {
    table: WordTable,
    n_documents: u64,
    failure: Option<(usize, ChunkFailure)>,
    ceiling: Option<Ceiling>,
    runs: Vec<File>,
    n_spills: u64,
    /// Of the disk, or for missing memory.
    error: Option<io::Error>,
}

impl Tally {
    fn new(ceiling: Option<Ceiling>) -> Result<Tally, NoMemory> {
        Ok(Tally {
            table: WordTable::new()?,
            n_documents: 0,
            failure: None,
            ceiling,
            runs: Vec::new(),
            n_spills: 0,
            error: None,
        })
    }

    /// Notes that a chunk cannot be counted; no later one is wanted.
    fn fail(&mut self, number: usize, failure: ChunkFailure, progress: &Progress) {
        progress.n_wanted.fetch_min(number as u64, Relaxed);
        if self.failure.is_none_or(|(earlier, _)| number < earlier) {
            self.failure = Some((number, failure));
        }
    }

    /// Writes the table to the disk if it has come to its share; false if that failed.
    fn keep_below_ceiling(&mut self) -> bool {
        let share = self.ceiling.as_ref().map(|ceiling| ceiling.memory_bytes);
        if share.is_none_or(|share| self.table.memory_bytes() <= share) {
            return true;
        }
        self.error = self.spill().err();
        self.error.is_none()
    }

    fn spill(&mut self) -> io::Result<()> {
        let Some(ceiling) = &self.ceiling else {
            return Ok(());
        };
        self.runs.push(self.table.spill(&ceiling.folder)?);
        self.n_spills += 1;
        if self.runs.len() >= MAX_RUNS {
            let runs = std::mem::take(&mut self.runs);
            self.runs.push(join_runs(&ceiling.folder, runs)?);
        }
        Ok(())
    }

    /// Adds the counts of another worker. With a ceiling both tables together stay below it.
    fn join(&mut self, mut other: Tally) {
        if other.table.len() > self.table.len() {
            std::mem::swap(&mut self.table, &mut other.table);
        }
        let added = self.table.add_all(&other.table);
        drop(other.table);
        self.runs.append(&mut other.runs);
        self.n_spills += other.n_spills;
        let first = self.error.take().or(other.error);
        self.error = first.or(added.err().map(io::Error::from));
        if self.error.is_none() {
            self.keep_below_ceiling();
        }
        self.n_documents += other.n_documents;
        self.failure = match (self.failure, other.failure) {
            (Some(a), Some(b)) => Some(if a.0 < b.0 { a } else { b }),
            (a, b) => a.or(b),
        };
    }

    fn count(
        &mut self,
        rules: &CountingRules,
        text: &str,
        begins_inside_document: bool,
    ) -> Result<(), Stopped> {
        let mut goes_on = begins_inside_document;
        let mut start = 0;
        let mut count_plain = |plain: &str| {
            if !plain.is_empty() {
                self.n_documents += u64::from(!goes_on);
                self.table.count_text(rules.pattern.scanner(), plain)?;
            }
            goes_on = false;
            Ok(())
        };
        if let Some(special_tokens) = &rules.special_tokens {
            for found in special_tokens.find_iter(text) {
                count_plain(&text[start..found.start()])?;
                start = found.end();
            }
        }
        count_plain(&text[start..])
    }
}

fn work(
    rules: &CountingRules,
    chunks: &Mutex<Receiver<(usize, Chunk)>>,
    progress: &Progress,
    mut tally: Tally,
) -> Tally {
    let mut buffer = Vec::new();
    loop {
        // A separate statement, which releases the lock before the work begins.
        let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, chunk)) = next else {
            return tally;
        };
        // Chunks are taken in order, so those before a failed one are counted: which failure is
        // reported does not depend on the threads.
        if number as u64 >= progress.n_wanted.load(Relaxed) {
            continue;
        }
        let size = chunk.end - chunk.start;
        match read_text(&chunk, &mut buffer) {
            Ok(text) => {
                let counted = tally.count(rules, text, chunk.start > 0);
                progress.bytes_done.fetch_add(size, Relaxed);
                match counted {
                    Ok(()) => {}
                    Err(Stopped::NoMemory) => tally.error = Some(NoMemory.into()),
                    Err(Stopped::TooSlow | Stopped::Cancelled) => {
                        tally.fail(number, ChunkFailure::TooSlow, progress);
                    }
                }
                if tally.error.is_some() || !tally.keep_below_ceiling() {
                    progress.n_wanted.store(0, Relaxed);
                }
            }
            Err(Unread::NoMemory(error)) => {
                tally.error = Some(error.into());
                progress.n_wanted.store(0, Relaxed);
            }
            Err(Unread::Failed(failure)) => tally.fail(number, failure, progress),
        }
    }
}

enum Unread {
    Failed(ChunkFailure),
    NoMemory(NoMemory),
}

impl From<ChunkFailure> for Unread {
    fn from(failure: ChunkFailure) -> Unread {
        Unread::Failed(failure)
    }
}

fn read_text<'b>(chunk: &Chunk, buffer: &'b mut Vec<u8>) -> Result<&'b str, Unread> {
    let size = usize::try_from(chunk.end - chunk.start).map_err(|_| ChunkFailure::Unreadable)?;
    if buffer.len() < size {
        let reserved = buffer.try_reserve(size - buffer.len());
        reserved.map_err(|error| Unread::NoMemory(error.into()))?;
        buffer.resize(size, 0);
    }
    let bytes = &mut buffer[..size];
    read_exact_at(&chunk.file, bytes, chunk.start).map_err(|_| ChunkFailure::Unreadable)?;
    from_utf8(bytes).map_err(|_| ChunkFailure::Unreadable.into())
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], start: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut start: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n_read = std::os::windows::fs::FileExt::seek_read(file, bytes, start)?;
        if n_read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (bytes, start) = (&mut bytes[n_read..], start + n_read as u64);
    }
    Ok(())
}
