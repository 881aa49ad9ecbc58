//! Text to pre-tokens by any split pattern that has an automaton: Python makes its tables
//! (`splitting/dialects/automaton.py`, which explains them), and this file runs them.
//!
//! ```text
//! state <- FIRST, last <- none                 at a boundary; `match_at`
//! loop
//!     (state, matched) <- moves[state][class of the character at `at`, or the end of the text]
//!     if matched: last <- at                   a match ends before that character
//!     if state = DEAD: stop                    no way leads on
//!     at <- at + length of the character
//! the pre-token ends at `last`; without a match, where the next match begins
//! ```
//!
//! `find_ends` departs from this:
//!
//! 1. The move that ends a match and the first move of the next match are joined to one, so that
//!    ordinary text takes one table look-up a character.
//! 2. It writes an end at each character and counts it only where a match ends: that branch could
//!    not be predicted.
//! 3. Only a match that ends before the last character read (white space before a word), and text
//!    without a match, leave the loop.
//! 4. `reads_left` counts down the characters read again, so that every expression takes linear time.
//!
//! A pattern of several steps runs as `Level`s: each splits the pieces of the one before it.

use std::ops::Range;

use crate::mem::growth::{NoMemory, filled};
use crate::mem::sections::{Reader, Unusable, Writer, all, check};
use crate::mem::table::Table;
use crate::split::pieces::MAX_BATCH_BYTES;
use crate::split::pre_tokens::PreTokens;
use crate::stop::{self, Stopped};
use crate::unicode::wide_at;

/// The state without a way through is row 0 of a table of moves, the first state row 1.
const DEAD: u32 = 0;
/// Flag of a move: a match ends before its character.
const MATCHED: u32 = 1 << 31;
/// Flag of a joined move: also, a new match begins with its character.
const ENDS: u32 = 1 << 30;
/// Flag of a joined move: no match ends before its character and none goes on, or the character
/// begins none.
const LEAVES: u32 = 1 << 29;
const ROW: u32 = LEAVES - 1;

const BLOCK_SHIFT: u32 = 7;
const BLOCK_SIZE: usize = 1 << BLOCK_SHIFT;
const N_CODE_POINTS: u32 = 0x11_0000;

/// Characters that may be read again for each byte of a text. Published patterns read fewer than two.
const READS_PER_BYTE: u64 = 100;
const MIN_READS: u64 = 1 << 20;
/// After so many a cancelled call ends.
const MANY_READS: usize = 1 << 14;

/// In place of the number of rules in a compiled file.
const NO_RULES: u64 = u64::MAX;

/// What becomes of the matches of a step; see `patterns.SplitPattern`. In the order of `NAMES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    Isolated,
    Removed,
    Contiguous,
    MergedWithPrevious,
    MergedWithNext,
}

impl Behavior {
    const NAMES: [(&str, Behavior); 5] = [
        ("isolated", Behavior::Isolated),
        ("removed", Behavior::Removed),
        ("contiguous", Behavior::Contiguous),
        ("merged-with-previous", Behavior::MergedWithPrevious),
        ("merged-with-next", Behavior::MergedWithNext),
    ];

    pub fn from_name(name: &str) -> Option<Behavior> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name)?;
        Some(found.1)
    }
}

/// A character outside ASCII of each class, in the order of their bits; one of no class; an
/// ideograph; a kana.
pub const SAMPLES: [char; 11] = [
    'É', 'é', 'ǅ', 'ʰ', 'א', '\u{301}', '²', '\u{2003}', '“', '中', 'か',
];

/// The rules by name, in the order of `NAMES`.
#[derive(Clone, Copy)]
pub enum Rules {
    Metaspace,
    Digits,
    DigitRuns,
    Qwen35,
    Tekken,
    KimiK2,
    DeepSeekV3,
}

impl Rules {
    const NAMES: [(&str, Rules); 7] = [
        ("metaspace", Rules::Metaspace),
        ("digits", Rules::Digits),
        ("digit_runs", Rules::DigitRuns),
        ("qwen3_5", Rules::Qwen35),
        ("tekken", Rules::Tekken),
        ("kimi_k2", Rules::KimiK2),
        ("deepseek_v3", Rules::DeepSeekV3),
    ];

