//! Unicode normal forms, by tables that Python makes.
//!
//! A piece begins with a character that never joins the one before it, and has the joining ones
//! after it. Pieces normalize separately, and most characters are pieces that do not change: these
//! are copied in long stretches. The others are normalized as Unicode says: decompose, sort the
//! marks, and for NFC and NFKC compose.

use std::collections::HashMap;

use crate::mem::growth::{Grow, NoMemory};
use crate::normalize::characters::{ByCharacter, MANY, push, skip_ascii};
use crate::stop::{self, StopFlag, Stopped};

/// What Python knows of a normal form.
#[derive(Default)]
pub struct FormTables {
    /// Characters and what they decompose to, completely; of Hangul too.
    pub decompositions: Vec<(char, String)>,
    /// Combining classes other than zero.
    pub classes: Vec<(char, u8)>,
    /// Two characters and the one that they compose to; none for NFD and NFKD.
    pub compositions: Vec<((char, char), char)>,
}

/// Of a character's number: it changes alone, or joins the one before it.
const ACTS: u32 = 1;
/// It may join the one before it, or precede it.
const JOINS: u32 = 2;
const FLAG_BITS: u32 = 2;

pub struct Form {
    /// Position in `known` and flags; 0 for all characters that no table has.
    numbers: ByCharacter,
    known: Vec<Known>,
    compositions: HashMap<(char, char), char>,
}

#[derive(Clone, Default)]
struct Known {
    class: u8,
    /// Empty for a character that has no decomposition.
    decomposed: Vec<(u8, char)>,
    /// What it becomes alone.
    alone: String,
}

impl Form {
    pub fn new(tables: FormTables) -> Form {
        let classes: HashMap<char, u8> = tables.classes.iter().copied().collect();
        let class_of = |c: char| classes.get(&c).copied().unwrap_or(0);
        let compositions: HashMap<_, _> = tables.compositions.into_iter().collect();
        let second: std::collections::HashSet<char> =
            compositions.keys().map(|&(_, second)| second).collect();
        let joins = |c: char| class_of(c) != 0 || second.contains(&c);
        let mut characters: HashMap<char, Vec<(u8, char)>> = HashMap::new();
        for (character, decomposed) in &tables.decompositions {
            let parts = decomposed.chars().map(|c| (class_of(c), c)).collect();
            characters.insert(*character, parts);
        }
        for &character in classes.keys().chain(&second) {
            characters.entry(character).or_default();
        }
        let mut form = Form {
            numbers: ByCharacter::new(),
            known: vec![Known::default()],
            compositions,
        };
        let mut flags = Vec::new();
        for (character, decomposed) in characters {
            let first = decomposed.first().map_or(character, |&(_, first)| first);
            let position = form.known.len() as u32;
            form.numbers.set(character, position << FLAG_BITS);
            form.known.push(Known {
                class: class_of(character),
                decomposed,
                alone: String::new(),
            });
            flags.push((character, position, joins(first) || joins(character)));
        }
        for (character, position, joins) in flags {
            let text = character.to_string();
            let mut alone = String::new();
            let made = form.push_piece(&text, &mut Vec::new(), &mut alone);
            made.expect("memory for a character");
            let acts = alone != text || joins;
            form.known[position as usize].alone = alone;
            let joined = if joins { JOINS } else { 0 };
            let flags = if acts { joined | ACTS } else { joined };
            form.numbers.set(character, position << FLAG_BITS | flags);
        }
        form
    }

    /// `text` in this form; None if it does not change.
    pub fn apply(&self, text: &str, flag: &Option<StopFlag>) -> Result<Option<String>, Stopped> {
        let (mut out, mut parts) = (String::new(), Vec::new());
        // `previous`: where the character before `at` begins, if it was copied.
        let (mut at, mut copied, mut previous, mut n_pieces) = (0, 0, 0, 0);
        loop {
            // No table has ASCII.
            let after_ascii = skip_ascii(text, at);
            if after_ascii > at {
                previous = after_ascii - 1;
                at = after_ascii;
            }
            let Some(character) = text[at..].chars().next() else {
                break;
            };
            let number = self.numbers.get(character);
            let mut end = at + character.len_utf8();
            if number & ACTS == 0 {
                (previous, at) = (at, end);
                continue;
            }
            let start = if number & JOINS != 0 { previous } else { at };
            let mut n_joined = at - start;
            while let Some(next) = text[end..].chars().next()
                && self.numbers.get(next) & JOINS != 0
            {
                end += next.len_utf8();
                n_joined += 1;
            }
            push(&mut out, &text[copied..start])?;
            if n_joined == 0 {
                push(&mut out, &self.known[(number >> FLAG_BITS) as usize].alone)?;
            } else {
                self.push_piece(&text[start..end], &mut parts, &mut out)?;
            }
            (copied, at, previous) = (end, end, end);
            n_pieces += 1;
            if n_pieces % MANY == 0 {
                stop::check(flag)?;
            }
        }
        if n_pieces == 0 {
            return Ok(None);
        }
        push(&mut out, &text[copied..])?;
        Ok(Some(out))
    }

    /// Appends a piece in this form; `parts` is memory for its characters and their classes.
    fn push_piece(
        &self,
        piece: &str,
        parts: &mut Vec<(u8, char)>,
        out: &mut String,
    ) -> Result<(), NoMemory> {
        parts.clear();
        for character in piece.chars() {
            let position = (self.numbers.get(character) >> FLAG_BITS) as usize;
            match &self.known[position] {
                known if known.decomposed.is_empty() => parts.try_push((known.class, character))?,
                known => parts.try_extend(&known.decomposed)?,
            }
        }
        for marks in parts.chunk_by_mut(|one, next| one.0 != 0 && next.0 != 0) {
            marks.sort_by_key(|&(class, _)| class);
        }
        if !self.compositions.is_empty() {
            self.compose(parts);
        }
        out.try_reserve(parts.iter().map(|(_, c)| c.len_utf8()).sum())?;
        out.extend(parts.iter().map(|&(_, character)| character));
        Ok(())
    }

    fn compose(&self, parts: &mut Vec<(u8, char)>) {
        let (mut n, mut last_class) = (0, 0);
        let mut starter: Option<usize> = None;
        for i in 0..parts.len() {
            let (class, character) = parts[i];
            // A mark is blocked by one of the same class between it and the starter.
            if let Some(at) = starter
                && (n == at + 1 || 0 < last_class && last_class < class)
                && let Some(&whole) = self.compositions.get(&(parts[at].1, character))
            {
                parts[at].1 = whole;
                continue;
            }
            if class == 0 {
                starter = Some(n);
            }
            parts[n] = (class, character);
            n += 1;
            last_class = class;
        }
        parts.truncate(n);
    }
}
