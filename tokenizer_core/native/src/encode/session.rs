//! The loop over the pieces of a text: find where they end, look them up, merge what is missed.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use crate::cache::PieceCache;
use crate::cache::local::{OwnCache, Piece, Place};
use crate::encode::Encoder;
use crate::encode::parts::find_parts;
use crate::encode::piece_ends::{BATCH, Ends, FindEnds, MAX_BATCH_BYTES, PART, offset_of};
use crate::encode::probe::{Ask, Entry, GROUP, Group, TakeElsewhere, TakeFound};
use crate::encode::sink::Sink;
use crate::merge::{MergeScratch, Merger};
use crate::simd::{Instructions, Work};
use crate::split::blocks::classes::BLOCK;
use crate::split::blocks::starts::BlockGrammar;
use crate::split::{Cl100k, Gpt2, Grammar, Llama3, O200k, Qwen2, Scanner};

/// Texts of one call.
pub struct Session<'s, 'c> {
    pub encoder: &'s Encoder,
    pub scanner: Scanner,
    pub call: &'s mut Call<'c>,
    pub n_pieces: u64,
}

impl Session<'_, '_> {
    /// Takes the ids of `text`.
    pub fn take(&mut self, text: &str, sink: &mut impl Sink) {
        let (encoder, text, call) = (self.encoder, text.as_bytes(), &mut *self.call);
        self.n_pieces += match self.scanner {
            Scanner::Gpt2 => encoder.take_as::<Gpt2>(text, call, sink),
            Scanner::Cl100k => encoder.take_as::<Cl100k>(text, call, sink),
            Scanner::Llama3 => encoder.take_as::<Llama3>(text, call, sink),
            Scanner::Qwen2 => encoder.take_as::<Qwen2>(text, call, sink),
            Scanner::O200k => encoder.take_as::<O200k>(text, call, sink),
        };
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
    rarer: Rarer,
}

/// What is needed for pieces that neither table has.
#[derive(Default)]
struct Rarer {
    scratch: MergeScratch,
    own: OwnCache,
    n_misses: u64,
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
        self.buffers.rarer.own.count_entries(&self.cache);
    }
}

impl Buffers {
    pub fn new() -> Box<Buffers> {
        Box::new(Buffers {
            ends: [0; BATCH + BLOCK],
            rarer: Rarer::default(),
        })
    }

    pub fn n_misses(&self) -> u64 {
        self.rarer.n_misses
    }
}

impl Encoder {
    /// Returns how many pieces there were. In batches, so that where the next piece ends, which
    /// cannot be predicted, does not hold up the look-ups, and their waits for memory overlap.
    fn take_as<G: Grammar + BlockGrammar>(
        &self,
        text: &[u8],
        call: &mut Call,
        sink: &mut impl Sink,
    ) -> u64 {
        let (mut at, mut n_pieces) = (0, 0);
        while at < text.len() && sink.wants_more().is_continue() {
            call.renew_if_full(self);
            let ends = &mut call.buffers.ends;
            let n = self.kernel.run(FindEnds::<G> {
                grammar: PhantomData,
                cuts: &self.cuts,
                text,
                start: at,
                ends,
            });
            if n == 0 {
                let end = G::advance(text, at);
                self.encode_long(text, at..end, call, sink);
                (at, n_pieces) = (end, n_pieces + 1);
            } else {
                let end = at + offset_of(n, ends);
                self.encode_batch(text, at, n, call, sink);
                (at, n_pieces) = (end, n_pieces + n as u64);
            }
        }
        n_pieces
    }

    /// Encodes the `n` pieces of a batch that starts at `start`.
    fn encode_batch<'k>(
        &self,
        text: &[u8],
        start: usize,
        n: usize,
        call: &'k mut Call,
        sink: &mut impl Sink,
    ) {
        let cache = &*call.cache;
        let Buffers { ends, rarer } = &mut *call.buffers;
        let ends = &ends[..n];
        let lookup = &cache.lookup();
        let [first, second] = &mut [Group::new(), Group::new()];
        let (mut group, mut next) = (first, second);
        let mut groups = ends.chunks(GROUP);
        let mut at = start;
        let mut ask = |group: &mut Group<'k>| {
            if let Some(ends) = groups.next() {
                let ask = Ask {
                    group,
                    lookup,
                    text,
                    start,
                    at,
                    ends,
                };
                at = self.kernel.run(ask);
            }
        };
        ask(next);
        let mut cursor = sink.open(n);
        for first in (0..n).step_by(GROUP) {
            std::mem::swap(&mut group, &mut next);
            ask(next);
            let mut place = 0;
            loop {
                (place, cursor) = self.kernel.run(TakeFound {
                    group,
                    place,
                    sink,
                    cursor,
                });
                if place == group.n {
                    break;
                }
                let i = first + place;
                let range = start + offset_of(i, ends)..start + offset_of(i + 1, ends);
                let entry = group.entries()[place];
                let taken = self.kernel.run(TakeElsewhere {
                    lookup,
                    text,
                    range: range.clone(),
                    entry,
                    sink,
                    cursor,
                });
                if let Some(behind) = taken {
                    cursor = behind;
                    place += 1;
                    continue;
                }
                // SAFETY: the cursor is from `open`, and from what takes values since.
                unsafe { sink.close(cursor) };
                let Entry { key, line } = entry;
                let piece = Piece {
                    text,
                    is_part: ends[i] & PART != 0,
                    place: Place::of(range.len(), key, || lookup.place_of(line)),
                    range,
                };
                self.encode_rarer(piece, cache, rarer, sink);
                cursor = sink.open(n - i - 1);
                place += 1;
            }
        }
        // SAFETY: as above.
        unsafe { sink.close(cursor) };
    }

    /// Encodes a piece that is already split.
    pub fn encode_split(&self, piece: &[u8], call: &mut Call, sink: &mut impl Sink) {
        if piece.len() <= MAX_BATCH_BYTES {
            call.buffers.ends[0] = piece.len() as u32;
            self.encode_batch(piece, 0, 1, call, sink);
        } else {
            self.encode_uncached(piece, 0..piece.len(), false, call, sink);
        }
    }

    /// Encodes a long pre-token by its parts.
    fn encode_long(&self, text: &[u8], piece: Range<usize>, call: &mut Call, sink: &mut impl Sink) {
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
                self.encode_batch(text, start, n, call, sink);
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
        self.encode_rarer(piece, &call.cache, &mut call.buffers.rarer, sink);
    }

    /// A piece that neither table has.
    #[inline(never)]
    fn encode_rarer(
        &self,
        piece: Piece,
        cache: &PieceCache,
        rarer: &mut Rarer,
        sink: &mut impl Sink,
    ) {
        if rarer.own.find(&piece, cache, |ids| sink.take(ids)) {
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
        rarer.n_misses += 1;
        let own = &mut rarer.own;
        self.kernel.run(MergePiece {
            merger: &self.merger,
            piece: bytes,
            scratch: &mut rarer.scratch,
            take: |ids: &[u32]| {
                sink.take(ids);
                if whole_id.is_none() {
                    own.keep(&piece, cache, ids);
                }
            },
        });
    }
}

/// A piece to be merged on a kernel: vectors find the lowest rank.
struct MergePiece<'c, F> {
    merger: &'c Merger,
    piece: &'c [u8],
    scratch: &'c mut MergeScratch,
    take: F,
}

impl<F: FnOnce(&[u32]), K: Instructions> Work<K> for MergePiece<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: K) {
        self.merger.encode(self.piece, self.scratch, self.take);
    }
}
