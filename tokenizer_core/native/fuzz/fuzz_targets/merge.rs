//! Merging by tiny vocabularies, any order of ranks, within and across characters.
#![no_main]

use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::tiny_spec;
use libfuzzer_sys::fuzz_target;
use tokenizer_native::merge::MergeScratch;

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let is_of_tokens = choices.byte() & 1 == 0;
    let spec = tiny_spec(&mut choices);
    let mut tokens: Vec<Vec<u8>> = spec.ids.keys().filter(|t| t.len() > 1).cloned().collect();
    tokens.sort();
    let parts = spec.build_parts();
    let text = if is_of_tokens && !tokens.is_empty() {
        let mut bytes = Vec::new();
        while !choices.is_over() && bytes.len() < 600 {
            bytes.extend_from_slice(&tokens[choices.below(tokens.len())]);
        }
        // What is no character becomes one that no merge knows.
        String::from_utf8_lossy(&bytes)
            .into_owned()
            .into_boxed_str()
    } else {
        text_of(choices.rest(), 600)
    };
    let mut scratch = MergeScratch::default();
    let halves = text.split_at(text.ceil_char_boundary(text.len() / 5));
    let pieces = [&text[..], halves.0, halves.1]
        .into_iter()
        .chain(text.split(' '));
    for piece in pieces.filter(|piece| !piece.is_empty()).take(20) {
        let expected = parts.definition.encode(piece.as_bytes());
        let found = parts.encode(piece.as_bytes(), &mut scratch);
        assert_eq!(found, expected, "{piece:?}");
    }
});
