//! Compiled files with any change and a checksum that fits: refused, or an encoder that stays within its
//! tables. What it gives then does not matter.
#![no_main]

use std::sync::OnceLock;

use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::lasting;
use libfuzzer_sys::fuzz_target;
use tokenizer_native::compiled::{Compiled, compile};
use tokenizer_native::encode::specials::SpecialTokens;
use tokenizer_native::mem::image::Image;
use tokenizer_native::mem::sections::reseal;
use tokenizer_native::split::automaton::{Automaton, Behavior, StepTables};
use tokenizer_native::split::{Pattern, Scanner};

const KEY: [u8; 32] = [7; 32];

/// Blanks, and all else.
fn automaton() -> Pattern {
    let step = StepTables {
        moves: vec![0, 0, 0, 3, 2, 0, 3, 2, 1 << 31, 3, 1 << 31, 1 << 31],
        behavior: Behavior::Isolated,
        invert: false,
        drops_unmatched: false,
    };
    let built = Automaton::build(&[0, 32, 33], &[0, 1, 0], vec![step], vec![true; 4], None);
    Pattern::Automaton(Box::new(built.expect("tables that fit")))
}

/// One of each kind, by a scanner and by an automaton.
fn files() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let of_kernels = lasting().iter().step_by(3).take(6);
        let file = |(number, chosen): (usize, &fuzzing::tokenizers::Lasting)| {
            let pattern = match number % 2 {
                0 => Pattern::Named(Scanner::O200k),
                _ => automaton(),
            };
            compile(&chosen.both.encoder, Some(&pattern), KEY, &[(b"a", b"b")])
        };
        of_kernels.enumerate().map(file).collect()
    })
}

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let mut content = files()[choices.below(files().len())].clone();
    let n_words = content.len() / 4;
    for _ in 0..1 + choices.below(6) {
        // Anywhere, or in the first numbers of a section, which are near the start of the file.
        let word = choices.u32() as usize
            % if choices.byte() & 1 == 0 {
                n_words
            } else {
                256
            };
        let value = choices.u32();
        content[4 * word..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    reseal(&mut content);
    let Ok(opened) = Compiled::of(Image::copied(&content), KEY) else {
        return;
    };
    let text = text_of(choices.rest(), 2000);
    let scanner = opened
        .pattern
        .as_ref()
        .map_or(Scanner::Gpt2, |pattern| pattern.scanner());
    let mut ids = Vec::new();
    for text in [&text, &*text.repeat(40)] {
        // A pattern may read too much again.
        let _ = (opened.encoder).encode_document(scanner, &SpecialTokens::none(), text, &mut ids);
    }
    let done = opened.encoder.vocabulary().append(&ids, &mut Vec::new());
    done.expect("memory for a short text");
});
