"""Ids that are kept, and where encoding their text again would give others."""

import functools
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.formats.small_specs import BYTES, trained_spec
from tests.tokenizer_core.formats.tokenizer_json.test_metaspace import RULES, SPECS
from tests.tokenizer_core.formats.tokenizer_json.test_model import clip
from tokenizer_core import Tokenizer
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.errors import SpecialTokenForbiddenError, UnknownTokenIdError
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.normalizers.steps import Steps
from tokenizer_core.spec import AddedToken

ENDS = ["<|end|>", "<|end|><|end|>"]
FLAGGED = [
    AddedToken("<|right|>", 400, rstrip=True),
    AddedToken("<|left|>", 401, lstrip=True),
    AddedToken("<|word|>", 402, single_word=True),
    AddedToken("<think>", 403, special=False),
]
STEPS = (
    NormalizerStep("Prepend", content=">"),
    NormalizerStep("Strip", strips_left=True, strips_right=True),
    NormalizerStep("Lowercase"),
)
SHAPES = {
    "bytes": trained_spec(special_tokens=ENDS),
    "flags": trained_spec(special_tokens=FLAGGED),
    "nfc": trained_spec(normalizer="nfc", special_tokens=ENDS),
    "prefix-space": trained_spec(normalizer="prefix-space", special_tokens=ENDS),
    "steps": trained_spec(normalizer=Steps("steps", STEPS), special_tokens=ENDS),
    **{rule: SPECS[rule] for rule in RULES},
    "content tokens": SPECS["metaspace-first, content tokens"],
    "suffix": parse_tokenizer_json(clip()),
}


@functools.cache
def tokenizer_of(shape, engine):
    return Tokenizer.from_spec(SHAPES[shape], engine=engine)


every_shape = pytest.mark.parametrize("shape", SHAPES)
VOCAB = BYTES | {256: b"ab", 257: b"he", 258: b"llo", 259: b"hello", 260: b"lo"}
MERGES = [(b"a", b"b"), (b"h", b"e"), (b"l", b"o"), (b"l", b"lo"), (b"he", b"llo")]


def texts(shape):
    contents = [token.content for token in SHAPES[shape].added_tokens]
    fragments = ["a", "ab", " ab", " ", "  ", "\n", "é", "e\u0301", "\u0301", "中文", "▁", "low"]
    fragments += ["A", "🙂", "newest", *contents, *(content[:-2] for content in contents)]
    return st.lists(st.sampled_from(fragments), max_size=6).map("".join)


def slow_difference(one, other):
    pairs = enumerate(zip_longest(one, other))
    return next((at for at, (left, right) in pairs if left != right), None)


@every_shape
@given(data=st.data())
def test_extending_keeps_the_ids_and_says_where_encoding_again_differs(shape, engine, data):
    tokenizer = tokenizer_of(shape, engine)
    some_ids = st.lists(st.sampled_from(sorted(tokenizer.spec.vocab)), max_size=6)
    ids = data.draw(st.one_of(texts(shape).map(tokenizer.encode), some_ids))
    text, policy = data.draw(texts(shape)), data.draw(st.sampled_from(["all", "none"]))
    extended = tokenizer.extend(ids, text, allowed_special=policy)
    assert extended.ids[: len(ids)] == ids
    again = tokenizer.encode(tokenizer.decode(ids) + text)
    assert extended.drift_at == slow_difference(extended.ids, again)
    if not ids:
        assert extended.ids == tokenizer.encode(text, allowed_special=policy)
    if shape == "bytes":
        assert extended.ids[len(ids) :] == tokenizer.encode(text, allowed_special=policy)
        assert tokenizer.decode(extended.ids) == tokenizer.decode(ids) + text
    assert tokenizer.extend(np.array(ids, dtype=np.int64), text, allowed_special=policy) == extended


