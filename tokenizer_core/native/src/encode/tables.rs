//! What an encoder reads: the tables of a tokenizer, and the cache that its calls share.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use arc_swap::ArcSwapOption;

use crate::cache::key::MAX_SHORT_BYTES;
use crate::cache::{MAX_SEEDS, PieceCache};
use crate::decode::vocabulary::{TokenTable, Vocabulary};
use crate::mem::growth::NoMemory;
use crate::mem::sections::{Reader, Unusable, Writer, check};
use crate::mem::table::Table;
use crate::merge::boundaries::Boundaries;
use crate::merge::pair_table::ID_BITS;
use crate::merge::{END_OF_WORD, Merge, MergeScratch, Merger};
use crate::simd::Kernel;

/// The bytes of UTF-8 that a vocabulary lacks, and what merging makes of them.
pub struct MissingBytes {
    is_missing: [bool; 256],
    /// The id that each of them gives, which no merge joins; None leaves them out.
    pub unknown: Option<u32>,
    /// Whether several in a row give one unknown id.
    pub is_fused: bool,
    is_end: [bool; 256],
}

impl MissingBytes {
    pub fn new(values: &[u8], unknown: Option<u32>, is_fused: bool, ends: &[u8]) -> MissingBytes {
        let set_of = |bytes: &[u8]| {
            let mut set = [false; 256];
            for &byte in bytes {
                set[usize::from(byte)] = true;
            }
            set
        };
        MissingBytes {
            is_missing: set_of(values),
            unknown,
            is_fused,
            is_end: set_of(ends),
        }
    }

    fn write(&self, to: &mut Writer) {
        let unknown = self.unknown.map_or(u64::MAX, u64::from);
        to.table(&[unknown, u64::from(self.is_fused)]);
        to.table(&self.is_missing.map(u8::from));
        to.table(&self.is_end.map(u8::from));
    }

    fn read(from: &mut Reader, n_ids: usize) -> Result<MissingBytes, Unusable> {
        let [unknown, is_fused]: [u64; 2] = from.array()?;
        check(
            unknown == u64::MAX || unknown < n_ids as u64,
            "the unknown token is none",
        )?;
        let is_set = |byte: u8| byte != 0;
        Ok(MissingBytes {
            is_missing: from.array::<u8, 256>()?.map(is_set),
            unknown: (unknown != u64::MAX).then_some(unknown as u32),
            is_fused: is_fused != 0,
            is_end: from.array::<u8, 256>()?.map(is_set),
        })
    }

    /// Whether a byte that is left out after this one separates what is around it.
    #[inline]
    pub fn separates_after(&self, byte: u8) -> bool {
        self.is_end[usize::from(byte)]
    }

    #[inline]
    pub fn has(&self, byte: u8) -> bool {
        self.is_missing[usize::from(byte)]
    }

    fn values(&self) -> impl Iterator<Item = u8> {
        (0..=255).filter(|&byte| self.has(byte))
    }

    /// Whether no byte is missing that continues a character. Then what is left of a character has
    /// all its other bytes, and never completes the character before it.
    fn begin_characters(&self) -> bool {
        self.values().all(|byte| !(0x80..0xC0).contains(&byte))
    }
}

/// What merging starts from, where that is not the bytes of a pre-token alone.
#[derive(Default)]
pub struct Start {
    /// The characters that are tokens, and the bytes of others.
    pub by_characters: bool,
    /// The bytes without a token.
    pub missing: Option<MissingBytes>,
    /// The id of each byte at the end of a pre-token.
    pub word_ends: Option<[u32; 256]>,
}

/// The tables of a tokenizer, which never change.
pub struct Tables {
    pub vocabulary: Vocabulary,
    pub merger: Merger,
    pub boundaries: Boundaries,
    pub kernel: Kernel,
    pub missing: Option<MissingBytes>,
    /// Whether a piece that ends a word has `END_OF_WORD` after its bytes.
    pub marks_words: bool,
    /// The tokens that a whole piece becomes, though merging does not make them.
    whole: Option<TokenTable>,
    /// Short tokens that merging makes of their own bytes: the cache starts with them.
    seeds: Table<u32>,
    /// The pieces that these are, if words have marks.
    pieces: Option<Vocabulary>,
}

