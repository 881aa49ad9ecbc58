//! Many streams of ids for Python: conversions, exceptions, and no algorithm.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::decode::stop_strings::StopStrings;
use crate::decode::streams::{OpenStreams, Stream};
use crate::decode::text::{Text, TextRules};
use crate::decode::vocabulary::Vocabulary;
use crate::mem::growth::{Grow, NoMemory};
use crate::python::decoding::{plain_int, plain_number};
use crate::python::encoder::{NativeEncoder, NativeTextRules};
use crate::python::text::memory_error;
use crate::python::unfilled::{new_list, str_of};

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeDecodeStreams>()
}

/// See `_native.pyi`.
#[pyclass(module = "tokenizer_core._native")]
struct NativeDecodeStreams {
    encoder: Py<NativeEncoder>,
    rules: Py<NativeTextRules>,
    streams: OpenStreams,
    /// The set of the stream that was opened last; the next one often has the same.
    stops: Option<Arc<StopStrings>>,
    call: Call,
}

/// What one call appends; its memory is used again.
#[derive(Default)]
struct Call {
    slots: Vec<usize>,
    ids: Vec<u32>,
    /// Where the ids of each stream end.
    ends: Vec<usize>,
    text: Vec<u8>,
    text_ends: Vec<usize>,
}

type Done = Result<(), NoMemory>;

/// Memory that a call leaves, in elements.
const KEPT: usize = 1 << 14;

#[pymethods]
impl NativeDecodeStreams {
    #[new]
    fn new(encoder: Py<NativeEncoder>, rules: Py<NativeTextRules>) -> Self {
        NativeDecodeStreams {
            rules,
            encoder,
            streams: OpenStreams::default(),
            stops: None,
            call: Call::default(),
        }
    }

    fn open(
        &mut self,
        number: u64,
        stop: Vec<String>,
        include_stop: bool,
        skip_special: bool,
        after: Vec<u32>,
    ) -> PyResult<()> {
        let rules = self.rules.get().rules();
        let mut text = Text::new(rules, skip_special);
        if let Some(position) = after.iter().position(|&id| !rules.is_known(id)) {
            return Err(PyValueError::new_err(position));
        }
        let vocabulary = self.encoder.get().vocabulary();
        let pushed = text.push(rules, vocabulary, &after, &mut Vec::new());
        pushed.map_err(memory_error)?;
        text.forget_characters();
        let stops = self.stops_of(stop)?;
        let stream = Stream::new(text, stops, include_stop);
        self.streams.insert(number, stream);
        Ok(())
    }

    fn append<'py>(
        &mut self,
        numbers: &Bound<'py, PyList>,
        ids: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.read(numbers, ids)?;
        self.give(numbers.py(), Stream::append)
    }

    fn finish<'py>(&mut self, numbers: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        self.call.clear();
        for index in 0..numbers.len() {
            let slot = self.slot_of(numbers, index)?;
            self.call.push(slot).map_err(memory_error)?;
        }
        self.give(numbers.py(), |stream, rules, _, _, text| {
            stream.finish(rules, text)
        })
    }

    fn stopped(&self) -> Vec<(u64, &str)> {
        self.streams.stopped().collect()
    }

    fn close(&mut self, number: u64) {
        self.streams.remove(number);
    }
}

impl NativeDecodeStreams {
    /// The text that `work` appends for each stream of the call, given its ids.
    fn give<'py>(
        &mut self,
        py: Python<'py>,
        work: impl Fn(&mut Stream, &TextRules, &Vocabulary, &[u32], &mut Vec<u8>) -> Done,
    ) -> PyResult<Bound<'py, PyList>> {
        let (rules, vocabulary) = (self.rules.get().rules(), self.encoder.get().vocabulary());
        let call = &mut self.call;
        for (index, &slot) in call.slots.iter().enumerate() {
            let ids = &call.ids[range_of(&call.ends, index)];
            let stream = self.streams.at(slot);
            let done = work(stream, rules, vocabulary, ids, &mut call.text);
            let done = done.and_then(|()| call.text_ends.try_push(call.text.len()));
            done.map_err(memory_error)?;
        }
        let texts = call.texts(py);
        call.clear();
        texts
    }

    fn stops_of(&mut self, strings: Vec<String>) -> PyResult<Option<Arc<StopStrings>>> {
        if strings.is_empty() {
            return Ok(None);
        }
        if self
            .stops
            .as_ref()
            .is_none_or(|last| last.strings() != strings)
        {
            let stops = StopStrings::new(strings).ok_or_else(|| {
                PyValueError::new_err("a stop string is empty, or they are too long")
            })?;
            self.stops = Some(Arc::new(stops));
        }
        Ok(self.stops.clone())
    }

    fn slot_of(&self, numbers: &Bound<'_, PyList>, index: usize) -> PyResult<usize> {
        let slot = plain_number(numbers, index).and_then(|number| self.streams.slot_of(number));
        slot.ok_or_else(|| PyValueError::new_err(index))
    }

    /// Reads the arguments of `append`, and checks that each stream takes its ids.
    fn read(&mut self, numbers: &Bound<'_, PyList>, ids: &Bound<'_, PyList>) -> PyResult<()> {
        self.call.clear();
        if numbers.len() != ids.len() {
            return Err(PyValueError::new_err(numbers.len().min(ids.len())));
        }
        for index in 0..numbers.len() {
            let refused = || PyValueError::new_err(index);
            let slot = self.slot_of(numbers, index)?;
            let start = self.call.ids.len();
            if let Some(id) = plain_int(ids, index) {
                self.call.ids.try_push(id).map_err(memory_error)?;
            } else {
                let element = ids.get_item(index)?;
                let list = element.cast::<PyList>().map_err(|_| refused())?;
                for position in 0..list.len() {
                    let id = plain_int(list, position).ok_or_else(refused)?;
                    self.call.ids.try_push(id).map_err(memory_error)?;
                }
            }
            let new = &self.call.ids[start..];
            let rules = self.rules.get().rules();
            let takes = self.streams.at(slot).takes(rules, new);
            if !takes || !new.iter().all(|&id| rules.is_known(id)) {
                return Err(refused());
            }
            self.call.push(slot).map_err(memory_error)?;
        }
        Ok(())
    }
}

impl Call {
    /// Adds a stream, whose ids are at the end.
    fn push(&mut self, slot: usize) -> Done {
        self.slots.try_push(slot)?;
        self.ends.try_push(self.ids.len())
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.ids.clear();
        self.ends.clear();
        self.text.clear();
        self.text_ends.clear();
        self.slots.shrink_to(KEPT);
        self.ids.shrink_to(KEPT);
        self.ends.shrink_to(KEPT);
        self.text.shrink_to(KEPT);
        self.text_ends.shrink_to(KEPT);
    }

    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let texts = (0..self.text_ends.len()).map(|index| {
            let text = &self.text[range_of(&self.text_ends, index)];
            // Always: streams give out whole characters.
            let text = std::str::from_utf8(text)
                .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            Ok(str_of(py, text)?.into_any())
        });
        new_list(py, texts)
    }
}

fn range_of(ends: &[usize], index: usize) -> Range<usize> {
    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
    start..ends[index]
}
