//! The encoder for Python: conversions, the GIL, exceptions, and no algorithm.

use std::collections::HashMap;
use std::sync::Arc;

use aho_corasick::BuildError;
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::decode::text::TextRules;
use crate::decode::vocabulary::Vocabulary;
use crate::encode::Encoded;
use crate::encode::flagged_tokens::{FlaggedToken, FlaggedTokens, Flags};
use crate::encode::specials::SpecialTokens;
use crate::encode::{Encoder, MissingBytes, Start};
use crate::json::text::text_and_options;
use crate::mem::{buffer_pool, huge_pages};
use crate::merge::Merge;
use crate::merge::pair_table::ID_BITS;
use crate::normalize::spaces::Spaces;
use crate::python::arrays::{array_of, array_with_copy};
use crate::python::decoding::{self, UnknownIdError};
use crate::python::documents;
use crate::python::gil::releasing_gil_if_long;
use crate::python::json::{json_between, json_bytes};
use crate::python::lists::{Ints, Items, MAX_SHORT, with_short_ids};
use crate::python::splitting::pattern_of;
use crate::python::text::{self as texts, memory_error, stopped_error, with_text, with_texts};
use crate::python::unfilled::{bytes_of, fill, int_of, new_bytes, new_list};
use crate::simd::Kernel;
use crate::split::{Pattern, Scanner};
use crate::unicode::UNICODE_TABLES;

type FieldsOfMissing = (Vec<u8>, Option<u32>, bool, Vec<u8>);
type JsonAndCount<'py> = (Bound<'py, PyAny>, usize);
type Around<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);
type IdsAndOffsets<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>);

/// Adds all of this file to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("UNICODE_TABLES", UNICODE_TABLES)?;
    module.add("KERNEL", Kernel::chosen().name())?;
    module.add_class::<NativeEncoder>()?;
    module.add_class::<NativeSpecials>()?;
    module.add_class::<NativeTextRules>()?;
    module.add("UnknownIdError", module.py().get_type::<UnknownIdError>())?;
    module.add_function(wrap_pyfunction!(join_segments, module)?)?;
    module.add_function(wrap_pyfunction!(release_buffers, module)?)?;
    Ok(())
}

/// Encodes and decodes for one tokenizer; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
pub struct NativeEncoder {
    encoder: Encoder,
    pattern: Option<Arc<Pattern>>,
    ints: Ints,
    no_specials: SpecialTokens,
}

/// Strings that are one id each; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
struct NativeSpecials {
    tokens: SpecialTokens,
}

/// What decoding to text does with each id; see `_native.pyi`.
#[pyclass(frozen, module = "tokenizer_core._native")]
pub struct NativeTextRules(TextRules);

impl NativeTextRules {
    pub fn rules(&self) -> &TextRules {
        &self.0
    }
}

#[pymethods]
impl NativeTextRules {
    #[new]
    fn new(
        encoder: &NativeEncoder,
        byte_ids: Vec<u32>,
        special_ids: Vec<u32>,
        empty_ids: Vec<u32>,
        strips_space: bool,
    ) -> PyResult<Self> {
        let vocabulary = encoder.vocabulary();
        let n_ids = (vocabulary.n_ids() as u32).max(empty_ids.iter().max().map_or(0, |id| id + 1));
        let known = (0..n_ids).filter(|&id| !vocabulary.token(id).is_empty());
        let known = known.chain(empty_ids);
        let rules = TextRules::new(n_ids as usize, known, &byte_ids, &special_ids, strips_space);
        Ok(NativeTextRules(rules.map_err(memory_error)?))
    }
}

#[pymethods]
impl NativeSpecials {
    #[new]
    #[pyo3(signature = (ids, normalizer="none", passes=None, words=vec![]))]
    fn new(
        ids: &Bound<'_, PyDict>,
        normalizer: &str,
        passes: Option<Vec<PassOfTokens>>,
        words: Vec<(u32, u32)>,
    ) -> PyResult<Self> {
        let ids: Vec<(PyBackedStr, u32)> = pairs_of(ids)?;
        let ids: Vec<(&str, u32)> = ids.iter().map(|(content, id)| (&**content, *id)).collect();
        if ids.iter().any(|(content, _)| content.is_empty()) {
            return Err(PyValueError::new_err("an empty string would be everywhere"));
        }
        let spaces = Spaces::named(normalizer)
            .ok_or_else(|| PyValueError::new_err("a normalizer that does more than put spaces"))?;
        let refused = |error: BuildError| PyValueError::new_err(error.to_string());
        let tokens = SpecialTokens::new(&ids).map_err(refused)?;
        let tokens = match passes {
            None => tokens,
            Some(passes) => {
                let ids: HashMap<&str, u32> = ids.into_iter().collect();
                tokens.with_flags(flagged_tokens(&ids, &passes, words)?.map_err(refused)?)
            }
        };
        Ok(NativeSpecials {
            tokens: tokens.with_spaces(spaces),
        })
    }

