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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::specials::SpecialTokens;
    use crate::encode::tests::encoder;
    use crate::encode::windows::tests::Characters;

    const TOKENS: [(&str, u32); 3] = [("<s>", 300), ("\u{2581}x", 301), ("b c", 302)];
    const NAMES: [&str; 6] = [
        "none",
        "metaspace",
        "metaspace-prepend",
        "metaspace-always",
        "metaspace-first",
        "prefix-space",
    ];

    /// The definition, by whole texts.
    fn normalized(name: &str, part: &str, is_first: bool) -> String {
        let is_read = name.starts_with("metaspace");
        let read = part.replace('\u{2581}', if is_read { " " } else { "\u{2581}" });
        let is_put = match name {
            "metaspace-prepend" => true,
            "metaspace-always" | "prefix-space" => !read.starts_with(' '),
            "metaspace-first" => is_first && !read.starts_with(' '),
            _ => false,
        };
        let space = if is_put && !part.is_empty() { " " } else { "" };
        format!("{space}{read}")
    }

    #[test]
    fn each_part_gets_its_space_in_windows_of_any_size() {
        let encoder = encoder();
        let parts = [
            "<s>",
            "\u{2581}x",
            "\u{2581}",
            "b c",
            "the ",
            "the",
            " ",
            "b",
            ">",
            "\n",
            "é",
        ];
        let mut random = crate::random::below(9);
        for round in 0..120 {
            let (name, mut rest) = (NAMES[round % NAMES.len()], String::new());
            (0..random(30)).for_each(|_| rest += parts[random(parts.len())]);
            let tokens = SpecialTokens::new(&TOKENS).unwrap();
            let tokens = tokens.with_spaces(Spaces::named(name).unwrap());
            let characters = [Characters(rest.chars().collect())];
            for (_, scanner) in Scanner::NAMES {
                let (mut ids, mut expected, mut at, mut is_first) = (vec![], vec![], 0, true);
                let find = |at: usize| {
                    let found = TOKENS.iter().filter_map(|token| {
                        let start = rest[at..].find(token.0)?;
                        Some((at + start, token))
                    });
                    found.min_by_key(|(start, _)| *start)
                };
                while let Some((start, (content, id))) = find(at) {
                    let part = normalized(name, &rest[at..start], is_first);
                    encoder.encode(scanner, &part, &mut expected).unwrap();
                    expected.push(*id);
                    (at, is_first) = (start + content.len(), false);
                }
                let last = normalized(name, &rest[at..], is_first);
                encoder.encode(scanner, &last, &mut expected).unwrap();
                (encoder.encode_document(scanner, &tokens, &rest, &mut ids)).unwrap();
                assert_eq!(ids, expected, "{name} {rest:?}");
                for sizes in [(1, 1), (3, 1), (1, 3), (1000, 1)] {
                    let batch = encoder.encode_in_windows(scanner, &tokens, &characters, sizes);
                    assert_eq!(batch.unwrap().ids, expected, "{name} {sizes:?} {rest:?}");
                }
            }
        }
    }

    #[test]
    fn a_long_part_without_a_cut_is_copied_whole() {
        let rule = Spaces::named("metaspace-prepend").unwrap();
        for part in ["x".repeat(NEAR + 9), format!("{} b", "x".repeat(NEAR + 9))] {
            let beginning = rule.beginning_of(Scanner::Gpt2, &part, Place::First);
            let beginning = beginning.unwrap().unwrap();
            assert_eq!(beginning.changed, format!(" {part}"));
            assert_eq!(beginning.len, part.len());
        }
        let beginning = rule.beginning_of(Scanner::Gpt2, "ab cd ef", Place::Later);
        assert_eq!(beginning.unwrap().unwrap().changed, " ab");
        let none = rule.beginning_of(Scanner::Gpt2, "ab", Place::Inside);
        assert!(none.unwrap().is_none());
        assert!(Spaces::named("steps").is_none());
    }
}
