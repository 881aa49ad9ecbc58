//! One text encoded in chunks that need not start at a boundary, with the ids of one scan.
//!
//! No grammar looks behind, so two scans that share one boundary agree from there on. Each chunk is
//! scanned as if it began with a boundary, and remembers its first ones. Joining, which `tasks.rs`
//! does, goes from the left: from where the ids so far end, pieces are encoded one by one until a
//! boundary of the next chunk is met; its ids before that are dropped. This needs no place where a
//! cut is known to be safe, so it works for Chinese and minified code too. Where a chunk is never
//! met its text is encoded again while joining: the result is the same, only slower.

use crate::encoder::Encoder;
use crate::scan::Scanner;

/// Boundaries that a chunk remembers. Scans of ordinary text meet within a few.
const REMEMBERED: usize = 256;
/// A piece that reaches out of its chunk and is longer than this is left to the joining, so that
/// text without any boundary is not merged once by every chunk.
const MAX_OVERHANG: usize = 1 << 14;

/// What one thread made of a chunk.
pub(crate) struct Chunk {
    pub ids: Vec<u32>,
    /// Boundaries from the start of the chunk on, and how many of its ids lie before each.
    pub boundaries: Vec<(usize, usize)>,
    /// Where its last piece ends.
    pub end: usize,
}

impl Encoder {
    /// The pieces of `text` that start between `start` and `end`, as far as a scan from `start` tells.
    pub(crate) fn encode_chunk(
        &self,
        scanner: Scanner,
        text: &str,
        start: usize,
        end: usize,
    ) -> Chunk {
        let mut ids = Vec::with_capacity((end - start) / 4);
        let mut boundaries = Vec::with_capacity(REMEMBERED);
        let mut at = start;
        // The first pieces one by one, to know how many ids lie before each boundary.
        while at < end && boundaries.len() < REMEMBERED {
            boundaries.push((at, ids.len()));
            let piece_end = scanner.advance(text.as_bytes(), at);
            if piece_end > end && piece_end - at > MAX_OVERHANG {
                return Chunk {
                    ids,
                    boundaries,
                    end: at,
                };
            }
            self.encode_pieces([&text[at..piece_end]].into_iter(), &mut ids);
            at = piece_end;
        }
        at = self.encode_between(scanner, text, at, end, MAX_OVERHANG, &mut ids);
        Chunk {
            ids,
            boundaries,
            end: at,
        }
    }

    /// Appends the ids of pieces from the boundary `at` on, one by one, until `at` is one of
    /// `boundaries`, or `end` or more. Returns what stands with the boundary that was met.
    pub(crate) fn encode_until_met(
        &self,
        scanner: Scanner,
        text: &str,
        at: &mut usize,
        end: usize,
        boundaries: &[(usize, usize)],
        out: &mut Vec<u32>,
    ) -> Option<usize> {
        let mut boundaries = boundaries.iter().peekable();
        while *at < end {
            while boundaries
                .next_if(|(boundary, _)| *boundary < *at)
                .is_some()
            {}
            if let Some((_, n_before)) = boundaries.next_if(|(boundary, _)| *boundary == *at) {
                return Some(*n_before);
            }
            let piece_end = scanner.advance(text.as_bytes(), *at);
            self.encode_pieces([&text[*at..piece_end]].into_iter(), out);
            *at = piece_end;
        }
        None
    }
}

/// The first place from `at` on where a character starts or the text ends.
pub(crate) fn start_of_character(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::documents::SpecialTokens;
    use crate::encoder::tests::encoder;

    /// Texts of parts on which scans that start in their middle go astray.
    pub fn texts() -> Vec<String> {
        let parts = [
            "the ",
            "  ",
            "\n",
            "\r\n",
            "'ll",
            "1234",
            "ABCd",
            "\u{4e2d}\u{6587}",
            "\u{301}",
            "...",
            "/\n",
            "\u{3000}",
            "x",
            "\u{1f642}",
            " \n ",
            "'",
            "aB\u{2b0}C",
        ];
        let mut state = 1u64;
        (0..60)
            .map(|round| {
                let mut text = String::new();
                for _ in 0..round * 4 {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let times = if state >> 60 == 0 { 40 } else { 1 };
                    text += &parts[(state >> 33) as usize % parts.len()].repeat(times);
                }
                text
            })
            .collect()
    }

    #[test]
    fn any_chunks_and_threads_give_the_ids_of_one_scan() {
        let (encoder, specials) = (encoder(), SpecialTokens::none());
        for text in texts() {
            for (name, scanner) in Scanner::NAMES {
                let mut expected = Vec::new();
                encoder.encode(scanner, &text, &mut expected);
                for chunk_bytes in [2, 3, 7, 16, 64, 1000] {
                    for n_threads in [1, 3] {
                        let sizes = (1, 2 * chunk_bytes, n_threads);
                        let texts = [&text[..]];
                        let batch =
                            encoder.encode_texts_in_tasks(scanner, &specials, &texts, sizes);
                        assert_eq!(batch.ids, expected, "{name} {chunk_bytes} {text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_texts_and_texts_without_a_boundary_are_cut_alike() {
        let (encoder, specials) = (encoder(), SpecialTokens::none());
        for text in [
            "the cat's hat\n\n  12345 \u{4e2d}\u{6587}".repeat(60_000),
            "a".repeat(3 << 20),
            " ".repeat(3 << 20),
            format!("{} {}", "\u{4e2d}".repeat(700_000), "b c ".repeat(200_000)),
        ] {
            for (_, scanner) in Scanner::NAMES {
                let mut expected = Vec::new();
                encoder.encode(scanner, &text, &mut expected);
                let batch = encoder.encode_texts(scanner, &specials, &[&text[..]], 4);
                assert!(batch.ids == expected);
            }
        }
    }
}
