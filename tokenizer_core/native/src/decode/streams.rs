//! Texts that arrive as ids, are given out as text, and may end at a stop string.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::decode::stop_strings::{ROOT, StopStrings};
use crate::decode::text::{Text, TextRules};
use crate::decode::vocabulary::Vocabulary;
use crate::mem::growth::{Grow, NoMemory};

/// One stream.
pub struct Stream {
    text: Text,
    stops: Option<Arc<StopStrings>>,
    /// Whether the stop string belongs to the text, which then need not be held back.
    includes_stop: bool,
    /// The node of `stops` after all text.
    node: u32,
    /// The end of the text that may begin a stop string.
    held: Vec<u8>,
    /// The index of the stop string that ended the text.
    stopped: Option<usize>,
    is_finished: bool,
}

impl Stream {
    pub fn new(text: Text, stops: Option<Arc<StopStrings>>, includes_stop: bool) -> Stream {
        Stream {
            text,
            stops,
            includes_stop,
            node: ROOT,
            held: Vec::new(),
            stopped: None,
            is_finished: false,
        }
    }

    /// The stop string that ended the stream.
    pub fn stopped(&self) -> Option<&str> {
        let stops = self.stops.as_ref()?;
        Some(&stops.strings()[self.stopped?])
    }

    /// Whether `append` may be called with these ids, all of them known.
    pub fn takes(&self, rules: &TextRules, ids: &[u32]) -> bool {
        !self.is_finished && (self.stopped.is_some() || self.text.has_room(rules, ids))
    }

    /// Appends to `out` the text that `ids` complete; nothing after a stop string.
    pub fn append(
        &mut self,
        rules: &TextRules,
        vocabulary: &Vocabulary,
        ids: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NoMemory> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let start = out.len();
        out.try_extend(&self.held)?;
        let new = out.len();
        self.text.push(rules, vocabulary, ids, out)?;
        self.search(start, new, out)
    }

    /// Appends the rest of the text, which ends here.
    pub fn finish(&mut self, rules: &TextRules, out: &mut Vec<u8>) -> Result<(), NoMemory> {
        if self.stopped.is_some() || self.is_finished {
            self.is_finished = true;
            return Ok(());
        }
        self.is_finished = true;
        let start = out.len();
        out.try_extend(&self.held)?;
        let new = out.len();
        self.text.finish(rules, out)?;
        self.search(start, new, out)?;
        out.try_extend(&self.held)?;
        self.held = Vec::new();
        Ok(())
    }

    /// Searches the text from `new` on. Leaves after `start` what may be given out: the held text
    /// is there, and what must be held is taken back.
    fn search(&mut self, start: usize, new: usize, out: &mut Vec<u8>) -> Result<(), NoMemory> {
        let Some(stops) = &self.stops else {
            return Ok(());
        };
        for index in new..out.len() {
            self.node = stops.next(self.node, out[index]);
            if let Some(found) = stops.found(self.node) {
                let n_left_out = match self.includes_stop {
                    true => 0,
                    false => stops.strings()[found].len(),
                };
                out.truncate(index + 1 - n_left_out);
                self.stopped = Some(found);
                self.held = Vec::new();
                return Ok(());
            }
        }
        if !self.includes_stop {
            let end = out.len() - stops.depth(self.node);
            debug_assert!(end >= start);
            self.held.clear();
            self.held.try_extend(&out[end..])?;
            out.truncate(end);
        }
        Ok(())
    }
}

/// Streams by number.
#[derive(Default)]
pub struct OpenStreams {
    /// Where each is. Its number is looked up once in a call.
    slots: HashMap<u64, usize, BuildHasherDefault<NumberHasher>>,
    streams: Vec<Option<Stream>>,
    free: Vec<usize>,
}

impl OpenStreams {
    pub fn insert(&mut self, number: u64, stream: Stream) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        self.streams[slot] = Some(stream);
        self.slots.insert(number, slot);
    }

    pub fn remove(&mut self, number: u64) {
        if let Some(slot) = self.slots.remove(&number) {
            self.streams[slot] = None;
            self.free.push(slot);
        }
    }

    #[inline]
    pub fn slot_of(&self, number: u64) -> Option<usize> {
        self.slots.get(&number).copied()
    }

    /// The stream of a slot that has one.
    #[inline]
    pub fn at(&mut self, slot: usize) -> &mut Stream {
        self.streams[slot].as_mut().expect("a slot with a stream")
    }

    /// Each stream that a stop string ended, and that string.
    pub fn stopped(&self) -> impl Iterator<Item = (u64, &str)> {
        self.slots.iter().filter_map(|(&number, &slot)| {
            let stream = self.streams[slot].as_ref()?;
            Some((number, stream.stopped()?))
        })
    }
}

/// The numbers are ours, one after the other, so that nobody can make them collide.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 << 8 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
