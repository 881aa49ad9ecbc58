//! The trainer for Python: conversions, the GIL, exceptions, and no algorithm.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyTuple};

use crate::mem::growth::{NoMemory, with_room};
use crate::merge::pair_table::ID_BITS;
use crate::python::lists::Items;
use crate::python::splitting::pattern_of;
use crate::python::text::stopped_error;
use crate::python::unfilled::{bytes_of, int_of, new_list, pair_of, str_of};
use crate::stop::Stopped;
use crate::train::count::{
    Ceiling, Chunk, ChunkFailure, CountError, CountedWords, Counter, CountingRules,
};
use crate::train::learn::{LearnError, Learned, Rules, TieBreak, Tuning, learn};

/// The interval between calls of the progress callback.
const POLL: Duration = Duration::from_millis(50);

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PretokenCounter>()?;
    module.add(
        "UncountableChunkError",
        module.py().get_type::<UncountableChunkError>(),
    )?;
    module.add_class::<WordCounts>()
}

create_exception!(
    tokenizer_core._native,
    UncountableChunkError,
    PyValueError,
    "The argument is the number of the first chunk that is not UTF-8 or whose file has become shorter."
);

/// Counts the pre-tokens of chunks of files in its own threads.
#[pyclass]
struct PretokenCounter {
    /// None once `finish` or `close` was called.
    counter: Option<Counter>,
}

#[pymethods]
impl PretokenCounter {
    #[new]
    fn new(
        pattern: &Bound<'_, PyAny>,
        special_tokens: Vec<String>,
        num_threads: usize,
        ceiling: Option<(usize, PathBuf)>,
    ) -> PyResult<Self> {
        let rules = CountingRules::new(pattern_of(pattern)?, &special_tokens)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let ceiling = ceiling.map(|(memory_bytes, folder)| Ceiling {
            memory_bytes,
            folder,
        });
        let counter = Counter::new(rules, num_threads, ceiling).map_err(|error| {
            PyMemoryError::new_err(format!("no memory for a counting thread: {error}"))
        })?;
        Ok(PretokenCounter {
            counter: Some(counter),
        })
    }

    /// Hands out the bytes from `start` to `end` of an open file; waits while enough chunks are in
    /// progress. False if a chunk has failed; `finish` then names it.
    fn submit(
        &mut self,
        py: Python<'_>,
        descriptor: RawFile,
        start: u64,
        end: u64,
    ) -> PyResult<bool> {
        let counter = self.counter.as_mut().ok_or_else(closed)?;
        if descriptor < 0 || end < start {
            return Err(PyValueError::new_err("no such descriptor or no such chunk"));
        }
        let file = Arc::new(reopen(descriptor)?);
        Ok(py.detach(|| counter.submit(Chunk { file, start, end })))
    }

    /// Bytes of the chunks counted so far.
    fn bytes_done(&self) -> PyResult<u64> {
        Ok(self.counter.as_ref().ok_or_else(closed)?.bytes_done())
    }

    /// (counts, number of documents, number of tables written to the disk)
    fn finish(&mut self, py: Python<'_>) -> PyResult<(WordCounts, u64, u64)> {
        let counter = self.counter.take().ok_or_else(closed)?;
        match py.detach(|| counter.finish()) {
            Ok(counted) => {
                let words = WordCounts {
                    words: counted.words,
                };
                Ok((words, counted.n_documents, counted.n_spills))
            }
            Err(CountError::Chunk(number, ChunkFailure::Unreadable)) => {
                Err(UncountableChunkError::new_err(number))
            }
            Err(CountError::Chunk(_, ChunkFailure::TooSlow)) => {
                Err(stopped_error(Stopped::TooSlow))
            }
            Err(CountError::Scratch(error)) => Err(error.into()),
            Err(CountError::NoMemory) => Err(no_memory(NoMemory)),
            Err(CountError::WorkerLost) => Err(PyRuntimeError::new_err(
                "a counting thread panicked; see standard error",
            )),
        }
    }

