//! What a normalizer does to the text between added tokens, as `tokenizer_core/normalizers/` defines it:
//! its steps (`steps`, by tables that Python makes), where NFC may change a text (`nfc`), and the spaces
//! of SentencePiece (`spaces`), which the encoder puts without a copy of the text.

mod characters;
mod forms;
pub mod nfc;
mod nfc_ranges;
pub mod spaces;

use std::borrow::Cow;
use std::sync::Arc;

pub use crate::normalize::characters::CharacterMap;
use crate::normalize::characters::push;
pub use crate::normalize::forms::{Form, FormTables};
use crate::split::Pattern;
use crate::stop::{self, StopFlag, Stopped};

pub enum Step {
    Form(Form),
    Map(CharacterMap),
    /// Removes white space.
    Strip {
        left: bool,
        right: bool,
    },
    Prepend(String),
    /// Every occurrence of a text that is not empty becomes another text.
    Replace(String, String),
    /// Every pre-token of a pattern that drops the rest, a match, becomes a text.
    ReplaceMatches(Arc<Pattern>, String),
}

pub struct Normalizer {
    pub steps: Vec<Step>,
}

impl Normalizer {
    /// The normalized text. With `begins_part` false, `text` continues one: nothing is put before it,
    /// and its start is not stripped.
    pub fn normalize<'t>(&self, text: &'t str, begins_part: bool) -> Result<Cow<'t, str>, Stopped> {
        let flag = stop::current();
        let mut text = Cow::Borrowed(text);
        for step in &self.steps {
            stop::check(&flag)?;
            if let Some(changed) = step.apply(&text, begins_part, &flag)? {
                text = Cow::Owned(changed);
            }
        }
        Ok(text)
    }
}

impl Step {
    /// None if `text` does not change.
    fn apply(
        &self,
        text: &str,
        begins_part: bool,
        flag: &Option<StopFlag>,
    ) -> Result<Option<String>, Stopped> {
        let mut out = String::new();
        match self {
            Step::Form(form) => return form.apply(text, flag),
            Step::Map(map) => return map.apply(text, flag),
            Step::Strip { left, right } => {
                let mut kept = text;
                if *left && begins_part {
                    kept = kept.trim_start();
                }
                if *right {
                    kept = kept.trim_end();
                }
                if kept.len() == text.len() {
                    return Ok(None);
                }
                push(&mut out, kept)?;
            }
            Step::Prepend(_) if text.is_empty() || !begins_part => return Ok(None),
            Step::Prepend(content) => {
                push(&mut out, content)?;
                push(&mut out, text)?;
            }
            Step::Replace(pattern, content) => {
                let mut copied = 0;
                for (at, found) in text.match_indices(&**pattern) {
                    push(&mut out, &text[copied..at])?;
                    push(&mut out, content)?;
                    copied = at + found.len();
                }
                if copied == 0 {
                    return Ok(None);
                }
                push(&mut out, &text[copied..])?;
            }
            Step::ReplaceMatches(pattern, content) => {
                let (start, mut copied, mut done) = (text.as_ptr().addr(), 0, Ok(()));
                pattern.scanner().for_each(text, |found| {
                    let at = found.as_ptr().addr() - start;
                    done = done
                        .and_then(|()| push(&mut out, &text[copied..at]))
                        .and_then(|()| push(&mut out, content));
                    copied = at + found.len();
                })?;
                done?;
                if copied == 0 {
                    return Ok(None);
                }
                push(&mut out, &text[copied..])?;
            }
        }
        Ok(Some(out))
    }
}
