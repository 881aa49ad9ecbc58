//! Text to ids: scan, look up, merge what is not known yet. The one place where these meet.
//!
//! An encoder is immutable but for its caches. Each call takes one cache for itself, by a lock that
//! it never waits for: with more calls at a time than caches the others do without, and a process
//! forked while a cache was in use finds that one locked for good and uses the rest.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::merge::{MergeScratch, Merger};
use crate::piece_cache::{
    MAX_CACHED_BYTES, MAX_ENTRIES, MAX_SHORT_BYTES, PieceCache, ShortIds, ShortKey,
};
use crate::scan::{Cl100k, Gpt2, Grammar, Llama3, O200k, Qwen2, Scanner};
use crate::vocabulary::{TokenTable, Vocabulary};

/// Caches of one encoder at most; each is about 9 MB when it is full.
const MAX_CACHES: usize = 32;

/// Pieces looked up together.
const BATCH: usize = 64;

/// Where a piece ends, and where to look for it.
#[derive(Clone, Copy, Default)]
struct Probe {
    key: ShortKey,
    bucket: usize,
    end: usize,
}

/// A part of a text; see `encode_between`.
#[derive(Clone, Copy)]
struct Window {
    at: usize,
    end: usize,
    max_overhang: usize,
}

impl Window {
    fn whole(text: &str) -> Window {
        Window {
            at: 0,
            end: text.len(),
            max_overhang: 0,
        }
    }
}

pub struct Encoder {
    pub vocabulary: Vocabulary,
    merger: Merger,
    /// The tokens that are taken whole where a piece is one.
    whole: Option<TokenTable>,
    caches: Vec<Mutex<Option<Box<State>>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    entries: AtomicU64,
}

/// What one call works with, kept for the next.
struct State {
    cache: PieceCache,
    scratch: MergeScratch,
    misses: u64,
}

/// How the caches have done.
pub struct Statistics {
    pub hits: u64,
    pub misses: u64,
    pub entries: u64,
    pub maximum: u64,
}

impl Encoder {
    pub fn new(vocabulary: Vocabulary, merger: Merger, whole: Option<TokenTable>) -> Encoder {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let n_caches = (2 * cpus).clamp(4, MAX_CACHES);
        Encoder {
            vocabulary,
            merger,
            whole,
            caches: (0..n_caches).map(|_| Mutex::new(None)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        }
    }

    /// Appends the ids of `text`, split by `scanner`.
    pub fn encode(&self, scanner: Scanner, text: &str, out: &mut Vec<u32>) {
        let mut sink = Appender::new(out);
        self.scan(scanner, text.as_bytes(), Window::whole(text), &mut sink);
        sink.flush();
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
        let mut sink = Appender::new(out);
        let window = Window {
            at,
            end,
            max_overhang,
        };
        let at = self.scan(scanner, text.as_bytes(), window, &mut sink);
        sink.flush();
        at
    }

    /// The number of ids of `text`; counting stops once it is over `limit`.
    pub fn count(&self, scanner: Scanner, text: &str, limit: Option<usize>) -> usize {
        let mut sink = Counter {
            n_ids: 0,
            limit: limit.unwrap_or(usize::MAX),
        };
        self.scan(scanner, text.as_bytes(), Window::whole(text), &mut sink);
        sink.n_ids
    }

    /// Appends the ids of pieces that are already split.
    pub fn encode_pieces<'p>(&self, pieces: impl Iterator<Item = &'p str>, out: &mut Vec<u32>) {
        let mut sink = Appender::new(out);
        self.with_state(|state| {
            let mut n_pieces = 0;
            for piece in pieces.map(str::as_bytes).filter(|piece| !piece.is_empty()) {
                self.encode_piece(piece, state, &mut sink);
                n_pieces += 1;
            }
            n_pieces
        });
        sink.flush();
    }

    pub fn statistics(&self) -> Statistics {
        Statistics {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            entries: self.entries.load(Relaxed),
            maximum: (self.caches.len() * MAX_ENTRIES) as u64,
        }
    }

    /// Returns where the last piece ends.
    fn scan(&self, scanner: Scanner, text: &[u8], window: Window, sink: &mut impl Sink) -> usize {
        let mut at = 0;
        self.with_state(|state| {
            let n_pieces;
            (n_pieces, at) = match scanner {
                Scanner::Gpt2 => self.scan_as::<Gpt2>(text, window, state, sink),
                Scanner::Cl100k => self.scan_as::<Cl100k>(text, window, state, sink),
                Scanner::Llama3 => self.scan_as::<Llama3>(text, window, state, sink),
                Scanner::Qwen2 => self.scan_as::<Qwen2>(text, window, state, sink),
                Scanner::O200k => self.scan_as::<O200k>(text, window, state, sink),
            };
            n_pieces
        });
        at
    }

    /// Returns how many pieces there were and where the last one ends. In batches, so that where
    /// the next piece ends, which cannot be predicted, does not hold up the look-ups, and their
    /// waits for memory overlap.
    fn scan_as<G: Grammar>(
        &self,
        text: &[u8],
        window: Window,
        state: &mut State,
        sink: &mut impl Sink,
    ) -> (u64, usize) {
        let mut probes = [Probe::default(); BATCH];
        let (mut pos, mut n_pieces) = (window.at, 0);
        let mut is_over = false;
        while pos < window.end && !is_over && sink.wants_more().is_continue() {
            let mut n = 0;
            let mut end = pos;
            while n < BATCH && end < window.end {
                let start = end;
                end = G::advance(text, start);
                probes[n].end = end;
                if end > window.end && end - start > window.max_overhang {
                    is_over = true;
                    break;
                }
                n += 1;
            }
            let mut start = pos;
            for probe in &mut probes[..n] {
                probe.key = ShortKey::NONE;
                if probe.end - start <= MAX_SHORT_BYTES {
                    probe.key = ShortKey::of(text, start, probe.end);
                    probe.bucket = state.cache.bucket_of(probe.key);
                    state.cache.prefetch(probe.bucket);
                }
                start = probe.end;
            }
            for probe in &probes[..n] {
                match state.cache.get_short(probe.key, probe.bucket) {
                    Some(found) => sink.take_short(found),
                    None => self.encode_rarer(&text[pos..probe.end], state, sink),
                }
                pos = probe.end;
            }
            n_pieces += n as u64;
        }
        (n_pieces, pos)
    }

