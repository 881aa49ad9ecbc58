//! Text to ids: the tables of a tokenizer and the caches of its calls. What a call does with them
//! stands in `pieces.rs`.
//!
//! An encoder is immutable but for its caches. Each call takes one cache for itself, by a lock that
//! it never waits for: with more calls at a time than caches the others do without, and a process
//! forked while a cache was in use finds that one locked for good and uses the rest.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::batches::Window;
use crate::cuts::Cuts;
use crate::kernel::AnyKernel;
use crate::merge::{ID_BITS, MergeScratch, Merger};
use crate::piece_cache::{MAX_ENTRIES, MAX_SHORT_BYTES, PieceCache};
use crate::pieces::{EncodePiece, NewState, Session, State};
use crate::scan::Scanner;
use crate::sink::{Appender, Counter};
use crate::vocabulary::{TokenTable, Vocabulary};

/// Caches of one encoder at most; each is 16 MB.
const MAX_CACHES: usize = 32;

pub struct Encoder {
    pub vocabulary: Vocabulary,
    pub(crate) merger: Merger,
    /// The tokens that are taken whole where a piece is one, which merging would not come to.
    whole: Option<TokenTable>,
    /// Short tokens that are what their bytes encode to: every cache starts with them.
    pub(crate) seeds: Vec<u32>,
    pub(crate) cuts: Cuts,
    pub(crate) kernel: AnyKernel,
    caches: Vec<Mutex<Option<Box<State>>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    entries: AtomicU64,
}

/// How the caches have done.
pub struct Statistics {
    pub hits: u64,
    pub misses: u64,
    pub entries: u64,
    pub maximum: u64,
}

impl Encoder {
    /// Of the tokens that encoding can produce, bytes and id; of merges as `(left, right, product)`
    /// by rank, or None for kind `ranks`; and whether pieces that are a token are taken whole.
    ///
    /// Fails, with a message for people, where a byte has no token, an id is too large or there are
    /// too many merges.
    pub fn build(
        vocabulary: Vocabulary,
        tokens: &[(&[u8], u32)],
        merges: Option<&[(u32, u32, u32)]>,
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
            Some(merges) => Merger::from_merges(start, merges)
                .map_err(|error| format!("{} merges are too many", error.0))?,
            None => Merger::from_ranks(start, tokens),
        };
        let mut scratch = MergeScratch::default();
        let (made, others): (Vec<_>, Vec<_>) = tokens
            .iter()
            .partition(|(token, id)| merger.makes(token, *id, &mut scratch));
        let ids_of = |tokens: &[(&[u8], u32)]| tokens.iter().map(|token| token.1).collect();
        let mut seeds: Vec<u32> = ids_of(&made);
        let whole: Vec<u32> = if takes_whole {
            ids_of(&others)
        } else {
            Vec::new()
        };
        seeds.retain(|&id| (1..=MAX_SHORT_BYTES).contains(&vocabulary.token(id).len()));
        // Lower ids are the more frequent tokens; what comes last stays where room is short.
        seeds.sort_unstable_by(|a, b| b.cmp(a));
        merger.find_atoms(tokens.iter().copied(), |id| vocabulary.token(id));
        let cuts = Cuts::new(
            merger.pairs(),
            whole.iter().map(|&id| vocabulary.token(id)),
            |id| vocabulary.token(id),
        );
        let whole = (!whole.is_empty()).then(|| TokenTable::new(&vocabulary, &whole));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let n_caches = (2 * cpus).clamp(4, MAX_CACHES);
        Ok(Encoder {
            vocabulary,
            merger,
            whole,
            seeds,
            cuts,
            kernel: AnyKernel::chosen(),
            caches: (0..n_caches).map(|_| Mutex::new(None)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        })
    }

    /// The same on another kernel, counted from the fastest; None where the processor has fewer.
    /// What the fuzz targets ask for.
    #[doc(hidden)]
    pub fn on_kernel(self, place: usize) -> Option<Encoder> {
        let kernel = *AnyKernel::all().get(place)?;
        Some(Encoder { kernel, ..self })
    }

    /// Appends the ids of `text`, split by `scanner`.
    pub fn encode(&self, scanner: Scanner, text: &str, out: &mut Vec<u32>) {
        self.with_session(scanner, |session| session.encode(text, out));
    }

    /// Takes one cache for the texts of one call.
    pub(crate) fn with_session<T>(
        &self,
        scanner: Scanner,
        work: impl FnOnce(&mut Session) -> T,
    ) -> T {
        self.with_state(|state| {
            let mut session = Session {
                encoder: self,
                scanner,
                state,
                n_pieces: 0,
            };
            let result = work(&mut session);
            (session.n_pieces, result)
        })
    }

