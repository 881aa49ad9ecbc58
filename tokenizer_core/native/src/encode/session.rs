//! The loop over the pieces of a text: find where they end, look them up, merge those that are missed.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use crate::cache::PieceCache;
use crate::cache::local::{LocalCache, MissedPiece, Tier};
use crate::encode::piece_ends::{
    BATCH, Ends, MAX_BATCH_BYTES, PART, PieceFinder, find_parts, offset_of, with_finder,
    write_all_parts,
};
use crate::encode::probe::{Entry, GROUP, Group, PrefetchLines, TakeDisplaced, TakeHits};
use crate::encode::sink::Sink;
use crate::encode::spaces::{Place, Spaces};
use crate::encode::specials::Search;
use crate::encode::tables::{MissingBytes, SharedCache, Tables};
use crate::mem::growth::{Grow, NoMemory, with_room};
use crate::merge::{END_OF_WORD, MergeScratch, Merger, WINDOW};
use crate::simd::{Instructions, Work};
use crate::split::Scanner;
use crate::split::automaton::Automaton;
use crate::split::blocks::classes::BLOCK;
use crate::split::blocks::words::{FindWords, Words};
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

/// What a call did.
pub struct Statistics {
    pub n_pieces: u64,
    pub n_merged: u64,
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

    /// Ends the call.
    pub fn finish(self) -> Statistics {
        let misses = &mut self.buffers.misses;
        misses.local.count_entries(&self.cache);
        Statistics {
            n_pieces: self.n_pieces,
            n_merged: misses.n_merged,
        }
    }

    /// Takes the ids of a text and of the special tokens that `search` finds in it; `spaces` says what
    /// happens to the parts between them, the first of which is at `place`.
    pub(crate) fn take_document(
        &mut self,
        scanner: Scanner,
        mut search: Search,
        (spaces, mut place): (Spaces, Place),
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let (text, mut at) = (search.text(), 0);
        while sink.wants_more().is_continue()
            && let Some((found, id)) = search.next(at)
        {
            // With flags, a token may begin before the end of the last one.
            self.take_part(
                scanner,
                &text[at..found.start.max(at)],
                (spaces, place),
                sink,
            )?;
            sink.take(&[id])?;
            (at, place) = (found.end, Place::Later);
        }
        self.take_part(scanner, &text[at..], (spaces, place), sink)
    }

    /// Takes the ids of a part between special tokens, or of what of it is in one window.
    #[inline]
    fn take_part(
        &mut self,
        scanner: Scanner,
        text: &str,
        (spaces, place): (Spaces, Place),
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let Some(beginning) = spaces.beginning_of(scanner, text, place)? else {
            return self.take(scanner, text, sink);
        };
        self.take(scanner, &beginning.changed, sink)?;
        self.take(scanner, &text[beginning.len..], sink)
    }

    /// Takes the ids of plain text.
    pub fn take(
        &mut self,
        scanner: Scanner,
        text: &str,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let (whole, text) = (text, text.as_bytes());
        match scanner {
            Scanner::Automaton(automaton) if automaton.finds_words() => {
                self.take_words(automaton, text, sink)
            }
            _ if self.tables.marks_words => self.take_marked(scanner, whole, sink),
            _ => match with_finder(scanner, |finder| self.take_found(finder, text, sink)) {
                Ok(taken) => taken,
                Err(automaton) if automaton.is_plain() => self.take_plain(automaton, text, sink),
                Err(automaton) => self.take_steps(automaton, whole, sink),
            },
        }
    }

    /// Takes the ids of plain text that an automaton splits in one step, without dropping any.
    fn take_plain(
        &mut self,
        automaton: &Automaton,
        text: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let mut reads_left = Automaton::reads_for(text.len());
        let mut ends = [0; BATCH];
        let mut at = 0;
        while at < text.len() && sink.wants_more().is_continue() {
            let batch =
                automaton.find_ends(text, at, MAX_BATCH_BYTES, &mut ends, &mut reads_left)?;
            if batch.n == 0 {
                let end = automaton.end_of_piece(text, at, &mut reads_left)?;
                self.take_long(text, at..end, sink)?;
                (at, self.n_pieces) = (end, self.n_pieces + 1);
            } else {
                self.take_pieces(text, at, &ends[..batch.n], batch.is_wide, sink)?;
                at = batch.end;
            }
        }
        Ok(())
    }

    /// Takes the ids of plain text of which an automaton keeps the words.
    fn take_words(
        &mut self,
        automaton: &Automaton,
        text: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let (mut words, mut at) = (Words::none(self.mark()), 0);
        let mut name = memmem::find(text, b"<|");
        while at < text.len() && sink.wants_more().is_continue() {
            let (kernel, name, kept) = (self.tables.kernel, &mut name, &mut words);
            let must_ask;
            (at, must_ask) = kernel.run(FindWords {
                automaton,
                text,
                at,
                name,
                words: kept,
            })?;
            if must_ask {
                let visit = |word: &[u8]| self.keep_word(&mut words, word, sink);
                at = automaton.words_at(text, at, visit)?;
            }
            if words.is_full() {
                self.take_kept(&mut words, sink)?;
            }
        }
        self.take_kept(&mut words, sink)
    }

