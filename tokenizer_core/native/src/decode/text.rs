//! Ids to text as they arrive: the text that no later id can change.
//!
//! A vocabulary of bytes joins the bytes of its tokens, and an incomplete character waits for its
//! rest. A vocabulary of characters has ids of single bytes besides; a run of these is text if all
//! of it is UTF-8, and otherwise one U+FFFD for each byte, so that a run waits for its end.

use crate::decode::vocabulary::Vocabulary;
use crate::mem::growth::{Grow, NoMemory, filled};

/// A stream holds at most this many bytes of a run; `streaming.MAX_RUN_BYTES` in Python.
pub const MAX_RUN: usize = 1 << 20;

/// Memory that a stream keeps after a run.
const KEPT: usize = 64;
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

const KNOWN: u8 = 1;
/// One byte of a run.
const BYTE: u8 = 2;
const SPECIAL: u8 = 4;

/// What decoding does with each id of a vocabulary.
pub struct TextRules {
    kinds: Vec<u8>,
    has_runs: bool,
    /// Whether a space at the beginning of the text is left out.
    strips: bool,
}

impl TextRules {
    /// `known`, `bytes` and `special` are ids below `n_ids`; without `bytes` there are no runs.
    pub fn new(
        n_ids: usize,
        known: impl Iterator<Item = u32>,
        bytes: &[u32],
        special: &[u32],
        strips: bool,
    ) -> Result<TextRules, NoMemory> {
        let mut kinds = filled(0, n_ids)?;
        let mut mark = |id: u32, flag| {
            if let Some(kind) = kinds.get_mut(id as usize) {
                *kind |= flag;
            }
        };
        known.for_each(|id| mark(id, KNOWN));
        bytes.iter().for_each(|&id| mark(id, BYTE));
        special.iter().for_each(|&id| mark(id, SPECIAL));
        Ok(TextRules {
            kinds,
            has_runs: !bytes.is_empty(),
            strips,
        })
    }

    /// Whether the vocabulary has ids of single bytes, whose text depends on those around them.
    pub fn has_runs(&self) -> bool {
        self.has_runs
    }

    pub fn is_known(&self, id: u32) -> bool {
        self.kind(id) & KNOWN != 0
    }

    #[inline]
    fn kind(&self, id: u32) -> u8 {
        self.kinds.get(id as usize).copied().unwrap_or(0)
    }
}

/// A text whose ids arrive in parts.
pub struct Text {
    /// Bytes that are not text yet: of one character, or of a run.
    pending: Vec<u8>,
    /// Bytes of the run that are whole characters.
    n_checked: usize,
    /// Whether the run is not UTF-8; its bytes are then given as they come.
    is_broken: bool,
    strips: bool,
    skips_special: bool,
}

impl Text {
    pub fn new(rules: &TextRules, skips_special: bool) -> Text {
        Text {
            pending: Vec::new(),
            n_checked: 0,
            is_broken: false,
            strips: rules.strips,
            skips_special,
        }
    }

    /// Whether the stream may take these ids: no run becomes longer than it may hold.
    pub fn has_room(&self, rules: &TextRules, ids: &[u32]) -> bool {
        if !rules.has_runs || self.pending.len() + ids.len() <= MAX_RUN {
            return true;
        }
        let mut n_held = self.pending.len();
        ids.iter().all(|&id| {
            n_held = match rules.kind(id) {
                kind if self.skips(kind) => n_held,
                kind if kind & BYTE != 0 => n_held + 1,
                _ => 0,
            };
            n_held <= MAX_RUN
        })
    }

