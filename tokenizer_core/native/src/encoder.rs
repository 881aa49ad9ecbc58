//! Text to ids: scan, look up, merge what is not known yet. The one place where these meet.
//!
//! An encoder is immutable but for its caches. Each call takes one cache for itself, by a lock that
//! it never waits for: with more calls at a time than caches the others do without, and a process
//! forked while a cache was in use finds that one locked for good and uses the rest.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::block_classes::{BLOCK, Classes, classes};
use crate::block_scan::BlockGrammar;
use crate::cuts::{Cuts, character_at, length_from};
use crate::kernel::{AnyKernel, Kernel, OnKernel};
use crate::merge::{ID_BITS, MergeScratch, Merger};
use crate::piece_cache::{MAX_CACHED_BYTES, MAX_ENTRIES, MAX_SHORT_BYTES, PieceCache};
use crate::scan::{Cl100k, Gpt2, Grammar, Llama3, O200k, Qwen2, Scanner};
use crate::sink::{Appender, Counter, Sink};
use crate::vocabulary::{TokenTable, Vocabulary};

/// Caches of one encoder at most; each is about 9 MB when it is full.
const MAX_CACHES: usize = 32;

/// Pieces that are found before they are looked up, and room for those of one more block.
const BATCH: usize = 256;
/// Bytes of a batch at most. Where a piece ends is told by the bits of a `u32` below `INSIDE`.
const MAX_BATCH_BYTES: usize = 1 << 29;
/// Of an end: what ends there begins inside a pre-token.
const INSIDE: u32 = 1 << 30;
/// Of an end: what ends there is a part of a pre-token, see `cuts.rs`.
const PART: u32 = 1 << 31;

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
    /// The tokens that are taken whole where a piece is one, which merging would not come to.
    whole: Option<TokenTable>,
    /// Short tokens that are what their bytes encode to: every cache starts with them.
    seeds: Vec<u32>,
    cuts: Option<Cuts>,
    kernel: AnyKernel,
    caches: Vec<Mutex<Option<Box<State>>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    entries: AtomicU64,
}

/// Texts of one call, encoded with one cache.
pub(crate) struct Session<'c> {
    encoder: &'c Encoder,
    scanner: Scanner,
    state: &'c mut State,
    n_pieces: u64,
}

impl Session<'_> {
    /// Appends the ids of `text`.
    pub(crate) fn encode(&mut self, text: &str, out: &mut Vec<u32>) {
        self.scan(text, Window::whole(text), &mut Appender { out });
    }

    /// Returns where the last piece ends.
    fn scan(&mut self, text: &str, window: Window, sink: &mut impl Sink) -> usize {
        let (n_pieces, end) = self.encoder.kernel.run(EncodeText {
            encoder: self.encoder,
            scanner: self.scanner,
            text: text.as_bytes(),
            window,
            state: self.state,
            sink,
        });
        self.n_pieces += n_pieces;
        end
    }
}