@every_shape
@given(data=st.data())
def test_after_a_special_token_the_ids_are_those_of_the_whole_text(shape, engine, data):
    tokenizer = tokenizer_of(shape, engine)
    token = data.draw(st.sampled_from(tokenizer.spec.added_tokens))
    before, text = data.draw(texts(shape)), data.draw(texts(shape))
    ids = tokenizer.encode(before + token.content)
    whole = tokenizer.encode(before + token.content + text)
    # Unless the text makes another special token of this one, or of a part of the text before.
    alone = tokenizer.encode(token.content + text)
    if ids and ids[-1] == token.id and whole[: len(ids)] == ids and alone[:1] == [token.id]:
        assert tokenizer.extend(ids, text).ids == whole


@pytest.mark.parametrize("shape", ["nfc", "prefix-space", "steps", *RULES])
def test_text_after_a_token_that_is_found_in_normalized_text(shape, engine):
    spec = SHAPES[shape]
    tokens = [replace(token, normalized=True) for token in spec.added_tokens]
    changed = replace(spec, added_tokens=()).with_added_tokens(tokens)
    tokenizer = Tokenizer.from_spec(changed, engine=engine)
    for text in ("ab", " ab", "Ab "):
        ids = tokenizer.encode(tokens[-1].content + text)
        after = ids[ids.index(tokens[-1].id) + 1 :]
        assert tokenizer.extend([tokens[-1].id], text).ids == [tokens[-1].id, *after]


@every_shape
@given(data=st.data())
def test_canonical_ids_are_those_that_encoding_gives(shape, engine, data):
    tokenizer = tokenizer_of(shape, engine)
    some_ids = st.lists(st.sampled_from(sorted(tokenizer.spec.vocab)), max_size=5)
    one_row = st.one_of(texts(shape).map(tokenizer.encode), some_ids)
    rows = data.draw(st.lists(one_row, max_size=4))
    expected = [slow_difference(row, tokenizer.encode(tokenizer.decode(row))) for row in rows]
    is_canonical = [drift is None for drift in expected]
    assert [tokenizer.first_drift(row) for row in rows] == expected
    assert [tokenizer.canonical(row) for row in rows] == is_canonical
    as_numbers = [-1 if drift is None else drift for drift in expected]
    offsets = np.cumsum([0, *map(len, rows)])
    flat = np.array([id_ for row in rows for id_ in row], dtype=np.uint32)
    for found in (
        tokenizer.first_drift_batch([np.array(row, dtype=np.int64) for row in rows]),
        tokenizer.first_drift_batch(flat, offsets),
        tokenizer.first_drift_batch(map(tuple, rows), num_threads=2),
    ):
        assert (found.tolist(), found.dtype) == (as_numbers, np.int64)
    assert tokenizer.canonical_batch(rows).tolist() == is_canonical


@every_shape
@given(data=st.data())
def test_a_batch_decodes_to_the_text_of_each_row(shape, engine, data):
    tokenizer = tokenizer_of(shape, engine)
    one_row = st.lists(st.sampled_from(sorted(tokenizer.spec.vocab)), max_size=12)
    rows = data.draw(st.lists(st.one_of(texts(shape).map(tokenizer.encode), one_row), max_size=4))
    skips, num_threads = data.draw(st.booleans()), data.draw(st.sampled_from([None, 2]))
    options = {"skip_special_tokens": skips, "num_threads": num_threads}
    expected = [tokenizer.decode(row, skip_special_tokens=skips) for row in rows]
    for batch in (
        rows,
        [np.array(row * 2, dtype=np.uint32)[: len(row)] for row in rows],
        [np.array(row, dtype=np.uint16) for row in rows],
        map(iter, rows),
    ):
        assert tokenizer.decode_batch(batch, **options) == expected


