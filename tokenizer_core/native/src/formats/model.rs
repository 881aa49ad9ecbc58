//! The model of a `tokenizer.json`: its entries and merges as numbers, without an object for each.
//!
//! This module reads only a model of the expected form. The reader in Python reads any other, and names
//! its fault.

use std::ops::Range;

use memchr::memchr_iter;

use crate::formats::reader::{MAX_BYTES, MAX_IDS, Reader};
use crate::formats::tokens::Tokens;
use crate::mem::growth::{NoMemory, filled, with_room};
use crate::mem::hash::HashKeys;

const EMPTY: u64 = u64::MAX;
const MAX_MERGES: usize = 2 << 20;
/// Longer tokens are refused in Python.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// What a vocabulary of characters writes for a space.
const METASPACE: char = '\u{2581}';

/// A merge: the entries of both sides, and of what they become.
pub type Merge = [u32; 3];

pub struct Model {
    texts: Texts,
    /// Of each entry.
    ids: Vec<u32>,
    merges: Vec<Merge>,
}

impl Model {
    /// The document without the entries and merges of its model, and these.
    ///
    /// What is left out was read strictly: if the document is not JSON, the returned part is not either.
    pub fn read(document: &[u8]) -> Result<Option<(Vec<u8>, Model)>, NoMemory> {
        if document.len() > MAX_BYTES || simdutf8::basic::from_utf8(document).is_err() {
            return Ok(None);
        }
        let Some((vocab, merges)) = spans_of_model(document) else {
            return Ok(None);
        };
        let Some((texts, ids)) = read_entries(&document[vocab.clone()])? else {
            return Ok(None);
        };
        let Some(merges_read) = read_merges(&document[merges.clone()], &texts)? else {
            return Ok(None);
        };
        let (first, second) = if vocab.start < merges.start {
            ((vocab, b"{}"), (merges, b"[]"))
        } else {
            ((merges, b"[]"), (vocab, b"{}"))
        };
        let mut rest = with_room(document.len() - first.0.len() - second.0.len() + 4)?;
        rest.extend_from_slice(&document[..first.0.start]);
        rest.extend_from_slice(first.1);
        rest.extend_from_slice(&document[first.0.end..second.0.start]);
        rest.extend_from_slice(second.1);
        rest.extend_from_slice(&document[second.0.end..]);
        let model = Model {
            texts,
            ids,
            merges: merges_read,
        };
        Ok(Some((rest, model)))
    }

    pub fn n_entries(&self) -> usize {
        self.ids.len()
    }

    /// The text and the id of each entry, in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = (&str, u32)> {
        (0..)
            .zip(&self.ids)
            .map(|(entry, &id)| (self.texts.get(entry), id))
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.texts
            .find(text.as_bytes())
            .map(|entry| self.ids[entry as usize])
    }

    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }

    pub fn text(&self, entry: u32) -> &str {
        self.texts.get(entry)
    }

    /// Of each entry.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The bytes of each entry in GPT-2's alphabet; those of the entries in `plain` are their text.
    ///
    /// None if an entry is in neither, if one is in both with different bytes, if two entries have
    /// the same bytes, or if one that is not in the alphabet is merged.
    pub fn tokens(&self, plain: &[&str]) -> Result<Option<Tokens>, NoMemory> {
        let alphabet = Alphabet::new();
        for text in plain.iter().filter(|text| self.id_of(text).is_some()) {
            let spelt = alphabet.spelling(text.as_bytes());
            // In the alphabet, a text of ASCII stands for itself, and only for itself.
            if *spelt != **text && self.id_of(&spelt).is_some() {
                return Ok(None);
            }
        }
        let mut is_plain = self.are_in(plain)?;
        let mut tokens = self.no_tokens()?;
        for ((text, _), is_plain) in self.entries().zip(&mut is_plain) {
            let start = tokens.bytes.len();
            let is_spelt = alphabet.decode(text, &mut tokens.bytes);
            if text.len() > MAX_TEXT_BYTES || !(is_spelt || *is_plain) {
                return Ok(None);
            }
            if is_spelt && *is_plain && &tokens.bytes[start..] != text.as_bytes() {
                return Ok(None);
            }
            if !is_spelt {
                tokens.bytes.truncate(start);
                tokens.bytes.extend_from_slice(text.as_bytes());
            }
            // From here on: whether merging must not come to it.
            *is_plain = !is_spelt;
            tokens.end();
        }
        Ok((!self.merge_any(&is_plain)).then_some(tokens))
    }

    /// The same in a vocabulary of characters, which writes a space as U+2581 and a byte that is no
    /// character as `<0x41>`; the entries in `plain` are their text.
    ///
    /// None if an entry is empty or has a space and is not in `plain`, or if a merge has one with a
    /// space or one that is written as a byte.
    pub fn tokens_of_characters(&self, plain: &[&str]) -> Result<Option<Tokens>, NoMemory> {
        let is_plain = self.are_in(plain)?;
        let mut is_unmerged = filled(false, self.n_entries())?;
        let mut tokens = self.no_tokens()?;
        for (entry, (text, _)) in self.entries().enumerate() {
            let (byte, has_space) = (written_byte(text), text.contains(' '));
            let is_sound = !text.is_empty() && (is_plain[entry] || !has_space);
            if text.len() > MAX_TEXT_BYTES || !is_sound {
                return Ok(None);
            }
            match byte {
                Some(byte) if !is_plain[entry] => tokens.bytes.push(byte),
                _ => {
                    let mut parts = text.split(METASPACE);
                    let first = parts.next().expect("a text has a first part");
                    tokens.bytes.extend_from_slice(first.as_bytes());
                    for part in parts {
                        tokens.bytes.push(b' ');
                        tokens.bytes.extend_from_slice(part.as_bytes());
                    }
                }
            }
            is_unmerged[entry] = has_space || byte.is_some();
            tokens.end();
        }
        Ok((!self.merge_any(&is_unmerged)).then_some(tokens))
    }

    /// Of each entry, whether it is one of these texts.
    fn are_in(&self, texts: &[&str]) -> Result<Vec<bool>, NoMemory> {
        let mut are_in = filled(false, self.n_entries())?;
        for entry in texts
            .iter()
            .filter_map(|text| self.texts.find(text.as_bytes()))
        {
            are_in[entry as usize] = true;
        }
        Ok(are_in)
    }

    /// With room for all: no token is longer than its text.
    fn no_tokens(&self) -> Result<Tokens, NoMemory> {
        Tokens::with_room(self.n_entries(), self.texts.tokens.bytes.len())
    }

    /// Whether a merge has one of these entries.
    fn merge_any(&self, is_of_them: &[bool]) -> bool {
        let mut merged = self.merges.iter().flatten();
        merged.any(|&entry| is_of_them[entry as usize])
    }
}