impl Tables {
    /// See `Encoder::build`.
    pub fn build(
        vocabulary: Vocabulary,
        tokens: &[(&[u8], u32)],
        merges: Option<&[Merge]>,
        takes_whole: bool,
        from: Start,
    ) -> Result<Tables, String> {
        let Start {
            by_characters,
            missing,
            word_ends,
        } = from;
        if vocabulary.n_ids() > 1 << ID_BITS {
            return Err(format!("an id of 2^{ID_BITS} or more"));
        }
        let mut start = [u32::MAX; 256];
        for &(token, id) in tokens {
            if vocabulary.token(id) != token {
                return Err(format!("id {id} is not that of {token:?}"));
            }
            if let [byte] = *token {
                start[usize::from(byte)] = id;
            }
        }
        // What is merged never has these bytes, so that any id serves where a vocabulary lacks them.
        let any = start.iter().copied().min().unwrap_or(u32::MAX);
        for byte in 0..=255u8 {
            let is_never = matches!(byte, 0xC0 | 0xC1 | 0xF5..);
            if (is_never || missing.as_ref().is_some_and(|missing| missing.has(byte)))
                && start[usize::from(byte)] == u32::MAX
            {
                start[usize::from(byte)] = any;
            }
        }
        if let Some(byte) = start.iter().position(|&id| id == u32::MAX) {
            return Err(format!("no token for byte 0x{byte:02x}"));
        }
        let has_ends = word_ends.is_some();
        let mark = vocabulary.n_ids() as u32;
        let ends = word_ends.map(|ends| ends_of_bytes(&ends, &vocabulary));
        let mut merger = match (merges, &ends) {
            (Some(merges), None) => Merger::from_merges(start, merges, tokens, by_characters),
            (Some(merges), Some(ends)) if !ends.is_empty() && missing.is_none() => {
                if mark == 1 << ID_BITS {
                    return Err(format!(
                        "no id below 2^{ID_BITS} is left for the ends of words"
                    ));
                }
                Merger::with_word_ends(start, merges, ends, mark)
            }
            (None, None) => Ok(Merger::from_ranks(start, tokens)),
            _ => return Err("the ends of words need merges, and tokens of all bytes".into()),
        }
        .map_err(|error| format!("{} merges are too many", error.0))?;
        let pieces = ends.map(|ends| pieces_of(tokens, &vocabulary, &ends));
        let (made, others): (Vec<_>, Vec<_>) = match &pieces {
            None => tokens.iter().partition(|token| merger.makes(token.1)),
            Some(pieces) => {
                let scratch = &mut MergeScratch::default();
                tokens.iter().partition(|token| {
                    let piece = pieces.token(token.1);
                    let made = merger.encode(piece, scratch, |ids| ids == [token.1]);
                    piece.len() <= MAX_SHORT_BYTES && made.unwrap_or(false)
                })
            }
        };
        let ids_of =
            |tokens: &[(&[u8], u32)]| -> Vec<u32> { tokens.iter().map(|token| token.1).collect() };
        let whole = if takes_whole {
            ids_of(&others)
        } else {
            Vec::new()
        };
        let mut seeds = ids_of(&made);
        let spelt = pieces.as_ref().unwrap_or(&vocabulary);
        seeds.retain(|&id| (1..=MAX_SHORT_BYTES).contains(&spelt.token(id).len()));
        // The lowest ids first: those of the more frequent tokens.
        seeds.sort_unstable();
        seeds.truncate(MAX_SEEDS);
        // Where bytes are left out, the rest is no UTF-8, and characters that are apart may merge.
        if !by_characters && missing.is_none() && !has_ends {
            merger.find_atoms(tokens.iter().copied(), |id| vocabulary.token(id));
        }
        let boundaries = if missing.as_ref().is_some_and(|it| !it.begin_characters()) {
            Boundaries::none()
        } else {
            // Nothing follows a token that ends a word, so that its last byte does not matter.
            let bytes_of = |id| match id == mark && has_ends {
                true => &[END_OF_WORD],
                false => vocabulary.token(id),
            };
            let mut boundaries = Boundaries::new(
                merger.pairs(),
                whole.iter().map(|&id| vocabulary.token(id)),
                bytes_of,
            );
            // What is next to a byte that is left out may merge with what is beyond it.
            for byte in missing.iter().flat_map(MissingBytes::values) {
                boundaries.exclude(byte);
            }
            boundaries
        };
        let whole = (!whole.is_empty()).then(|| TokenTable::new(&vocabulary, &whole));
        Ok(Tables {
            vocabulary,
            merger,
            boundaries,
            kernel: Kernel::chosen(),
            missing,
            marks_words: has_ends,
            whole,
            seeds: seeds.into(),
            pieces,
        })
    }

    pub fn write(&self, to: &mut Writer) {
        let (has_missing, has_whole) = (self.missing.is_some(), self.whole.is_some());
        let flags = [
            has_missing,
            has_whole,
            self.pieces.is_some(),
            self.marks_words,
        ];
        to.table(&flags.map(u64::from));
        self.vocabulary.write(to);
        if let Some(missing) = &self.missing {
            missing.write(to);
        }
        self.merger.write(to);
        self.boundaries.write(to);
        if let Some(whole) = &self.whole {
            whole.write(to);
        }
        if let Some(pieces) = &self.pieces {
            pieces.write(to);
        }
        to.table(&self.seeds);
    }

