use std::sync::Arc;

use super::*;
use crate::decode::vocabulary::Vocabulary;
use crate::encode::specials::SpecialTokens;
use crate::encode::{MissingBytes, Start};
use crate::mem::sections::reseal;
use crate::split::Scanner;
use crate::split::automaton::{Automaton, Behavior, StepTables};

const KEY: [u8; 32] = *b"what the encoder was built from.";

const TEXT: &str = "the other the\n  caf\u{e9} \u{e9}\u{e9} the\u{4e2d}\u{4e2d}\u{6587} th";

fn tokens(suffix: &str) -> Vec<Vec<u8>> {
    #[rustfmt::skip]
    let joined = [
        "th", "the", " t", " the", "  ", "\u{e9}", "\u{4e2d}", "\u{4e2d}\u{6587}", "zzz",
    ];
    let ends = (0..=255u8)
        .filter(|_| !suffix.is_empty())
        .map(|byte| vec![byte, b'@']);
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    bytes
        .chain(joined.map(|token| token.as_bytes().to_vec()))
        .chain(ends)
        .collect()
}

/// Of each kind, with what only some vocabularies have: tokens that are taken whole, unknown bytes, marks
/// of the ends of words, characters to start from.
fn encoders() -> Vec<Encoder> {
    let build = |suffix: &str, merges: Option<&[(u32, u32, u32)]>, from: Start| {
        let tokens = tokens(suffix);
        let known: Vec<(&[u8], u32)> = tokens.iter().map(|t| &t[..]).zip(0..).collect();
        let known = match &from.missing {
            Some(missing) => known
                .into_iter()
                .filter(|t| t.0.len() > 1 || !missing.has(t.0[0]))
                .collect(),
            None => known,
        };
        let vocabulary = Vocabulary::new(known.iter().map(|&(t, id)| (id, t)).collect());
        Encoder::build(vocabulary, &known, merges, true, from).unwrap()
    };
    // Ids of the products from 256 on, in another order than the ranks.
    let merges = [
        (116, 104, 256),
        (256, 101, 257),
        (32, 257, 259),
        (32, 116, 258),
        (195, 169, 261),
    ];
    let missing = MissingBytes::new(b"o", Some(97), true, b" ");
    vec![
        build("", None, Start::default()),
        build("", Some(&merges), Start::default()),
        build(
            "",
            Some(&merges),
            Start {
                by_characters: true,
                ..Start::default()
            },
        ),
        build(
            "",
            Some(&merges),
            Start {
                missing: Some(missing),
                ..Start::default()
            },
        ),
        build(
            "@",
            Some(&merges),
            Start {
                word_ends: Some(std::array::from_fn(|byte| 265 + byte as u32)),
                ..Start::default()
            },
        ),
    ]
}

/// Blanks, and all else.
fn automaton() -> Pattern {
    let moves = vec![0, 0, 0, 3, 2, 0, 3, 2, 1 << 31, 3, 1 << 31, 1 << 31];
    let step = StepTables {
        moves,
        behavior: Behavior::Isolated,
        invert: false,
        drops_unmatched: false,
    };
    let cuts = vec![true, false, false, true];
    let built = Automaton::build(&[0, 32, 33], &[0, 1, 0], vec![step], cuts, None);
    Pattern::Automaton(Box::new(built.unwrap()))
}

fn files() -> Vec<(Vec<u32>, Vec<u8>)> {
    let file = |(number, encoder): (usize, Encoder)| {
        let pattern = match number % 2 {
            0 => Pattern::Named(Scanner::O200k),
            _ => automaton(),
        };
        let content = compile(
            &encoder,
            Some(&pattern),
            KEY,
            &[(b"spec", b"{}"), (b"", b"")],
        );
        let pattern = Some(Arc::new(pattern));
        (ids_of(&encoder, &pattern), content)
    };
    encoders().into_iter().enumerate().map(file).collect()
}

/// The ids of a text, also of one that is merged in windows, and their bytes.
fn ids_of(encoder: &Encoder, pattern: &Option<Arc<Pattern>>) -> Vec<u32> {
    let scanner = pattern
        .as_ref()
        .map_or(Scanner::Gpt2, |pattern| pattern.scanner());
    let long = "the".repeat(30_000) + TEXT;
    let mut ids = Vec::new();
    for text in [TEXT, TEXT, &long] {
        // A forged pattern may read too much again.
        let _ = encoder.encode_document(scanner, &SpecialTokens::none(), text, &mut ids);
    }
    encoder.vocabulary().append(&ids, &mut Vec::new()).unwrap();
    ids
}

fn open(content: &[u8]) -> Result<Compiled, Unusable> {
    Compiled::of(Image::copied(content), KEY)
}

#[test]
fn an_opened_encoder_gives_the_same_ids_and_what_was_added() {
    for (ids, content) in files() {
        let opened = open(&content).unwrap();
        assert_eq!(ids_of(&opened.encoder, &opened.pattern), ids);
        let extras: Vec<(&[u8], &[u8])> = opened.extras.iter().map(|(n, c)| (&**n, &**c)).collect();
        assert_eq!(extras, [(&b"spec"[..], &b"{}"[..]), (b"", b"")]);
        // What is written once more is the same.
        let pattern = opened.pattern.as_deref();
        assert!(compile(&opened.encoder, pattern, KEY, &extras) == content);
    }
}

/// With a checksum that fits, so that only the checks of each section are in the way.
#[test]
fn forged_sections_are_refused_or_stay_within_their_tables() {
    let mut random = crate::random::below(5);
    let mut n_opened = 0;
    for (_, content) in files() {
        let sections = section_starts(&content);
        for round in 0..8 * sections.len() {
            let mut changed = content.clone();
            for _ in 0..1 + random(3) {
                let (start, end) = sections[round % sections.len()];
                // Often a number near an end, which is the first or the last.
                let n_words = (end - start).div_ceil(4).max(1);
                let word = [
                    random(n_words),
                    random(n_words.min(16)),
                    n_words - 1 - random(n_words.min(4)),
                ][random(3)];
                let value: u32 = [0, 1, 255, 256, 1 << 20, 0xFF_FFFF, 1 << 31, u32::MAX][random(8)];
                let at = start + 4 * word;
                changed[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            }
            reseal(&mut changed);
            if let Ok(opened) = open(&changed) {
                ids_of(&opened.encoder, &opened.pattern);
                n_opened += 1;
            }
        }
    }
    // Not everything is refused: else this test would test nothing.
    assert!(n_opened > 40, "{n_opened}");
}

/// Where the sections begin and end, with the sizes of all as the first; none is empty.
fn section_starts(content: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u64::from_ne_bytes(*content[at..].first_chunk().unwrap()) as usize;
    let n = word(56);
    let mut at = 64 + (8 * n).next_multiple_of(64);
    let mut found = vec![(64, 64 + 8 * n)];
    for number in 0..n {
        let end = at + word(64 + 8 * number);
        if end > at {
            found.push((at, end));
        }
        at = end.next_multiple_of(64);
    }
    found
}
