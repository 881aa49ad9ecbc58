//! Text to ids.
//!
//! ```text
//! text     special tokens are found first; the text between them is plain
//!   |      (specials; texts that Python keeps in other widths come window by window: windows)
//!   v
//! window   "the cat sat ..."
//!   |      64 bytes at a time become bits, one word for each class (split/blocks)
//!   v
//! ends     the |  cat|  sat| ...      where up to 256 pieces end: a batch (split/pieces)
//!   |      32 pieces at a time get a key and a prefetch of their cache line
//!   v
//! group    [key, line] [key, line] ...    while the group before it is looked up (probe)
//!   |
//!   +-- hit ----> ids unpacked from the line -----------------+
//!   +-- miss ---> local cache, or merge; then kept (session)  |
//!                                                             v
//!                                     sink: the end of a vector (sink)
//! ```
//!
//! Long texts and batches are cut into tasks at positions where every pattern has a boundary, and several
//! threads encode these (windows, tasks).

pub mod drift;
pub mod flagged_tokens;
mod probe;
mod session;
mod sink;
pub mod specials;
mod tables;
mod tasks;
mod tokens;
pub mod windows;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::cache::MAX_ENTRIES;
use crate::decode::vocabulary::Vocabulary;
use crate::encode::session::{Buffers, Session};
use crate::encode::sink::{SLACK, Sink};
use crate::encode::specials::SpecialTokens;
pub use crate::encode::tables::{MissingBytes, Start};
use crate::encode::tables::{SharedCache, Tables};
pub use crate::encode::tasks::Encoded;
use crate::encode::tasks::run_in_threads;
use crate::encode::windows::{Source, Task, Tasks, WINDOW, encode_source, window_for};
use crate::mem::buffer_pool::{self, LARGE_BYTES};
use crate::mem::growth::{Grow, with_room};
use crate::mem::sections::{Reader, Unusable, Writer};
use crate::merge::Merge;
use crate::simd::Kernel;
use crate::split::Scanner;
use crate::stop::{self, Stopped};

/// An encoder keeps at most this many buffers: some kilobytes each, and 4 MB after long pieces.
const MAX_BUFFERS: usize = 32;

/// Starting a thread for less than this does not pay.
const MIN_BYTES_PER_THREAD: usize = LARGE_BYTES;