    /// The rules of a published pattern; None for any other name.
    pub fn from_name(name: &str) -> Option<Rules> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name)?;
        Some(found.1)
    }
}

/// A step of a pattern as Python gives it.
pub struct StepTables {
    /// State and flag after a state and a class, row by row; the last column is the end of the text.
    pub moves: Vec<u32>,
    pub behavior: Behavior,
    pub invert: bool,
    pub drops_unmatched: bool,
}

struct Step {
    /// Moves whose states are the indices of their rows.
    moves: Vec<u32>,
    joined: Vec<u32>,
    behavior: Behavior,
    invert: bool,
    drops_unmatched: bool,
}

/// A split pattern.
pub struct Automaton {
    ascii: [u8; 128],
    /// Of each block of code points, where it begins in `blocks`.
    index: Table<u32>,
    blocks: Table<u8>,
    /// Columns of a row: the classes and the end of the text.
    width: usize,
    steps: Vec<Step>,
    cuts: Vec<bool>,
    /// Whether pre-tokens may leave out text.
    drops: bool,
    rules: Option<Rules>,
    /// The classes of `SAMPLES`.
    samples: [usize; SAMPLES.len()],
}

/// Characters that may be read again while a text of this size is split.
pub fn reads_for(n_bytes: usize) -> u64 {
    MIN_READS + READS_PER_BYTE * n_bytes as u64
}

impl Automaton {
    /// Of runs of code points, where each begins and its class; of the steps; and of `cuts`, whether a
    /// text may be cut between two classes. Fails, with a message for people, for tables that do not
    /// fit each other.
    pub fn build(
        firsts: &[u32],
        numbers: &[u8],
        steps: Vec<StepTables>,
        cuts: Vec<bool>,
        rules: Option<Rules>,
    ) -> Result<Automaton, String> {
        let n_classes = numbers
            .iter()
            .max()
            .map_or(0, |&last| usize::from(last) + 1);
        let is_ascending = firsts.windows(2).all(|pair| pair[0] < pair[1]);
        if firsts.first() != Some(&0)
            || firsts.len() != numbers.len()
            || !is_ascending
            || firsts.last().is_none_or(|&last| last >= N_CODE_POINTS)
            || cuts.len() != n_classes * n_classes
            || steps.is_empty()
        {
            return Err("the classes of a split automaton are malformed".into());
        }
        let width = n_classes + 1;
        let steps: Vec<Step> = steps
            .into_iter()
            .map(|step| Step::build(step, width))
            .collect::<Result<_, _>>()?;
        let no_memory = |_: NoMemory| "no memory for a split automaton".to_string();
        let mut classes = filled(0u8, N_CODE_POINTS as usize).map_err(no_memory)?;
        let ends = firsts.iter().skip(1).chain([&N_CODE_POINTS]);
        for ((&first, &end), &number) in firsts.iter().zip(ends).zip(numbers) {
            classes[first as usize..end as usize].fill(number);
        }
        let (mut index, mut blocks) = (Vec::new(), Vec::new());
        let mut known = std::collections::HashMap::new();
        for block in classes.chunks(BLOCK_SIZE) {
            let start = *known.entry(block).or_insert_with(|| {
                let start = blocks.len() as u32;
                blocks.extend_from_slice(block);
                start
            });
            index.push(start);
        }
        Ok(Automaton::of(
            index.into(),
            blocks.into(),
            steps,
            cuts,
            rules,
        ))
    }

    /// Of blocks that are whole and of classes that the steps and `cuts` know.
    fn of(
        index: Table<u32>,
        blocks: Table<u8>,
        steps: Vec<Step>,
        cuts: Vec<bool>,
        rules: Option<Rules>,
    ) -> Automaton {
        let mut automaton = Automaton {
            ascii: [0; 128],
            index,
            blocks,
            width: cuts.len().isqrt() + 1,
            drops: steps.iter().any(Step::drops),
            steps,
            cuts,
            rules,
            samples: [0; SAMPLES.len()],
        };
        automaton.ascii = std::array::from_fn(|code| automaton.class_of(code as u32) as u8);
        automaton.samples = SAMPLES.map(|sample| automaton.class_of(sample.into()));
        automaton
    }