    /// Ends the threads, each after its current chunk.
    fn close(&mut self, py: Python<'_>) {
        let counter = self.counter.take();
        py.detach(|| drop(counter));
    }
}

fn no_memory(_: NoMemory) -> PyErr {
    PyMemoryError::new_err("no memory for the counts of pre-tokens and pairs")
}

fn closed() -> PyErr {
    PyValueError::new_err("the counter is finished or closed")
}

/// Distinct pre-tokens with their counts, packed.
#[pyclass(frozen)]
struct WordCounts {
    words: CountedWords,
}

#[pymethods]
impl WordCounts {
    /// Packs a dict of pre-tokens and counts.
    #[staticmethod]
    fn from_dict(counts: &Bound<'_, PyDict>) -> PyResult<WordCounts> {
        let mut words = CountedWords::default();
        for (word, count) in counts {
            let word: &str = word.extract()?;
            let pushed = words.push(word.as_bytes(), count.extract()?);
            pushed.map_err(no_memory)?;
        }
        Ok(WordCounts { words })
    }

    /// The same as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (word, count) in &self.words {
            let word = std::str::from_utf8(word).expect("taken from a str");
            dict.set_item(str_of(py, word)?, int_of(py, count as usize)?)?;
        }
        Ok(dict)
    }

    /// The same in the order of the words; itself where it is in that order.
    fn sorted(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let words = slf.get();
        let sorted = slf.py().detach(|| {
            let words = &words.words;
            (!words.is_sorted()).then(|| words.sorted())
        });
        match sorted {
            Some(words) => {
                let words = words.map_err(no_memory)?;
                Bound::new(slf.py(), WordCounts { words })
            }
            None => Ok(slf),
        }
    }

    /// Bytes of all pre-tokens, each once.
    fn text_bytes(&self) -> usize {
        self.words.iter().map(|(word, _)| word.len()).sum()
    }

    /// Up to `n_words` words from `position` on, which is 0 for the first: the characters of each (u32),
    /// the count of each (u64), all of them joined, and the position after them.
    fn columns<'py>(
        &self,
        py: Python<'py>,
        position: usize,
        n_words: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let columns = self.words.columns(position, n_words).map_err(no_memory)?;
        let ([lengths, counts, text], position) = columns;
        let (lengths, counts) = (bytes_of(py, &lengths)?, bytes_of(py, &counts)?);
        (lengths, counts, bytes_of(py, &text)?, position).into_pyobject(py)
    }

    fn __len__(&self) -> usize {
        self.words.len()
    }

    /// The sum of all counts.
    #[getter]
    fn n_pre_tokens(&self) -> u64 {
        self.words.n_occurrences()
    }

    /// Bytes of all pre-tokens, each as often as it was counted.
    #[getter]
    fn n_bytes(&self) -> u64 {
        self.words.n_bytes()
    }

    /// `(merges, whether no pair was left, numbers of tokens)`; see `learn_merges`.
    ///
    /// `first_merges` are pairs of bytes, each side a single byte or the product of one before.
    /// `after_merge` is called with the number of merges learned several times a second and after
    /// the last; what it raises ends the run.
    #[allow(clippy::too_many_arguments)] // those of the Python function, by name
    fn learn<'py>(
        &self,
        py: Python<'py>,
        n_merges: usize,
        tie_break: &str,
        after_merge: Option<Py<PyAny>>,
        min_frequency: u64,
        max_token_length: Option<usize>,
        first_merges: Items<(PyBackedBytes, PyBackedBytes)>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rules = Rules {
            tie_break: match tie_break {
                "lexicographic" => TieBreak::Lexicographic,
                "huggingface" => TieBreak::HuggingFace,
                _ => return Err(PyValueError::new_err(format!("no tie break {tie_break:?}"))),
            },
            min_frequency,
            max_token_length: max_token_length.unwrap_or(usize::MAX),
            first_merges: number_symbols(&first_merges.0)?,
        };
        let mut raised = None;
        let mut next_poll = Instant::now() + POLL;
        let mut ask = |n_done: usize| {
            if n_done < n_merges && Instant::now() < next_poll {
                return true;
            }
            let answer = Python::attach(|py| match &after_merge {
                Some(after_merge) => after_merge.call1(py, (n_done,)).map(|_| ()),
                None => py.check_signals(),
            });
            next_poll = Instant::now() + POLL;
            raised = answer.err();
            raised.is_none()
        };
        let learned = py.detach(|| {
            learn(
                self.words.iter(),
                n_merges,
                &rules,
                Tuning::default(),
                &mut ask,
            )
        });
        match learned {
            Ok(learned) => answer(py, &learned),
            Err(LearnError::Cancelled) => {
                Err(raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(())))
            }
            Err(LearnError::NoMemory) => Err(no_memory(NoMemory)),
            Err(LearnError::CountOverflow) => Err(PyValueError::new_err(
                "the counts add up to more symbols than fit 64 bits",
            )),
        }
    }
}