/// Encodes for one tokenizer; shared by any number of threads.
///
/// Only its cache, which all calls read and fill, and the buffers of its calls change. A call takes
/// buffers by a lock that it never waits for: when all are in use it makes its own, and a process forked
/// while some were in use finds those locked for good and uses the others.
pub struct Encoder {
    tables: Tables,
    cache: SharedCache,
    buffers: Vec<Mutex<Option<Box<Buffers>>>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Encoder {
    /// Of the tokens that encoding can produce, bytes and id; of the merges by rank, or None for
    /// kind `ranks`; whether a piece that is a token becomes it without merging; and what
    /// merging starts from.
    ///
    /// Fails, with a message for people, where a byte has no token, an id is too large or there are
    /// too many merges.
    pub fn build(
        vocabulary: Vocabulary,
        tokens: &[(&[u8], u32)],
        merges: Option<&[Merge]>,
        takes_whole: bool,
        from: Start,
    ) -> Result<Encoder, String> {
        let tables = Tables::build(vocabulary, tokens, merges, takes_whole, from)?;
        Ok(Encoder::of(tables, false))
    }

    /// Writes its tables to a compiled file.
    pub fn write(&self, to: &mut Writer) {
        self.tables.write(to);
    }

    /// Of the tables in a compiled file.
    pub fn read(from: &mut Reader) -> Result<Encoder, Unusable> {
        Ok(Encoder::of(Tables::read(from)?, true))
    }

    /// A process that opens a file may encode little: its cache starts small. Building the tables takes
    /// longer than entering the seeds.
    fn of(tables: Tables, starts_small: bool) -> Encoder {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let n_buffers = (2 * cpus).clamp(4, MAX_BUFFERS);
        Encoder {
            tables,
            cache: SharedCache::new(starts_small),
            buffers: (0..n_buffers).map(|_| Mutex::new(None)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The same with another set of instructions, counted from the fastest; None where the processor
    /// has fewer. For the fuzz targets.
    #[doc(hidden)]
    pub fn on_kernel(mut self, number: usize) -> Option<Encoder> {
        self.tables.kernel = *Kernel::all().get(number)?;
        Some(self)
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.tables.vocabulary
    }

    /// Appends the ids of `text`, special tokens recognised, to `ids`, which are moved as they grow.
    pub fn encode_document<S: Source + ?Sized>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &S,
        ids: &mut Vec<u32>,
    ) -> Result<(), S::Error> {
        let (own, sink) = (&mut String::new(), &mut Sink::appending(ids));
        self.with_session(|session| {
            encode_source(session, scanner, specials, text, WINDOW, own, sink)
        })?
    }

    /// Appends the ids of each text, `prefix` before and `suffix` after them.
    pub fn encode_with_affixes<T: AsRef<str>>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        texts: &[T],
        (prefix, suffix): (Option<u32>, Option<u32>),
        encoded: &mut Encoded,
    ) -> Result<(), Stopped> {
        for text in texts {
            encoded.ids.try_extend(prefix.as_slice())?;
            self.encode_document(scanner, specials, text.as_ref(), &mut encoded.ids)?;
            encoded.ids.try_extend(suffix.as_slice())?;
            encoded.ends.try_push(encoded.ids.len() as u64)?;
        }
        Ok(())
    }

    /// Appends the ids of pieces that are already split.
    pub fn encode_pieces<'p>(
        &self,
        pieces: impl Iterator<Item = &'p str>,
        out: &mut Vec<u32>,
    ) -> Result<(), Stopped> {
        let mut sink = Sink::appending(out);
        self.with_session(|session| {
            let mut pieces = pieces.map(str::as_bytes).filter(|piece| !piece.is_empty());
            pieces.try_for_each(|piece| session.encode_pre_token(piece, &mut sink))
        })?
    }

    /// The number of ids of `text`, special tokens recognised; counting stops over `limit`.
    pub fn count_document<S: Source + ?Sized>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &S,
        limit: Option<usize>,
    ) -> Result<usize, S::Error> {
        let (own, mut ids) = (&mut String::new(), Vec::new());
        let sink = &mut Sink::counting(&mut ids, limit);
        self.with_session(|session| {
            encode_source(session, scanner, specials, text, WINDOW, own, sink)
        })??;
        Ok(sink.n_ids())
    }

