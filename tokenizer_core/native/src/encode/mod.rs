//! Text to ids: the tables of a tokenizer, and the cache and the buffers of its calls. What a call
//! does with them stands in `pieces.rs`.
//!
//! An encoder is immutable but for its cache, which all calls read and fill, and the buffers of its
//! calls. Each call takes some buffers for itself, by a lock that it never waits for: with more calls
//! at a time than buffers the others make their own, and a process forked while some were in use
//! finds those locked for good and uses the rest.

pub mod edits;
mod parts;
mod piece_ends;
mod probe;
mod session;
pub mod sink;
pub mod specials;
mod tasks;
pub mod windows;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arc_swap::ArcSwapOption;

use crate::cache::key::MAX_SHORT_BYTES;
use crate::cache::{MAX_ENTRIES, PieceCache};
use crate::decode::vocabulary::{TokenTable, Vocabulary};
use crate::encode::session::{Buffers, Call, Session};
use crate::encode::sink::Appender;
use crate::merge::boundaries::Cuts;
use crate::merge::pair_table::ID_BITS;
use crate::merge::{Merge, Merger};
use crate::simd::Kernel;
use crate::split::Scanner;

/// Buffers that an encoder keeps at most, of some kilobytes, and 4 MB where long pieces were met.
const MAX_BUFFERS: usize = 32;

/// Tokens that the cache begins with at most, those of the lowest ids, which are the more frequent:
/// about as many as GPT-2 has. All of a larger vocabulary would crowd out what the texts have.
const MAX_SEEDS: usize = 50_000;

