//! Characters that start as one symbol, where it is proven that they become one first.
//!
//! Most of merging Chinese or Cyrillic joins the bytes of characters, the same way every time. A
//! character (or the first two bytes of a longer one) may start as its token, an atom, if nothing
//! can come before: let `formed` be the highest rank on the way from its bytes to its token.
//! Consider every pair that joins a symbol before it with its first symbol, and every pair that
//! joins its last symbol with a symbol after it, at any step of that way and at its end. If all
//! these rank above `formed`, starting from the token changes no result.
//!
//! Why: until the atom is formed, some pair within it ranks at most `formed`, so merging, which
//! takes the lowest pair, never takes one that crosses its ends. So the merges within it touch
//! nothing else and may be done first. That adds pairs which only exist once it is formed; they
//! rank above `formed`, and above every pair that merging took before it was formed, so the next
//! pair is the same. This holds for all atoms of a text at once.
//!
//! A symbol that joins an atom ends with the byte before it, or starts with the byte after it, and
//! those bytes are in the text. So each atom has the set of neighbouring bytes that rule it out;
//! next to one of those it starts as its bytes. The text must be UTF-8.

use crate::mem::sections::{Reader, Unusable, Writer, all, check};
use crate::mem::table::{Plain, Table};
use crate::merge::pair_table::{NO_RANK, Pair};
use crate::unicode::{is_inner, length_from, wide_at};

/// The table covers code points below this; the rest are rare ideographs.
const N_CODE_POINTS: usize = 0x2_0000;
/// Twelve bits: six of each of two bytes.
const N_PREFIXES: usize = 1 << 12;
/// A neighbouring byte as a number: continuation bytes, leading bytes, and all of ASCII as one.
const N_NEIGHBOURS: usize = 129;
const LEADING: usize = 64;
const ASCII: usize = 128;

pub struct Atoms {
    /// Code point -> position in `found`, 0 for none.
    of_character: Table<u32>,
    /// First two bytes of a longer character, six bits each -> position in `found`, 0 for none.
    of_prefix: Table<u32>,
    found: Table<Atom>,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Atom {
    id: u32,
    /// ASCII before it (1) or after it (2) rules it out.
    not_ascii: u32,
    /// Bytes before it and after it that rule it out, by their low six bits. Before it there are
    /// only continuation bytes, after a prefix too, after a character leading bytes.
    not_before: u64,
    not_after: u64,
}

// SAFETY: integers, and no padding: the size is that of the fields.
unsafe impl Plain for Atom {}
const _: () = assert!(size_of::<Atom>() == 2 * size_of::<u32>() + 2 * size_of::<u64>());

/// A way from bytes to a token: its symbols at both ends at each step, and its highest rank.
struct Formation {
    id: u32,
    is_prefix: bool,
    code: usize,
    formed: u32,
    firsts: Vec<u32>,
    lasts: Vec<u32>,
}

impl Atoms {
    /// No atoms: every text starts as bytes.
    pub fn none() -> Atoms {
        Atoms::of_tables(Vec::new(), Vec::new(), Vec::new())
    }

    fn of_tables(of_character: Vec<u32>, of_prefix: Vec<u32>, found: Vec<Atom>) -> Atoms {
        Atoms {
            of_character: of_character.into(),
            of_prefix: of_prefix.into(),
            found: found.into(),
        }
    }

    pub fn write(&self, to: &mut Writer) {
        to.table(&self.of_character);
        to.table(&self.of_prefix);
        to.table(&self.found);
    }

    pub fn read(from: &mut Reader, n_ids: usize) -> Result<Atoms, Unusable> {
        let atoms = Atoms {
            of_character: from.table()?,
            of_prefix: from.table()?,
            found: from.table()?,
        };
        let n_found = atoms.found.len();
        let is_found = |&position: &u32| (position as usize) < n_found;
        let are_sound = atoms.are_none()
            || atoms.of_prefix.len() == N_PREFIXES
                && all(&atoms.of_prefix, is_found)
                && all(&atoms.of_character, is_found)
                && all(&atoms.found, |atom| (atom.id as usize) < n_ids);
        check(are_sound, "an atom is no id")?;
        Ok(atoms)
    }

    pub fn are_none(&self) -> bool {
        self.found.is_empty()
    }