    /// Takes the ids of plain text in a vocabulary that marks the ends of words.
    fn take_marked(
        &mut self,
        scanner: Scanner,
        text: &str,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let (mut words, mut done) = (Words::none(self.mark()), Ok(()));
        scanner.for_each(text, |word| {
            if done.is_ok() && sink.wants_more().is_continue() {
                done = self.keep_word(&mut words, word, sink);
            }
        })?;
        done?;
        self.take_kept(&mut words, sink)
    }

    fn mark(&self) -> Option<u8> {
        self.tables.marks_words.then_some(END_OF_WORD)
    }

    fn keep_word(
        &mut self,
        words: &mut Words,
        word: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        if words.is_full() || words.n_bytes() + word.len() >= MAX_BATCH_BYTES {
            self.take_kept(words, sink)?;
        }
        match word.len() >= MAX_BATCH_BYTES {
            true => self.take_piece(word, sink),
            false => Ok(words.push(word)?),
        }
    }

    fn take_kept(&mut self, words: &mut Words, sink: &mut impl Sink) -> Result<(), Stopped> {
        let (bytes, ends) = words.pieces();
        self.take_pieces(bytes, 0, ends, words.is_wide, sink)?;
        words.clear();
        Ok(())
    }

    /// Takes the ids of plain text that an automaton splits in any way.
    fn take_steps(
        &mut self,
        automaton: &Automaton,
        text: &str,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let mut pieces = automaton.pieces(text);
        let text = text.as_bytes();
        // A batch is text without gaps: a pattern that drops some has its pre-tokens copied.
        let mut kept = Vec::new();
        let (mut ends, mut n, mut start) = ([0; BATCH], 0, 0);
        while sink.wants_more().is_continue() {
            let piece = pieces.next_piece()?;
            let size = piece.as_ref().map_or(0, |piece| piece.len());
            let batch_size = offset_of(n, &ends);
            if n == BATCH || piece.is_none() || batch_size + size > MAX_BATCH_BYTES {
                if automaton.drops() {
                    self.take_pieces(&kept, 0, &ends[..n], true, sink)?;
                    kept.clear();
                } else {
                    self.take_pieces(text, start, &ends[..n], true, sink)?;
                    start += batch_size;
                }
                n = 0;
            }
            let Some(piece) = piece else {
                break;
            };
            if size > MAX_BATCH_BYTES {
                start = piece.end;
                self.take_long(text, piece, sink)?;
                self.n_pieces += 1;
                continue;
            }
            if automaton.drops() {
                kept.try_extend(&text[piece])?;
            }
            ends[n] = (offset_of(n, &ends) + size) as u32;
            n += 1;
        }
        Ok(())
    }

    /// Takes the ids of the pieces of a text from `start` on, given where each ends, counted from
    /// there. Long ones are looked up by their parts.
    fn take_pieces(
        &mut self,
        text: &[u8],
        start: usize,
        ends: &[u32],
        is_wide: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        stop::check(&self.stop)?;
        self.renew_if_full();
        self.n_pieces += ends.len() as u64;
        let (mut n, mut base, mut at) = (0, start, start);
        for &end in ends {
            let end = start + end as usize;
            let piece = &text[at..end];
            if !is_wide || !may_have_parts(piece) {
                self.buffers.ends[n] = (end - base) as u32;
                n += 1;
            } else {
                let mut offset = (at - base) as u32;
                let room = &mut self.buffers.ends[n..];
                let mut n_parts = write_all_parts(&self.tables.boundaries, piece, 0, offset, room);
                if n_parts.is_none() && n > 0 {
                    self.take_batch(text, base, n, sink)?;
                    (n, base, offset) = (0, at, 0);
                    let room = &mut self.buffers.ends;
                    n_parts = write_all_parts(&self.tables.boundaries, piece, 0, offset, room);
                }
                match n_parts {
                    Some(n_parts) => n += n_parts,
                    None => {
                        self.take_long(text, at..end, sink)?;
                        base = end;
                    }
                }
            }
            at = end;
            if n >= BATCH {
                self.take_batch(text, base, n, sink)?;
                (n, base) = (0, at);
            }
        }
        match n {
            0 => Ok(()),
            _ => self.take_batch(text, base, n, sink),
        }
    }

