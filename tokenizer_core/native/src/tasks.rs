//! Many texts, or the windows of one, encoded by several threads, with the ids of one.
//!
//! The texts become tasks, taken in order: a run of short segments, or a part of a long one, which
//! `parallel` knows how to scan from its middle. Whoever finishes a task puts all that is due by
//! then in its place. So the ids are copied once, while they are still in the cache, and no thread
//! waits for another.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use crate::documents::{Batch, SpecialTokens};
use crate::encoder::Encoder;
use crate::parallel::{Chunk, start_of_character};
use crate::scan::Scanner;
use crate::sink::Appender;

impl Encoder {
    /// `ids` is empty and has room for one id a byte.
    pub(crate) fn encode_tasks<T: AsRef<str> + Sync>(
        &self,
        scanner: Scanner,
        mut cutter: Cutter<'_, T>,
        n_threads: usize,
        ids: Vec<u32>,
    ) -> Batch {
        let next = || cutter.next_task();
        let encode = |task| Ok(self.run_task(scanner, task));
        let batch: Result<_, Infallible> =
            self.encode_by_threads(scanner, n_threads, ids, next, encode);
        let Ok(batch) = batch;
        batch
    }

    /// Encodes the tasks that `next` gives, in this order; fails as one of them does. `ids` is empty and has
    /// room for all.
    pub(crate) fn encode_by_threads<'t, K, E: Send>(
        &self,
        scanner: Scanner,
        n_threads: usize,
        mut ids: Vec<u32>,
        next: impl FnMut() -> Option<K> + Send,
        encode: impl Fn(K) -> Result<Made<'t>, E> + Sync,
    ) -> Result<Batch, E> {
        let output = Output {
            start: ids.as_mut_ptr(),
            capacity: ids.capacity(),
        };
        let tasks = Mutex::new((0.., next));
        let failure = Mutex::new(None);
        let assembly = Mutex::new(Assembly::default());
        // Made before there are threads: several would each make one.
        self.current_cache();
        let take = || {
            let (numbers, next) = &mut *tasks.lock().expect("cutting does not panic");
            let is_over = failure.lock().expect("nothing panics with it").is_some();
            if is_over {
                None
            } else {
                numbers.next().zip(next())
            }
        };
        let work = || {
            while let Some((number, task)) = take() {
                let made = match encode(task) {
                    Ok(made) => made,
                    Err(error) => {
                        *failure.lock().expect("nothing panics with it") = Some(error);
                        return;
                    }
                };
                let placed = assembly
                    .lock()
                    .expect("a panic ends the call")
                    .add(number, made, self, scanner);
                for (at, ids) in placed {
                    // SAFETY: `Assembly` gives every place to one block only.
                    unsafe { output.write(at, ids.as_slice()) };
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..n_threads {
                // Where the system refuses another thread, those that are there do the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        if let Some(error) = failure.into_inner().expect("all threads have ended") {
            return Err(error);
        }
        let assembly = assembly.into_inner().expect("all threads have ended");
        assert!(assembly.waiting.is_empty() && assembly.n_ids <= ids.capacity());
        // SAFETY: all threads have ended without a panic, and the blocks they wrote lie side by
        // side from 0 to `n_ids`, because each begins where the one before it ends.
        unsafe { ids.set_len(assembly.n_ids) };
        ids.shrink_to_fit();
        let ends = assembly.ends;
        Ok(Batch { ids, ends })
    }

    fn run_task<'t>(&self, scanner: Scanner, task: Task<'t>) -> Made<'t> {
        match task {
            Task::Run(segments) => {
                let (mut ids, mut ends) = (Vec::with_capacity(1 << 14), Vec::new());
                self.with_session(scanner, |session| {
                    for segment in segments {
                        match segment {
                            Segment::Plain(text) => {
                                session.take(text, &mut Appender { out: &mut ids })
                            }
                            Segment::Token(id) => ids.push(id),
                            Segment::End => ends.push(ids.len()),
                        }
                    }
                });
                Made::Run { ids, ends }
            }
            Task::Part { text, start, end } => Made::Part {
                text,
                start,
                end,
                chunk: self.encode_chunk(scanner, text, start, end),
            },
        }
    }
}