    /// The ids of `texts`, special tokens recognised, by up to `n_threads` threads. Fails with the
    /// number of the first text that has no UTF-8.
    pub fn encode_texts<S: Source>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        texts: &[S],
        n_threads: usize,
    ) -> Result<Encoded, (usize, S::Error)> {
        let n_bytes: usize = texts.iter().map(Source::max_bytes).sum();
        let n_threads = n_threads.min(n_bytes / MIN_BYTES_PER_THREAD);
        let window = window_for(texts.iter().map(Source::n_characters).sum(), n_threads);
        self.encode_in_windows(scanner, specials, texts, (window, n_threads))
    }

    /// As `encode_texts`, in windows of any size but 0: what the fuzz targets ask for.
    #[doc(hidden)]
    pub fn encode_in_windows<S: Source>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        texts: &[S],
        (window, n_threads): (usize, usize),
    ) -> Result<Encoded, (usize, S::Error)> {
        let tasks = || Tasks::of(texts, scanner, specials, window);
        if n_threads > 1 && tasks().nth(1).is_some() {
            match self.encode_in_threads(tasks(), n_threads) {
                // Each thread has memory of its own: one may have enough where several have not.
                Err((_, error)) if error == Stopped::NoMemory.into() => buffer_pool::release(),
                done => return done,
            };
        }
        let n_bytes = texts.iter().map(Source::max_bytes).sum();
        let stopped = |error: Stopped| (0, error.into());
        let mut encoded = Encoded::default();
        if !texts.is_empty() {
            encoded.ids = self.reserve_ids(scanner, specials, texts, n_bytes)?;
            // A caller may put another one before them.
            encoded.ends = with_room(texts.len() + 1).map_err(|error| stopped(error.into()))?;
        }
        let mut own = String::new();
        self.with_session(|session| {
            for (number, text) in texts.iter().enumerate() {
                let sink = &mut Sink::appending(&mut encoded.ids);
                let done = encode_source(session, scanner, specials, text, window, &mut own, sink);
                done.map_err(|error| (number, error))?;
                encoded.ends.push(encoded.ids.len() as u64);
            }
            Ok(())
        })
        .map_err(stopped)??;
        if n_bytes >= LARGE_BYTES {
            encoded.ids.shrink_to_fit();
        }
        Ok(encoded)
    }

    fn encode_in_threads<S: Source>(
        &self,
        mut tasks: Tasks<S>,
        n_threads: usize,
    ) -> Result<Encoded, (usize, S::Error)> {
        let (texts, scanner, specials) = (tasks.texts, tasks.scanner, tasks.specials);
        let stopped = |error: Stopped| (0, error.into());
        let n_bytes = texts.iter().map(Source::max_bytes).sum();
        let encoded = Encoded {
            ids: buffer_pool::take(n_bytes, SLACK).ok_or_else(|| stopped(Stopped::NoMemory))?,
            ends: with_room(texts.len() + 1).map_err(|error| stopped(error.into()))?,
        };
        // Made before there are threads: several would each make one.
        let made = self.cache.current(&self.tables);
        made.map_err(|error| stopped(error.into()))?;
        let flag = stop::current();
        let encode = |own: &mut String, task: Task<S>, made: &mut Encoded| {
            let task = task.map_err(|error| stopped(error.into()))?;
            let encode = |session: &mut Session| {
                let mut parts = task.iter();
                parts.try_for_each(|part| part.encode(session, scanner, specials, own, made))
            };
            self.with_session(encode).map_err(stopped)?
        };
        let next = || {
            stop::replace(flag.clone()); // of the thread that takes the task
            tasks.next()
        };
        run_in_threads(n_threads, encoded, next, encode, stopped)
    }

    /// A vector for as many ids as this many bytes of text can have, at most one a byte. Where there is
    /// no memory for that, one for the ids that the texts have: growing a vector needs more than that.
    fn reserve_ids<S: Source>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        texts: &[S],
        n_bytes: usize,
    ) -> Result<Vec<u32>, (usize, S::Error)> {
        let no_memory = || (0, Stopped::NoMemory.into());
        if n_bytes < LARGE_BYTES {
            return buffer_pool::take_for_short_text(n_bytes).ok_or_else(no_memory);
        }
        if let Some(ids) = buffer_pool::take(n_bytes, SLACK) {
            return Ok(ids);
        }
        let mut n_ids = 0;
        for (number, text) in texts.iter().enumerate() {
            let counted = self.count_document(scanner, specials, text, None);
            n_ids += counted.map_err(|error| (number, error))?;
        }
        buffer_pool::take(n_ids, SLACK).ok_or_else(no_memory)
    }

    /// How often the cache was asked and had or lacked a piece; how many it holds, and may hold.
    pub fn statistics(&self) -> (u64, u64, u64, u64) {
        let (hits, misses) = (self.hits.load(Relaxed), self.misses.load(Relaxed));
        (
            hits,
            misses,
            self.cache.n_entries() as u64,
            MAX_ENTRIES as u64,
        )
    }

    /// Runs `work` as one call, and adds what it did to the statistics.
    fn with_session<T>(&self, work: impl FnOnce(&mut Session) -> T) -> Result<T, Stopped> {
        let mut guard = self.free_buffers();
        let mut own = None;
        let buffers = match &mut guard {
            Some(guard) => guard.get_or_insert_with(Buffers::new),
            None => own.insert(Buffers::new()),
        };
        let mut session = Session::new(&self.tables, &self.cache, buffers)?;
        let result = work(&mut session);
        let (n_pieces, n_merged) = session.finish();
        if n_merged > 0 {
            self.misses.fetch_add(n_merged, Relaxed);
        }
        // The parts of a long pre-token are missed one by one, and it is one piece.
        let n_hits = n_pieces.saturating_sub(n_merged);
        self.hits.fetch_add(n_hits, Relaxed);
        Ok(result)
    }

    fn free_buffers(&self) -> Option<MutexGuard<'_, Option<Box<Buffers>>>> {
        self.buffers.iter().find_map(|slot| match slot.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            // A call that panicked may have left half an entry: such buffers are made anew.
            Err(TryLockError::Poisoned(poisoned)) => {
                slot.clear_poison();
                let mut guard = PoisonError::into_inner(poisoned);
                *guard = None;
                Some(guard)
            }
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::merge::MergeScratch;

    pub fn encoder() -> Encoder {
        let tokens: Vec<Vec<u8>> = (0..=255)
            .map(|byte| vec![byte])
            .chain([
                b"th".to_vec(),
                b"the".to_vec(),
                b" t".to_vec(),
                b" the".to_vec(),
                b"  ".to_vec(),
            ])
            .collect();
        let known: Vec<(&[u8], u32)> = tokens.iter().map(|t| &t[..]).zip(0..).collect();
        let vocabulary = Vocabulary::new(known.iter().map(|&(t, id)| (id, t)).collect());
        let merges = [
            (116, 104, 256),
            (256, 101, 257),
            (32, 116, 258),
            (32, 257, 259),
            (32, 32, 260),
        ];
        Encoder::build(vocabulary, &known, Some(&merges), false, Start::default()).unwrap()
    }

    #[test]
    fn calls_at_the_same_time_and_after_a_panic_agree() {
        let encoder = encoder();
        let encode = || {
            let (none, mut ids) = (SpecialTokens::none(), Vec::new());
            let done = encoder.encode_document(Scanner::Gpt2, &none, "the other the", &mut ids);
            done.map(|()| ids)
        };
        let expected = encode();
        assert!(expected.is_ok());
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _ = encoder.with_session::<()>(|_| panic!("as a bug would"));
            });
            assert!(panicking.join().is_err());
            for _ in 0..80 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(encode(), expected);
                    }
                });
            }
        });
    }

    #[test]
    fn ids_stay_while_threads_fill_the_cache_until_it_is_replaced() {
        let encoder = encoder();
        let n_threads = 3;
        std::thread::scope(|scope| {
            for thread in 0..n_threads {
                let encoder = &encoder;
                scope.spawn(move || {
                    let mut scratch = MergeScratch::default();
                    for block in 0..60 {
                        // Half of the words are those of the other threads too.
                        let words = (0..10_000).map(|i| {
                            let number = block * 20_000 + i + (i % 2) * thread * 3_000_000;
                            let filling = ["", "the", "thethethethe"][i % 3];
                            format!(" {number:x}{filling}")
                        });
                        let words: Vec<String> = words.collect();
                        let mut expected = Vec::new();
                        for word in &words {
                            let take = |ids: &[u32]| expected.extend_from_slice(ids);
                            encoder
                                .tables
                                .merger
                                .encode(word.as_bytes(), &mut scratch, take)
                                .unwrap();
                        }
                        for _ in 0..2 {
                            let mut ids = Vec::new();
                            let texts = words.iter().map(String::as_str);
                            encoder.encode_pieces(texts, &mut ids).unwrap();
                            assert!(ids == expected, "block {block} of thread {thread}");
                        }
                    }
                });
            }
        });
        let (_, misses, entries, maximum) = encoder.statistics();
        assert!(entries > 0 && entries <= maximum);
        assert!(misses as usize > MAX_ENTRIES / 2, "{misses}");
    }
}