    pub fn write(&self, to: &mut Writer) {
        let rules = self.rules.map_or(NO_RULES, |rules| rules as u64);
        to.table(&[rules, self.steps.len() as u64]);
        to.table(&self.index);
        to.table(&self.blocks);
        to.table(&self.cuts.iter().copied().map(u8::from).collect::<Vec<_>>());
        for step in &self.steps {
            let flags = [
                step.behavior as u64,
                step.invert.into(),
                step.drops_unmatched.into(),
            ];
            to.table(&flags);
            // States as in `StepTables`.
            let state = |entry: &u32| entry & MATCHED | ((entry & !MATCHED) / self.width as u32);
            to.table(&step.moves.iter().map(state).collect::<Vec<_>>());
        }
    }

    /// No path leads out of the tables, and no match is empty.
    pub fn read(from: &mut Reader) -> Result<Automaton, Unusable> {
        let [rules, n_steps]: [u64; 2] = from.array()?;
        let rules = match rules {
            NO_RULES => None,
            number => {
                let named = Rules::NAMES.get(number as usize);
                Some(named.ok_or(Unusable("rules without a name"))?.1)
            }
        };
        let (index, blocks): (Table<u32>, Table<u8>) = (from.table()?, from.table()?);
        let cuts: Vec<bool> = from.table::<u8>()?.iter().map(|&cut| cut != 0).collect();
        let n_classes = cuts.len().isqrt();
        let is_block = |&start: &u32| start as usize + BLOCK_SIZE <= blocks.len();
        check(
            index.len() == N_CODE_POINTS as usize >> BLOCK_SHIFT
                && index.iter().all(is_block)
                && all(&blocks, |&class| usize::from(class) < n_classes)
                && n_classes * n_classes == cuts.len(),
            "the classes of a split automaton are malformed",
        )?;
        let mut steps = Vec::new();
        for _ in 0..n_steps {
            let [behavior, invert, drops_unmatched] = from.array::<u64, 3>()?;
            let behavior = Behavior::NAMES.get(behavior as usize);
            let tables = StepTables {
                moves: from.table()?.to_vec(),
                behavior: behavior.ok_or(Unusable("a behavior without a name"))?.1,
                invert: invert != 0,
                drops_unmatched: drops_unmatched != 0,
            };
            let step = Step::build(tables, n_classes + 1);
            steps.push(step.map_err(|_| Unusable("the moves of a split automaton are malformed"))?);
        }
        check(!steps.is_empty(), "a split automaton without a step")?;
        Ok(Automaton::of(index, blocks, steps, cuts, rules))
    }

    /// The rules by which blocks are split, if the pattern has some.
    pub fn rules(&self) -> Option<Rules> {
        self.rules.filter(|_| self.is_plain())
    }

    /// The classes of `SAMPLES`.
    #[inline(always)]
    pub fn samples(&self) -> &[usize; SAMPLES.len()] {
        &self.samples
    }

    /// Whether pre-tokens may leave out text, so that joined they are not the text.
    pub fn drops(&self) -> bool {
        self.drops
    }

    /// Whether a text may be cut between two characters, in any context.
    pub fn is_safe_cut(&self, before: u32, after: u32) -> bool {
        let n_classes = self.width - 1;
        self.cuts[self.class_of(before) * n_classes + self.class_of(after)]
    }

    /// The pre-tokens of a text, in order.
    pub fn pieces<'a>(&'a self, text: &'a str) -> Pieces<'a> {
        let text = text.as_bytes();
        let level = |step| Level::new(self, step, text);
        let mut levels: Vec<Level> = self.steps.iter().map(level).collect();
        levels[0].enter(0..text.len());
        let reads_left = reads_for(text.len());
        Pieces { levels, reads_left }
    }

    /// Whether `find_ends` can split by this pattern.
    pub fn is_plain(&self) -> bool {
        matches!(&self.steps[..], [step] if step.behavior == Behavior::Isolated && !self.drops)
    }

