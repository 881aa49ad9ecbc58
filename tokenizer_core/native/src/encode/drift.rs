//! Where ids differ from those that encoding their text gives.

use crate::decode::rows::{Rows, append_text};
use crate::decode::text::TextRules;
use crate::encode::Encoder;
use crate::encode::specials::SpecialTokens;
use crate::mem::growth::Grow;
use crate::normalize::nfc::may_change_under_nfc;
use crate::split::Scanner;
use crate::stop::{self, Stopped};

/// No drift, and a row whose text must be normalized first, which is left to the caller.
pub const NONE: i64 = -1;
pub const UNDECIDED: i64 = -2;

impl Encoder {
    /// For each row, all of whose ids are known, the first index where encoding its text gives
    /// another id, or `NONE`. With `is_nfc`, a text that NFC may change is `UNDECIDED`.
    pub fn first_drifts(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        rules: &TextRules,
        rows: &Rows,
        (is_nfc, n_threads): (bool, usize),
    ) -> Result<Vec<i64>, Stopped> {
        let parts = rows.in_threads(n_threads, |part| -> Result<Vec<i64>, Stopped> {
            let (mut text, mut again, mut found) = (Vec::new(), Vec::new(), Vec::new());
            let flag = stop::current();
            for ids in part.map(|row| rows.row(row)) {
                stop::check(&flag)?;
                text.clear();
                append_text(rules, self.vocabulary(), ids, false, &mut text)?;
                let text = str::from_utf8(&text).expect("decoding gives whole characters");
                if is_nfc && text.chars().any(|c| may_change_under_nfc(c.into())) {
                    found.try_push(UNDECIDED)?;
                    continue;
                }
                again.clear();
                self.encode_document(scanner, specials, text, &mut again)?;
                found.try_push(first_difference(ids, &again))?;
            }
            Ok(found)
        });
        let mut all = Vec::new();
        for part in parts {
            all.try_extend(&part?)?;
        }
        Ok(all)
    }
}

/// The first index where two lists of ids differ; the shorter length if it begins the other.
fn first_difference(ids: &[u32], again: &[u32]) -> i64 {
    let differing = ids.iter().zip(again).position(|(one, other)| one != other);
    match differing {
        Some(index) => index as i64,
        None if ids.len() == again.len() => NONE,
        None => ids.len().min(again.len()) as i64,
    }
}