/// The pairs as symbols, once it is certain that each can be merged when its turn comes.
fn number_symbols(merges: &[(PyBackedBytes, PyBackedBytes)]) -> PyResult<Vec<(u32, u32)>> {
    if merges.len() > (1 << ID_BITS) - 256 {
        return Err(PyValueError::new_err(
            "more first merges than there are ids",
        ));
    }
    let mut symbols: HashMap<Vec<u8>, u32> = (0..=255).map(|b| (vec![b], u32::from(b))).collect();
    let mut pairs = with_room(merges.len()).map_err(no_memory)?;
    let reserved = symbols.try_reserve(merges.len());
    reserved.map_err(|_| no_memory(NoMemory))?;
    for (left, right) in merges {
        let product = [&left[..], &right[..]].concat();
        let known = (symbols.get(&left[..]), symbols.get(&right[..]));
        let (&(Some(&left), Some(&right)), false) = (&known, symbols.contains_key(&product)) else {
            return Err(PyValueError::new_err(format!(
                "first merge {} is not of two tokens into a new one",
                pairs.len()
            )));
        };
        pairs.push((left, right));
        symbols.insert(product, symbols.len() as u32);
    }
    Ok(pairs)
}

/// What names an open file to the system: a descriptor, on Windows a handle.
#[cfg(unix)]
pub type RawFile = std::os::fd::RawFd;
#[cfg(windows)]
pub type RawFile = isize;

/// The same open file once more, which stays open when `raw` is closed.
#[cfg(unix)]
pub fn reopen(raw: RawFile) -> io::Result<File> {
    // SAFETY: `raw` is not -1, and is borrowed only for the copy made here. Were it closed
    // meanwhile, copying or reading it would fail with an error.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(raw) };
    borrowed.try_clone_to_owned().map(File::from)
}

#[cfg(windows)]
pub fn reopen(raw: RawFile) -> io::Result<File> {
    let handle = raw as std::os::windows::io::RawHandle;
    // SAFETY: `handle` is borrowed only for the copy made here. Were it closed meanwhile, copying
    // or reading it would fail with an error.
    let borrowed = unsafe { std::os::windows::io::BorrowedHandle::borrow_raw(handle) };
    borrowed.try_clone_to_owned().map(File::from)
}

fn answer<'py>(py: Python<'py>, learned: &Learned) -> PyResult<Bound<'py, PyTuple>> {
    // One object for a token, however many merges it takes part in.
    let n_tokens = learned.tokens.len();
    let mut tokens = with_room(n_tokens).map_err(no_memory)?;
    for id in 0..n_tokens {
        tokens.push(bytes_of(py, learned.tokens.get(id))?);
    }
    let token = |symbol: u32| tokens[symbol as usize].clone();
    let merges = learned.merges.iter();
    let merges = merges.map(|&(left, right)| pair_of([token(left), token(right)]));
    let counts = learned.token_counts.iter();
    let counts = new_list(py, counts.map(|&count| int_of(py, count as usize)))?;
    (new_list(py, merges)?, learned.no_pair_left, counts).into_pyobject(py)
}