pub struct Encoder {
    pub vocabulary: Vocabulary,
    pub(crate) merger: Merger,
    /// The tokens that are taken whole where a piece is one, which merging would not come to.
    whole: Option<TokenTable>,
    /// Short tokens that are what their bytes encode to: the cache starts with them.
    seeds: Vec<u32>,
    pub(crate) cuts: Cuts,
    pub(crate) kernel: Kernel,
    /// Made when it is first needed; a full one is replaced.
    cache: ArcSwapOption<PieceCache>,
    /// Held while a full cache is being replaced. A process forked meanwhile goes on with the full
    /// one, which answers what it has.
    replacing: Mutex<()>,
    buffers: Vec<Mutex<Option<Box<Buffers>>>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How the cache has done.
pub struct Statistics {
    pub hits: u64,
    pub misses: u64,
    pub entries: u64,
    pub maximum: u64,
}

impl Encoder {
    /// Of the tokens that encoding can produce, bytes and id; of the merges by rank, or None for
    /// kind `ranks`; and whether pieces that are a token are taken whole.
    ///
    /// Fails, with a message for people, where a byte has no token, an id is too large or there are
    /// too many merges.
    pub fn build(
        vocabulary: Vocabulary,
        tokens: &[(&[u8], u32)],
        merges: Option<&[Merge]>,
        takes_whole: bool,
    ) -> Result<Encoder, String> {
        if vocabulary.n_ids() > 1 << ID_BITS {
            return Err(format!("an id of 2^{ID_BITS} or more"));
        }
        let mut start = [u32::MAX; 256];
        for &(token, id) in tokens {
            if vocabulary.token(id) != token {
                return Err(format!("id {id} is not that of {token:?}"));
            }
            if let [byte] = *token {
                start[usize::from(byte)] = id;
            }
        }
        if let Some(byte) = start.iter().position(|&id| id == u32::MAX) {
            return Err(format!("no token for byte 0x{byte:02x}"));
        }
        let mut merger = match merges {
            Some(merges) => Merger::from_merges(start, merges, tokens)
                .map_err(|error| format!("{} merges are too many", error.0))?,
            None => Merger::from_ranks(start, tokens),
        };
        let (made, others): (Vec<_>, Vec<_>) =
            tokens.iter().partition(|token| merger.makes(token.1));
        let ids_of =
            |tokens: &[(&[u8], u32)]| -> Vec<u32> { tokens.iter().map(|token| token.1).collect() };
        let whole = if takes_whole {
            ids_of(&others)
        } else {
            Vec::new()
        };
        let mut seeds = ids_of(&made);
        seeds.retain(|&id| (1..=MAX_SHORT_BYTES).contains(&vocabulary.token(id).len()));
        seeds.sort_unstable();
        seeds.truncate(MAX_SEEDS);
        merger.find_atoms(tokens.iter().copied(), |id| vocabulary.token(id));
        let cuts = Cuts::new(
            merger.pairs(),
            whole.iter().map(|&id| vocabulary.token(id)),
            |id| vocabulary.token(id),
        );
        let whole = (!whole.is_empty()).then(|| TokenTable::new(&vocabulary, &whole));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let n_buffers = (2 * cpus).clamp(4, MAX_BUFFERS);
        Ok(Encoder {
            vocabulary,
            merger,
            whole,
            seeds,
            cuts,
            kernel: Kernel::chosen(),
            cache: ArcSwapOption::empty(),
            replacing: Mutex::new(()),
            buffers: (0..n_buffers).map(|_| Mutex::new(None)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// The same on another kernel, counted from the fastest; None where the processor has fewer.
    /// What the fuzz targets ask for.
    #[doc(hidden)]
    pub fn on_kernel(self, place: usize) -> Option<Encoder> {
        let kernel = *Kernel::all().get(place)?;
        Some(Encoder { kernel, ..self })
    }

    /// Appends the ids of `text`, split by `scanner`.
    pub fn encode(&self, scanner: Scanner, text: &str, out: &mut Vec<u32>) {
        self.with_session(scanner, |session| session.take(text, &mut Appender { out }));
    }

    /// Takes buffers for the texts of one call.
    pub(crate) fn with_session<T>(
        &self,
        scanner: Scanner,
        work: impl FnOnce(&mut Session) -> T,
    ) -> T {
        self.with_call(|call| {
            let mut session = Session {
                encoder: self,
                scanner,
                call,
                n_pieces: 0,
            };
            let result = work(&mut session);
            (session.n_pieces, result)
        })
    }

    /// Appends the ids of pieces that are already split.
    pub fn encode_pieces<'p>(&self, pieces: impl Iterator<Item = &'p str>, out: &mut Vec<u32>) {
        let mut sink = Appender { out };
        self.with_call(|call| {
            let mut n_pieces = 0;
            for piece in pieces.map(str::as_bytes).filter(|piece| !piece.is_empty()) {
                n_pieces += 1;
                self.encode_split(piece, call, &mut sink);
            }
            (n_pieces, ())
        });
    }

    pub fn statistics(&self) -> Statistics {
        Statistics {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            entries: self
                .cache
                .load()
                .as_ref()
                .map_or(0, |cache| cache.n_entries() as u64),
            maximum: MAX_ENTRIES as u64,
        }
    }

    /// The id of a token that is taken whole and that merging would not come to.
    #[inline]
    pub(crate) fn whole_id(&self, piece: &[u8]) -> Option<u32> {
        self.whole.as_ref()?.get(&self.vocabulary, piece)
    }

    /// Replaces what a call works with by what stands for the encoder now; when that is the same,
    /// and full, by its successor. A call that finds another one at it goes on with what it has, as
    /// does one that finds no memory: what is full still answers.
    #[cold]
    pub(crate) fn renew(&self, cache: &mut Arc<PieceCache>) {
        let _replacing = match self.replacing.try_lock() {
            Ok(replacing) => replacing,
            Err(TryLockError::WouldBlock) => return,
            // It guards nothing that a panic could have left half done.
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
        };
        let current = self.current_cache();
        if Arc::ptr_eq(&current, cache) {
            if let Ok(successor) = current.successor(self.kernel, self.seeds()) {
                *cache = Arc::new(successor);
                self.cache.store(Some(cache.clone()));
            }
        } else {
            *cache = current;
        }
    }

    pub(crate) fn current_cache(&self) -> Arc<PieceCache> {
        if let Some(cache) = self.cache.load_full() {
            return cache;
        }
        // Two calls that come first together both make one; nobody waits, so no fork can hang.
        let cache = Arc::new(PieceCache::seeded(self.kernel, self.seeds()));
        let none: Option<Arc<PieceCache>> = None;
        let before = self.cache.compare_and_swap(&none, Some(cache.clone()));
        before.clone().unwrap_or(cache)
    }

    fn seeds(&self) -> impl ExactSizeIterator<Item = (&[u8], u32)> {
        let token = |&id: &u32| (self.vocabulary.token(id), id);
        self.seeds.iter().map(token)
    }

    /// Runs `work`, and adds what it answers, the number of pieces, to the statistics.
    fn with_call<T>(&self, work: impl FnOnce(&mut Call) -> (u64, T)) -> T {
        let mut guard = self.free_buffers();
        let mut own = None;
        let buffers = match &mut guard {
            Some(guard) => guard.get_or_insert_with(Buffers::new),
            None => own.insert(Buffers::new()),
        };
        let misses = buffers.n_misses();
        let mut call = Call {
            cache: self.current_cache(),
            buffers,
        };
        call.renew_if_full(self);
        let (n_pieces, result) = work(&mut call);
        call.count_entries();
        let missed = buffers.n_misses() - misses;
        self.misses.fetch_add(missed, Relaxed);
        // The parts of a long pre-token are missed one by one, and it is one piece.
        self.hits
            .fetch_add(n_pieces.saturating_sub(missed), Relaxed);
        result
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
    use crate::encode::specials::SpecialTokens;
    use crate::merge::MergeScratch;

    pub fn encoder() -> Encoder {
        let tokens: Vec<Vec<u8>> = (0..=255)
            .map(|byte| vec![byte])
            .chain([
                b"th".to_vec(),
                b"the".to_vec(),
                b" t".to_vec(),
                b" the".to_vec(),
            ])
            .collect();
        let known: Vec<(&[u8], u32)> = tokens.iter().map(|t| &t[..]).zip(0..).collect();
        let vocabulary = Vocabulary::new(known.iter().map(|&(t, id)| (id, t)).collect());
        let merges = [
            (116, 104, 256),
            (256, 101, 257),
            (32, 116, 258),
            (32, 257, 259),
        ];
        Encoder::build(vocabulary, &known, Some(&merges), false).unwrap()
    }

    #[test]
    fn ids_decode_to_the_text_cold_and_warm_and_count_alike() {
        let (encoder, none) = (encoder(), SpecialTokens::none());
        let text = "the theme of them \u{4e2d}\u{6587} ".repeat(500) + &"x".repeat(5000);
        for _ in 0..2 {
            for (_, scanner) in Scanner::NAMES {
                let mut ids = Vec::new();
                encoder.encode(scanner, &text, &mut ids);
                let mut decoded = vec![0; encoder.vocabulary.decoded_len(&ids).unwrap()];
                encoder.vocabulary.decode_into(&ids, &mut decoded);
                assert_eq!(decoded, text.as_bytes());
                let count = |limit| encoder.count_document(scanner, &none, &text, limit);
                assert_eq!(count(None), ids.len());
                assert!(count(Some(9)) > 9);
            }
        }
        let statistics = encoder.statistics();
        assert!(statistics.hits > statistics.misses);
        assert!(statistics.entries > 0 && statistics.entries <= statistics.maximum);
    }

    #[test]
    fn calls_at_the_same_time_and_after_a_panic_agree() {
        let encoder = encoder();
        let mut expected = Vec::new();
        encoder.encode(Scanner::Gpt2, "the other the", &mut expected);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                encoder.with_call::<()>(|_| panic!("as a bug would"));
            });
            assert!(panicking.join().is_err());
            for _ in 0..80 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut ids = Vec::new();
                        encoder.encode(Scanner::Gpt2, "the other the", &mut ids);
                        assert_eq!(ids, expected);
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
                            encoder.merger.encode(word.as_bytes(), &mut scratch, take);
                        }
                        for _ in 0..2 {
                            let mut ids = Vec::new();
                            let texts = words.iter().map(String::as_str);
                            encoder.encode_pieces(texts, &mut ids);
                            assert!(ids == expected, "block {block} of thread {thread}");
                        }
                    }
                });
            }
        });
        let statistics = encoder.statistics();
        assert!(statistics.entries > 0 && statistics.entries <= statistics.maximum);
        assert!(
            statistics.misses as usize > MAX_ENTRIES / 2,
            "{}",
            statistics.misses
        );
    }
}
