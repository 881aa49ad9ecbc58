//! The loop over the pieces of a text: find where they end, look them up, merge what is missed.

use std::ops::Range;
use std::sync::Arc;

use crate::batches::{
    BATCH, Ends, INSIDE, MAX_BATCH_BYTES, PART, Window, find_ends, find_parts, offset_of,
};
use crate::block_classes::BLOCK;
use crate::block_scan::BlockGrammar;
use crate::encoder::Encoder;
use crate::kernel::{Kernel, OnKernel};
use crate::merge::{MergeScratch, Merger};
use crate::piece_cache::{Lookup, MAX_SHORT_BYTES, PieceCache};
use crate::places::{NO_SHORT_KEY, OwnCache, Piece, Place, line_of_longer};
use crate::scan::{Cl100k, Gpt2, Grammar, Llama3, O200k, Qwen2, Scanner};
use crate::sink::{Appender, Sink};

/// How far ahead of a look-up lines are asked for: enough for memory to answer meanwhile, few enough
/// that the processor takes them all. Asking for all of a batch first made it wait.
const AHEAD: usize = 32;

/// Texts of one call.
pub struct Session<'s, 'c> {
    pub encoder: &'s Encoder,
    pub scanner: Scanner,
    pub call: &'s mut Call<'c>,
    pub n_pieces: u64,
}

impl Session<'_, '_> {
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
            call: self.call,
            sink,
        });
        self.n_pieces += n_pieces;
        end
    }
}

/// What one call works with: the cache of all and buffers of its own.
pub struct Call<'c> {
    pub cache: Arc<PieceCache>,
    pub buffers: &'c mut Buffers,
}

/// Memory that one call uses, kept for the next.
pub struct Buffers {
    /// Where the pieces of a batch end, from where the batch starts.
    ends: Ends,
    /// The keys of those that are short, and their lines in the first table. A longer one has
    /// `NO_SHORT_KEY` with its line in the second table, and any line.
    keys: [u128; BATCH + BLOCK],
    lines: [u32; BATCH + BLOCK],
    scratch: MergeScratch,
    own: OwnCache,
    pub n_misses: u64,
}

impl Call<'_> {
    #[inline(always)]
    pub fn renew_if_full(&mut self, encoder: &Encoder) {
        if self.cache.is_full() {
            self.count_entries();
            encoder.renew(&mut self.cache);
        }
    }

    /// Adds to the entries of the cache what this call has entered.
    pub fn count_entries(&mut self) {
        self.buffers.own.count_entries(&self.cache);
    }
}

impl Buffers {
    pub fn new() -> Box<Buffers> {
        Box::new(Buffers {
            ends: [0; BATCH + BLOCK],
            keys: [0; BATCH + BLOCK],
            lines: [0; BATCH + BLOCK],
            scratch: MergeScratch::default(),
            own: OwnCache::default(),
            n_misses: 0,
        })
    }