    /// These everywhere, and `others` within runs of a text.
    fn with_trusted(&self, others: &NativeSpecials, runs: Items<(usize, usize)>) -> PyResult<Self> {
        let runs = runs.0.into_iter().map(|(start, end)| start..end).collect();
        let tokens = self.tokens.with_trusted(&others.tokens, runs);
        let tokens = tokens.ok_or_else(|| PyValueError::new_err("the runs are in no order"))?;
        Ok(NativeSpecials { tokens })
    }
}

#[pymethods]
impl NativeEncoder {
    #[new]
    #[pyo3(signature = (vocab, token_to_id, merges, take_whole, pattern, by_characters=false, missing=None, word_ends=None))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        vocab: &Bound<'_, PyDict>,
        token_to_id: &Bound<'_, PyDict>,
        merges: Option<&[u8]>,
        take_whole: bool,
        pattern: Option<&Bound<'_, PyAny>>,
        by_characters: bool,
        missing: Option<FieldsOfMissing>,
        word_ends: Option<[u32; 256]>,
    ) -> PyResult<Self> {
        let py = vocab.py();
        let pattern = pattern.map(pattern_of).transpose()?;
        let vocab: Vec<(u32, Bound<'_, PyBytes>)> = pairs_of(vocab)?;
        let known: Vec<(Bound<'_, PyBytes>, u32)> = pairs_of(token_to_id)?;
        let vocab = vocab
            .iter()
            .map(|(id, token)| (*id, token.as_bytes()))
            .collect();
        let known: Vec<(&[u8], u32)> = known
            .iter()
            .map(|(token, id)| (token.as_bytes(), *id))
            .collect();
        let from = Start {
            by_characters,
            missing: missing.map(|(values, unknown, is_fused, ends)| {
                MissingBytes::new(&values, unknown, is_fused, &ends)
            }),
            word_ends,
        };
        let encoder = py
            .detach(|| build(vocab, &known, merges, take_whole, from))
            .map_err(PyValueError::new_err)?;
        Ok(NativeEncoder::of(encoder, pattern))
    }

    /// id -> bytes
    fn vocab<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (vocabulary, vocab) = (self.vocabulary(), PyDict::new(py));
        for id in 0..vocabulary.n_ids() {
            let token = vocabulary.token(id as u32);
            if !token.is_empty() {
                vocab.set_item(int_of(py, id)?, bytes_of(py, token)?)?;
            }
        }
        Ok(vocab)
    }

    /// The number of bytes of each id
    fn token_sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        let vocabulary = self.vocabulary();
        let size_of = |id| vocabulary.token(id).len() as u32;
        let sizes: Vec<u32> = (0..vocabulary.n_ids() as u32).map(size_of).collect();
        sizes.into_pyarray(py)
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        specials: Option<&NativeSpecials>,
        text: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.with_ids(py, text, specials, |ids| self.list_of(py, ids))
    }

    fn encode_to_numpy<'py>(
        &self,
        py: Python<'py>,
        specials: Option<&NativeSpecials>,
        num_threads: Option<isize>,
        text: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        if text.code_point_len()? > MAX_SHORT {
            let num_threads = num_threads.map_or(1, |n| n.max(1) as usize);
            return array_of(py, self.ids_of(py, text, num_threads, specials)?);
        }
        self.with_ids(py, text, specials, |ids| array_with_copy(py, ids))
    }

    /// (the ids as the text of a JSON array, their number)
    fn encode_to_json<'py>(
        &self,
        py: Python<'py>,
        specials: Option<&NativeSpecials>,
        text: &Bound<'py, PyString>,
    ) -> PyResult<JsonAndCount<'py>> {
        let json_of = |ids: &[u32]| Ok((json_bytes(py, ids)?, ids.len()));
        self.with_ids(py, text, specials, json_of)
    }

    /// (the response, the number of ids, the bytes of the text); see `_native.pyi`
    fn encode_body<'py>(
        &self,
        specials_of: &Bound<'py, PyAny>,
        around: Option<Around<'py>>,
        body: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, usize, usize)>> {
        let (py, body) = (body.py(), body.as_bytes());
        let found = releasing_gil_if_long(py, body.len(), || text_and_options(body));
        let Some((text, options)) = found.map_err(memory_error)? else {
            return Ok(None);
        };
        let specials = specials_of.get_item(bytes_of(py, &options)?)?;
        let Ok(specials) = specials.cast::<NativeSpecials>() else {
            return Ok(None);
        };
        let (scanner, specials) = (self.scanner()?, &specials.get().tokens);
        let (encoder, text) = (&self.encoder, &*text);
        let respond = |ids: &[u32]| {
            let response = match &around {
                Some((before, between, after)) => {
                    let count = ids.len().to_string();
                    let after = [between.as_bytes(), count.as_bytes(), after.as_bytes()].concat();
                    json_between(py, before.as_bytes(), ids, &after)
                }
                None => little_endian(py, ids),
            };
            Ok(Some((response?, ids.len(), text.len())))
        };
        if text.len() > MAX_SHORT {
            let encoded = py.detach(|| encoder.encode_texts(scanner, specials, &[text], 1));
            let ids = encoded.map_err(|(_, why)| stopped_error(why))?.ids;
            let response = respond(&ids);
            buffer_pool::give_back(ids);
            return response;
        }
        let encode = |mut ids| {
            let done = releasing_gil_if_long(py, text.len(), || {
                encoder.encode_document(scanner, specials, text, &mut ids)
            });
            done.map_err(stopped_error).map(|()| ids)
        };
        with_short_ids(encode, respond)
    }

    fn encode_batch<'py>(
        &self,
        py: Python<'py>,
        specials: Option<&NativeSpecials>,
        num_threads: usize,
        texts: Items<Bound<'py, PyString>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let batch = self.batch_of(py, &texts.0, num_threads, specials)?;
        let mut start = 0;
        let lists = batch.ends.iter().map(|&end| {
            let ids = &batch.ids[start..end as usize];
            start = end as usize;
            Ok(self.list_of(py, ids)?.into_any())
        });
        let lists = new_list(py, lists);
        buffer_pool::give_back(batch.ids);
        lists
    }

    /// The ids of all texts, and where those of each begin and those of the last end.
    fn encode_batch_to_numpy<'py>(
        &self,
        py: Python<'py>,
        specials: Option<&NativeSpecials>,
        num_threads: usize,
        texts: Items<Bound<'py, PyString>>,
    ) -> PyResult<IdsAndOffsets<'py>> {
        let mut batch = self.batch_of(py, &texts.0, num_threads, specials)?;
        batch.ends.insert(0, 0);
        Ok((array_of(py, batch.ids)?, batch.ends.into_pyarray(py)))
    }

    /// (ids, where those of each text begin and the last end, UTF-8 bytes of each text)
    fn encode_documents<'py>(
        &self,
        py: Python<'py>,
        specials: Option<&NativeSpecials>,
        affixes: (Option<u32>, Option<u32>),
        as_uint16: bool,
        texts: Items<PyBackedBytes>,
    ) -> PyResult<documents::Arrays<'py>> {
        let (scanner, specials) = (self.scanner()?, self.specials_or_none(specials));
        let encoder = &self.encoder;
        documents::encode(py, &texts.0, as_uint16, |texts, encoded| {
            encoder.encode_with_affixes(scanner, specials, texts, affixes, encoded)
        })
    }

    fn encode_pre_tokens<'py>(
        &self,
        py: Python<'py>,
        pre_tokens: Items<PyBackedStr>,
    ) -> PyResult<Bound<'py, PyList>> {
        let pre_tokens = pre_tokens.0;
        let n_bytes: usize = pre_tokens.iter().map(|pre_token| pre_token.len()).sum();
        let mut ids = Vec::new();
        releasing_gil_if_long(py, n_bytes, || {
            self.encoder
                .encode_pieces(pre_tokens.iter().map(|piece| &**piece), &mut ids)
        })
        .map_err(stopped_error)?;
        self.list_of(py, &ids)
    }

    fn count(
        &self,
        py: Python<'_>,
        specials: Option<&NativeSpecials>,
        limit: Option<usize>,
        text: &Bound<'_, PyString>,
    ) -> PyResult<usize> {
        if limit.is_none() && text.code_point_len()? <= MAX_SHORT {
            return self.with_ids(py, text, specials, |ids| Ok(ids.len()));
        }
        let (scanner, specials) = (self.scanner()?, self.specials_or_none(specials));
        with_text(py, text, |text| {
            (self.encoder).count_document(scanner, specials, text, limit)
        })
    }

    fn decode<'py>(&self, ids: &Bound<'py, PyAny>, as_text: bool) -> PyResult<Bound<'py, PyAny>> {
        decoding::decode(self.encoder.vocabulary(), ids, as_text)
    }

    /// None unless each row is a list or an array of ids, all of them known.
    fn decode_batch<'py>(
        &self,
        batch: &Bound<'py, PyList>,
        rules: &NativeTextRules,
        skip_special: bool,
        num_threads: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let (py, rules) = (batch.py(), rules.rules());
        let Some(rows) = decoding::rows_of(batch, rules)? else {
            return Ok(None);
        };
        let texts = releasing_gil_if_long(py, 4 * rows.ids.len(), || {
            rows.decode(rules, self.encoder.vocabulary(), skip_special, num_threads)
        });
        decoding::list_of_texts(py, &texts.map_err(stopped_error)?).map(Some)
    }

    /// None as for `decode_batch`.
    fn first_drifts<'py>(
        &self,
        batch: &Bound<'py, PyList>,
        rules: &NativeTextRules,
        specials: Option<&NativeSpecials>,
        is_nfc: bool,
        num_threads: usize,
    ) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
        let (py, rules) = (batch.py(), rules.rules());
        let (scanner, specials) = (self.scanner()?, self.specials_or_none(specials));
        let Some(rows) = decoding::rows_of(batch, rules)? else {
            return Ok(None);
        };
        let encoder = &self.encoder;
        let found = releasing_gil_if_long(py, 4 * rows.ids.len(), || {
            encoder.first_drifts(scanner, specials, rules, &rows, (is_nfc, num_threads))
        });
        Ok(Some(found.map_err(stopped_error)?.into_pyarray(py)))
    }

    /// (hits, misses, entries, maximum)
    fn cache_statistics(&self) -> (u64, u64, u64, u64) {
        self.encoder.statistics()
    }
}