    /// Of a vocabulary that merges characters, as SentencePiece's: each character that is a token
    /// starts as that token, whatever is beside it.
    pub fn of_characters<'v>(tokens: impl Iterator<Item = (&'v [u8], u32)>) -> Atoms {
        let characters: Vec<(usize, u32)> = tokens
            .filter(|(token, _)| (2..=4).contains(&token.len()) && is_character(token))
            .map(|(token, id)| (wide_at(token, 0).0 as usize, id))
            .collect();
        let n_codes = characters.iter().map(|(code, _)| code + 1).max();
        let mut of_character = vec![0; n_codes.unwrap_or(0)];
        let mut found = vec![Atom::default()];
        for (code, id) in characters {
            of_character[code] = found.len() as u32;
            found.push(Atom {
                id,
                ..Atom::default()
            });
        }
        Atoms::of_tables(of_character, vec![0; N_PREFIXES], found)
    }

    /// Of tokens with their ids, given `start`, the ids of bytes; `rank` and `product` of a pair
    /// of ids; all `pairs`; and the bytes of an id.
    pub fn new<'v>(
        start: &[u32; 256],
        tokens: impl Iterator<Item = (&'v [u8], u32)>,
        merge: impl Fn(u32, u32) -> Option<(u32, u32)>,
        pairs: impl Iterator<Item = Pair>,
        bytes_of: impl Fn(u32) -> &'v [u8],
    ) -> Atoms {
        let formations: Vec<Formation> = tokens
            .filter_map(|(token, id)| Formation::of(token, id, start, &merge))
            .collect();
        if formations.is_empty() {
            return Atoms::none();
        }
        let (before, after) = lowest_ranks(&formations, pairs, bytes_of);
        let (mut of_character, mut of_prefix) = (vec![0; N_CODE_POINTS], vec![0; N_PREFIXES]);
        let mut found = vec![Atom::default()];
        for formation in formations {
            let Formation { formed, .. } = formation;
            let after_from = if formation.is_prefix { 0 } else { LEADING };
            let (not_before, ascii_before) = before.at_most(formed, &formation.firsts, 0);
            let (not_after, ascii_after) = after.at_most(formed, &formation.lasts, after_from);
            let table = if formation.is_prefix {
                &mut of_prefix
            } else {
                &mut of_character
            };
            table[formation.code] = found.len() as u32;
            found.push(Atom {
                id: formation.id,
                not_ascii: u32::from(ascii_before) | u32::from(ascii_after) << 1,
                not_before,
                not_after,
            });
        }
        Atoms::of_tables(of_character, of_prefix, found)
    }

    /// Calls `push` with the symbols that `text` starts as, in order.
    #[inline]
    pub fn start(&self, start: &[u32; 256], text: &[u8], mut push: impl FnMut(u32)) {
        let mut at = 0;
        while at < text.len() {
            let length = length_from(text[at]);
            let end = at + length;
            if length > 1 && end <= text.len() && !self.found.is_empty() {
                let before = at.checked_sub(1).map(|position| text[position]);
                if let Some(id) = self.character(&text[at..end], before, text.get(end)) {
                    push(id);
                    at = end;
                } else if length > 2
                    && let Some(id) = self.prefix(&text[at..end], before)
                {
                    push(id);
                    at += 2;
                }
            }
            while at < end.min(text.len()) {
                push(start[text[at] as usize]);
                at += 1;
            }
        }
    }

    #[inline]
    fn character(&self, bytes: &[u8], before: Option<u8>, after: Option<&u8>) -> Option<u32> {
        let position = *self.of_character.get(wide_at(bytes, 0).0 as usize)?;
        self.found[position as usize].id_between(position, before, after.copied())
    }

    #[inline]
    fn prefix(&self, bytes: &[u8], before: Option<u8>) -> Option<u32> {
        let position = self.of_prefix[prefix_code(bytes)];
        self.found[position as usize].id_between(position, before, Some(bytes[2]))
    }
}

impl Atom {
    #[inline]
    fn id_between(&self, position: u32, before: Option<u8>, after: Option<u8>) -> Option<u32> {
        let is_barred = |byte: Option<u8>, barred: u64, ascii: u32| match byte {
            None => false,
            Some(byte) if byte < 0x80 => self.not_ascii & ascii != 0,
            Some(byte) => barred >> (byte & 63) & 1 != 0,
        };
        let barred = is_barred(before, self.not_before, 1) || is_barred(after, self.not_after, 2);
        (position != 0 && !barred).then_some(self.id)
    }
}