/// What stands next in the texts; `End` closes each of them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Segment<'t> {
    Plain(&'t str),
    Token(u32),
    End,
}

/// Some work for one thread.
enum Task<'t> {
    Run(Vec<Segment<'t>>),
    /// The pieces of `text` that start between `start` and `end`.
    Part {
        text: &'t str,
        start: usize,
        end: usize,
    },
}

/// Cuts texts into tasks, in order.
pub(crate) struct Cutter<'t, T> {
    specials: &'t SpecialTokens,
    texts: std::slice::Iter<'t, T>,
    /// What is left of the current text, and the special token that begins it.
    text: Option<&'t str>,
    token: Option<u32>,
    /// The plain text that is being handed out in parts, from where on.
    long: Option<(&'t str, usize)>,
    run_bytes: usize,
    long_bytes: usize,
}

impl<'t, T: AsRef<str>> Cutter<'t, T> {
    pub(crate) fn new(
        specials: &'t SpecialTokens,
        texts: &'t [T],
        run_bytes: usize,
        long_bytes: usize,
    ) -> Cutter<'t, T> {
        Cutter {
            specials,
            texts: texts.iter(),
            text: None,
            token: None,
            long: None,
            run_bytes,
            long_bytes,
        }
    }

    /// The next task; None when there are no more.
    fn next_task(&mut self) -> Option<Task<'t>> {
        match self.long.take() {
            Some((text, start)) => Some(self.next_part(text, start)),
            None => self.next_run(),
        }
    }

    fn next_part(&mut self, text: &'t str, start: usize) -> Task<'t> {
        let mut end = text.len();
        // The last part has half to one and a half times the size.
        if end - start >= self.long_bytes / 4 * 3 {
            end = start_of_character(text, start + self.long_bytes / 2);
            self.long = Some((text, end));
        }
        Task::Part { text, start, end }
    }

    fn next_run(&mut self) -> Option<Task<'t>> {
        let (mut segments, mut n_bytes) = (Vec::new(), 0);
        while n_bytes < self.run_bytes {
            let Some(segment) = self.next_segment() else {
                break;
            };
            if let Segment::Plain(text) = segment {
                n_bytes += text.len();
                if text.len() >= self.long_bytes {
                    self.long = Some((text, 0));
                    break;
                }
            }
            // Keeps a run of empty texts from going on for ever.
            n_bytes += 1;
            segments.push(segment);
        }
        (!segments.is_empty() || self.long.is_some()).then_some(Task::Run(segments))
    }

    fn next_segment(&mut self) -> Option<Segment<'t>> {
        if let Some(id) = self.token.take() {
            return Some(Segment::Token(id));
        }
        let Some(text) = self.text else {
            self.text = Some(self.texts.next()?.as_ref());
            return self.next_segment();
        };
        if text.is_empty() {
            self.text = None;
            return Some(Segment::End);
        }
        let Some((place, id)) = self.specials.find(text, 0) else {
            self.text = Some("");
            return Some(Segment::Plain(text));
        };
        self.text = Some(&text[place.end..]);
        self.token = Some(id);
        if place.start == 0 {
            return self.next_segment();
        }
        Some(Segment::Plain(&text[..place.start]))
    }
}

/// What came out of a task.
pub(crate) enum Made<'t> {
    Run {
        ids: Vec<u32>,
        /// How many of the ids lie before each end of a text.
        ends: Vec<usize>,
    },
    Part {
        text: &'t str,
        start: usize,
        end: usize,
        chunk: Chunk,
    },
}

impl Made<'_> {
    /// Of a part of a text which ends where no other does that is asked for.
    pub(crate) fn of_plain(ids: Vec<u32>) -> Self {
        let ends = Vec::new();
        Made::Run { ids, ends }
    }
}

/// Some ids of a vector, from a place on.
struct Block {
    ids: Vec<u32>,
    from: usize,
}

impl Block {
    fn as_slice(&self) -> &[u32] {
        &self.ids[self.from..]
    }
}