    /// Appends to `out` the text that `ids`, all of them known, complete.
    pub fn push(
        &mut self,
        rules: &TextRules,
        vocabulary: &Vocabulary,
        ids: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NoMemory> {
        let start = out.len();
        if rules.has_runs {
            self.push_runs(rules, vocabulary, ids, out)?;
        } else {
            out.try_extend(&self.pending)?;
            self.pending.clear();
            self.append_bytes(rules, vocabulary, ids, out)?;
            self.hold_incomplete(start, out)?;
        }
        self.strip(start, out);
        Ok(())
    }

    /// Appends the bytes of `ids`, all that there are, where a vocabulary has no runs; their text has
    /// U+FFFD for what is not UTF-8.
    pub fn push_all(
        &mut self,
        rules: &TextRules,
        vocabulary: &Vocabulary,
        ids: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NoMemory> {
        let start = out.len();
        self.append_bytes(rules, vocabulary, ids, out)?;
        self.strip(start, out);
        Ok(())
    }

    /// Appends the rest of the text, which ends here.
    pub fn finish(&mut self, rules: &TextRules, out: &mut Vec<u8>) -> Result<(), NoMemory> {
        let start = out.len();
        if rules.has_runs {
            self.end_run(out)?;
        } else if !self.pending.is_empty() {
            self.pending.clear();
            out.try_extend(REPLACEMENT)?;
        }
        self.strip(start, out);
        Ok(())
    }

    fn append_bytes(
        &self,
        rules: &TextRules,
        vocabulary: &Vocabulary,
        ids: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NoMemory> {
        if !self.skips_special {
            return vocabulary.append(ids, out);
        }
        let mut kept = ids.iter().filter(|&&id| !self.skips(rules.kind(id)));
        kept.try_for_each(|&id| out.try_extend(vocabulary.token(id)))
    }

    #[inline]
    fn skips(&self, kind: u8) -> bool {
        self.skips_special && kind & SPECIAL != 0
    }

    fn push_runs(
        &mut self,
        rules: &TextRules,
        vocabulary: &Vocabulary,
        ids: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NoMemory> {
        for &id in ids {
            let kind = rules.kind(id);
            if self.skips(kind) {
                continue;
            }
            let token = vocabulary.token(id);
            if kind & BYTE == 0 {
                self.end_run(out)?;
                out.try_extend(token)?;
            } else if self.is_broken {
                out.try_extend(REPLACEMENT)?;
            } else {
                self.pending.try_extend(token)?;
            }
        }
        match std::str::from_utf8(&self.pending[self.n_checked..]) {
            Ok(_) => self.n_checked = self.pending.len(),
            Err(error) if error.error_len().is_none() => self.n_checked += error.valid_up_to(),
            Err(_) => {
                self.is_broken = true;
                self.give_replacements(out)?;
            }
        }
        Ok(())
    }

    fn end_run(&mut self, out: &mut Vec<u8>) -> Result<(), NoMemory> {
        self.is_broken = false;
        if std::str::from_utf8(&self.pending).is_err() {
            return self.give_replacements(out);
        }
        out.try_extend(&self.pending)?;
        self.clear_run();
        Ok(())
    }

    fn give_replacements(&mut self, out: &mut Vec<u8>) -> Result<(), NoMemory> {
        for _ in 0..self.pending.len() {
            out.try_extend(REPLACEMENT)?;
        }
        self.clear_run();
        Ok(())
    }

    fn clear_run(&mut self) {
        self.pending.clear();
        self.pending.shrink_to(KEPT);
        self.n_checked = 0;
    }

    /// Makes text of the bytes from `start` on, and takes an incomplete character at their end back.
    fn hold_incomplete(&mut self, start: usize, out: &mut Vec<u8>) -> Result<(), NoMemory> {
        let Err(error) = std::str::from_utf8(&out[start..]) else {
            return Ok(());
        };
        if error.error_len().is_none() {
            let end = start + error.valid_up_to();
            self.pending.try_extend(&out[end..])?;
            out.truncate(end);
            return Ok(());
        }
        let mut bytes = Vec::new();
        bytes.try_extend(&out[start..])?;
        out.truncate(start);
        let mut rest = &bytes[..];
        while let Err(error) = std::str::from_utf8(rest) {
            let (text, after) = rest.split_at(error.valid_up_to());
            out.try_extend(text)?;
            let Some(n_invalid) = error.error_len() else {
                return self.pending.try_extend(after);
            };
            out.try_extend(REPLACEMENT)?;
            rest = &after[n_invalid..];
        }
        out.try_extend(rest)
    }

    /// Does not give out the whole characters of the run so far: their text is known.
    pub fn forget_characters(&mut self) {
        if self.n_checked > 0 {
            self.pending.drain(..self.n_checked);
            self.n_checked = 0;
            self.strips = false;
        }
    }

    fn strip(&mut self, start: usize, out: &mut Vec<u8>) {
        if self.strips && out.len() > start {
            self.strips = false;
            if out[start] == b' ' {
                out.remove(start);
            }
        }
    }
}