impl Formation {
    fn of(
        token: &[u8],
        id: u32,
        start: &[u32; 256],
        merge: impl Fn(u32, u32) -> Option<(u32, u32)>,
    ) -> Option<Formation> {
        if !(2..=4).contains(&token.len()) {
            return None;
        }
        let is_prefix = token.len() == 2 && length_from(token[0]) > 2 && is_inner(token[1]);
        let code = if is_prefix {
            prefix_code(token)
        } else if is_character(token) {
            wide_at(token, 0).0 as usize
        } else {
            return None;
        };
        if code >= N_CODE_POINTS {
            return None;
        }
        let mut symbols: Vec<u32> = token.iter().map(|&byte| start[byte as usize]).collect();
        let mut formation = Formation {
            id,
            is_prefix,
            code,
            formed: 0,
            firsts: vec![symbols[0]],
            lasts: vec![symbols[symbols.len() - 1]],
        };
        while symbols.len() > 1 {
            let ranked = symbols
                .windows(2)
                .enumerate()
                .filter_map(|(position, pair)| {
                    merge(pair[0], pair[1]).map(|(rank, product)| (rank, position, product))
                });
            let (rank, position, product) = ranked.min()?;
            symbols.splice(position..position + 2, [product]);
            formation.formed = formation.formed.max(rank);
            formation.firsts.push(symbols[0]);
            formation.lasts.push(symbols[symbols.len() - 1]);
        }
        (symbols[0] == id).then_some(formation)
    }
}

/// For each symbol at an end of a formation, the lowest rank of a pair that joins it with a
/// neighbour, by the neighbour's nearest byte.
struct LowestRanks {
    /// id -> position in `rows`; ids of no formation have the first, or are beyond the end.
    row_of: Vec<u32>,
    rows: Vec<[u32; N_NEIGHBOURS]>,
}

impl LowestRanks {
    fn of_ids(ids: impl Iterator<Item = u32>) -> LowestRanks {
        let mut lowest = LowestRanks {
            row_of: Vec::new(),
            rows: vec![[NO_RANK; N_NEIGHBOURS]],
        };
        for id in ids.map(|id| id as usize) {
            if id >= lowest.row_of.len() {
                lowest.row_of.resize(id + 1, 0);
            }
            if lowest.row_of[id] == 0 {
                lowest.row_of[id] = lowest.rows.len() as u32;
                lowest.rows.push([NO_RANK; N_NEIGHBOURS]);
            }
        }
        lowest
    }

    /// `byte` is looked up for ids of formations only.
    fn lower<'v>(&mut self, id: u32, rank: u32, byte: impl Fn() -> Option<&'v u8>) {
        if let Some(&row) = self.row_of.get(id as usize).filter(|row| **row != 0)
            && let Some(&byte) = byte()
        {
            let lowest = &mut self.rows[row as usize][neighbour(byte)];
            *lowest = rank.min(*lowest);
        }
    }

    /// The neighbours that join one of `symbols` at a rank of at most `formed`: 64 kinds of byte
    /// from `first` on as bits, and whether ASCII does.
    fn at_most(&self, formed: u32, symbols: &[u32], first: usize) -> (u64, bool) {
        let mut lowest = [NO_RANK; N_NEIGHBOURS];
        for &id in symbols {
            let row = &self.rows[self.row_of[id as usize] as usize];
            for (lowest, rank) in lowest.iter_mut().zip(row) {
                *lowest = (*lowest).min(*rank);
            }
        }
        let kinds = (0..).zip(&lowest[first..first + 64]);
        let bits = kinds.fold(0, |bits, (bit, rank)| {
            bits | u64::from(*rank <= formed) << bit
        });
        (bits, lowest[ASCII] <= formed)
    }
}

/// Those before the first symbols of formations, and those after their last.
fn lowest_ranks<'v>(
    formations: &[Formation],
    pairs: impl Iterator<Item = Pair>,
    bytes_of: impl Fn(u32) -> &'v [u8],
) -> (LowestRanks, LowestRanks) {
    let ends = |choose: fn(&Formation) -> &Vec<u32>| {
        LowestRanks::of_ids(formations.iter().flat_map(choose).copied())
    };
    let mut before = ends(|formation| &formation.firsts);
    let mut after = ends(|formation| &formation.lasts);
    for Pair { left, right, rank } in pairs {
        before.lower(right, rank, || bytes_of(left).last());
        after.lower(left, rank, || bytes_of(right).first());
    }
    (before, after)
}

fn neighbour(byte: u8) -> usize {
    match byte {
        0..0x80 => ASCII,
        0x80..0xC0 => usize::from(byte & 63),
        0xC0.. => LEADING + usize::from(byte & 63),
    }
}

fn is_character(token: &[u8]) -> bool {
    std::str::from_utf8(token).is_ok_and(|text| text.chars().count() == 1)
}

#[inline(always)]
fn prefix_code(bytes: &[u8]) -> usize {
    usize::from(bytes[0] & 0x3F) << 6 | usize::from(bytes[1] & 0x3F)
}