/// Decides where the ids of each task stand, which is known once all tasks before it are done.
#[derive(Default)]
struct Assembly<'t> {
    /// Tasks that are done, from the first that is not placed on.
    waiting: VecDeque<Option<Made<'t>>>,
    n_placed: usize,
    n_ids: usize,
    ends: Vec<u64>,
    /// How far the long text that is being put together has come.
    joined: usize,
}

impl<'t> Assembly<'t> {
    /// The blocks that now have their place, with it.
    fn add(
        &mut self,
        number: usize,
        made: Made<'t>,
        encoder: &Encoder,
        scanner: Scanner,
    ) -> Vec<(usize, Block)> {
        let index = number - self.n_placed;
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, || None);
        }
        self.waiting[index] = Some(made);
        let mut placed = Vec::new();
        while let Some(made) = self.waiting.front_mut().and_then(Option::take) {
            self.waiting.pop_front();
            self.n_placed += 1;
            match made {
                Made::Run { ids, ends } => {
                    let n_before = self.n_ids;
                    self.ends
                        .extend(ends.iter().map(|end| (n_before + end) as u64));
                    self.place(ids, 0, &mut placed);
                }
                Made::Part {
                    text,
                    start,
                    end,
                    chunk,
                } => {
                    if start == 0 {
                        self.joined = 0;
                    }
                    self.join(text, end, chunk, encoder, scanner, &mut placed);
                }
            }
        }
        placed
    }

    fn join(
        &mut self,
        text: &str,
        end: usize,
        chunk: Chunk,
        encoder: &Encoder,
        scanner: Scanner,
        placed: &mut Vec<(usize, Block)>,
    ) {
        let mut between = Vec::new();
        let met = encoder.encode_until_met(
            scanner,
            text,
            &mut self.joined,
            end,
            &chunk.boundaries,
            &mut between,
        );
        self.place(between, 0, placed);
        if let Some(n_before) = met {
            self.joined = chunk.end;
            self.place(chunk.ids, n_before, placed);
            // A piece that was left out, if any.
            let mut rest = Vec::new();
            encoder.encode_until_met(scanner, text, &mut self.joined, end, &[], &mut rest);
            self.place(rest, 0, placed);
        }
    }

    fn place(&mut self, ids: Vec<u32>, from: usize, placed: &mut Vec<(usize, Block)>) {
        let at = self.n_ids;
        self.n_ids += ids.len() - from;
        placed.push((at, Block { ids, from }));
    }
}

/// Memory that several threads write to.
struct Output {
    start: *mut u32,
    capacity: usize,
}

// SAFETY: the pointer is only written through, by `write`, whose callers keep to their own places.
unsafe impl Sync for Output {}

impl Output {
    /// # Safety
    /// No other thread writes to `at..at + ids.len()`, and the memory lives as long as `self`.
    unsafe fn write(&self, at: usize, ids: &[u32]) {
        assert!(at + ids.len() <= self.capacity);
        // SAFETY: in bounds by the assertion; the caller has this place for itself, and `ids` is
        // a block's own vector, so it does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(ids.as_ptr(), self.start.add(at), ids.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::{TOKENS, texts};
    use crate::encoder::tests::encoder;

    #[test]
    fn tasks_of_any_size_and_threads_give_the_ids_of_each_text() {
        let (encoder, specials) = (encoder(), SpecialTokens::new(&TOKENS).unwrap());
        let texts = texts();
        let n_bytes = texts.iter().map(String::len).sum();
        for (_, scanner) in Scanner::NAMES {
            let expected = encoder.encode_texts(scanner, &specials, &texts, 1);
            for (run_bytes, long_bytes, n_threads) in [
                (1, 4, 1),
                (5, 8, 3),
                (64, 16, 2),
                (1, 1 << 20, 4),
                (1 << 20, 40, 2),
            ] {
                let cutter = Cutter::new(&specials, &texts, run_bytes, long_bytes);
                let ids = Vec::with_capacity(n_bytes);
                assert_eq!(
                    encoder.encode_tasks(scanner, cutter, n_threads, ids),
                    expected
                );
            }
        }
    }
}
