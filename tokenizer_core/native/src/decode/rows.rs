//! The ids of several texts, decoded together.

use std::ops::Range;

use crate::decode::text::{Text, TextRules};
use crate::decode::vocabulary::Vocabulary;
use crate::mem::growth::{Grow, NoMemory};
use crate::stop::{self, Stopped};

/// Starting a thread for fewer ids does not pay.
const MIN_IDS_PER_THREAD: usize = 1 << 15;

/// The ids of each text, one after the other, and where each ends.
#[derive(Default)]
pub struct Rows {
    pub ids: Vec<u32>,
    pub ends: Vec<usize>,
}

/// Texts in bytes, one after the other, and where each ends. They have U+FFFD for what is not UTF-8:
/// Python finds that while it makes the `str`, and looking for it here as well took two fifths of
/// the time of decoding Chinese.
#[derive(Default)]
pub struct Texts {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
}

impl Rows {
    pub fn row(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ids[start..self.ends[index]]
    }

    /// Runs `work` on parts of the rows, in at most `n_threads` threads; the results in order.
    pub fn in_threads<T: Send>(
        &self,
        n_threads: usize,
        work: impl Fn(Range<usize>) -> T + Sync,
    ) -> Vec<T> {
        let n_parts = n_threads.min(self.ids.len() / MIN_IDS_PER_THREAD).max(1);
        let cut = |part| {
            let n_ids = self.ids.len() * part / n_parts;
            match part {
                0 => 0,
                _ if part == n_parts => self.ends.len(),
                _ => self.ends.partition_point(|&end| end < n_ids),
            }
        };
        let (flag, work) = (stop::current(), &work);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..n_parts)
                .map(|part| {
                    let (flag, rows) = (flag.clone(), cut(part)..cut(part + 1));
                    let run = move || {
                        stop::replace(flag);
                        work(rows)
                    };
                    std::thread::Builder::new().spawn_scoped(scope, run)
                })
                .collect();
            let mut results = vec![work(cut(0)..cut(1))];
            for (other, part) in others.into_iter().zip(1..) {
                results.push(match other {
                    Ok(thread) => thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    // The system refused a thread.
                    Err(_) => work(cut(part)..cut(part + 1)),
                });
            }
            results
        })
    }

    /// The text of each row, all of whose ids are known, in parts of the rows.
    pub fn decode(
        &self,
        rules: &TextRules,
        vocabulary: &Vocabulary,
        skips_special: bool,
        n_threads: usize,
    ) -> Result<Vec<Texts>, Stopped> {
        let parts = self.in_threads(n_threads, |rows| {
            let (mut texts, flag) = (Texts::default(), stop::current());
            texts.ends.try_reserve_exact(rows.len())?;
            for row in rows {
                stop::check(&flag)?;
                let (ids, out) = (self.row(row), &mut texts.bytes);
                if rules.has_runs() {
                    append_text(rules, vocabulary, ids, skips_special, out)?;
                } else {
                    Text::new(rules, skips_special).push_all(rules, vocabulary, ids, out)?;
                }
                texts.ends.try_push(texts.bytes.len())?;
            }
            Ok(texts)
        });
        parts.into_iter().collect()
    }
}

/// Appends the text of `ids`, all of them known: whole characters.
pub fn append_text(
    rules: &TextRules,
    vocabulary: &Vocabulary,
    ids: &[u32],
    skips_special: bool,
    out: &mut Vec<u8>,
) -> Result<(), NoMemory> {
    let mut text = Text::new(rules, skips_special);
    text.push(rules, vocabulary, ids, out)?;
    text.finish(rules, out)
}