    /// Finds the pre-tokens that begin at the start of `batch`, as many as there is room for. Only for a
    /// plain pattern. `reads_left` is counted down by what is read again.
    pub fn find_pre_tokens(
        &self,
        text: &[u8],
        batch: &mut PreTokens,
        reads_left: &mut u64,
    ) -> Result<(), Stopped> {
        let start = batch.start;
        if start < text.len() {
            (batch.n, batch.is_wide) = self.find_ends(text, start, &mut batch.ends, reads_left)?;
            if batch.n == 0 {
                batch.ends[0] = self.end_of_piece(text, start, reads_left)? - start;
                (batch.n, batch.is_wide) = (1, true);
            }
        }
        Ok(())
    }

    /// Writes to `ends` where the pre-tokens from the boundary `start` on end, counted from there.
    /// Stops after `MAX_BATCH_BYTES`. Returns how many there are, 0 if the first is longer, and
    /// whether one may have a character outside ASCII.
    fn find_ends<const N: usize>(
        &self,
        text: &[u8],
        start: usize,
        ends: &mut [usize; N],
        reads_left: &mut u64,
    ) -> Result<(usize, bool), Stopped> {
        let [step] = &self.steps[..] else {
            unreachable!("the pattern is plain")
        };
        let mut limit = text.len().min(start + MAX_BATCH_BYTES);
        while limit < text.len() && text[limit] & 0xC0 == 0x80 {
            limit -= 1; // whole characters
        }
        let first = self.width as u32;
        let (window, joined) = (&text[start..limit], &step.joined[..]);
        let (mut at, mut n, mut row) = (0, 0, first);
        // The end of the longest way through the current match so far; its begin, if there is none.
        let mut last = 0;
        let mut is_wide = false;
        while n < N && last < window.len() {
            let mut entry;
            loop {
                // Most text is ASCII; this inner loop keeps everything in registers.
                loop {
                    entry = LEAVES;
                    let Some(&byte) = window.get(at) else { break };
                    let Some(&class) = self.ascii.get(usize::from(byte)) else {
                        break;
                    };
                    entry = joined[row as usize + usize::from(class)];
                    if entry & LEAVES != 0 || n == N {
                        break;
                    }
                    ends[n] = at;
                    n += (entry >> 30 & 1) as usize;
                    last = if entry & MATCHED != 0 { at } else { last };
                    row = entry & ROW;
                    at += 1;
                }
                if n == N || at == window.len() || window[at] < 0x80 {
                    break;
                }
                is_wide = true;
                let (class, length) = self.class_at(window, at);
                entry = joined[row as usize + class];
                if entry & LEAVES != 0 {
                    break;
                }
                ends[n] = at;
                n += (entry >> 30 & 1) as usize;
                last = if entry & MATCHED != 0 { at } else { last };
                row = entry & ROW;
                at += length;
            }
            if n == N {
                break;
            }
            if at == window.len() {
                if limit < text.len() {
                    break;
                }
                entry = step.moves[row as usize + self.width - 1];
            }
            if entry & MATCHED != 0 {
                last = at;
            }
            spend(reads_left, at - last)?;
            let begin = n.checked_sub(1).map_or(0, |i| ends[i]);
            if last == begin {
                let end = self.end_of_gap(step, text, start + begin, reads_left)?;
                (last, is_wide) = (end - start, true);
                if last > MAX_BATCH_BYTES {
                    break;
                }
            }
            ends[n] = last;
            n += 1;
            (at, row) = (last, first);
        }
        Ok((n, is_wide))
    }

    /// Where the pre-token that begins at the boundary `start` ends. Only for a plain pattern.
    fn end_of_piece(
        &self,
        text: &[u8],
        start: usize,
        reads_left: &mut u64,
    ) -> Result<usize, Stopped> {
        let step = &self.steps[0];
        match self.end_of_match(step, text, start, reads_left)? {
            Some(end) => Ok(end),
            None => self.end_of_gap(step, text, start, reads_left),
        }
    }

    /// Where the text without a match that begins at `at` ends.
    fn end_of_gap(
        &self,
        step: &Step,
        text: &[u8],
        mut at: usize,
        reads_left: &mut u64,
    ) -> Result<usize, Stopped> {
        loop {
            at += self.class_at(text, at).1;
            if at == text.len() || self.end_of_match(step, text, at, reads_left)?.is_some() {
                return Ok(at);
            }
        }
    }