    /// Appends the ids of the pieces of `text` from the boundary `at` on that start before `end`,
    /// but for one that reaches beyond it and is longer than `max_overhang`. Returns where the last
    /// of them ends. Pieces may read past `end`: it is no end of the text.
    pub fn encode_between(
        &self,
        scanner: Scanner,
        text: &str,
        at: usize,
        end: usize,
        max_overhang: usize,
        out: &mut Vec<u32>,
    ) -> usize {
        let mut sink = Appender { out };
        let window = Window {
            at,
            end,
            max_overhang,
        };
        self.with_session(scanner, |session| session.scan(text, window, &mut sink))
    }

    /// The number of ids of `text`; counting stops once it is over `limit`.
    pub fn count(&self, scanner: Scanner, text: &str, limit: Option<usize>) -> usize {
        let mut sink = Counter {
            n_ids: 0,
            limit: limit.unwrap_or(usize::MAX),
        };
        self.with_session(scanner, |session| {
            session.scan(text, Window::whole(text), &mut sink)
        });
        sink.n_ids
    }

    /// Appends the ids of pieces that are already split.
    pub fn encode_pieces<'p>(&self, pieces: impl Iterator<Item = &'p str>, out: &mut Vec<u32>) {
        let mut sink = Appender { out };
        self.with_state(|state| {
            let mut n_pieces = 0;
            for piece in pieces.map(str::as_bytes).filter(|piece| !piece.is_empty()) {
                n_pieces += 1;
                self.kernel.run(EncodePiece {
                    encoder: self,
                    piece,
                    state,
                    sink: &mut sink,
                });
            }
            (n_pieces, ())
        });
    }

    pub fn statistics(&self) -> Statistics {
        Statistics {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            entries: self.entries.load(Relaxed),
            maximum: (self.caches.len() * MAX_ENTRIES) as u64,
        }
    }

    /// The id of a token that is taken whole and that merging would not come to.
    #[inline]
    pub(crate) fn whole_id(&self, piece: &[u8]) -> Option<u32> {
        self.whole.as_ref()?.get(&self.vocabulary, piece)
    }

    /// Runs `work` with a cache, or with a small one of its own when all are taken, and adds what
    /// it answers, the number of pieces, to the statistics.
    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> (u64, T)) -> T {
        let mut guard = self.free_cache();
        let mut own = None;
        let state = match &mut guard {
            Some(guard) => guard.get_or_insert_with(|| self.kernel.run(NewState(self))),
            // Only for this call, so not worth the seeds.
            None => own.insert(State::with(PieceCache::for_one_call())),
        };
        let (entries, misses) = (state.cache.entries, state.misses);
        let (n_pieces, result) = work(state);
        let missed = state.misses - misses;
        let added = (state.cache.entries - entries) as u64;
        self.misses.fetch_add(missed, Relaxed);
        // The parts of a long pre-token are missed one by one, and it is one piece.
        self.hits
            .fetch_add(n_pieces.saturating_sub(missed), Relaxed);
        if own.is_none() {
            self.entries.fetch_add(added, Relaxed);
        }
        result
    }

    fn free_cache(&self) -> Option<MutexGuard<'_, Option<Box<State>>>> {
        self.caches.iter().find_map(|slot| match slot.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            // A call that panicked may have left half an entry: such a cache starts anew.
            Err(TryLockError::Poisoned(poisoned)) => {
                slot.clear_poison();
                let mut guard = PoisonError::into_inner(poisoned);
                if let Some(state) = guard.take() {
                    self.entries.fetch_sub(state.cache.entries as u64, Relaxed);
                }
                Some(guard)
            }
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

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
        let encoder = encoder();
        let text = "the theme of them \u{4e2d}\u{6587} ".repeat(500) + &"x".repeat(5000);
        for _ in 0..2 {
            for (_, scanner) in Scanner::NAMES {
                let mut ids = Vec::new();
                encoder.encode(scanner, &text, &mut ids);
                let mut decoded = vec![0; encoder.vocabulary.decoded_len(&ids).unwrap()];
                encoder.vocabulary.decode_into(&ids, &mut decoded);
                assert_eq!(decoded, text.as_bytes());
                assert_eq!(encoder.count(scanner, &text, None), ids.len());
                assert!(encoder.count(scanner, &text, Some(9)) > 9);
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
                encoder.with_state::<()>(|_| panic!("as a bug would"));
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
}