/// What one call works with, kept for the next.
struct State {
    cache: PieceCache,
    /// Where the pieces of a batch end, from where the batch starts.
    ends: [u32; BATCH + BLOCK],
    buckets: [u32; BATCH + BLOCK],
    keys: [u128; BATCH + BLOCK],
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
            seeds: Vec::new(),
            cuts: None,
            kernel: AnyKernel::best(),
            caches: (0..n_caches).map(|_| Mutex::new(None)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        }
    }

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
        let others: Vec<u32> = ids_of(&others);
        let whole =
            (takes_whole && !others.is_empty()).then(|| TokenTable::new(&vocabulary, &others));
        seeds.retain(|&id| (1..=MAX_SHORT_BYTES).contains(&vocabulary.token(id).len()));
        // Lower ids are the more frequent tokens; what comes last stays where room is short.
        seeds.sort_unstable_by(|a, b| b.cmp(a));
        merger.find_atoms(tokens.iter().copied(), |id| vocabulary.token(id));
        let cuts = Some(Cuts::new(merger.pairs(), |id| vocabulary.token(id)));
        Ok(Encoder {
            seeds,
            cuts,
            ..Encoder::new(vocabulary, merger, whole)
        })
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

    /// Returns how many pieces there were and where the last one ends. In batches, so that where
    /// the next piece ends, which cannot be predicted, does not hold up the look-ups, and their
    /// waits for memory overlap.
    #[inline(always)]
    fn scan_as<G: Grammar + BlockGrammar, K: Kernel>(
        &self,
        kernel: K,
        text: &[u8],
        window: Window,
        state: &mut State,
        sink: &mut impl Sink,
    ) -> (u64, usize) {
        let (mut pos, mut n_pieces) = (window.at, 0);
        let cuts = self.cuts.as_ref();
        while pos < window.end && sink.wants_more().is_continue() {
            let found = find_ends::<G, K>(kernel, cuts, text, pos, window.end, &mut state.ends);
            if found == 0 {
                let end = G::advance(text, pos);
                if end > window.end && end - pos > window.max_overhang {
                    break;
                }
                self.encode_long(kernel, text, pos..end, state, sink);
                (pos, n_pieces) = (end, n_pieces + 1);
                continue;
            }
            let (n, is_over) = window.pieces(pos, &state.ends[..found]);
            let end = pos + offset_of(n, &state.ends);
            self.encode_batch(kernel, text, pos, n, state, sink);
            (pos, n_pieces) = (end, n_pieces + n as u64);
            if is_over {
                break;
            }
        }
        (n_pieces, pos)
    }

    /// Encodes the `n` pieces of a batch that starts at `start`.
    #[inline(always)]
    fn encode_batch<K: Kernel>(
        &self,
        kernel: K,
        text: &[u8],
        start: usize,
        n: usize,
        state: &mut State,
        sink: &mut impl Sink,
    ) {
        let lookup = state.cache.lookup(kernel);
        let mut at = start;
        let places = state.keys[..n].iter_mut().zip(&mut state.buckets[..n]);
        for ((key_place, bucket_place), end) in places.zip(&state.ends[..n]) {
            let end = start + (end & !(PART | INSIDE)) as usize;
            let key = kernel.key(text, at, end - at);
            let bucket = lookup.bucket_of(key);
            lookup.prefetch(bucket);
            (*key_place, *bucket_place) = (kernel.key_as_word(key), bucket as u32);
            at = end;
        }
        let mut at = start;
        let mut cursor = sink.open(n);
        for i in 0..n {
            let end = start + (state.ends[i] & !(PART | INSIDE)) as usize;
            let (key, bucket) = (state.keys[i], state.buckets[i] as usize);
            let found = state
                .cache
                .get_short(kernel, kernel.key_of_word(key), bucket);
            if let Some(value) = found {
                cursor = sink.take_value(cursor, kernel, value);
            } else {
                let place = (end - at <= MAX_SHORT_BYTES).then_some((key, bucket));
                let is_part = state.ends[i] & PART != 0;
                sink.close(cursor);
                self.encode_rarer(&text[at..end], is_part, place, state, sink);
                cursor = sink.open(n - i - 1);
            }
            at = end;
        }
        sink.close(cursor);
    }

    /// Encodes a long pre-token by its parts.
    #[inline(always)]
    fn encode_long<K: Kernel>(
        &self,
        kernel: K,
        text: &[u8],
        piece: Range<usize>,
        state: &mut State,
        sink: &mut impl Sink,
    ) {
        let whole = &text[piece.clone()];
        let cuts = match &self.cuts {
            Some(cuts) if !whole.is_ascii() && self.whole_id(whole).is_none() => cuts,
            _ => return self.encode_rarer(whole, false, None, state, sink),
        };
        let mut start = piece.start;
        while start < piece.end {
            let (n, end) = find_parts(cuts, text, start, piece.end, &mut state.ends);
            if n == 0 {
                let is_part = end - start < whole.len();
                self.encode_rarer(&text[start..end], is_part, None, state, sink);
            } else {
                self.encode_batch(kernel, text, start, n, state, sink);
            }
            start = end;
        }
    }

    /// A piece that the first table does not answer; a short one comes with its key and bucket.
    #[inline(never)]
    fn encode_rarer(
        &self,
        piece: &[u8],
        is_part: bool,
        place: Option<(u128, usize)>,
        state: &mut State,
        sink: &mut impl Sink,
    ) {
        // A part may have the bytes of a token that only a pre-token is taken for: neither is kept.
        let whole_id = self.whole_id(piece);
        if let Some(id) = whole_id
            && !is_part
        {
            return sink.take(&[id]);
        }
        let State {
            cache,
            scratch,
            misses,
            ..
        } = state;
        let is_kept = piece.len() <= MAX_CACHED_BYTES && whole_id.is_none();
        let may_be_kept = match place {
            Some((_, bucket)) => is_kept && cache.may_have_spilled(bucket),
            None => is_kept,
        };
        if may_be_kept && cache.get_longer(piece, |ids| sink.take(ids)) {
            return;
        }
        *misses += 1;
        self.merger.encode(piece, scratch, |ids| {
            sink.take(ids);
            if !is_kept {
                return;
            }
            let is_put = place.is_some_and(|(key, bucket)| cache.put_short(key, bucket, ids));
            if !is_put {
                cache.put_longer(piece, ids);
            }
        });
    }

    /// The id of a token that is taken whole and that merging would not come to.
    #[inline]
    fn whole_id(&self, piece: &[u8]) -> Option<u32> {
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
        self.hits.fetch_add(n_pieces - missed, Relaxed);
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

impl State {
    fn with(cache: PieceCache) -> Box<State> {
        Box::new(State {
            cache,
            ends: [0; BATCH + BLOCK],
            buckets: [0; BATCH + BLOCK],
            keys: [0; BATCH + BLOCK],
            scratch: MergeScratch::default(),
            misses: 0,
        })
    }
}

/// Makes a cache with the seeds in it.
struct NewState<'c>(&'c Encoder);

