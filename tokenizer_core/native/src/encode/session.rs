//! The loop over the pieces of a text: find where they end, look them up, merge those that are missed.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::PieceCache;
use crate::cache::call_cache::{LocalCache, MissedPiece, Tier};
use crate::encode::probe::{AddDisplaced, AddHits, Entry, GROUP, Group, PrefetchLines};
use crate::encode::sink::Sink;
use crate::encode::specials::Search;
use crate::encode::tables::{MissingBytes, SharedCache, Tables};
use crate::mem::growth::{Grow, NoMemory, with_room};
use crate::merge::{END_OF_WORD, MergeScratch, Merger, WINDOW};
use crate::normalize::spaces::{Place, Spaces};
use crate::simd::{Instructions, Work};
use crate::split::Scanner;
use crate::split::blocks::classes::BLOCK;
use crate::split::finders::with_finder;
use crate::split::parts::write_parts;
use crate::split::pieces::{
    BATCH, Cutting, Ends, FindPieces, Found, MAX_BATCH_BYTES, PART, offset_of,
};
use crate::stop::{self, StopFlag, Stopped};

/// One call: the tables, the cache of all calls, and buffers that no other call uses meanwhile.
pub struct Session<'s> {
    tables: &'s Tables,
    shared: &'s SharedCache,
    cache: Arc<PieceCache>,
    buffers: &'s mut Buffers,
    n_pieces: u64,
    stop: Option<StopFlag>,
}

/// Memory that one call uses, kept for the next.
pub struct Buffers {
    /// Where the pieces of a batch end, from where the batch starts.
    ends: Ends,
    misses: Misses,
}

/// Merging, and the cache of the call, for pieces that neither shared table has.
#[derive(Default)]
struct Misses {
    scratch: MergeScratch,
    local: LocalCache,
    n_merged: u64,
}

impl Buffers {
    pub fn new() -> Box<Buffers> {
        Box::new(Buffers {
            ends: [0; BATCH + BLOCK],
            misses: Misses::default(),
        })
    }
}

