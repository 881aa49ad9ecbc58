//! One text encoded a window at a time, each written as UTF-8 when it is its turn, with the ids of one scan.
//!
//! Each thread writes those it encodes: of a long text no UTF-8 is ever there as a whole. Windows are cut
//! where `safe_cuts.rs` says, and between no two characters that stand so in a special token, so that none
//! is cut in two. That depends on two characters alone, so it can be looked for from anywhere.

use std::ops::Range;

use crate::documents::{Batch, MIN_BYTES_PER_THREAD, SpecialTokens, room_for_ids_of};
use crate::encoder::Encoder;
use crate::safe_cuts::is_safe_cut;
use crate::scan::Scanner;
use crate::sink::{Appender, Counter, Sink};

/// Characters of a window, and as many more as there are to the next place for a cut: so few that the
/// memory for one is soon there, so many that what each costs beside encoding does not count; and of one
/// that several threads shall have some of.
const WINDOW: usize = 1 << 17;
const MIN_WINDOW: usize = 1 << 14;
/// Windows that each thread shall have.
const WINDOWS_PER_THREAD: usize = 8;

/// A text that UTF-8 is written of part by part. Places are counted in characters.
pub trait Unwritten: Sync {
    type Error: Send;

    fn n_characters(&self) -> usize;

    /// Bytes that all its UTF-8 has at most.
    fn n_bytes_at_most(&self) -> usize;

    /// The characters before and behind a place between two; None where it cannot be cut.
    fn around(&self, place: usize) -> Option<(u32, u32)>;

    /// Appends the UTF-8 of what stands between two places for a cut.
    fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), Self::Error>;

    /// That there is no memory for the ids.
    fn no_memory(&self) -> Self::Error;
}

impl Encoder {
    /// The ids of a text, special tokens recognised, by up to `n_threads` threads.
    pub fn encode_unwritten<U: Unwritten>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &U,
        n_threads: usize,
    ) -> Result<Vec<u32>, U::Error> {
        let n_threads = n_threads.min(text.n_bytes_at_most() / MIN_BYTES_PER_THREAD);
        let window = match n_threads {
            0 | 1 => WINDOW,
            n => (text.n_characters() / (n * WINDOWS_PER_THREAD)).clamp(MIN_WINDOW, WINDOW),
        };
        self.encode_in_windows(scanner, specials, text, (window, n_threads))
    }

    /// Appends the ids of a short text to `ids`, which are moved as they grow.
    pub fn append_unwritten<U: Unwritten>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &U,
        ids: &mut Vec<u32>,
    ) -> Result<(), U::Error> {
        self.take_windows(scanner, specials, text, WINDOW, &mut Appender { out: ids })
    }

    /// As `encode_unwritten`, in windows of any size but 0: what the fuzz target `documents` asks for.
    #[doc(hidden)]
    pub fn encode_in_windows<U: Unwritten>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &U,
        (window, n_threads): (usize, usize),
    ) -> Result<Vec<u32>, U::Error> {
        let n_bytes = text.n_bytes_at_most();
        let mut ids = room_for_ids_of(n_bytes).ok_or_else(|| text.no_memory())?;
        if n_threads > 1 && ids.try_reserve_exact(n_bytes).is_ok() {
            let mut windows = Windows::of(text, specials, window);
            let next = || windows.next();
            let encode = |own: &mut String, window: Range<usize>, made: &mut Batch| {
                own.clear();
                made.ids.reserve(window.len() / 2);
                text.append_to(own, window)?;
                self.encode_document(scanner, specials, own, &mut made.ids);
                Ok(())
            };
            let batch = self.encode_by_threads(n_threads, ids, next, encode)?;
            return Ok(batch.ids);
        }
        let mut sink = Appender { out: &mut ids };
        self.take_windows(scanner, specials, text, window, &mut sink)?;
        Ok(ids)
    }

    /// The number of ids of a text, special tokens recognised.
    pub fn count_unwritten<U: Unwritten>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &U,
    ) -> Result<usize, U::Error> {
        let mut sink = Counter::up_to(None);
        self.take_windows(scanner, specials, text, WINDOW, &mut sink)?;
        Ok(sink.n_ids)
    }

    fn take_windows<U: Unwritten>(
        &self,
        scanner: Scanner,
        specials: &SpecialTokens,
        text: &U,
        window: usize,
        sink: &mut impl Sink,
    ) -> Result<(), U::Error> {
        let mut own = String::new();
        self.with_session(scanner, |session| {
            for window in Windows::of(text, specials, window) {
                own.clear();
                text.append_to(&mut own, window)?;
                session.take_document(specials, &own, sink);
            }
            Ok(())
        })
    }
}