impl OnKernel for NewState<'_> {
    type Output = Box<State>;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> Box<State> {
        let mut cache = PieceCache::new();
        for &id in &self.0.seeds {
            let token = self.0.vocabulary.token(id);
            let key = kernel.key(token, 0, token.len());
            let bucket = cache.lookup(kernel).bucket_of(key);
            cache.put_short(kernel.key_as_word(key), bucket, &[id]);
        }
        State::with(cache)
    }
}

/// The text of a call, to be encoded on a kernel; see `Encoder::scan_as`.
struct EncodeText<'c, S> {
    encoder: &'c Encoder,
    scanner: Scanner,
    text: &'c [u8],
    window: Window,
    state: &'c mut State,
    sink: &'c mut S,
}

impl<S: Sink> OnKernel for EncodeText<'_, S> {
    type Output = (u64, usize);

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> (u64, usize) {
        let EncodeText {
            encoder,
            scanner,
            text,
            window,
            state,
            sink,
        } = self;
        match scanner {
            Scanner::Gpt2 => encoder.scan_as::<Gpt2, K>(kernel, text, window, state, sink),
            Scanner::Cl100k => encoder.scan_as::<Cl100k, K>(kernel, text, window, state, sink),
            Scanner::Llama3 => encoder.scan_as::<Llama3, K>(kernel, text, window, state, sink),
            Scanner::Qwen2 => encoder.scan_as::<Qwen2, K>(kernel, text, window, state, sink),
            Scanner::O200k => encoder.scan_as::<O200k, K>(kernel, text, window, state, sink),
        }
    }
}

/// A piece that is already split, to be encoded on a kernel.
struct EncodePiece<'c, S> {
    encoder: &'c Encoder,
    piece: &'c [u8],
    state: &'c mut State,
    sink: &'c mut S,
}

impl<S: Sink> OnKernel for EncodePiece<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let EncodePiece {
            encoder,
            piece,
            state,
            sink,
        } = self;
        if piece.len() <= MAX_BATCH_BYTES {
            state.ends[0] = piece.len() as u32;
            encoder.encode_batch(kernel, piece, 0, 1, state, sink);
        } else {
            encoder.encode_rarer(piece, false, None, state, sink);
        }
    }
}

impl Window {
    /// How many of the pieces of a batch that starts at `start` belong to the window, and whether
    /// one was left out for its length.
    #[inline(always)]
    fn pieces(&self, start: usize, ends: &[u32]) -> (usize, bool) {
        let mut n = ends.len();
        if start + offset_of(n, ends) <= self.end {
            return (n, false);
        }
        let mut piece = n;
        while piece > 0 {
            piece -= 1;
            // A part goes with the pre-token that it is of.
            if ends[piece] & INSIDE == 0 {
                if start + offset_of(piece, ends) < self.end {
                    break;
                }
                n = piece;
            }
        }
        let (first, last) = (start + offset_of(n - 1, ends), start + offset_of(n, ends));
        if last > self.end && last - first > self.max_overhang {
            return (n - 1, true);
        }
        (n, false)
    }
}