    fn encode_piece(&self, piece: &[u8], state: &mut State, sink: &mut impl Sink) {
        if piece.len() <= MAX_SHORT_BYTES {
            let key = ShortKey::of(piece, 0, piece.len());
            if let Some(found) = state.cache.get_short(key, state.cache.bucket_of(key)) {
                sink.take_short(found);
                return;
            }
        }
        self.encode_rarer(piece, state, sink);
    }

    /// A piece that the first table does not answer.
    #[inline(never)]
    fn encode_rarer(&self, piece: &[u8], state: &mut State, sink: &mut impl Sink) {
        let State {
            cache,
            scratch,
            misses,
        } = state;
        let is_short = piece.len() <= MAX_SHORT_BYTES;
        let may_be_long = if is_short {
            let key = ShortKey::of(piece, 0, piece.len());
            cache.has_in_long(key)
        } else {
            piece.len() <= MAX_CACHED_BYTES
        };
        if may_be_long && let Some(ids) = cache.get_long(piece) {
            sink.take(ids);
            return;
        }
        *misses += 1;
        self.encode_unknown(piece, scratch, |ids| {
            sink.take(ids);
            if is_short {
                cache.put_short(ShortKey::of(piece, 0, piece.len()), piece, ids);
            } else if may_be_long {
                cache.put_long(piece, ids);
            }
        });
    }

    fn encode_unknown(&self, piece: &[u8], scratch: &mut MergeScratch, take: impl FnOnce(&[u32])) {
        if let Some(id) = self
            .whole
            .as_ref()
            .and_then(|w| w.get(&self.vocabulary, piece))
        {
            take(&[id]);
        } else {
            self.merger.encode(piece, scratch, take);
        }
    }

    /// Runs `work` with a cache, or with a small one of its own when all are taken, and adds what
    /// it answers, the number of pieces, to the statistics.
    fn with_state(&self, work: impl FnOnce(&mut State) -> u64) {
        let mut guard = self.free_cache();
        let mut own = None;
        let state = match &mut guard {
            Some(guard) => guard.get_or_insert_with(State::new),
            None => own.insert(State::new()),
        };
        let (entries, misses) = (state.cache.entries, state.misses);
        let n_pieces = work(state);
        let missed = state.misses - misses;
        let added = (state.cache.entries - entries) as u64;
        self.misses.fetch_add(missed, Relaxed);
        self.hits.fetch_add(n_pieces - missed, Relaxed);
        if own.is_none() {
            self.entries.fetch_add(added, Relaxed);
        }
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

impl State {
    fn new() -> Box<State> {
        Box::new(State {
            cache: PieceCache::new(),
            scratch: MergeScratch::default(),
            misses: 0,
        })
    }
}

/// Where ids go.
trait Sink {
    fn take_short(&mut self, ids: ShortIds);
    fn take(&mut self, ids: &[u32]);
    fn wants_more(&self) -> ControlFlow<()>;
}

/// Appends to a vector through a buffer that stays in the first-level cache: four ids are stored
/// at once whatever their number, which is one instruction and no branch.
struct Appender<'v> {
    buffer: [u32; Appender::SIZE],
    filled: usize,
    out: &'v mut Vec<u32>,
}

impl<'v> Appender<'v> {
    const SIZE: usize = 1024;

    fn new(out: &'v mut Vec<u32>) -> Appender<'v> {
        Appender {
            buffer: [0; Appender::SIZE],
            filled: 0,
            out,
        }
    }

    #[inline(never)]
    fn flush(&mut self) {
        self.out.extend_from_slice(&self.buffer[..self.filled]);
        self.filled = 0;
    }
}

impl Sink for Appender<'_> {
    #[inline(always)]
    fn take_short(&mut self, found: ShortIds) {
        if self.filled > Self::SIZE - 4 {
            self.flush();
        }
        self.buffer[self.filled..self.filled + 4].copy_from_slice(&found.ids);
        self.filled += found.count;
    }

    fn take(&mut self, ids: &[u32]) {
        self.flush();
        self.out.extend_from_slice(ids);
    }

    #[inline(always)]
    fn wants_more(&self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

struct Counter {
    n_ids: usize,
    limit: usize,
}

impl Sink for Counter {
    #[inline(always)]
    fn take_short(&mut self, found: ShortIds) {
        self.n_ids += found.count;
    }

    fn take(&mut self, ids: &[u32]) {
        self.n_ids += ids.len();
    }

    #[inline(always)]
    fn wants_more(&self) -> ControlFlow<()> {
        if self.n_ids > self.limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
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
        let vocabulary = Vocabulary::new(
            tokens
                .iter()
                .enumerate()
                .map(|(i, t)| (i as u32, &t[..]))
                .collect(),
        );
        let merges = [
            (116, 104, 256),
            (256, 101, 257),
            (32, 116, 258),
            (32, 257, 259),
        ];
        let start = std::array::from_fn(|byte| byte as u32);
        Encoder::new(
            vocabulary,
            Merger::from_merges(start, &merges).unwrap(),
            None,
        )
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
                encoder.with_state(|_| panic!("as a bug would"));
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
