//! Texts with special tokens: found leftmost, then longest, with flags or without; spaces put before
//! the parts between them; one text or many, in tasks of any size, by several threads, or one in
//! windows of any size, compared with trying every position.
#![no_main]

use fuzzing::definitions::ends_by_scanner;
use fuzzing::inputs::{Choices, text_of};
use fuzzing::tokenizers::{Lasting, lasting};
use libfuzzer_sys::fuzz_target;
use std::ops::Range;
use tokenizer_native::encode::flagged_tokens::{FlaggedToken, FlaggedTokens, Flags};
use tokenizer_native::encode::windows::Source;
use tokenizer_native::encode::{Encoded, specials::SpecialTokens};
use tokenizer_native::normalize::spaces::Spaces;
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

/// The characters of words: not all letters, so that tokens have others too.
const WORDS: [(u32, u32); 3] = [(0x61, 0x74), (0xE9, 0xE9), (0x4E2D, 0x4E2D)];

const SPACES: [&str; 6] = [
    "none",
    "metaspace",
    "metaspace-prepend",
    "metaspace-always",
    "metaspace-first",
    "prefix-space",
];

/// A token of the text, which includes white space beside it, and where the plain text before begins.
struct Span {
    plain_start: usize,
    range: Range<usize>,
    id: u32,
}

/// The tokens of one text: those of `passes[0]`, and in each part between them those of the others.
fn find_slowly(passes: &[&[FlaggedToken]], text: &str) -> Vec<Span> {
    let Some((tokens, later)) = passes.split_first() else {
        return Vec::new();
    };
    let of_later = |part: Range<usize>| {
        let spans = find_slowly(later, text.get(part.clone()).unwrap_or(""));
        spans.into_iter().map(move |span| Span {
            plain_start: part.start + span.plain_start,
            range: part.start + span.range.start..part.start + span.range.end,
            ..span
        })
    };
    let is_word = |c: Option<char>| {
        let is_in = |c: char| WORDS.iter().any(|&(a, z)| (a..=z).contains(&c.into()));
        c.is_some_and(is_in)
    };
    let (mut spans, mut plain_start, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        let found = (tokens.iter())
            .filter(|token| text.as_bytes()[at..].starts_with(token.content.as_bytes()))
            .max_by_key(|token| token.content.len());
        let Some(&FlaggedToken { content, id, flags }) = found else {
            at += 1;
            continue;
        };
        let (mut start, mut end) = (at, at + content.len());
        at = end;
        let (before, after) = (&text[..start], &text[end..]);
        if flags.is_word && (is_word(before.chars().next_back()) || is_word(after.chars().next())) {
            continue;
        }
        if flags.strips_left {
            let plain = text.get(plain_start..start).unwrap_or("");
            start = plain_start + plain.trim_end().len();
        }
        if flags.strips_right {
            end += after.len() - after.trim_start().len();
        }
        let mut span = Span {
            plain_start,
            range: start..end,
            id,
        };
        for within in of_later(plain_start..start) {
            span.plain_start = within.range.end;
            spans.push(within);
        }
        spans.push(span);
        plain_start = end;
    }
    spans.extend(of_later(plain_start..text.len()));
    spans
}

/// A part between tokens as the normalizer of this name gives it.
fn normalized(name: &str, part: &str, is_first: bool) -> String {
    let is_read = name.starts_with("metaspace");
    let read = part.replace('\u{2581}', if is_read { " " } else { "\u{2581}" });
    let is_put = match name {
        "metaspace-prepend" => true,
        "metaspace-always" | "prefix-space" => !read.starts_with(' '),
        "metaspace-first" => is_first && !read.starts_with(' '),
        _ => false,
    };
    let space = if is_put && !part.is_empty() { " " } else { "" };
    format!("{space}{read}")
}

fn encode_slowly(
    chosen: &Lasting,
    passes: &[&[FlaggedToken]],
    spaces: &str,
    text: &str,
) -> Vec<u32> {
    let (mut ids, mut start) = (Vec::new(), 0);
    let plain = |part: &str, is_first: bool| {
        let part = normalized(spaces, part, is_first);
        let ends = ends_by_scanner(chosen.scanner, &part);
        chosen.both.definition.encode_all(&part, &ends)
    };
    for (number, span) in find_slowly(passes, text).into_iter().enumerate() {
        let part = text.get(span.plain_start..span.range.start).unwrap_or("");
        ids.extend(plain(part, number == 0));
        ids.push(span.id);
        start = span.range.end;
    }
    ids.extend(plain(&text[start..], start == 0));
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
    let spaces = SPACES[choices.below(SPACES.len())];
    let has_flags = choices.byte() & 1 != 0;
    let flags: Vec<u8> = TOKENS.iter().map(|_| choices.byte()).collect();
    let specials: Vec<(&str, u32)> = (TOKENS.into_iter().zip(FIRST_ID..))
        .filter(|(_, id)| kept >> (id - FIRST_ID) & 1 != 0)
        .collect();
    let of_pass = |pass: bool| -> Vec<FlaggedToken> {
        let tokens = specials.iter().map(|&(content, id)| {
            let bits = match has_flags {
                true => flags[(id - FIRST_ID) as usize],
                false => 0,
            };
            let token = FlaggedToken {
                content,
                id,
                flags: Flags {
                    strips_left: bits & 1 != 0,
                    strips_right: bits & 2 != 0,
                    is_word: bits & 4 != 0,
                },
            };
            (bits & 8 != 0, token)
        });
        let tokens = tokens.filter(|(is_later, _)| *is_later == pass);
        tokens.map(|(_, token)| token).collect()
    };
    let (first, later) = (of_pass(false), of_pass(true));
    let text = text_of(choices.rest(), 1200);
    let texts: Vec<&str> = text.split(separator).collect();

    let mut found = SpecialTokens::new(&specials).expect("few tokens");
    if has_flags {
        let flagged = FlaggedTokens::new(&first, &later, WORDS.to_vec());
        found = found.with_flags(flagged.expect("few tokens"));
    }
    let found = found.with_spaces(Spaces::named(spaces).expect("a name"));
    let (encoder, scanner) = (&chosen.both.encoder, chosen.scanner);
    let mut expected = Encoded::default();
    for text in texts.iter().chain([&&text[..]]) {
        let ids = encode_slowly(chosen, &[&first, &later], spaces, text);
        let mut document = Vec::new();
        let done = encoder.encode_document(scanner, &found, text, &mut document);
        assert_eq!(done, Ok(()));
        let what = format!("{} {spaces} {specials:?} {flags:?}", chosen.name);
        assert_eq!(document, ids, "{what} {text:?}");
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
            "{} {spaces} {specials:?} {flags:?} {texts:?} {sizes:?}",
            chosen.name
        );
    }
});