    /// Takes the ids of one piece.
    pub fn take_piece(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<(), Stopped> {
        stop::check(&self.stop)?;
        self.n_pieces += 1;
        self.renew_if_full();
        let mut marked = Vec::new();
        let piece = match self.mark() {
            Some(mark) => {
                marked.try_extend(piece)?;
                marked.try_push(mark)?;
                &marked
            }
            None => piece,
        };
        if piece.len() <= MAX_BATCH_BYTES {
            self.buffers.ends[0] = piece.len() as u32;
            self.take_batch(piece, 0, 1, sink)
        } else {
            self.take_uncached(piece, 0..piece.len(), false, sink)
        }
    }

    /// Takes the ids of plain text whose pieces are found block by block.
    fn take_found(
        &mut self,
        finder: &dyn PieceFinder,
        text: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let mut at = 0;
        while at < text.len() && sink.wants_more().is_continue() {
            stop::check(&self.stop)?;
            self.renew_if_full();
            let (tables, ends) = (self.tables, &mut self.buffers.ends);
            let cuts = (&tables.boundaries, tables.has_whole());
            let n = finder.find_ends(tables.kernel, cuts, text, at, ends);
            if n == 0 {
                let end = finder.end_of_piece(text, at);
                self.take_long(text, at..end, sink)?;
                (at, self.n_pieces) = (end, self.n_pieces + 1);
            } else {
                let end = at + offset_of(n, ends);
                self.take_batch(text, at, n, sink)?;
                (at, self.n_pieces) = (end, self.n_pieces + n as u64);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn renew_if_full(&mut self) {
        if self.cache.is_full() {
            self.buffers.misses.local.count_entries(&self.cache);
            self.shared.renew(&mut self.cache, self.tables);
        }
    }

    /// Takes the ids of the `n` pieces of the batch that starts at `start`.
    fn take_batch<'k>(
        &'k mut self,
        text: &[u8],
        start: usize,
        n: usize,
        sink: &mut impl Sink,
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
                let hits = unsafe { TakeHits::new(group, position, sink, cursor) };
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
                let displaced = unsafe { TakeDisplaced::new(lookup, piece, entry, sink, cursor) };
                if let Some(taken) = tables.kernel.run(displaced) {
                    cursor = taken;
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
                misses.take(tables, piece, cache, stop, sink)?;
                cursor = sink.open(n - i - 1)?;
            }
        }
        // SAFETY: as above.
        unsafe { sink.close(cursor) };
        Ok(())
    }

    /// Takes the ids of a long pre-token, by its parts.
    fn take_long(
        &mut self,
        text: &[u8],
        piece: Range<usize>,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let whole = &text[piece.clone()];
        if whole.is_ascii() || self.tables.whole_id(whole).is_some() {
            return self.take_uncached(text, piece, false, sink);
        }
        let mut start = piece.start;
        while start < piece.end {
            stop::check(&self.stop)?;
            let (boundaries, ends) = (&self.tables.boundaries, &mut self.buffers.ends);
            let (n, end) = find_parts(boundaries, text, start, piece.end, ends);
            if n == 0 {
                let is_part = end - start < whole.len();
                self.take_uncached(text, start..end, is_part, sink)?;
            } else {
                self.take_batch(text, start, n, sink)?;
            }
            start = end;
        }
        Ok(())
    }

    /// Takes the ids of a piece that is too long to be kept.
    fn take_uncached(
        &mut self,
        text: &[u8],
        range: Range<usize>,
        is_part: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        let piece = MissedPiece {
            text,
            range,
            is_part,
            tier: Tier::None,
        };
        (self.buffers.misses).take(self.tables, piece, &self.cache, &self.stop, sink)
    }
}

/// Whether looking up the parts of a piece pays: it is long, or of a script without spaces (from
/// U+3000 on), in which a part is found more often than the whole: twice as fast for Chinese.
#[inline(always)]
fn may_have_parts(piece: &[u8]) -> bool {
    match piece {
        [first, second, ..] if piece.len() > 6 => {
            (*first.max(second) >= 0xE3 || piece.len() > BLOCK) && !piece.is_ascii()
        }
        _ => false,
    }
}

impl Misses {
    /// Takes the ids of a piece that neither table has: from the local cache, or merged and kept.
    #[inline(never)]
    fn take(
        &mut self,
        tables: &Tables,
        piece: MissedPiece,
        cache: &PieceCache,
        stop: &Option<StopFlag>,
        sink: &mut impl Sink,
    ) -> Result<(), Stopped> {
        if let Some(taken) = self.local.find(&piece, cache, |ids| sink.take(ids)) {
            return taken;
        }
        let bytes = piece.bytes();
        // A part may have the bytes of a token that only a whole pre-token becomes, so the cache
        // keeps neither.
        let whole_id = tables.whole_id(bytes);
        if let Some(id) = whole_id
            && !piece.is_part
        {
            return sink.take(&[id]);
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
            return sink.take(&ids);
        }
        if bytes.len() > WINDOW {
            let n_bytes = |id| tables.vocabulary.token(id).len();
            return sink.take_appended(&mut Vec::new(), |ids| {
                let check = || stop::check(stop);
                tables
                    .merger
                    .encode_long(bytes, scratch, n_bytes, check, ids)
            });
        }
        tables.kernel.run(MergePiece {
            merger: &tables.merger,
            piece: bytes,
            scratch,
            take: |ids: &[u32]| {
                if whole_id.is_none() {
                    local.keep(&piece, cache, ids);
                }
                sink.take(ids)
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
    take: F,
}

impl<T, F: FnOnce(&[u32]) -> T, K: Instructions> Work<K> for MergePiece<'_, F> {
    type Output = Result<T, NoMemory>;

    #[inline(always)]
    fn run(self, _: K) -> Result<T, NoMemory> {
        self.merger.encode(self.piece, self.scratch, self.take)
    }
}
