//! The loop over the pieces of a text: find where they end, look them up, merge what is missed.

use std::ops::Range;

use crate::batches::{
    BATCH, Ends, INSIDE, MAX_BATCH_BYTES, PART, Window, find_ends, find_parts, offset_of,
};
use crate::block_classes::BLOCK;
use crate::block_scan::BlockGrammar;
use crate::encoder::Encoder;
use crate::kernel::{Kernel, OnKernel};
use crate::merge::{MergeScratch, Merger};
use crate::piece_cache::{MAX_CACHED_BYTES, MAX_SHORT_BYTES, PieceCache};
use crate::scan::{Cl100k, Gpt2, Grammar, Llama3, O200k, Qwen2, Scanner};
use crate::sink::{Appender, Sink};

/// Texts of one call, encoded with one cache.
pub struct Session<'c> {
    pub encoder: &'c Encoder,
    pub scanner: Scanner,
    pub state: &'c mut State,
    pub n_pieces: u64,
}

impl Session<'_> {
    /// Appends the ids of `text`.
    pub fn encode(&mut self, text: &str, out: &mut Vec<u32>) {
        self.scan(text, Window::whole(text), &mut Appender { out });
    }

    /// Returns where the last piece ends.
    pub fn scan(&mut self, text: &str, window: Window, sink: &mut impl Sink) -> usize {
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
pub struct State {
    pub cache: PieceCache,
    /// Where the pieces of a batch end, from where the batch starts.
    ends: Ends,
    buckets: [u32; BATCH + BLOCK],
    keys: [u128; BATCH + BLOCK],
    scratch: MergeScratch,
    pub misses: u64,
}

impl Encoder {
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
        while pos < window.end && sink.wants_more().is_continue() {
            let found =
                find_ends::<G, K>(kernel, &self.cuts, text, pos, window.end, &mut state.ends);
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
            if (MAX_SHORT_BYTES + 1..=MAX_CACHED_BYTES).contains(&(end - at)) {
                state.cache.prefetch_longer(&text[at..end]);
            }
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
        if whole.is_ascii() || self.whole_id(whole).is_some() {
            return self.encode_rarer(whole, false, None, state, sink);
        }
        let mut start = piece.start;
        while start < piece.end {
            let (n, end) = find_parts(&self.cuts, text, start, piece.end, &mut state.ends);
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
        let take = |ids: &[u32]| {
            sink.take(ids);
            if !is_kept {
                return;
            }
            let is_put = place.is_some_and(|(key, bucket)| cache.put_short(key, bucket, ids));
            if !is_put {
                cache.put_longer(piece, ids);
            }
        };
        self.kernel.run(MergePiece {
            merger: &self.merger,
            piece,
            scratch,
            take,
        });
    }
}

impl State {
    pub fn with(cache: PieceCache) -> Box<State> {
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
pub struct NewState<'c>(pub &'c Encoder);

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

/// A piece to be merged on a kernel: vectors find the lowest rank.
struct MergePiece<'c, F> {
    merger: &'c Merger,
    piece: &'c [u8],
    scratch: &'c mut MergeScratch,
    take: F,
}

impl<F: FnOnce(&[u32])> OnKernel for MergePiece<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        self.merger.encode(self.piece, self.scratch, self.take);
    }
}

/// A piece that is already split, to be encoded on a kernel.
pub struct EncodePiece<'c, S> {
    pub encoder: &'c Encoder,
    pub piece: &'c [u8],
    pub state: &'c mut State,
    pub sink: &'c mut S,
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