impl NativeEncoder {
    pub fn of(encoder: Encoder, pattern: Option<Arc<Pattern>>) -> NativeEncoder {
        NativeEncoder {
            encoder,
            pattern,
            ints: Ints::default(),
            no_specials: SpecialTokens::none(),
        }
    }

    /// What a compiled file holds.
    pub fn parts(&self) -> (&Encoder, Option<&Pattern>) {
        (&self.encoder, self.pattern.as_deref())
    }

    /// The bytes of every id.
    pub fn vocabulary(&self) -> &Vocabulary {
        self.encoder.vocabulary()
    }

    fn scanner(&self) -> PyResult<Scanner<'_>> {
        let scanner = self.pattern.as_ref().map(|pattern| pattern.scanner());
        scanner
            .ok_or_else(|| PyValueError::new_err("this tokenizer's split pattern is not compiled"))
    }

    fn specials_or_none<'s>(&'s self, specials: Option<&'s NativeSpecials>) -> &'s SpecialTokens {
        specials.map_or(&self.no_specials, |specials| &specials.tokens)
    }

    /// What `take` makes of the ids of a text, which are in memory that later calls use again.
    fn with_ids<T>(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyString>,
        specials: Option<&NativeSpecials>,
        take: impl FnOnce(&[u32]) -> PyResult<T>,
    ) -> PyResult<T> {
        if text.code_point_len()? > MAX_SHORT {
            let ids = self.ids_of(py, text, 1, specials)?;
            let taken = take(&ids);
            buffer_pool::give_back(ids);
            return taken;
        }
        let (scanner, specials) = (self.scanner()?, self.specials_or_none(specials));
        let encode = |mut ids| {
            with_text(py, text, |text| {
                (self.encoder).encode_document(scanner, specials, text, &mut ids)
            })?;
            Ok(ids)
        };
        with_short_ids(encode, take)
    }

    fn ids_of(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyString>,
        num_threads: usize,
        specials: Option<&NativeSpecials>,
    ) -> PyResult<Vec<u32>> {
        let (scanner, specials) = (self.scanner()?, self.specials_or_none(specials));
        with_text(py, text, |text| {
            let encoded = self.encoder.encode_texts(
                scanner,
                specials,
                std::slice::from_ref(text),
                num_threads,
            );
            encoded.map(|batch| batch.ids).map_err(|(_, why)| why)
        })
    }

    fn batch_of(
        &self,
        py: Python<'_>,
        texts: &[Bound<'_, PyString>],
        num_threads: usize,
        specials: Option<&NativeSpecials>,
    ) -> PyResult<Encoded> {
        let (scanner, specials) = (self.scanner()?, self.specials_or_none(specials));
        with_texts(py, texts, |texts| {
            self.encoder
                .encode_texts(scanner, specials, texts, num_threads)
        })
    }

    fn list_of<'py>(&self, py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyList>> {
        self.ints
            .list_of(py, self.encoder.vocabulary().n_ids(), ids)
    }
}

