//! Merging by tiny vocabularies, any order of ranks, within and across characters.
#![no_main]

use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::{ALPHABETS, tiny_spec};
use libfuzzer_sys::fuzz_target;
use tokenizer_native::merge::MergeScratch;

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let alphabet = choices.of(&ALPHABETS);
    let spec = tiny_spec(&mut choices, alphabet);
    let mut tokens: Vec<Vec<u8>> = spec.ids.keys().filter(|t| t.len() > 1).cloned().collect();
    tokens.sort();
    let parts = spec.build_parts();
    // Every word of up to four characters, since making a vocabulary takes longest; then a text of
    // tokens, where they are characters, and one of traps.
    let mut pieces: Vec<String> = vec![String::new()];
    let mut shorter = 0;
    for _ in 0..4 {
        let longest = shorter..pieces.len();
        shorter = pieces.len();
        for place in longest {
            for character in alphabet {
                pieces.push(pieces[place].clone() + character);
            }
        }
    }
    let mut bytes = Vec::new();
    for _ in 0..choices.byte() {
        if let Some(token) = tokens.get(choices.byte() as usize) {
            bytes.extend_from_slice(token);
        }
    }
    pieces.push(String::from_utf8_lossy(&bytes).into_owned());
    pieces.push(text_of(choices.rest(), 400).into());
    let mut scratch = MergeScratch::default();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let expected = parts.definition.encode(piece.as_bytes());
        let found = parts.encode(piece.as_bytes(), &mut scratch);
        assert_eq!(found, expected, "{piece:?}");
    }
});
