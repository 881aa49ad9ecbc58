//! A reader of JSON for what has the expected form.

use std::borrow::Cow;

use memchr::memchr2;

use crate::json::text::string_at;
use crate::json::values::int_at_start;

/// Positions fit four bytes.
pub const MAX_BYTES: usize = 1 << 30;
/// Ids are below it.
pub const MAX_IDS: usize = 1 << 20;

/// Reads a document of UTF-8 from its start; None where it is not as expected.
pub struct Reader<'d> {
    document: &'d [u8],
    pub at: usize,
}

impl<'d> Reader<'d> {
    pub fn new(document: &'d [u8]) -> Reader<'d> {
        Reader { document, at: 0 }
    }

    /// The next byte that is no white space, which is not taken.
    pub fn next_byte(&mut self) -> Option<u8> {
        loop {
            match *self.document.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    pub fn take(&mut self, byte: u8) -> Option<()> {
        (self.next_byte()? == byte).then(|| self.at += 1)
    }

    /// Calls `read` at each item of a list or object.
    pub fn each(
        &mut self,
        open: u8,
        close: u8,
        mut read: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(open)?;
        if self.next_byte()? == close {
            return self.take(close);
        }
        loop {
            read(self)?;
            let next = self.next_byte()?;
            self.at += 1;
            match next {
                b',' => {}
                _ => return (next == close).then_some(()),
            }
        }
    }

    /// Calls `read` with the key of each member of an object, at its value.
    pub fn members(&mut self, mut read: impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        self.each(b'{', b'}', |reader| {
            let key = reader.string()?;
            reader.take(b':')?;
            read(reader, key.as_bytes())
        })
    }

    pub fn string(&mut self) -> Option<Cow<'d, str>> {
        self.next_byte()?;
        let (text, end) = string_at(self.document, self.at).ok()??;
        self.at = end;
        Some(text)
    }

    pub fn text_or_null(&mut self) -> Option<()> {
        if self.next_byte()? == b'"' {
            return self.string().map(|_| ());
        }
        let rest = self.document[self.at..].strip_prefix(b"null")?;
        self.at = self.document.len() - rest.len();
        Some(())
    }

    /// The index after the closing quote of the string that begins here.
    fn end_of_string(&self) -> Option<usize> {
        let mut at = self.at + 1;
        loop {
            at += memchr2(b'"', b'\\', self.document.get(at..)?)?;
            if self.document[at] == b'"' {
                return Some(at + 1);
            }
            at += 2;
        }
    }

    /// An integer in 0..2^20.
    pub fn id(&mut self) -> Option<u32> {
        self.next_byte()?;
        let (id, n_bytes) = int_at_start(&self.document[self.at..])?;
        self.at += n_bytes;
        u32::try_from(id).ok().filter(|&id| (id as usize) < MAX_IDS)
    }

    /// Skips a value, of which only strings and brackets are looked at.
    pub fn skip_value(&mut self) -> Option<()> {
        self.next_byte()?;
        let mut depth = 0;
        loop {
            match *self.document.get(self.at)? {
                b'"' => self.at = self.end_of_string()?,
                b'[' | b'{' => (depth, self.at) = (depth + 1, self.at + 1),
                b']' | b'}' if depth > 0 => (depth, self.at) = (depth - 1, self.at + 1),
                b',' | b']' | b'}' if depth == 0 => return Some(()),
                _ => self.at += 1,
            }
            if depth == 0 && matches!(self.document.get(self.at - 1), Some(b'"' | b']' | b'}')) {
                return Some(());
            }
        }
    }
}