/// The ids as words of four bytes.
fn little_endian<'py>(py: Python<'py>, ids: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the loop writes all of the memory, as many words as there are ids.
    let (bytes, out) = unsafe { new_bytes(py, 4 * ids.len())? };
    releasing_gil_if_long(py, out.len(), || {
        huge_pages::advise(out.as_ptr(), out.len());
        for (word, id) in out.as_chunks_mut::<4>().0.iter_mut().zip(ids) {
            fill(word, &id.to_le_bytes());
        }
    });
    Ok(bytes)
}

/// The tokens of one or two passes with their flags: content, `lstrip`, `rstrip`, `single_word`.
type PassOfTokens = Vec<(String, bool, bool, bool)>;

fn flagged_tokens(
    ids: &HashMap<&str, u32>,
    passes: &[PassOfTokens],
    words: Vec<(u32, u32)>,
) -> PyResult<Result<FlaggedTokens, BuildError>> {
    let n_tokens: usize = passes.iter().map(Vec::len).sum();
    if n_tokens != ids.len() || passes.len() > 2 {
        return Err(PyValueError::new_err(
            "each token must be in one of two passes",
        ));
    }
    let passes: Vec<_> = passes
        .iter()
        .map(|pass| flagged_of_pass(ids, pass))
        .collect::<PyResult<_>>()?;
    let pass = |index: usize| passes.get(index).map_or(&[][..], |pass| pass);
    Ok(FlaggedTokens::new(pass(0), pass(1), words))
}

