//! One text encoded by several threads, with the ids of one.
//!
//! No grammar looks behind, so two scans that share one boundary agree from there on. Each chunk is
//! scanned as if it began with a boundary, and remembers its first ones. Joining goes from the
//! left: from where the ids so far end, pieces are encoded one by one until a boundary of the next
//! chunk is met; its ids before that are dropped. This needs no place where a cut is known to be
//! safe, so it works for Chinese and minified code too. Where a chunk is never met its text is
//! encoded again while joining: the result is the same, only slower.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::encoder::Encoder;
use crate::scan::Scanner;

/// Texts are cut in chunks of this size, or a few for each thread where that is more; shorter texts
/// are not cut, since starting a thread costs as much as encoding some ten kilobytes.
pub(crate) const MIN_CHUNK_BYTES: usize = 1 << 18;
const CHUNKS_PER_THREAD: usize = 4;
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
    /// Appends the ids of `text`, as `encode` does, with up to `n_threads` threads.
    pub fn encode_with_threads(
        &self,
        scanner: Scanner,
        text: &str,
        n_threads: usize,
        out: &mut Vec<u32>,
    ) {
        let n_threads = n_threads.min(text.len() / MIN_CHUNK_BYTES);
        if n_threads <= 1 {
            return self.encode(scanner, text, out);
        }
        let chunk_bytes = text.len().div_ceil(n_threads * CHUNKS_PER_THREAD);
        self.encode_chunks(
            scanner,
            text,
            n_threads,
            chunk_bytes.max(MIN_CHUNK_BYTES),
            out,
        );
    }

    /// As `encode_with_threads`, with chunks of any size: what the fuzz target `encode` asks for.
    #[doc(hidden)]
    pub fn encode_chunks(
        &self,
        scanner: Scanner,
        text: &str,
        n_threads: usize,
        chunk_bytes: usize,
        out: &mut Vec<u32>,
    ) {
        let starts: Vec<usize> = (0..text.len())
            .step_by(chunk_bytes)
            .map(|at| start_of_character(text, at))
            .collect();
        let end_of = |chunk: usize| starts.get(chunk + 1).copied().unwrap_or(text.len());
        let chunks: Vec<Mutex<Option<Chunk>>> = starts.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let number = next.fetch_add(1, Relaxed);
                let Some(place) = chunks.get(number) else {
                    return;
                };
                let chunk = self.encode_chunk(scanner, text, starts[number], end_of(number));
                *place.lock().expect("no thread panics with it") = Some(chunk);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..n_threads {
                // Where the system refuses another thread, those that are there do the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let chunks: Vec<Chunk> = chunks
            .into_iter()
            .map(|chunk| {
                chunk
                    .into_inner()
                    .expect("all threads have ended")
                    .expect("all are done")
            })
            .collect();
        self.join(scanner, text, &chunks, end_of, out);
    }

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

    fn join(
        &self,
        scanner: Scanner,
        text: &str,
        chunks: &[Chunk],
        end_of: impl Fn(usize) -> usize,
        out: &mut Vec<u32>,
    ) {
        out.reserve(chunks.iter().map(|chunk| chunk.ids.len()).sum());
        let mut at = 0;
        for (number, chunk) in chunks.iter().enumerate() {
            let end = end_of(number);
            let met = self.encode_until_met(scanner, text, &mut at, end, &chunk.boundaries, out);
            if let Some(n_before) = met {
                out.extend_from_slice(&chunk.ids[n_before..]);
                at = chunk.end;
                // Only a piece that was left out, or nothing, lies before the next chunk.
                self.encode_until_met(scanner, text, &mut at, end, &[], out);
            }
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
mod tests {
    use super::*;
    use crate::encoder::tests::encoder;

    /// Texts of parts on which scans that start in their middle go astray.
    fn texts() -> Vec<String> {
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
        let encoder = encoder();
        for text in texts() {
            for (name, scanner) in Scanner::NAMES {
                let mut expected = Vec::new();
                encoder.encode(scanner, &text, &mut expected);
                for chunk_bytes in [1, 2, 3, 7, 16, 64, 1000] {
                    let mut ids = Vec::new();
                    encoder.encode_chunks(scanner, &text, 1, chunk_bytes, &mut ids);
                    assert_eq!(ids, expected, "{name} {chunk_bytes} {text:?}");
                }
                let mut ids = Vec::new();
                encoder.encode_chunks(scanner, &text, 3, 50, &mut ids);
                assert_eq!(ids, expected);
            }
        }
    }

    #[test]
    fn long_texts_and_texts_without_a_boundary_are_cut_alike() {
        let encoder = encoder();
        for text in [
            "the cat's hat\n\n  12345 \u{4e2d}\u{6587}".repeat(60_000),
            "a".repeat(3 << 20),
            " ".repeat(3 << 20),
            format!("{} {}", "\u{4e2d}".repeat(700_000), "b c ".repeat(200_000)),
        ] {
            for (_, scanner) in Scanner::NAMES {
                let (mut expected, mut ids) = (Vec::new(), Vec::new());
                encoder.encode(scanner, &text, &mut expected);
                encoder.encode_with_threads(scanner, &text, 4, &mut ids);
                assert!(ids == expected);
            }
        }
    }
}
