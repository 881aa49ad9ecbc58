//! Merging by tiny vocabularies, any order of ranks, within and across characters.
#![no_main]

use fuzzing::definitions::{assert_same, ends_by_scanner};
use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::{ALPHABETS, tiny_spec};
use libfuzzer_sys::fuzz_target;
use tokenizer_native::encode::specials::SpecialTokens;
use tokenizer_native::split::Scanner;

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let alphabet = choices.of(&ALPHABETS);
    let spec = tiny_spec(&mut choices, alphabet);
    let mut tokens: Vec<Vec<u8>> = spec.ids.keys().filter(|t| t.len() > 1).cloned().collect();
    tokens.sort();
    let both = spec.build(choices.below(3));
    // Every word of up to four characters, since making a vocabulary takes longest; then a text of
    // tokens, where they are characters, one of traps, and one of words.
    let mut pieces: Vec<String> = vec![String::new()];
    let mut shorter = 0;
    for _ in 0..4 {
        let longest = shorter..pieces.len();
        shorter = pieces.len();
        for position in longest {
            for character in alphabet {
                pieces.push(pieces[position].clone() + character);
            }
        }
    }
    let mut bytes = Vec::new();
    let mut words = String::new();
    for _ in 0..choices.byte() {
        let choice = choices.byte() as usize;
        bytes.extend_from_slice(tokens.get(choice).map_or(&[], |token| &token[..]));
        words += &pieces[choice % pieces.len()];
    }
    pieces.push(String::from_utf8_lossy(&bytes).into_owned());
    pieces.push(words);
    pieces.push(text_of(choices.rest(), 400).into());
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let expected = both.definition.encode(piece.as_bytes());
        let mut ids = Vec::new();
        let done = both
            .encoder
            .encode_pieces([&piece[..]].into_iter(), &mut ids);
        done.expect("memory for a short text");
        assert_eq!(ids, expected, "{piece:?}");
    }
    let (text, none) = (pieces.concat(), SpecialTokens::none());
    for (name, scanner) in Scanner::NAMES {
        let mut ids = Vec::new();
        let done = (both.encoder).encode_document(scanner, &none, &text, &mut ids);
        done.expect("memory for a short text");
        let ends = ends_by_scanner(scanner, &text);
        assert_same(&both.definition, &text, &ends, &ids, name);
    }
});
