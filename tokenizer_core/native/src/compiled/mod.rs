//! Compiled tokenizers: an encoder with its tables and its pattern as one file, so that no process builds
//! them again (`mem::sections` has the form of the file, `mem::image` why it is not simply mapped).

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::encode::Encoder;
use crate::mem::image::Image;
use crate::mem::sections::{Identity, Reader, Unusable, Writer, check};
use crate::mem::table::Table;
use crate::split::Pattern;

/// A hash of the sources of the crate.
const LAYOUT: &str = env!("TOKENIZER_LAYOUT");

pub struct Compiled {
    pub encoder: Encoder,
    pub pattern: Option<Arc<Pattern>>,
    /// What the caller added, by name.
    pub extras: Vec<(Table<u8>, Table<u8>)>,
    /// Whether other processes may use the same memory.
    pub is_shared: bool,
}

/// Why a file was not opened.
pub enum Failure {
    Unusable(Unusable),
    Unread(io::Error),
}

impl From<Unusable> for Failure {
    fn from(error: Unusable) -> Failure {
        Failure::Unusable(error)
    }
}

fn identity_of(key: [u8; 32]) -> Identity {
    let layout = u64::from_str_radix(LAYOUT, 16).expect("the build script writes 16 digits");
    Identity { layout, key }
}

/// The content of a file. `key` identifies the source of the encoder.
pub fn compile(
    encoder: &Encoder,
    pattern: Option<&Pattern>,
    key: [u8; 32],
    extras: &[(&[u8], &[u8])],
) -> Vec<u8> {
    let mut to = Writer::default();
    to.table(&[u64::from(pattern.is_some()), extras.len() as u64]);
    encoder.write(&mut to);
    if let Some(pattern) = pattern {
        pattern.write(&mut to);
    }
    for (name, content) in extras {
        to.table(name);
        to.table(content);
    }
    to.finish(&identity_of(key))
}

impl Compiled {
    pub fn open(file: &File, key: [u8; 32]) -> Result<Compiled, Failure> {
        let image = Image::of(file).map_err(Failure::Unread)?;
        Ok(Compiled::of(
            image.ok_or(Unusable("it has no whole blocks"))?,
            key,
        )?)
    }

    /// Takes linear time; afterwards no content of the file leads out of its tables.
    pub fn of(image: Image, key: [u8; 32]) -> Result<Compiled, Unusable> {
        let from = &mut Reader::new(image, &identity_of(key))?;
        let [has_pattern, n_extras]: [u64; 2] = from.array()?;
        let encoder = Encoder::read(from)?;
        let pattern = (has_pattern != 0)
            .then(|| Pattern::read(from))
            .transpose()?;
        let mut extras = Vec::new();
        for _ in 0..n_extras {
            extras.push((from.table()?, from.table()?));
        }
        check(from.is_at_end(), "it has further sections")?;
        Ok(Compiled {
            encoder,
            pattern: pattern.map(Arc::new),
            extras,
            is_shared: from.is_shared(),
        })
    }
}

#[cfg(test)]
mod tests;