/// Where the first `n` pieces of a batch end, from its start.
#[inline(always)]
fn offset_of(n: usize, ends: &[u32]) -> usize {
    match n {
        0 => 0,
        _ => (ends[n - 1] & !(PART | INSIDE)) as usize,
    }
}

/// Writes to `ends` where the pieces from the boundary `start` on end, counted from there: those
/// that start before `text_end`, up to a batch of them, and perhaps some more. None where the first
/// is for `encode_long`.
#[inline(always)]
fn find_ends<G: Grammar + BlockGrammar, K: Kernel>(
    kernel: K,
    cuts: Option<&Cuts>,
    text: &[u8],
    start: usize,
    text_end: usize,
    ends: &mut [u32; BATCH + BLOCK],
) -> usize {
    let (mut at, mut n) = (start, 0);
    while n < BATCH && at < text_end && at - start < MAX_BATCH_BYTES {
        let classes = classes(kernel, text, at);
        let starts = G::starts(classes, text, at);
        let behind_first = starts & (starts - 1);
        if behind_first != 0 {
            let places = ends[n..].first_chunk_mut::<BLOCK>();
            let places = places.expect("room for a block behind a batch");
            let base = (at - start) as u32;
            n += match cuts {
                Some(cuts) if classes.is_wide => {
                    write_parts(cuts, &classes, starts, text, at, base, places)
                }
                _ => {
                    kernel.write_places(behind_first, base, places);
                    behind_first.count_ones() as usize
                }
            };
            at += 63 - behind_first.leading_zeros() as usize;
        } else {
            let end = G::advance(text, at);
            if end - start > MAX_BATCH_BYTES || (end - at > BLOCK && !text[at..end].is_ascii()) {
                break;
            }
            at = end;
            ends[n] = (at - start) as u32;
            n += 1;
        }
    }
    n
}

/// Writes where the pre-tokens of a block and their parts end, up to the last of `starts`; returns
/// how many there are.
#[inline(never)]
fn write_parts(
    cuts: &Cuts,
    classes: &Classes,
    starts: u64,
    text: &[u8],
    at: usize,
    base: u32,
    places: &mut [u32; BLOCK],
) -> usize {
    let last = 63 - starts.leading_zeros();
    let mut characters = !classes.inner & (u64::MAX >> (63 - last));
    let mut place = 0;
    characters &= characters - 1;
    let (mut n, mut began_inside) = (0, 0);
    while characters != 0 {
        let next = characters.trailing_zeros() as usize;
        characters &= characters - 1;
        let before = character_at(text, at + place, next - place);
        let behind_length = length_from(text[at + next]);
        let behind = character_at(text, at + next, behind_length);
        let is_start = (starts >> next & 1) as u32;
        let is_ascii = before | behind < 0x80;
        let may_join = is_ascii || cuts.may_join(before, text[at + next - 1], behind);
        let is_cut = u32::from(!may_join) & !is_start;
        places[n] = (base + next as u32) | ((is_cut | began_inside) << 31) | (began_inside << 30);
        let is_end = is_start | is_cut;
        began_inside = if is_end != 0 { is_cut } else { began_inside };
        n += is_end as usize;
        place = next;
    }
    n
}

/// Writes to `ends` where the parts of a pre-token from `start` to `end` end, counted from there,
/// up to a batch of them; returns how many, and where the last of them ends. None where the first
/// has no end near.
fn find_parts(
    cuts: &Cuts,
    text: &[u8],
    start: usize,
    end: usize,
    ends: &mut [u32; BATCH + BLOCK],
) -> (usize, usize) {
    let (mut n, mut at, mut last_end) = (0, start, start);
    let mut length = length_from(text[at]);
    let mut before = character_at(text, at, length);
    while n < BATCH {
        at += length;
        if at >= end || at - start > MAX_BATCH_BYTES {
            // Only the end of the pre-token is an end that needs no proof.
            if at >= end && end - start <= MAX_BATCH_BYTES {
                ends[n] = (end - start) as u32 | PART | INSIDE;
                (n, last_end) = (n + 1, end);
            }
            break;
        }
        length = length_from(text[at]);
        let behind = character_at(text, at, length);
        let is_ascii = before | behind < 0x80;
        if !is_ascii && !cuts.may_join(before, text[at - 1], behind) {
            ends[n] = (at - start) as u32 | PART | INSIDE;
            (n, last_end) = (n + 1, at);
        }
        before = behind;
    }
    if n == 0 { (0, end) } else { (n, last_end) }
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
