//! Tasks, encoded by several threads with the ids of one.
//!
//! Threads take tasks in order. The thread that finishes a task copies every finished task that is
//! next in order to the result. So ids are copied once, while they are still in the processor's
//! cache, and no thread waits for another. The memory that they are copied from serves the next
//! task.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::mem::growth::Grow;
use crate::stop::Stopped;

/// The ids of some texts, one after the other, and where those of each end.
#[derive(Debug, Default, PartialEq)]
pub struct Encoded {
    pub ids: Vec<u32>,
    pub ends: Vec<u64>,
}

/// Encodes the tasks that `next` gives, in this order, each to an empty `Encoded`; fails with the
/// error of the first task that fails, or `stopped`. `O` is memory that a thread keeps for all its
/// tasks. `encoded` is empty and has room for all.
pub fn run_in_threads<K: Send, O: Default, E: Send>(
    n_threads: usize,
    encoded: Encoded,
    next: impl FnMut() -> Option<K> + Send,
    encode: impl Fn(&mut O, K, &mut Encoded) -> Result<(), E> + Sync,
    stopped: impl Fn(Stopped) -> E + Sync,
) -> Result<Encoded, E> {
    let Encoded { mut ids, ends } = encoded;
    let output = Output {
        start: ids.as_mut_ptr(),
        capacity: ids.capacity(),
    };
    let tasks = Mutex::new((0.., next));
    let failure: Mutex<Option<(usize, E)>> = Mutex::new(None);
    let assembly = Mutex::new(Assembly {
        ends,
        ..Assembly::default()
    });
    let take = || {
        let (numbers, next) = &mut *tasks.lock().expect("cutting does not panic");
        let is_over = failure.lock().expect("nothing panics with it").is_some();
        if is_over {
            None
        } else {
            numbers.next().zip(next())
        }
    };
    let assembly_of_all = || assembly.lock().expect("a panic ends the call");
    let work = || {
        let (mut own, mut placed) = (O::default(), Vec::new());
        while let Some((number, task)) = take() {
            let work_on = || -> Result<(), E> {
                let made = assembly_of_all().memory_for_one(&mut placed);
                let mut made = made.map_err(&stopped)?;
                encode(&mut own, task, &mut made)?;
                let added = assembly_of_all().add(number, made, &mut placed);
                added.map_err(&stopped)
            };
            if let Err(error) = work_on() {
                // All tasks before it have been taken, and may still fail.
                let mut failure = failure.lock().expect("nothing panics with it");
                if failure.as_ref().is_none_or(|first| number < first.0) {
                    *failure = Some((number, error));
                }
                return;
            }
            for (at, made) in &placed {
                // SAFETY: `Assembly` gives each position to one task only.
                unsafe { output.write(*at, &made.ids) };
            }
        }
    };
    std::thread::scope(|scope| {
        // If the system refuses a thread, the others do its work.
        let others: Vec<_> = (1..n_threads)
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        work();
        // The scope waits for the work of its threads; only `join` waits for their end as well,
        // and a thread that has not ended looks like a leak to a sanitizer.
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    if let Some((_, error)) = failure.into_inner().expect("all threads have ended") {
        return Err(error);
    }
    let assembly = assembly.into_inner().expect("all threads have ended");
    assert!(assembly.waiting.is_empty() && assembly.n_ids <= ids.capacity());
    // SAFETY: all threads have ended without a panic, and the batches they wrote lie side by
    // side from 0 to `n_ids`, because each begins where the one before it ends.
    unsafe { ids.set_len(assembly.n_ids) };
    ids.shrink_to_fit();
    let ends = assembly.ends;
    Ok(Encoded { ids, ends })
}
/// Decides the position of the ids of each task, which is known once all tasks before it are done.
#[derive(Default)]
struct Assembly {
    /// The results of finished tasks, from the first that has no position yet.
    waiting: VecDeque<Option<Encoded>>,
    n_placed: usize,
    n_ids: usize,
    /// With room for those of all texts.
    ends: Vec<u64>,
    /// Memory of tasks whose ids were copied.
    free: Vec<Encoded>,
}

impl Assembly {
    /// An empty result for a task, made of the memory of those that `placed` returns.
    fn memory_for_one(&mut self, placed: &mut Vec<(usize, Encoded)>) -> Result<Encoded, Stopped> {
        self.free.try_reserve(placed.len())?;
        self.free.extend(placed.drain(..).map(|(_, batch)| batch));
        let mut batch = self.free.pop().unwrap_or_default();
        batch.ids.clear();
        batch.ends.clear();
        Ok(batch)
    }

    /// Adds a finished task, and moves to `placed` all that now have a position.
    fn add(
        &mut self,
        number: usize,
        made: Encoded,
        placed: &mut Vec<(usize, Encoded)>,
    ) -> Result<(), Stopped> {
        let index = number - self.n_placed;
        if self.waiting.len() <= index {
            self.waiting.try_reserve(index + 1 - self.waiting.len())?;
            self.waiting.resize_with(index + 1, || None);
        }
        self.waiting[index] = Some(made);
        while let Some(made) = self.waiting.front_mut().and_then(Option::take) {
            self.waiting.pop_front();
            self.n_placed += 1;
            let at = self.n_ids;
            self.n_ids += made.ids.len();
            self.ends
                .extend(made.ends.iter().map(|end| at as u64 + end));
            placed.try_push((at, made))?;
        }
        Ok(())
    }
}

/// Memory that several threads write to.
struct Output {
    start: *mut u32,
    capacity: usize,
}

// SAFETY: the pointer is only written through, by `write`, whose callers keep to their own positions.
unsafe impl Sync for Output {}

impl Output {
    /// # Safety
    /// No other thread writes to `at..at + ids.len()`, and the memory lives as long as `self`.
    unsafe fn write(&self, at: usize, ids: &[u32]) {
        assert!(at + ids.len() <= self.capacity);
        // SAFETY: in bounds by the assertion; the caller has this position for itself, and `ids` is
        // a batch's own vector, so it does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(ids.as_ptr(), self.start.add(at), ids.len()) };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::encode::specials::SpecialTokens;
    use crate::encode::tests::encoder;
    use crate::split::Scanner;

    /// Texts of parts that end pre-tokens in many ways.
    pub fn texts() -> Vec<String> {
        #[rustfmt::skip]
        let parts = [
            "the ", "  ", "\n", "\r\n", "'ll", "1234", "ABCd", "\u{4e2d}\u{6587}", "\u{301}", "...",
            "/\n", "\u{3000}", "x", "\u{1f642}", " \n ", "'", "aB\u{2b0}C",
        ];
        let mut next = crate::random::below(1);
        let mut part = || parts[next(parts.len())].repeat(if next(16) == 0 { 40 } else { 1 });
        let text = |round: usize| (0..round * 4).map(|_| part()).collect();
        (0..60).map(text).collect()
    }

    #[test]
    fn long_texts_and_texts_without_a_boundary_are_encoded_alike() {
        let (encoder, specials) = (encoder(), SpecialTokens::none());
        for text in [
            "the cat's hat\n\n  12345 \u{4e2d}\u{6587}".repeat(60_000),
            "a".repeat(3 << 20),
            " ".repeat(3 << 20),
            format!("{} {}", "\u{4e2d}".repeat(700_000), "b c ".repeat(200_000)),
        ] {
            for (_, scanner) in Scanner::NAMES {
                let mut expected = Vec::new();
                let done = encoder.encode_document(scanner, &specials, &text, &mut expected);
                done.unwrap();
                let batch = encoder.encode_texts(scanner, &specials, &[&text[..]], 4);
                assert!(batch.unwrap().ids == expected);
            }
        }
    }

    #[test]
    fn memory_goes_round() {
        let mut assembly = Assembly::default();
        let mut placed = Vec::new();
        let mut make = |number: usize, placed: &mut Vec<_>| {
            let mut made = assembly.memory_for_one(placed).unwrap();
            assert!(made.ids.is_empty() && made.ends.is_empty());
            let is_new = made.ids.capacity() == 0;
            made.ids.extend([number as u32; 10]);
            made.ends.push(10);
            assembly.add(number, made, placed).unwrap();
            is_new
        };
        assert!(make(0, &mut placed));
        assert_eq!(placed.len(), 1);
        // The second is done after the third, so that one waits, and each needs memory.
        assert!(!make(2, &mut placed));
        assert_eq!(placed.len(), 0);
        assert!(make(1, &mut placed));
        let positions: Vec<_> = placed.iter().map(|(at, made)| (*at, made.ids[0])).collect();
        assert_eq!(positions, [(10, 1), (20, 2)]);
        assert!(!make(3, &mut placed));
        assert_eq!(assembly.ends, [10, 20, 30, 40]);
    }
}