impl<'s> Session<'s> {
    #[inline]
    pub fn new(
        tables: &'s Tables,
        shared: &'s SharedCache,
        buffers: &'s mut Buffers,
    ) -> Result<Session<'s>, NoMemory> {
        buffers.misses.n_merged = 0;
        Ok(Session {
            tables,
            shared,
            cache: shared.current(tables)?,
            buffers,
            n_pieces: 0,
            stop: stop::current(),
        })
    }

    /// Ends the call: how many pieces there were, and how many of them were merged.
    pub fn finish(self) -> (u64, u64) {
        let misses = &mut self.buffers.misses;
        misses.local.count_entries(&self.cache);
        (self.n_pieces, misses.n_merged)
    }

    /// Appends the ids of a text and of the special tokens that `search` finds in it; `spaces` says what
    /// happens to the parts between them, the first of which is at `place`.
    pub(crate) fn encode_document(
        &mut self,
        scanner: Scanner,
        mut search: Search,
        (spaces, mut place): (Spaces, Place),
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        let (text, mut at) = (search.text(), 0);
        while sink.wants_more()
            && let Some((found, id)) = search.next(at)
        {
            // With flags, a token may begin before the end of the last one.
            let part = &text[at..found.start.max(at)];
            self.encode_part(scanner, part, (spaces, place), sink)?;
            sink.add(&[id])?;
            (at, place) = (found.end, Place::Later);
        }
        self.encode_part(scanner, &text[at..], (spaces, place), sink)
    }

    /// Appends the ids of a part between special tokens, or of what of it is in one window.
    #[inline]
    fn encode_part(
        &mut self,
        scanner: Scanner,
        text: &str,
        (spaces, place): (Spaces, Place),
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        let Some(beginning) = spaces.beginning_of(scanner, text, place)? else {
            return self.encode_plain(scanner, text, sink);
        };
        self.encode_plain(scanner, &beginning.changed, sink)?;
        self.encode_plain(scanner, &text[beginning.len..], sink)
    }

    /// Appends the ids of plain text.
    pub fn encode_plain(
        &mut self,
        scanner: Scanner,
        text: &str,
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        let cutting = Cutting {
            kernel: self.tables.kernel,
            boundaries: &self.tables.boundaries,
            marks_parts: self.tables.has_whole(),
            mark: self.mark(),
        };
        with_finder(scanner, text, cutting, |finder| {
            self.encode_found(finder, sink)
        })
    }

    /// Appends the ids of all pieces that are found.
    fn encode_found(
        &mut self,
        finder: &mut dyn FindPieces,
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        while sink.wants_more() {
            stop::check(&self.stop)?;
            self.renew_if_full();
            match finder.next_batch(&mut self.buffers.ends)? {
                None => break,
                Some(Found::Batch { text, start, n }) => {
                    self.n_pieces += n as u64;
                    self.look_up_batch(text, start, n, sink)?;
                }
                Some(Found::Long { text, piece }) => {
                    self.n_pieces += 1;
                    self.encode_long(text, piece, sink)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the ids of one pre-token.
    pub fn encode_pre_token(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Stopped> {
        stop::check(&self.stop)?;
        self.n_pieces += 1;
        self.renew_if_full();
        let mut marked = Vec::new();
        let piece = match self.mark() {
            Some(mark) => {
                marked.try_extend(bytes)?;
                marked.try_push(mark)?;
                &marked
            }
            None => bytes,
        };
        if piece.len() <= MAX_BATCH_BYTES {
            self.buffers.ends[0] = piece.len() as u32;
            self.look_up_batch(piece, 0, 1, sink)
        } else {
            self.find_or_merge_uncached(piece, 0..piece.len(), false, sink)
        }
    }

    fn mark(&self) -> Option<u8> {
        self.tables.marks_words.then_some(END_OF_WORD)
    }

    #[inline(always)]
    fn renew_if_full(&mut self) {
        if self.cache.is_full() {
            self.buffers.misses.local.count_entries(&self.cache);
            self.shared.renew(&mut self.cache, self.tables);
        }
    }

    /// Appends the ids of the `n` pieces of the batch that starts at `start`.
    fn look_up_batch<'k>(
        &'k mut self,
        text: &[u8],
        start: usize,
        n: usize,
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        let (tables, cache, stop) = (self.tables, &*self.cache, &self.stop);
        let Buffers { ends, misses } = &mut *self.buffers;
        let ends = &ends[..n];
        let lookup = &cache.lookup();
        let [first, second] = &mut [Group::new(), Group::new()];
        let (mut group, mut next) = (first, second);
        let mut groups = ends.chunks(GROUP);
        let (batch, mut at) = (&text[start..], 0);
        let mut prefetch = |group: &mut Group<'k>| {
            if let Some(ends) = groups.next() {
                at = tables.kernel.run(PrefetchLines {
                    group,
                    lookup,
                    batch,
                    start: at,
                    ends,
                });
            }
        };
        prefetch(next);
        let mut cursor = sink.open(n)?;
        for first in (0..n).step_by(GROUP) {
            std::mem::swap(&mut group, &mut next);
            prefetch(next);
            let (mut position, n_entries) = (0, group.entries().len());
            loop {
                // SAFETY: the cursor was opened for all pieces from here on, and only these calls have
                // used it since.
                let hits = unsafe { AddHits::new(group, position, cursor) };
                (position, cursor) = tables.kernel.run(hits);
                if position == n_entries {
                    break;
                }
                let i = first + position;
                let range = start + offset_of(i, ends)..start + offset_of(i + 1, ends);
                let entry = group.entries()[position];
                position += 1;
                let piece = (text, range.clone());
                // SAFETY: as above.
                let displaced = unsafe { AddDisplaced::new(lookup, piece, entry, cursor) };
                if let Some(added) = tables.kernel.run(displaced) {
                    cursor = added;
                    continue;
                }
                // SAFETY: as above.
                unsafe { sink.close(cursor) };
                let Entry { key, line } = entry;
                let piece = MissedPiece {
                    text,
                    is_part: ends[i] & PART != 0,
                    tier: Tier::of(range.len(), key, || lookup.number_of(line)),
                    range,
                };
                misses.find_or_merge(tables, piece, cache, stop, sink)?;
                cursor = sink.open(n - i - 1)?;
            }
        }
        // SAFETY: as above.
        unsafe { sink.close(cursor) };
        Ok(())
    }

    /// Appends the ids of a long pre-token, by its parts.
    fn encode_long(
        &mut self,
        text: &[u8],
        piece: Range<usize>,
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        let whole = &text[piece.clone()];
        if whole.is_ascii() || self.tables.whole_id(whole).is_some() {
            return self.find_or_merge_uncached(text, piece, false, sink);
        }
        let mut start = piece.start;
        while start < piece.end {
            stop::check(&self.stop)?;
            let (boundaries, ends) = (&self.tables.boundaries, &mut self.buffers.ends[..BATCH]);
            let (n, end) = write_parts(boundaries, &text[..piece.end], start, 1, 0, ends);
            if n == 0 {
                let is_part = start > piece.start;
                self.find_or_merge_uncached(text, start..piece.end, is_part, sink)?;
                return Ok(());
            }
            self.look_up_batch(text, start, n, sink)?;
            start = end;
        }
        Ok(())
    }

    /// Appends the ids of a piece that is too long for the shared tables.
    fn find_or_merge_uncached(
        &mut self,
        text: &[u8],
        range: Range<usize>,
        is_part: bool,
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        let piece = MissedPiece {
            text,
            range,
            is_part,
            tier: Tier::None,
        };
        (self.buffers.misses).find_or_merge(self.tables, piece, &self.cache, &self.stop, sink)
    }
}

impl Misses {
    /// Appends the ids of a piece that neither table has: from the local cache, or merged and kept.
    #[inline(never)]
    fn find_or_merge(
        &mut self,
        tables: &Tables,
        piece: MissedPiece,
        cache: &PieceCache,
        stop: &Option<StopFlag>,
        sink: &mut Sink,
    ) -> Result<(), Stopped> {
        if let Some(added) = self.local.find(&piece, cache, |ids| sink.add(ids)) {
            return added;
        }
        let bytes = piece.bytes();
        // A part may have the bytes of a token that only a whole pre-token becomes, so the cache
        // keeps neither.
        let whole_id = tables.whole_id(bytes);
        if let Some(id) = whole_id
            && !piece.is_part
        {
            return sink.add(&[id]);
        }
        self.n_merged += 1;
        let (scratch, local) = (&mut self.scratch, &mut self.local);
        if let Some(missing) = &tables.missing
            && bytes.iter().any(|&byte| missing.has(byte))
        {
            let ids = merge_around(missing, tables, bytes, scratch, stop)?;
            if whole_id.is_none() && !ids.is_empty() {
                local.keep(&piece, cache, &ids);
            }
            return sink.add(&ids);
        }
        if bytes.len() > WINDOW {
            let n_bytes = |id| tables.vocabulary.token(id).len();
            let check = || stop::check(stop);
            return (tables.merger).encode_long(bytes, scratch, n_bytes, check, sink.out);
        }
        tables.kernel.run(MergePiece {
            merger: &tables.merger,
            piece: bytes,
            scratch,
            then: |ids: &[u32]| {
                if whole_id.is_none() {
                    local.keep(&piece, cache, ids);
                }
                sink.add(ids)
            },
        })?
    }
}

/// The ids of a piece with missing bytes. The unknown token never merges, so that the parts around it
/// are merged separately; what is around bytes that are left out is merged together, but for `ends`.
#[inline(never)]
fn merge_around(
    missing: &MissingBytes,
    tables: &Tables,
    piece: &[u8],
    scratch: &mut MergeScratch,
    stop: &Option<StopFlag>,
) -> Result<Vec<u32>, Stopped> {
    let (mut ids, mut part) = (Vec::new(), with_room(piece.len())?);
    let mut is_after_unknown = false;
    for position in 0..=piece.len() {
        let byte = piece.get(position).copied();
        let is_missing = byte.is_some_and(|byte| missing.has(byte));
        if let Some(byte) = byte
            && !is_missing
        {
            part.push(byte);
            is_after_unknown = false;
            continue;
        }
        let separates = part
            .last()
            .is_some_and(|&last| missing.separates_after(last));
        if is_missing && missing.unknown.is_none() && !separates {
            continue;
        }
        if !part.is_empty() {
            tables.merger.encode_long(
                &part,
                scratch,
                |id| tables.vocabulary.token(id).len(),
                || stop::check(stop),
                &mut ids,
            )?;
            part.clear();
        }
        if let Some(unknown) = missing.unknown
            && is_missing
            && !(missing.is_fused && is_after_unknown)
        {
            ids.try_push(unknown)?;
        }
        is_after_unknown = is_missing;
    }
    Ok(ids)
}

/// Merges a piece: vectors find the lowest rank.
struct MergePiece<'c, F> {
    merger: &'c Merger,
    piece: &'c [u8],
    scratch: &'c mut MergeScratch,
    then: F,
}

impl<T, F: FnOnce(&[u32]) -> T, K: Instructions> Work<K> for MergePiece<'_, F> {
    type Output = Result<T, NoMemory>;

    #[inline(always)]
    fn run(self, _: K) -> Result<T, NoMemory> {
        self.merger.encode(self.piece, self.scratch, self.then)
    }
}