    /// Where the match that begins at `start` ends, in a text that ends where `text` ends. What is read
    /// in vain counts.
    #[inline]
    fn end_of_match(
        &self,
        step: &Step,
        text: &[u8],
        start: usize,
        reads_left: &mut u64,
    ) -> Result<Option<usize>, Stopped> {
        let (end, n_again) = self.match_at(step, text, start);
        spend(reads_left, n_again)?;
        Ok(end)
    }

    /// Where the match that begins at `start` ends, and how many bytes were read in vain.
    #[inline(always)]
    fn match_at(&self, step: &Step, text: &[u8], start: usize) -> (Option<usize>, usize) {
        let (mut row, mut at, mut last) = (self.width, start, None);
        loop {
            let (class, length) = match at < text.len() {
                true => self.class_at(text, at),
                false => (self.width - 1, 0),
            };
            let entry = step.moves[row + class];
            if entry & MATCHED != 0 {
                last = Some(at);
            }
            row = (entry & ROW) as usize;
            if row == DEAD as usize {
                return (last, at - last.unwrap_or(start));
            }
            at += length;
        }
    }

    /// Where the pre-token that begins at the boundary `start` ends, for a plain pattern with rules:
    /// these read no text often.
    #[inline]
    pub fn advance(&self, text: &[u8], start: usize) -> usize {
        let step = &self.steps[0];
        if let (Some(end), _) = self.match_at(step, text, start) {
            return end;
        }
        let mut at = start;
        loop {
            at += self.class_at(text, at).1;
            if at == text.len() || self.match_at(step, text, at).0.is_some() {
                return at;
            }
        }
    }

    /// The class of any code point below 0x110000.
    #[inline(always)]
    fn class_of(&self, code: u32) -> usize {
        let block = self.index[(code >> BLOCK_SHIFT) as usize];
        usize::from(self.blocks[block as usize + (code as usize & (BLOCK_SIZE - 1))])
    }

    /// The class and the length in bytes of the character that starts at `at < text.len()`.
    #[inline(always)]
    pub fn class_at(&self, text: &[u8], at: usize) -> (usize, usize) {
        let first = text[at];
        if first < 0x80 {
            return (usize::from(self.ascii[usize::from(first)]), 1);
        }
        let (code, length) = wide_at(text, at);
        (self.class_of(code), length)
    }
}

fn spend(reads_left: &mut u64, n_bytes: usize) -> Result<(), Stopped> {
    if n_bytes >= MANY_READS {
        stop::check(&stop::current())?;
    }
    *reads_left = reads_left
        .checked_sub(n_bytes as u64)
        .ok_or(Stopped::TooSlow)?;
    Ok(())
}

impl Step {
    fn build(tables: StepTables, width: usize) -> Result<Step, String> {
        let n_states = tables.moves.len() / width;
        let is_whole = tables.moves.len() == n_states * width;
        let fits = |entry: u32| ((entry & !MATCHED) as usize) < n_states;
        let ends = || tables.moves.iter().skip(width - 1).step_by(width);
        if n_states < 2
            || !is_whole
            || n_states * width >= LEAVES as usize
            || !tables.moves.iter().all(|&entry| fits(entry))
            || !ends().all(|entry| entry & !MATCHED == DEAD)
            || tables.moves[..width].iter().any(|&entry| entry != DEAD)
            || tables.moves[width..2 * width]
                .iter()
                .any(|entry| entry & MATCHED != 0)
        {
            return Err("the moves of a split automaton are malformed".into());
        }
        let row = |entry: u32| ((entry & !MATCHED) * width as u32) | (entry & MATCHED);
        let moves: Vec<u32> = tables.moves.into_iter().map(row).collect();
        let joined = (0..moves.len()).map(|i| {
            let begun = moves[width + i % width];
            match (moves[i] & ROW, moves[i] & MATCHED, begun & ROW) {
                (DEAD, MATCHED, DEAD) => MATCHED | LEAVES,
                (DEAD, MATCHED, begun) => MATCHED | ENDS | begun,
                (DEAD, _, _) => LEAVES,
                _ => moves[i],
            }
        });
        Ok(Step {
            joined: joined.collect(),
            moves,
            behavior: tables.behavior,
            invert: tables.invert,
            drops_unmatched: tables.drops_unmatched,
        })
    }