/// The windows of a text, in order; one at least.
struct Windows<'t, U> {
    text: &'t U,
    specials: &'t SpecialTokens,
    size: usize,
    /// Where the next one begins.
    at: Option<usize>,
}

impl<'t, U: Unwritten> Windows<'t, U> {
    fn of(text: &'t U, specials: &'t SpecialTokens, size: usize) -> Windows<'t, U> {
        let at = Some(0);
        Windows {
            text,
            specials,
            size,
            at,
        }
    }

    fn may_be_cut(&self, place: usize) -> bool {
        let around = self.text.around(place);
        around.is_some_and(|(before, behind)| {
            is_safe_cut(before, behind) && !self.specials.have_beside(before, behind)
        })
    }
}

impl<U: Unwritten> Iterator for Windows<'_, U> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let (start, n) = (self.at?, self.text.n_characters());
        let cut = (start + self.size..n).find(|&place| self.may_be_cut(place));
        self.at = cut;
        Some(start..cut.unwrap_or(n))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::documents::tests::{TOKENS, texts};
    use crate::encoder::tests::encoder;
    use crate::tasks;

    pub struct Characters(pub Vec<char>);

    impl Unwritten for Characters {
        type Error = &'static str;

        fn n_characters(&self) -> usize {
            self.0.len()
        }

        fn n_bytes_at_most(&self) -> usize {
            4 * self.0.len()
        }

        fn around(&self, place: usize) -> Option<(u32, u32)> {
            Some((self.0[place - 1].into(), self.0[place].into()))
        }

        fn append_to(&self, own: &mut String, window: Range<usize>) -> Result<(), &'static str> {
            let characters = &self.0[window];
            own.extend(characters);
            let is_broken = characters.contains(&'\u{fffd}');
            if is_broken { Err("broken") } else { Ok(()) }
        }

        fn no_memory(&self) -> &'static str {
            "no memory"
        }
    }

    #[test]
    fn windows_of_any_size_and_threads_give_the_ids_of_the_whole() {
        let encoder = encoder();
        for specials in [SpecialTokens::none(), SpecialTokens::new(&TOKENS).unwrap()] {
            for text in texts().into_iter().chain(tasks::tests::texts()) {
                let characters = Characters(text.chars().collect());
                for (name, scanner) in Scanner::NAMES {
                    let mut expected = Vec::new();
                    encoder.encode_document(scanner, &specials, &text, &mut expected);
                    for sizes in [(1, 1), (2, 1), (7, 1), (1, 3), (40, 2), (1000, 1)] {
                        let ids = encoder.encode_in_windows(scanner, &specials, &characters, sizes);
                        assert_eq!(ids.as_ref(), Ok(&expected), "{name} {sizes:?} {text:?}");
                    }
                    let counted = encoder.count_unwritten(scanner, &specials, &characters);
                    assert_eq!(counted, Ok(expected.len()));
                }
            }
        }
    }

    #[test]
    fn a_text_is_cut_where_it_can_be_and_a_special_token_never() {
        let windows = |text: &str, tokens: &[(&str, u32)]| -> Vec<String> {
            let specials = SpecialTokens::new(tokens).unwrap();
            let characters = Characters(text.chars().collect());
            Windows::of(&characters, &specials, 1)
                .map(|window| characters.0[window].iter().collect())
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
        let text = Characters(text.chars().collect());
        for n_threads in [1, 3] {
            let result = encoder.encode_unwritten(Scanner::Gpt2, &none, &text, n_threads);
            assert_eq!(result, Err("broken"));
        }
    }
}
