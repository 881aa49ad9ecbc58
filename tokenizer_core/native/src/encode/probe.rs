//! Looking the pieces of a batch up in the shared cache, a group at a time.
//!
//! One function makes keys and prefetches lines for the next group while another appends the ids of the
//! group before it. Each is small: one loop for both needs more registers than there are.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::cache::Lookup;
use crate::cache::key::{MAX_SHORT_BYTES, words};
use crate::cache::packed_ids::MiddleValue;
use crate::cache::probe::Probe;
use crate::cache::table::Line;
use crate::encode::sink::Cursor;
use crate::mem::prefetch::prefetch;
use crate::simd::Work;
use crate::split::pieces::{END, offset_of};

/// Pieces of a group: enough for their lines to arrive while the group before them is taken, few enough
/// for the processor to queue all requests. Prefetching a whole batch made it wait, and alternating
/// between one prefetch and one look-up needs more registers than there are.
pub const GROUP: usize = 32;

/// The keys and lines of some pieces of a batch.
pub struct Group<'c> {
    /// The first `n` are initialized.
    entries: [MaybeUninit<Entry<'c>>; GROUP],
    n: usize,
}

#[derive(Clone, Copy)]
pub struct Entry<'c> {
    pub key: u128,
    /// The line of a short piece in the first table; any line for a longer piece.
    pub line: &'c Line,
}

impl<'c> Group<'c> {
    pub fn new() -> Group<'c> {
        Group {
            entries: [const { MaybeUninit::uninit() }; GROUP],
            n: 0,
        }
    }

    #[inline(always)]
    pub fn entries(&self) -> &[Entry<'c>] {
        let n = self.n.min(GROUP);
        // SAFETY: the first `n` entries are initialized: only `PrefetchLines` sets `n`, after it has
        // written so many.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr().cast(), n) }
    }
}

/// Makes the keys of consecutive pieces and prefetches their lines.
pub struct PrefetchLines<'a, 'c> {
    pub group: &'a mut Group<'c>,
    pub lookup: &'a Lookup<'c>,
    /// The text from the start of the batch on.
    pub batch: &'a [u8],
    /// Where the first piece starts in `batch`.
    pub start: usize,
    /// Where each piece ends in `batch`.
    pub ends: &'a [u32],
}

impl<K: Probe> Work<K> for PrefetchLines<'_, '_> {
    /// Where the last piece ends in `batch`.
    type Output = usize;

    #[inline(always)]
    fn run(self, kernel: K) -> usize {
        let PrefetchLines {
            group,
            lookup,
            batch,
            start,
            ends,
        } = self;
        assert!(ends.len() <= GROUP);
        // Entries are uninitialized until all are written.
        group.n = 0;
        // At least 16 bytes follow the start of a piece below this.
        let n_starts = batch.len().saturating_sub(15);
        let (finder, mut others) = (*lookup, 0u32);
        let mut at = start;
        for (i, (end, entry)) in ends.iter().zip(&mut group.entries).enumerate() {
            let end = (end & END) as usize;
            let length = end.wrapping_sub(at);
            if length <= MAX_SHORT_BYTES && at < n_starts {
                // SAFETY: `at + 16 <= batch.len()`.
                let block = unsafe { &*batch.as_ptr().add(at).cast::<[u8; 16]>() };
                let key = kernel.key_in(block, length);
                let line = finder.line_of(kernel, key);
                prefetch(line);
                entry.write(Entry { key, line });
            } else {
                // A call here would make all other iterations spill their registers.
                others |= 1 << i;
            }
            at = end;
        }
        // Longer pieces, and those at the end of the text.
        while others != 0 {
            let i = others.trailing_zeros() as usize;
            others &= others - 1;
            let at = if i == 0 { start } else { offset_of(i, ends) };
            let length = offset_of(i + 1, ends) - at;
            let (key, line) = if length <= MAX_SHORT_BYTES {
                let key = kernel.key(batch, at, length);
                (key, lookup.line_of(kernel, key))
            } else {
                (lookup.key_of_longer(batch, at, length), lookup.any_line())
            };
            prefetch(line);
            group.entries[i].write(Entry { key, line });
        }
        group.n = ends.len();
        at
    }
}

/// Appends the ids of consecutive pieces of a group, up to the first whose key is in neither slot of its
/// line.
pub struct AddHits<'a, 'c> {
    group: &'a Group<'c>,
    next: usize,
    cursor: Cursor,
}

impl<'a, 'c> AddHits<'a, 'c> {
    /// From the piece `next` of the group on.
    ///
    /// # Safety
    /// The cursor is open for all these pieces, see `Cursor::add_value`.
    #[inline(always)]
    pub unsafe fn new(group: &'a Group<'c>, next: usize, cursor: Cursor) -> Self {
        AddHits {
            group,
            next,
            cursor,
        }
    }
}

impl<K: Probe> Work<K> for AddHits<'_, '_> {
    /// The number of the piece that it stopped at, and the cursor.
    type Output = (usize, Cursor);

    #[inline(always)]
    fn run(self, kernel: K) -> (usize, Cursor) {
        let AddHits {
            group,
            mut next,
            mut cursor,
        } = self;
        let entries = group.entries();
        while next < entries.len() {
            let Entry { key, line } = &entries[next];
            let Some(slot) = kernel.find(line, key) else {
                break;
            };
            // SAFETY: by the promise of `new` the cursor is open for this piece.
            cursor = unsafe { cursor.add_value(kernel, line, slot) };
            next += 1;
        }
        (next, cursor)
    }
}

/// Appends the ids of a piece that is in neither slot of its line, if it has the whole line, or is in a
/// neighbouring line or in the second table.
pub struct AddDisplaced<'a, 'c> {
    lookup: &'a Lookup<'c>,
    text: &'a [u8],
    range: Range<usize>,
    entry: Entry<'c>,
    cursor: Cursor,
}

impl<'a, 'c> AddDisplaced<'a, 'c> {
    /// Of the piece `text[range]`.
    ///
    /// # Safety
    /// The cursor is open for this piece, see `Cursor::add_value`.
    #[inline(always)]
    pub unsafe fn new(
        lookup: &'a Lookup<'c>,
        (text, range): (&'a [u8], Range<usize>),
        entry: Entry<'c>,
        cursor: Cursor,
    ) -> Self {
        AddDisplaced {
            lookup,
            text,
            range,
            entry,
            cursor,
        }
    }
}

impl<K: Probe> Work<K> for AddDisplaced<'_, '_> {
    /// The cursor, if the piece was found.
    type Output = Option<Cursor>;

    #[inline(always)]
    fn run(self, kernel: K) -> Option<Cursor> {
        let AddDisplaced {
            lookup,
            text,
            range,
            entry: Entry { key, line },
            cursor,
        } = self;
        if range.len() <= MAX_SHORT_BYTES {
            if let Some(value) = line.get_wide(&words(key)) {
                let value = MiddleValue::from_words(value);
                // SAFETY: by the promise of `new` the cursor is open for this piece.
                return Some(unsafe { cursor.add_middle(value) });
            }
            if let Some((line, slot)) = lookup.find_beyond(kernel, &key, line) {
                // SAFETY: as above.
                return Some(unsafe { cursor.add_value(kernel, line, slot) });
            }
        }
        let value = lookup.middle_value(text, range, key, line)?;
        // SAFETY: as above.
        Some(unsafe { cursor.add_middle(value) })
    }
}