/// The byte that an entry such as `<0x41>` stands for.
fn written_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let are_digits = |digit: &u8| matches!(digit, b'0'..=b'9' | b'A'..=b'F');
    let is_written = digits.len() == 2 && digits.as_bytes().iter().all(are_digits);
    is_written.then(|| u8::from_str_radix(digits, 16).expect("two digits"))
}

/// Distinct texts, numbered in order.
struct Texts {
    tokens: Tokens,
    /// `tag << 32 | number of the text`; a power of two, at most half full. The tag is other bits of
    /// the hash than those that choose the slot.
    slots: Vec<u64>,
    shift: u32,
    keys: HashKeys,
}

impl Texts {
    fn with_room(n_texts: usize, n_bytes: usize) -> Result<Texts, NoMemory> {
        let bits = (2 * n_texts.max(8)).next_power_of_two().trailing_zeros();
        Ok(Texts {
            tokens: Tokens::with_room(n_texts, n_bytes)?,
            slots: filled(EMPTY, 1 << bits)?,
            shift: 64 - bits,
            keys: HashKeys::random(),
        })
    }

    fn get(&self, entry: u32) -> &str {
        str::from_utf8(self.tokens.get(entry as usize)).expect("it was a text")
    }

    /// The slot that has the text, or the empty one for it, with what is written there.
    fn slot_of(&self, text: &[u8]) -> (usize, u64) {
        let hash = self.keys.of_bytes(text);
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return (at, hash << 32 | self.tokens.count() as u64);
            }
            if slot >> 32 == hash & 0xFFFF_FFFF && self.is(slot as u32, text) {
                return (at, slot);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn is(&self, entry: u32, text: &[u8]) -> bool {
        (entry as usize) < self.tokens.count() && self.tokens.get(entry as usize) == text
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        let (at, slot) = self.slot_of(text);
        (self.slots[at] == slot).then_some(slot as u32)
    }

    /// Whether it is new. There must be room for it.
    fn add(&mut self, text: &str) -> bool {
        let (at, slot) = self.slot_of(text.as_bytes());
        if self.slots[at] == slot {
            return false;
        }
        self.slots[at] = slot;
        self.tokens.bytes.extend_from_slice(text.as_bytes());
        self.tokens.end();
        true
    }
}

/// Finds the entries of merges.
struct Merges<'t> {
    texts: &'t Texts,
    found: Vec<Merge>,
    joined: Vec<u8>,
}

