//! What the characters of a text start as, in a vocabulary that merges characters (SentencePiece's):
//! each that is a token starts as that token, and any other as its bytes.

use crate::mem::sections::{Reader, Unusable, Writer, all, check};
use crate::mem::table::Table;
use crate::unicode::{length_from, wide_at};

const NONE: u32 = u32::MAX;

pub struct Characters {
    /// The id of each code point outside ASCII, or `NONE`; empty if all text starts as bytes.
    ids: Table<u32>,
}

impl Characters {
    pub fn none() -> Characters {
        Characters {
            ids: Vec::new().into(),
        }
    }

    /// Of tokens with their ids.
    pub fn of<'v>(tokens: impl Iterator<Item = (&'v [u8], u32)>) -> Characters {
        let mut ids = Vec::new();
        for (token, id) in tokens {
            let mut characters = str::from_utf8(token).unwrap_or_default().chars();
            if let (Some(character @ '\u{80}'..), None) = (characters.next(), characters.next()) {
                let code = character as usize;
                ids.resize(ids.len().max(code + 1), NONE);
                ids[code] = id;
            }
        }
        Characters { ids: ids.into() }
    }

    pub fn write(&self, to: &mut Writer) {
        to.table(&self.ids);
    }

    pub fn read(from: &mut Reader, n_ids: usize) -> Result<Characters, Unusable> {
        let ids: Table<u32> = from.table()?;
        let is_id = |&id: &u32| id == NONE || (id as usize) < n_ids;
        check(all(&ids, is_id), "a character is no id")?;
        Ok(Characters { ids })
    }

    pub fn are_none(&self) -> bool {
        self.ids.is_empty()
    }

    /// Calls `push` with the symbols that `text` starts as, in order, given the ids of bytes.
    #[inline]
    pub fn start(&self, bytes: &[u32; 256], text: &[u8], mut push: impl FnMut(u32)) {
        let mut at = 0;
        while at < text.len() {
            let length = length_from(text[at]);
            if length > 1 && at + length <= text.len() {
                let id = self.ids.get(wide_at(text, at).0 as usize);
                if let Some(&id) = id.filter(|id| **id != NONE) {
                    push(id);
                    at += length;
                    continue;
                }
            }
            push(bytes[usize::from(text[at])]);
            at += 1;
        }
    }
}