    pub fn read(from: &mut Reader) -> Result<Tables, Unusable> {
        let flags = from.array::<u64, 4>()?.map(|flag| flag != 0);
        let [has_missing, has_whole, has_pieces, marks_words] = flags;
        let vocabulary = Vocabulary::read(from)?;
        let n_ids = vocabulary.n_ids();
        let missing = has_missing
            .then(|| MissingBytes::read(from, n_ids))
            .transpose()?;
        check(
            n_ids < 1 << ID_BITS || !marks_words,
            "no id is left for the ends of words",
        )?;
        let merger = Merger::read(from, n_ids)?;
        let boundaries = Boundaries::read(from)?;
        let whole = has_whole
            .then(|| TokenTable::read(from, n_ids))
            .transpose()?;
        let pieces = has_pieces.then(|| Vocabulary::read(from)).transpose()?;
        let seeds: Table<u32> = from.table()?;
        let spelt = pieces.as_ref().unwrap_or(&vocabulary);
        let is_seed = |&id: &u32| {
            let n_bytes = spelt.token(id).len();
            (id as usize) < n_ids && (1..=MAX_SHORT_BYTES).contains(&n_bytes)
        };
        check(
            seeds.len() <= MAX_SEEDS && seeds.iter().all(is_seed),
            "a seed is no short token",
        )?;
        Ok(Tables {
            vocabulary,
            merger,
            boundaries,
            kernel: Kernel::chosen(),
            missing,
            marks_words,
            whole,
            seeds,
            pieces,
        })
    }

    /// The id of a token that a whole piece becomes, though merging does not make it.
    #[inline]
    pub fn whole_id(&self, piece: &[u8]) -> Option<u32> {
        self.whole.as_ref()?.get(&self.vocabulary, piece)
    }

    /// Whether there are such tokens.
    pub fn has_whole(&self) -> bool {
        self.whole.is_some()
    }

    fn seeds(&self) -> impl ExactSizeIterator<Item = (&[u8], u32)> {
        let pieces = self.pieces.as_ref().unwrap_or(&self.vocabulary);
        self.seeds.iter().map(|&id| (pieces.token(id), id))
    }
}

/// The bytes that text has, and the id of each at the end of a word.
fn ends_of_bytes(ids: &[u32; 256], vocabulary: &Vocabulary) -> Vec<(u8, u32)> {
    let ends = (0..=255).zip(ids.iter().copied());
    ends.filter(|&(byte, id)| vocabulary.token(id).first() == Some(&byte))
        .filter(|(byte, _)| !matches!(byte, 0xC0 | 0xC1 | 0xF5..))
        .collect()
}

/// The pieces that may become each token: those with the suffix of the `ends` are at the end of a
/// word. Whether merging makes the token of them is another question.
fn pieces_of(tokens: &[(&[u8], u32)], vocabulary: &Vocabulary, ends: &[(u8, u32)]) -> Vocabulary {
    let suffix = ends
        .first()
        .map_or(&[][..], |&(_, id)| &vocabulary.token(id)[1..]);
    let piece_of = |&(token, id): &(&[u8], u32)| {
        let piece = match token.strip_suffix(suffix) {
            Some(word) if !word.is_empty() => [word, &[END_OF_WORD]].concat(),
            _ => token.to_vec(),
        };
        (id, piece)
    };
    let pieces: Vec<(u32, Vec<u8>)> = tokens.iter().map(piece_of).collect();
    Vocabulary::new(pieces.iter().map(|(id, piece)| (*id, &piece[..])).collect())
}

/// The cache of all calls, made when it is first needed and replaced when it is full. No call waits
/// for another, so a process forked at any moment continues.
pub struct SharedCache {
    cache: ArcSwapOption<PieceCache>,
    /// Whether the first one is small; the next one has the seeds.
    starts_small: bool,
    /// Held while a full cache is being replaced.
    replacing: Mutex<()>,
}

impl SharedCache {
    pub fn new(starts_small: bool) -> SharedCache {
        SharedCache {
            cache: ArcSwapOption::empty(),
            starts_small,
            replacing: Mutex::new(()),
        }
    }

    pub fn current(&self, tables: &Tables) -> Result<Arc<PieceCache>, NoMemory> {
        if let Some(cache) = self.cache.load_full() {
            return Ok(cache);
        }
        // Two calls that come first together both make one.
        let cache = Arc::new(match self.starts_small {
            true => PieceCache::small()?,
            false => PieceCache::seeded(tables.kernel, tables.seeds())?,
        });
        let none: Option<Arc<PieceCache>> = None;
        let before = self.cache.compare_and_swap(&none, Some(cache.clone()));
        Ok(before.clone().unwrap_or(cache))
    }

    /// How many pieces it holds.
    pub fn n_entries(&self) -> usize {
        let cache = self.cache.load();
        cache.as_ref().map_or(0, |cache| cache.n_entries())
    }

    /// Replaces the cache of a call by the current one; if that is the same, and full, by its
    /// successor. While another call makes the successor, or without memory for one, a call keeps
    /// its full cache, which still finds its entries.
    #[cold]
    pub fn renew(&self, cache: &mut Arc<PieceCache>, tables: &Tables) {
        let _replacing = match self.replacing.try_lock() {
            Ok(replacing) => replacing,
            Err(TryLockError::WouldBlock) => return,
            // It guards nothing that a panic could have left half done.
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
        };
        let Ok(current) = self.current(tables) else {
            return;
        };
        if Arc::ptr_eq(&current, cache) {
            if let Ok(successor) = current.successor(tables.kernel, tables.seeds()) {
                *cache = Arc::new(successor);
                self.cache.store(Some(cache.clone()));
            }
        } else {
            *cache = current;
        }
    }
}
