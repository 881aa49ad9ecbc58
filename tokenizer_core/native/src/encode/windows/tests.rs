use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::encode::specials::tests::{TOKENS, texts};
use crate::encode::tasks;
use crate::encode::tests::encoder;

/// A text that has no memory for its UTF-8 so many times, and none at all with U+FFFD.
pub struct Characters(pub Vec<char>, AtomicUsize);

impl Characters {
    pub fn of(text: &str) -> Characters {
        Characters(text.chars().collect(), 0.into())
    }
}

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
        let refusal = |n: usize| n.checked_sub(1);
        if self.1.fetch_update(Relaxed, Relaxed, refusal).is_ok() {
            return Err(Stopped::NoMemory);
        }
        let characters = &self.0[window];
        own.extend(characters);
        let is_broken = characters.contains(&'\u{fffd}');
        if is_broken {
            Err(Stopped::TooSlow)
        } else {
            Ok(())
        }
    }
}

#[test]
fn windows_of_any_size_and_threads_give_the_ids_of_each_text() {
    let encoder = encoder();
    for specials in [SpecialTokens::none(), SpecialTokens::new(&TOKENS).unwrap()] {
        for texts in [texts(), tasks::tests::texts()] {
            let characters: Vec<_> = texts.iter().map(|text| Characters::of(text)).collect();
            for (name, scanner) in Scanner::NAMES {
                let mut expected = Encoded::default();
                for (text, characters) in texts.iter().zip(&characters) {
                    let ids = &mut expected.ids;
                    let n_before = ids.len();
                    let done = encoder.encode_document(scanner, &specials, text, ids);
                    let counted = encoder.count_document(scanner, &specials, characters, None);
                    assert_eq!((done, counted), (Ok(()), Ok(ids.len() - n_before)));
                    expected.ends.push(ids.len() as u64);
                }
                for sizes in [(1, 1), (2, 3), (5, 3), (17, 2), (64, 4), (1 << 20, 2)] {
                    let of_texts = encoder.encode_in_windows(scanner, &specials, &texts, sizes);
                    let written = encoder.encode_in_windows(scanner, &specials, &characters, sizes);
                    assert!(of_texts.unwrap() == expected, "{name} {sizes:?}");
                    assert!(written.unwrap() == expected, "{name} {sizes:?}");
                }
            }
        }
    }
}

#[test]
fn a_text_is_cut_where_it_can_be_and_a_special_token_never() {
    let windows = |text: &str, tokens: &[(&str, u32)]| -> Vec<String> {
        let specials = SpecialTokens::new(tokens).unwrap();
        let characters = [Characters::of(text)];
        Tasks::of(&characters, Scanner::Gpt2, &specials, 1)
            .map(|task| {
                characters[0].0[task.unwrap()[0].window.clone()]
                    .iter()
                    .collect()
            })
            .collect()
    };
    let text = "one, 12 e\u{301}t's\u{4e2d}\u{6587}\u{3002}\n <|a b|>";
    let all = ["one", ",", " 12", " e\u{301}t's\u{4e2d}\u{6587}"];
    let beyond = ["\u{3002}\n <|a", " b", "|>"];
    assert_eq!(windows(text, &[]), [&all[..], &beyond].concat());
    let whole = ["\u{3002}\n <|a b|>"];
    assert_eq!(
        windows(text, &[("<|a b|>", 1)]),
        [&all[..], &whole].concat()
    );
    assert_eq!(windows("", &[]), [""]);
}

#[test]
fn a_text_that_cannot_be_written_is_an_error_by_any_threads() {
    let (encoder, none) = (encoder(), SpecialTokens::none());
    let text = "the other ".repeat(50_000) + "\u{fffd}" + &" the other".repeat(50_000);
    let broken = || Characters::of(&text);
    let texts = [Characters::of("the"), broken(), broken()];
    for n_threads in [1, 3] {
        let result = encoder.encode_texts(Scanner::Gpt2, &none, &texts, n_threads);
        assert_eq!(result, Err((1, Stopped::TooSlow)));
    }
}

#[test]
fn one_thread_encodes_what_several_have_no_memory_for() {
    let (encoder, none) = (encoder(), SpecialTokens::none());
    let text = "the other, ".repeat(200);
    let mut expected = Vec::new();
    let whole = encoder.encode_document(Scanner::Gpt2, &none, &text, &mut expected);
    whole.unwrap();
    let encode = |n_refusals: usize, n_threads| {
        let text = Characters(text.chars().collect(), n_refusals.into());
        let encoded = encoder.encode_in_windows(
            Scanner::Gpt2,
            &none,
            std::slice::from_ref(&text),
            (100, n_threads),
        );
        (encoded.map(|encoded| encoded.ids), text.1.into_inner())
    };
    let refused = Err((0, Stopped::NoMemory));
    assert_eq!(encode(0, 3), (Ok(expected.clone()), 0));
    // No thread takes a task after the first refusal, so that each meets one at most.
    assert_eq!(encode(1, 3), (Ok(expected), 0));
    assert_eq!(encode(1, 1), (refused.clone(), 0));
    assert_eq!(encode(usize::MAX, 3).0, refused);
}
