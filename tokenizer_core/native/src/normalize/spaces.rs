//! The spaces that some normalizers put before a text, and U+2581 read as a space: what
//! `normalizers.spaces` in Python defines, without a copy of the text.

use memchr::memmem;

use crate::mem::growth::NoMemory;
use crate::split::Scanner;

const METASPACE: char = '\u{2581}';
/// A safe cut is looked for in so many bytes, before all of a part is copied.
const NEAR: usize = 1 << 12;

/// What happens to each part of a text between special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spaces {
    reads_metaspace: bool,
    puts: Puts,
}

/// Which parts get a space before them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Puts {
    #[default]
    None,
    All,
    /// Those that do not begin with one.
    Unspaced,
    /// The first part of a text, if it does not begin with one.
    FirstUnspaced,
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// At the beginning of the text.
    First,
    Later,
    /// It continues a part that was cut.
    Inside,
}

/// The beginning of a part, changed, and its length before.
pub struct Beginning {
    pub changed: String,
    pub len: usize,
}

impl Place {
    /// Of the first part in a window that begins there. Windows never begin where a part does, but for
    /// the first one (`SpecialTokens::may_be_cut`).
    pub fn of_window(start: usize) -> Place {
        if start == 0 {
            Place::First
        } else {
            Place::Inside
        }
    }
}

impl Spaces {
    /// Of the name of a normalizer; None if it does more.
    pub fn named(name: &str) -> Option<Spaces> {
        let puts = match name {
            "none" | "nfc" | "metaspace" => Puts::None,
            "metaspace-prepend" => Puts::All,
            "metaspace-always" | "prefix-space" => Puts::Unspaced,
            "metaspace-first" => Puts::FirstUnspaced,
            _ => return None,
        };
        Some(Spaces {
            reads_metaspace: name.starts_with("metaspace"),
            puts,
        })
    }

    pub fn may_put(self) -> bool {
        self.puts != Puts::None
    }

    /// A character as the split pattern sees it.
    pub fn read(self, character: u32) -> u32 {
        if self.reads_metaspace && character == u32::from(METASPACE) {
            u32::from(' ')
        } else {
            character
        }
    }

    /// What is encoded instead of the beginning of a part, up to a safe cut or its end; None for a part
    /// that does not change.
    #[inline]
    pub fn beginning_of(
        self,
        scanner: Scanner,
        part: &str,
        place: Place,
    ) -> Result<Option<Beginning>, NoMemory> {
        if self == Spaces::default() {
            return Ok(None);
        }
        self.changed_beginning(scanner, part, place)
    }

    fn changed_beginning(
        self,
        scanner: Scanner,
        part: &str,
        place: Place,
    ) -> Result<Option<Beginning>, NoMemory> {
        let mut buffer = [0; 4];
        let metaspace = METASPACE.encode_utf8(&mut buffer);
        let has_metaspace =
            self.reads_metaspace && memmem::find(part.as_bytes(), metaspace.as_bytes()).is_some();
        let space = if self.puts_before(part, place) {
            " "
        } else {
            ""
        };
        if !has_metaspace && space.is_empty() {
            return Ok(None);
        }
        let len = match has_metaspace {
            true => part.len(),
            false => near_cut(scanner, part).unwrap_or(part.len()),
        };
        // U+2581 has three bytes, and a space has one.
        let mut changed = String::new();
        changed.try_reserve(space.len() + len)?;
        changed.push_str(space);
        if has_metaspace {
            changed.extend(part.chars().map(|c| if c == METASPACE { ' ' } else { c }));
        } else {
            changed.push_str(&part[..len]);
        }
        Ok(Some(Beginning { changed, len }))
    }

    fn puts_before(self, part: &str, place: Place) -> bool {
        let Some(first) = part.chars().next() else {
            return false;
        };
        let is_space = self.read(first.into()) == u32::from(' ');
        place != Place::Inside
            && match self.puts {
                Puts::None => false,
                Puts::All => true,
                Puts::Unspaced => !is_space,
                Puts::FirstUnspaced => !is_space && place == Place::First,
            }
    }
}

/// The first safe cut of a text, if it is near.
fn near_cut(scanner: Scanner, text: &str) -> Option<usize> {
    let characters = text.char_indices().zip(text.chars().skip(1));
    characters
        .take_while(|((at, _), _)| *at < NEAR)
        .find(|&((_, before), after)| scanner.is_safe_cut(before.into(), after.into()))
        .map(|((at, before), _)| at + before.len_utf8())
}