    fn drops(&self) -> bool {
        self.drops_unmatched || self.behavior == Behavior::Removed
    }
}

/// A part of a piece: a match or the text between two, and the flag that a behavior looks at.
type Part = (Range<usize>, bool);

/// One step at work: it splits each piece of the step before it, which it sees as a whole text.
struct Level<'a> {
    automaton: &'a Automaton,
    step: &'a Step,
    text: &'a [u8],
    /// What is left of the piece.
    rest: Range<usize>,
    /// A match that is found and not yet taken.
    found: Option<Range<usize>>,
    /// A part that is held back, because it may be joined with the next one.
    held: Option<Part>,
}

impl<'a> Level<'a> {
    fn new(automaton: &'a Automaton, step: &'a Step, text: &'a [u8]) -> Level<'a> {
        Level {
            automaton,
            step,
            text,
            rest: 0..0,
            found: None,
            held: None,
        }
    }

    fn enter(&mut self, piece: Range<usize>) {
        self.rest = piece;
    }

    /// The next match, or text between two.
    fn next_part(&mut self, reads_left: &mut u64) -> Result<Option<Part>, Stopped> {
        let (is_match, is_gap) = (!self.step.invert, self.step.invert);
        loop {
            if let Some(found) = self.found.take() {
                return Ok(Some((found, is_match)));
            }
            if self.rest.is_empty() {
                return Ok(None);
            }
            let (begin, text) = (self.rest.start, &self.text[..self.rest.end]);
            let mut at = begin;
            while at < text.len() {
                let found = (self.automaton).end_of_match(self.step, text, at, reads_left)?;
                if let Some(end) = found {
                    self.found = Some(at..end);
                    self.rest.start = end;
                    break;
                }
                at += self.automaton.class_at(text, at).1;
            }
            if self.found.is_none() {
                self.rest.start = at;
            }
            if begin < at && !self.step.drops_unmatched {
                return Ok(Some((begin..at, is_gap)));
            }
        }
    }

    /// The next piece that the step makes.
    fn next_piece(&mut self, reads_left: &mut u64) -> Result<Option<Range<usize>>, Stopped> {
        let behavior = self.step.behavior;
        while let Some((range, is_match)) = self.next_part(reads_left)? {
            match behavior {
                Behavior::Isolated => return Ok(Some(range)),
                Behavior::Removed if is_match => continue,
                Behavior::Removed => return Ok(Some(range)),
                _ => {}
            }
            let Some((held, was_match)) = self.held.take() else {
                self.held = Some((range, is_match));
                continue;
            };
            let joins = match behavior {
                Behavior::Contiguous => is_match == was_match,
                // Of several matches in a row, only the first joins the text before them.
                Behavior::MergedWithPrevious => is_match && !was_match,
                // Of several matches in a row, only the last joins the text after them.
                _ => was_match && !is_match,
            };
            if joins {
                // The flag of the last part decides what joins next.
                self.held = Some((held.start..range.end, is_match));
            } else {
                self.held = Some((range, is_match));
                return Ok(Some(held));
            }
        }
        Ok(self.held.take().map(|(range, _)| range))
    }
}

/// The pre-tokens of a text; see [`Automaton::pieces`].
pub struct Pieces<'a> {
    levels: Vec<Level<'a>>,
    reads_left: u64,
}

impl Pieces<'_> {
    /// The next pre-token, as a range of the text. Fails if splitting takes too long.
    pub fn next_piece(&mut self) -> Result<Option<Range<usize>>, Stopped> {
        let last = self.levels.len() - 1;
        let mut depth = last;
        loop {
            match self.levels[depth].next_piece(&mut self.reads_left)? {
                Some(piece) if depth == last => return Ok(Some(piece)),
                Some(piece) => {
                    depth += 1;
                    self.levels[depth].enter(piece);
                }
                None if depth == 0 => return Ok(None),
                None => depth -= 1,
            }
        }
    }
}