fn flagged_of_pass<'p>(
    ids: &HashMap<&str, u32>,
    pass: &'p PassOfTokens,
) -> PyResult<Vec<FlaggedToken<'p>>> {
    let token = |(content, strips_left, strips_right, is_word): &'p (String, bool, bool, bool)| {
        let id = ids.get(&**content).copied();
        Ok(FlaggedToken {
            content,
            id: id.ok_or_else(|| PyValueError::new_err("a token without an id"))?,
            flags: Flags {
                strips_left: *strips_left,
                strips_right: *strips_right,
                is_word: *is_word,
            },
        })
    };
    pass.iter().map(token).collect()
}

pub fn pairs_of<'py, K, V>(dict: &Bound<'py, PyDict>) -> PyResult<Vec<(K, V)>>
where
    K: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    V: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    dict.iter()
        .map(|(key, value)| {
            Ok((
                key.extract().map_err(Into::into)?,
                value.extract().map_err(Into::into)?,
            ))
        })
        .collect()
}

fn build(
    vocab: Vec<(u32, &[u8])>,
    known: &[(&[u8], u32)],
    merges: Option<&[u8]>,
    take_whole: bool,
    from: Start,
) -> Result<Encoder, String> {
    if vocab.iter().any(|(id, _)| id >> ID_BITS != 0) {
        return Err(format!("an id of 2^{ID_BITS} or more"));
    }
    let vocabulary = Vocabulary::new(vocab);
    let merges: Option<Vec<Merge>> = merges.map(|ids| {
        let ids = ids.as_chunks().0.iter().map(|&id| u32::from_ne_bytes(id));
        let ids: Vec<u32> = ids.collect();
        let merges = ids.as_chunks().0.iter();
        merges.map(|&[l, r, p]| (l, r, p)).collect()
    });
    let is_sound = |&(left, right, product): &Merge| {
        let [left, right, product] = [left, right, product].map(|id| vocabulary.token(id));
        product.strip_prefix(left) == Some(right) && !left.is_empty() && !right.is_empty()
    };
    if !merges.iter().flatten().all(is_sound) {
        return Err("a merge whose sides are not its product".into());
    }
    Encoder::build(vocabulary, known, merges.as_deref(), take_whole, from)
}

/// The joined text of segments, and its trusted runs; None for segments that are not all a tuple of
/// a `str` and a `bool`.
#[pyfunction]
fn join_segments<'py>(
    segments: &Bound<'py, PyList>,
) -> PyResult<Option<(Bound<'py, PyString>, Bound<'py, PyList>)>> {
    texts::join_segments(segments)
}

/// Drops the memory that is kept for the ids of later calls; returns its bytes, at most 64 MB.
#[pyfunction]
fn release_buffers(py: Python<'_>) -> usize {
    py.detach(buffer_pool::release)
}