def test_wrong_ids_and_rows_are_refused(engine):
    tokenizer = tokenizer_of("bytes", engine)
    for call in (lambda ids: tokenizer.extend(ids, "a"), tokenizer.first_drift):
        with pytest.raises(UnknownTokenIdError, match=r"ids\[1\] = 9999 is not"):
            call([97, 9999])
        with pytest.raises(TypeError, match=r"ids\[1\] = True is a bool"):
            call([97, True])
    for wrong in ([97, True], ["97"], np.array([97.0])):
        with pytest.raises(TypeError):
            tokenizer.decode_batch([[97], wrong])
    for unknown in ([97, 9999], [97, -1], [97, 1 << 40], np.array([97, -1]), np.array([97, 9999])):
        with pytest.raises(UnknownTokenIdError) as caught:
            tokenizer.decode_batch([[97], unknown])
        assert (caught.value.index, caught.value.token_id) == (1, int(unknown[1]))
        with pytest.raises(UnknownTokenIdError, match="row 1"):
            tokenizer.first_drift_batch([[97], unknown])
    with pytest.raises(TypeError, match=r"row 1 must be a list .*, not str"):
        tokenizer.canonical_batch([[97], "a"])
    with pytest.raises(ValueError, match=r"an array of shape \(2,\) is no batch"):
        tokenizer.canonical_batch(np.array([97, 98]))
    ids = np.array([97, 98], dtype=np.uint32)
    for offsets in ([0, 1], [1, 2], [0, 2, 1, 2], []):
        with pytest.raises(ValueError, match="offsets ascend from 0 to the number of ids, 2"):
            tokenizer.canonical_batch(ids, np.array(offsets))
    assert tokenizer.canonical_batch(ids[:0], np.array([0, 0])).tolist() == [True]


def test_threads_decode_and_compare_long_batches_alike():
    tokenizer = tokenizer_of("bytes", "python" if native_unavailable_reason() else "native")
    rows = [tokenizer.encode("newest low é中 " * n) for n in (3000, 1, 5000, 0, 9000, 2)]
    rows[2] = [*b"low", *rows[2]]
    rows[4][-1:] = [*tokenizer.spec.vocab[rows[4][-1]], 0xE4]
    expected = list(map(tokenizer.decode, rows))
    drifts = [-1 if found is None else found for found in map(tokenizer.first_drift, rows)]
    assert [drift >= 0 for drift in drifts] == [False, False, True, False, True, False]
    for n_threads in (None, 2, 50):
        assert tokenizer.decode_batch(rows, num_threads=n_threads) == expected
        assert tokenizer.first_drift_batch(rows, num_threads=n_threads).tolist() == drifts


def test_where_ids_drift(engine):
    tokenizer = Tokenizer(VOCAB, MERGES, ["<|e|>"], engine=engine)
    end = tokenizer.token_to_id("<|e|>")
    assert tokenizer.encode("hello") == [259]
    # A forged special token stays text.
    forged = tokenizer.extend([end], "<|e|>", allowed_special="none")
    assert forged == ([end, *b"<|e|>"], 1)
    assert tokenizer.extend([end], "<|e|>", added_tokens="none") == forged
    for text, options in (
        ("<|e|>", {"added_tokens": "none", "allowed_special": ["<|e|>"]}),
        ("<|e|>", {"added_tokens": "some"}),
        ([("<|e|>", True)], {"allowed_special": "none"}),
        ([("<|e|>", True)], {"disallowed_special": "all"}),
    ):
        with pytest.raises(ValueError, match=r"added_tokens|belong to a text"):
            tokenizer.extend([end], text, **options)
    with pytest.raises(SpecialTokenForbiddenError):
        tokenizer.extend([end], "<|e|>", allowed_special="none", disallowed_special="all")
    batch = np.array([[259, 32], [257, 258], [end, end]])
    assert tokenizer.first_drift_batch(batch).tolist() == [-1, 0, -1]
    assert tokenizer.decode_batch(batch) == ["hello ", "hello", "<|e|><|e|>"]
    assert tokenizer.decode_batch(batch.T.copy().T) == tokenizer.decode_batch(batch)
    assert tokenizer.decode_batch(np.array([[97, 0xE4]])[:, 1:], "ignore") == [""]
    assert tokenizer.decode_batch([[97, np.int64(98)], (99,)]) == ["ab", "c"]