impl Merges<'_> {
    /// Reads `"a b"` or `["a", "b"]`; None for anything else, and as `add`.
    fn read(&mut self, reader: &mut Reader) -> Option<()> {
        if reader.next_byte()? == b'"' {
            let text = reader.string()?;
            let (left, right) = text.split_once(' ')?;
            return self.add(left, right);
        }
        reader.take(b'[')?;
        let left = reader.string()?;
        reader.take(b',')?;
        let right = reader.string()?;
        reader.take(b']')?;
        self.add(&left, &right)
    }

    /// None if a side is empty, or if there is no entry.
    fn add(&mut self, left: &str, right: &str) -> Option<()> {
        let is_long = left.len() + right.len() > MAX_TEXT_BYTES;
        if left.is_empty() || right.is_empty() || is_long {
            return None;
        }
        self.joined.clear();
        self.joined.extend_from_slice(left.as_bytes());
        self.joined.extend_from_slice(right.as_bytes());
        // Most files have the products of their merges in order, where no table need be searched.
        let next = self.found.last().map_or(0, |merge| merge[2] + 1);
        let product = if self.texts.is(next, &self.joined) {
            next
        } else {
            self.texts.find(&self.joined)?
        };
        let (left, right) = (left.as_bytes(), right.as_bytes());
        self.found
            .push([self.texts.find(left)?, self.texts.find(right)?, product]);
        Some(())
    }
}

/// GPT-2's way to write bytes as visible characters.
struct Alphabet {
    byte_of: [u16; 0x180],
    character_of: [char; 256],
}

const NO_BYTE: u16 = 0x100;

impl Alphabet {
    fn new() -> Alphabet {
        let mut alphabet = Alphabet {
            byte_of: [NO_BYTE; 0x180],
            character_of: ['\0'; 256],
        };
        let mut others = 0x100;
        for byte in 0..=255u8 {
            let character = match byte {
                33..=126 | 161..=172 | 174..=255 => char::from(byte),
                _ => {
                    others += 1;
                    char::from_u32(others - 1).expect("a character")
                }
            };
            alphabet.byte_of[character as usize] = u16::from(byte);
            alphabet.character_of[usize::from(byte)] = character;
        }
        alphabet
    }

    fn spelling(&self, bytes: &[u8]) -> String {
        let character_of = |&byte: &u8| self.character_of[usize::from(byte)];
        bytes.iter().map(character_of).collect()
    }

    /// Appends the bytes of a text, up to the first character that is not in the alphabet; returns
    /// whether all are.
    fn decode(&self, text: &str, bytes: &mut Vec<u8>) -> bool {
        for character in text.chars() {
            match self.byte_of.get(character as usize) {
                Some(&byte) if byte != NO_BYTE => bytes.push(byte as u8),
                _ => return false,
            }
        }
        true
    }
}

/// Where `model.vocab`, an object, and `model.merges`, a list, are in a document.
fn spans_of_model(document: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let mut reader = Reader::new(document);
    let mut found = [None, None];
    let mut n_models = 0;
    reader.members(|reader, key| {
        if key != b"model" || reader.next_byte()? != b'{' {
            return reader.skip_value();
        }
        n_models += 1;
        reader.members(|reader, key| {
            let (first, start) = (reader.next_byte()?, reader.at);
            reader.skip_value()?;
            let which = match (key, first) {
                (b"vocab", b'{') => 0,
                (b"merges", b'[') => 1,
                _ => return Some(()),
            };
            found[which]
                .replace(start..reader.at)
                .is_none()
                .then_some(())
        })
    })?;
    let [vocab, merges] = found;
    (n_models == 1).then_some((vocab?, merges?))
}

fn read_entries(object: &[u8]) -> Result<Option<(Texts, Vec<u32>)>, NoMemory> {
    let n_at_most = memchr_iter(b':', object).count();
    let mut texts = Texts::with_room(n_at_most.min(MAX_IDS), object.len())?;
    let mut ids = with_room(n_at_most.min(MAX_IDS))?;
    let mut is_taken = filled(false, MAX_IDS)?;
    let mut reader = Reader::new(object);
    let read = reader.each(b'{', b'}', |reader| {
        let text = reader.string()?;
        reader.take(b':')?;
        let id = reader.id()?;
        // Distinct ids are at most as many as there is room for.
        if std::mem::replace(&mut is_taken[id as usize], true) || !texts.add(&text) {
            return None;
        }
        ids.push(id);
        Some(())
    });
    Ok(read.map(|()| (texts, ids)))
}

fn read_merges(list: &[u8], texts: &Texts) -> Result<Option<Vec<Merge>>, NoMemory> {
    let n_at_most = memchr_iter(b',', list).count() + 1;
    let mut merges = Merges {
        texts,
        found: with_room(n_at_most.min(MAX_MERGES))?,
        joined: with_room(MAX_TEXT_BYTES)?,
    };
    let mut reader = Reader::new(list);
    let read = reader.each(b'[', b']', |reader| {
        if merges.found.len() >= MAX_MERGES {
            return None;
        }
        merges.read(reader)
    });
    Ok(read.map(|()| merges.found))
}
