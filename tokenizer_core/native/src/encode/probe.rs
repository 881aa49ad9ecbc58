//! Where the pieces of a batch are looked up, a group at a time.
//!
//! One function asks for the lines of a group while another takes what stands in those asked for
//! before. Each is small: in one loop for both there are not enough registers.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::cache::Lookup;
use crate::cache::key::{MAX_SHORT_BYTES, words};
use crate::cache::packed_ids::MiddleValue;
use crate::cache::probe::Probe;
use crate::cache::table::Line;
use crate::encode::piece_ends::{INSIDE, PART, offset_of};
use crate::encode::sink::Sink;
use crate::mem::prefetch::prefetch;
use crate::simd::Work;

/// Lines are asked for by so many pieces while those before are looked up: enough for memory to
/// answer meanwhile, few enough that the processor takes them all. Asking for all of a batch first
/// made it wait; asking for one and looking up another in turns wants more registers than there are.
pub const GROUP: usize = 32;

/// Where some pieces of a batch are looked up.
pub struct Group<'c> {
    /// The first `n` are written.
    entries: [MaybeUninit<Entry<'c>>; GROUP],
    pub n: usize,
}

#[derive(Clone, Copy)]
pub struct Entry<'c> {
    pub key: u128,
    /// That of the first table; of a longer piece any.
    pub line: &'c Line,
}

impl<'c> Group<'c> {
    pub fn new() -> Group<'c> {
        Group {
            entries: [MaybeUninit::uninit(); GROUP],
            n: 0,
        }
    }

    #[inline(always)]
    pub fn entries(&self) -> &[Entry<'c>] {
        let n = self.n.min(GROUP);
        // SAFETY: so many are written.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr().cast(), n) }
    }
}

/// Makes the keys of the pieces of `text` from `at` on that end at `ends`, counted from `start`, and
/// asks for their lines. Answers where the last ends.
pub struct Ask<'a, 'c> {
    pub group: &'a mut Group<'c>,
    pub lookup: &'a Lookup<'c>,
    pub text: &'a [u8],
    pub start: usize,
    pub at: usize,
    pub ends: &'a [u32],
}

impl<K: Probe> Work<K> for Ask<'_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, kernel: K) -> usize {
        let end = self.start + offset_of(self.ends.len(), self.ends);
        if end + 16 <= self.text.len() {
            self.run_as::<K, true>(kernel);
        } else {
            self.run_as::<K, false>(kernel);
        }
        end
    }
}

impl Ask<'_, '_> {
    /// 16 bytes stand behind the last piece if they are `INNER`.
    #[inline(always)]
    fn run_as<K: Probe, const INNER: bool>(self, kernel: K) {
        let Ask {
            group,
            lookup,
            text,
            start,
            at: first,
            ends,
        } = self;
        assert!(ends.len() <= GROUP);
        // Until all are written again.
        group.n = 0;
        let (finder, mut longer) = (*lookup, 0u32);
        let (bytes, mut at) = (&text[start..], first - start);
        for (i, (end, entry)) in ends.iter().zip(&mut group.entries).enumerate() {
            let end = (end & !(PART | INSIDE)) as usize;
            let length = end - at;
            if length > MAX_SHORT_BYTES {
                // A call here would cost all others their registers.
                longer |= 1 << i;
            } else {
                debug_assert!(at < end && (!INNER || at + 16 <= bytes.len()));
                let key = if INNER {
                    // SAFETY: ends rise, so each of these starts before the last of them ends.
                    let block = unsafe { &*bytes.as_ptr().add(at).cast::<[u8; 16]>() };
                    kernel.key_in(block, length)
                } else {
                    kernel.key(bytes, at, length)
                };
                let line = finder.line_of(kernel, key);
                prefetch(line);
                entry.write(Entry { key, line });
            }
            at = end;
        }
        while longer != 0 {
            let i = longer.trailing_zeros() as usize;
            longer &= longer - 1;
            let at = if i == 0 {
                first
            } else {
                start + offset_of(i, ends)
            };
            let length = start + offset_of(i + 1, ends) - at;
            group.entries[i].write(Entry {
                key: lookup.key_of_longer(text, at, length),
                line: lookup.any_line(),
            });
        }
        group.n = ends.len();
    }
}

/// Takes the ids of the pieces of a group from `place` on, up to one that does not stand in its line;
/// answers which that is, and the cursor of the sink.
pub struct TakeFound<'a, 'c, S: Sink> {
    pub group: &'a Group<'c>,
    pub place: usize,
    pub sink: &'a mut S,
    pub cursor: S::Cursor,
}

impl<S: Sink, K: Probe> Work<K> for TakeFound<'_, '_, S> {
    type Output = (usize, S::Cursor);

    #[inline(always)]
    fn run(self, kernel: K) -> (usize, S::Cursor) {
        let TakeFound {
            group,
            mut place,
            sink,
            mut cursor,
        } = self;
        let entries = group.entries();
        while place < entries.len() {
            let Entry { key, line } = &entries[place];
            let Some(found) = kernel.find(line, key) else {
                break;
            };
            // SAFETY: this is the value of one of the pieces that the sink was opened for, and the
            // cursor went nowhere else.
            cursor = unsafe { sink.take_value(cursor, kernel, line, found) };
            place += 1;
        }
        (place, cursor)
    }
}

/// Takes the ids of a piece that does not stand in a slot of its line, if it has the whole line, or stands
/// in one of those beside it or in the second table; answers the cursor of the sink then.
pub struct TakeElsewhere<'a, 'c, S: Sink> {
    pub lookup: &'a Lookup<'c>,
    pub text: &'a [u8],
    pub range: Range<usize>,
    pub entry: Entry<'c>,
    pub sink: &'a mut S,
    pub cursor: S::Cursor,
}

impl<S: Sink, K: Probe> Work<K> for TakeElsewhere<'_, '_, S> {
    type Output = Option<S::Cursor>;

    #[inline(always)]
    fn run(self, kernel: K) -> Option<S::Cursor> {
        let TakeElsewhere {
            lookup,
            text,
            range,
            entry: Entry { key, line },
            sink,
            cursor,
        } = self;
        if range.len() <= MAX_SHORT_BYTES {
            if let Some(value) = line.get_wide(&words(key)) {
                // SAFETY: the caller opened the sink for this piece too, and the cursor went nowhere else.
                return Some(unsafe { sink.take_middle(cursor, MiddleValue::from_words(value)) });
            }
            if let Some((line, slot)) = lookup.find_beyond(kernel, &key, line) {
                // SAFETY: as above.
                return Some(unsafe { sink.take_value(cursor, kernel, line, slot) });
            }
        }
        let value = lookup.middle_value(text, range, key, line)?;
        // SAFETY: as above.
        Some(unsafe { sink.take_middle(cursor, value) })
    }
}