    /// Makes the key of piece `i` of a batch that starts at `start`, which itself starts at `at`,
    /// and asks for its line. Returns where it ends.
    #[inline(always)]
    fn ask<K: Kernel>(
        &mut self,
        lookup: &Lookup<K>,
        cache: &PieceCache,
        text: &[u8],
        start: usize,
        at: usize,
        i: usize,
    ) -> usize {
        let end = start + (self.ends[i] & !(PART | INSIDE)) as usize;
        let key = lookup.key(text, at, end - at);
        let line = lookup.line_of(key);
        lookup.prefetch(line);
        (self.keys[i], self.lines[i]) = (key, line as u32);
        if end - at > MAX_SHORT_BYTES {
            let line = line_of_longer(cache, text, at, end - at);
            self.keys[i] = NO_SHORT_KEY | line as u128;
        }
        end
    }
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
        call: &mut Call,
        sink: &mut impl Sink,
    ) -> (u64, usize) {
        let (mut pos, mut n_pieces) = (window.at, 0);
        while pos < window.end && sink.wants_more().is_continue() {
            call.renew_if_full(self);
            let ends = &mut call.buffers.ends;
            let found = find_ends::<G, K>(kernel, &self.cuts, text, pos, window.end, ends);
            if found == 0 {
                let end = G::advance(text, pos);
                if end > window.end && end - pos > window.max_overhang {
                    break;
                }
                self.encode_long(kernel, text, pos..end, call, sink);
                (pos, n_pieces) = (end, n_pieces + 1);
                continue;
            }
            let (n, is_over) = window.pieces(pos, &ends[..found]);
            let end = pos + offset_of(n, ends);
            self.encode_batch(kernel, text, pos, n, call, sink);
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
        call: &mut Call,
        sink: &mut impl Sink,
    ) {
        assert!(n <= BATCH + BLOCK);
        let cache = &*call.cache;
        let buffers = &mut *call.buffers;
        let lookup = cache.lookup(kernel);
        let mut asked = start;
        for i in 0..n.min(AHEAD) {
            asked = buffers.ask(&lookup, cache, text, start, asked, i);
        }
        let mut at = start;
        let mut cursor = sink.open(n);
        for i in 0..n {
            if i + AHEAD < n {
                asked = buffers.ask(&lookup, cache, text, start, asked, i + AHEAD);
            }
            let end = start + (buffers.ends[i] & !(PART | INSIDE)) as usize;
            let (key, line) = (buffers.keys[i], buffers.lines[i] as usize);
            let found = lookup.get(key, line);
            if let Some(value) = found {
                // SAFETY: this is the value of one of the pieces that the sink was opened for, and
                // the cursor went nowhere else.
                cursor = unsafe { sink.take_value(cursor, kernel, value) };
            } else {
                let piece = Piece {
                    text,
                    range: at..end,
                    is_part: buffers.ends[i] & PART != 0,
                    place: Place::of(end - at, key, line),
                };
                // SAFETY: the cursor is from `open`, through `take_value` only.
                unsafe { sink.close(cursor) };
                self.encode_rarer(piece, cache, buffers, sink);
                cursor = sink.open(n - i - 1);
            }
            at = end;
        }
        // SAFETY: as above.
        unsafe { sink.close(cursor) };
    }

    /// Encodes a long pre-token by its parts.
    #[inline(always)]
    fn encode_long<K: Kernel>(
        &self,
        kernel: K,
        text: &[u8],
        piece: Range<usize>,
        call: &mut Call,
        sink: &mut impl Sink,
    ) {
        let whole = &text[piece.clone()];
        if whole.is_ascii() || self.whole_id(whole).is_some() {
            return self.encode_uncached(text, piece, false, call, sink);
        }
        let mut start = piece.start;
        while start < piece.end {
            let ends = &mut call.buffers.ends;
            let (n, end) = find_parts(&self.cuts, text, start, piece.end, ends);
            if n == 0 {
                let is_part = end - start < whole.len();
                self.encode_uncached(text, start..end, is_part, call, sink);
            } else {
                self.encode_batch(kernel, text, start, n, call, sink);
            }
            start = end;
        }
    }

    /// A piece of more bytes than are kept.
    fn encode_uncached(
        &self,
        text: &[u8],
        range: Range<usize>,
        is_part: bool,
        call: &mut Call,
        sink: &mut impl Sink,
    ) {
        let piece = Piece {
            text,
            range,
            is_part,
            place: Place::Nowhere,
        };
        self.encode_rarer(piece, &call.cache, call.buffers, sink);
    }

    /// A piece that does not stand in its line of the first table.
    #[inline(never)]
    fn encode_rarer(
        &self,
        piece: Piece,
        cache: &PieceCache,
        buffers: &mut Buffers,
        sink: &mut impl Sink,
    ) {
        if buffers.own.find(&piece, cache, |ids| sink.take(ids)) {
            return;
        }
        let bytes = piece.bytes();
        // A part may have the bytes of a token that only a pre-token is taken for: neither is kept.
        let whole_id = self.whole_id(bytes);
        if let Some(id) = whole_id
            && !piece.is_part
        {
            return sink.take(&[id]);
        }
        buffers.n_misses += 1;
        let own = &mut buffers.own;
        self.kernel.run(MergePiece {
            merger: &self.merger,
            piece: bytes,
            scratch: &mut buffers.scratch,
            take: |ids: &[u32]| {
                sink.take(ids);
                if whole_id.is_none() {
                    own.keep(&piece, cache, ids);
                }
            },
        });
    }
}

/// The text of a call, to be encoded on a kernel; see `Encoder::scan_as`.
struct EncodeText<'c, 'b, S> {
    encoder: &'c Encoder,
    scanner: Scanner,
    text: &'c [u8],
    window: Window,
    call: &'c mut Call<'b>,
    sink: &'c mut S,
}

impl<S: Sink> OnKernel for EncodeText<'_, '_, S> {
    type Output = (u64, usize);

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> (u64, usize) {
        let EncodeText {
            encoder,
            scanner,
            text,
            window,
            call,
            sink,
        } = self;
        match scanner {
            Scanner::Gpt2 => encoder.scan_as::<Gpt2, K>(kernel, text, window, call, sink),
            Scanner::Cl100k => encoder.scan_as::<Cl100k, K>(kernel, text, window, call, sink),
            Scanner::Llama3 => encoder.scan_as::<Llama3, K>(kernel, text, window, call, sink),
            Scanner::Qwen2 => encoder.scan_as::<Qwen2, K>(kernel, text, window, call, sink),
            Scanner::O200k => encoder.scan_as::<O200k, K>(kernel, text, window, call, sink),
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
pub struct EncodePiece<'c, 'b, S> {
    pub encoder: &'c Encoder,
    pub piece: &'c [u8],
    pub call: &'c mut Call<'b>,
    pub sink: &'c mut S,
}

impl<S: Sink> OnKernel for EncodePiece<'_, '_, S> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let EncodePiece {
            encoder,
            piece,
            call,
            sink,
        } = self;
        if piece.len() <= MAX_BATCH_BYTES {
            call.buffers.ends[0] = piece.len() as u32;
            encoder.encode_batch(kernel, piece, 0, 1, call, sink);
        } else {
            encoder.encode_uncached(piece, 0..piece.len(), false, call, sink);
        }
    }
}
