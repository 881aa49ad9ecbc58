//! Texts with special tokens: found leftmost, then longest; one text or many, in tasks of any size,
//! by several threads, or one in windows of any size, compared with trying every position.
#![no_main]

use fuzzing::definitions::ends_by_scanner;
use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::{Lasting, lasting};
use libfuzzer_sys::fuzz_target;
use std::ops::Range;
use tokenizer_native::encode::windows::Source;
use tokenizer_native::encode::{Encoded, specials::SpecialTokens};
use tokenizer_native::stop::Stopped;

const TOKENS: [&str; 10] = [
    "<|endoftext|>",
    "<|endoftext|><|endoftext|>",
    "<",
    "  ",
    "\n\n",
    "'s",
    "中",
    " the",
    "é|",
    "a",
];

/// Ids that are none of a vocabulary's.
const FIRST_ID: u32 = 1 << 19;

struct Characters(Vec<char>);

impl Source for Characters {
    type Error = Stopped;

    fn n_characters(&self) -> usize {
        self.0.len()
    }

    fn max_bytes(&self) -> usize {
        4 * self.0.len()
    }

    fn around(&self, position: usize) -> Option<(u32, u32)> {
        Some((self.0[position - 1].into(), self.0[position].into()))
    }

    fn as_utf8(&self) -> Option<&str> {
        None
    }

    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), Stopped> {
        own.extend(&self.0[window]);
        Ok(())
    }
}

fn encode_slowly(chosen: &Lasting, specials: &[(&str, u32)], text: &str) -> Vec<u32> {
    let (mut ids, mut start, mut at) = (Vec::new(), 0, 0);
    let plain = |part: &str| {
        let ends = ends_by_scanner(chosen.scanner, part);
        chosen.both.definition.encode_all(part, &ends)
    };
    while at < text.len() {
        let found = (specials.iter())
            .filter(|(token, _)| text.as_bytes()[at..].starts_with(token.as_bytes()))
            .max_by_key(|(token, _)| token.len());
        if let Some((token, id)) = found {
            ids.extend(plain(&text[start..at]));
            ids.push(*id);
            at += token.len();
            start = at;
        } else {
            at += 1;
        }
    }
    ids.extend(plain(&text[start..]));
    ids
}

fuzz_target!(|data: &[u8]| {
    let all = lasting();
    let mut choices = Choices(data);
    let chosen = &all[choices.below(all.len())];
    let kept = u16::from_le_bytes([choices.byte(), choices.byte()]);
    let sizes = (1 + choices.below(80), 1 + choices.below(3));
    let limit = usize::from(choices.byte());
    let separator = TOKENS[choices.below(TOKENS.len())];
    let specials: Vec<(&str, u32)> = (TOKENS.into_iter().zip(FIRST_ID..))
        .filter(|(_, id)| kept >> (id - FIRST_ID) & 1 != 0)
        .collect();
    let text = text_of(choices.rest(), 1200);
    let texts: Vec<&str> = text.split(separator).collect();

    let found = SpecialTokens::new(&specials).expect("few tokens");
    let (encoder, scanner) = (&chosen.both.encoder, chosen.scanner);
    let mut expected = Encoded::default();
    for text in texts.iter().chain([&&text[..]]) {
        let ids = encode_slowly(chosen, &specials, text);
        let mut document = Vec::new();
        let done = encoder.encode_document(scanner, &found, text, &mut document);
        assert_eq!(done, Ok(()));
        assert_eq!(document, ids, "{} {specials:?} {text:?}", chosen.name);
        assert_eq!(
            encoder.count_document(scanner, &found, text, None),
            Ok(ids.len())
        );
        let counted = encoder.count_document(scanner, &found, text, Some(limit));
        assert_eq!(counted.map(|n| n > limit), Ok(ids.len() > limit));
        expected.ids.extend(ids);
        expected.ends.push(expected.ids.len() as u64);
    }
    let texts: Vec<&str> = texts.into_iter().chain([&text[..]]).collect();
    let of_texts = encoder.encode_in_windows(scanner, &found, &texts, sizes);
    let written = texts.iter().map(|text| Characters(text.chars().collect()));
    let written: Vec<Characters> = written.collect();
    let of_characters = encoder.encode_in_windows(scanner, &found, &written, sizes);
    for batch in [of_texts, of_characters] {
        assert_eq!(
            batch.expect("memory for short texts"),
            expected,
            "{} {specials:?} {texts:?} {sizes:?}",
            chosen.name
        );
    }
});
