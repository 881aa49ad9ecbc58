//! What is known of each code point, and replacing characters one by one.

use crate::mem::growth::NoMemory;
use crate::stop::{self, StopFlag, Stopped};

const BLOCK_SHIFT: u32 = 7;
const BLOCK_SIZE: usize = 1 << BLOCK_SHIFT;

/// After so many changed characters a cancelled call ends.
pub const MANY: usize = 1 << 12;

/// A number for each code point, 0 for most.
pub struct ByCharacter {
    /// Of each block of code points, which of the blocks in `numbers`; the first is all zeros.
    blocks: Vec<u32>,
    numbers: Vec<[u32; BLOCK_SIZE]>,
}

impl ByCharacter {
    pub fn new() -> ByCharacter {
        ByCharacter {
            blocks: vec![0; (char::MAX as usize >> BLOCK_SHIFT) + 1],
            numbers: vec![[0; BLOCK_SIZE]],
        }
    }

    #[inline(always)]
    pub fn get(&self, character: char) -> u32 {
        let code = character as usize;
        self.numbers[self.blocks[code >> BLOCK_SHIFT] as usize][code % BLOCK_SIZE]
    }

    pub fn set(&mut self, character: char, number: u32) {
        let code = character as usize;
        let block = &mut self.blocks[code >> BLOCK_SHIFT];
        if *block == 0 {
            *block = self.numbers.len() as u32;
            self.numbers.push([0; BLOCK_SIZE]);
        }
        self.numbers[*block as usize][code % BLOCK_SIZE] = number;
    }
}

/// Appends where there may be no memory.
#[inline(always)]
pub fn push(out: &mut String, text: &str) -> Result<(), NoMemory> {
    out.try_reserve(text.len())?;
    out.push_str(text);
    Ok(())
}

/// The position of the first character outside ASCII from `at` on, or the end.
#[inline(always)]
pub fn skip_ascii(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while let Some(chunk) = bytes[at..].first_chunk::<32>()
        && chunk.is_ascii()
    {
        at += 32;
    }
    while at < bytes.len() && bytes[at] < 0x80 {
        at += 1;
    }
    at
}

/// Replaces single characters, each by a text.
pub struct CharacterMap {
    /// The number of a replacement, from 1 on.
    numbers: ByCharacter,
    replacements: Vec<String>,
    /// Whether ASCII becomes lower case; other maps leave ASCII alone.
    lowers_ascii: bool,
}

impl CharacterMap {
    /// Fails, with a message for people, for a map that changes some of ASCII in another way.
    pub fn new(replacements: Vec<(char, String)>) -> Result<CharacterMap, String> {
        let (of_ascii, others): (Vec<_>, Vec<_>) =
            replacements.into_iter().partition(|(c, _)| c.is_ascii());
        let is_lower = |(c, text): &(char, String)| {
            text.chars().eq([c.to_ascii_lowercase()]) && c.is_ascii_uppercase()
        };
        if !(of_ascii.is_empty() || of_ascii.len() == 26 && of_ascii.iter().all(is_lower)) {
            return Err("a map of ASCII to something else than lower case".into());
        }
        let mut map = CharacterMap {
            numbers: ByCharacter::new(),
            replacements: vec![String::new()],
            lowers_ascii: !of_ascii.is_empty(),
        };
        for (character, text) in others {
            map.numbers.set(character, map.replacements.len() as u32);
            map.replacements.push(text);
        }
        Ok(map)
    }

    /// `text` after the map; None if it does not change.
    pub fn apply(&self, text: &str, flag: &Option<StopFlag>) -> Result<Option<String>, Stopped> {
        let mut out = String::new();
        let (mut at, mut copied, mut n_changed) = (0, 0, 0);
        loop {
            at = skip_ascii(text, at);
            let Some(character) = text[at..].chars().next() else {
                break;
            };
            let number = self.numbers.get(character);
            if number != 0 {
                self.push_unmapped(&mut out, &text[copied..at])?;
                push(&mut out, &self.replacements[number as usize])?;
                copied = at + character.len_utf8();
                n_changed += 1;
                if n_changed % MANY == 0 {
                    stop::check(flag)?;
                }
            }
            at += character.len_utf8();
        }
        let changes_ascii = || self.lowers_ascii && text.bytes().any(|b| b.is_ascii_uppercase());
        if n_changed == 0 && !changes_ascii() {
            return Ok(None);
        }
        self.push_unmapped(&mut out, &text[copied..])?;
        Ok(Some(out))
    }

    #[inline(always)]
    fn push_unmapped(&self, out: &mut String, text: &str) -> Result<(), NoMemory> {
        let start = out.len();
        push(out, text)?;
        if self.lowers_ascii {
            out[start..].make_ascii_lowercase();
        }
        Ok(())
    }
}
