"""Normalizers in a `tokenizer.json`, held against `tokenizers`."""

import json

import pytest
import tokenizers
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.tokenizer_core.formats.normalizer_files import TOKENS, file_of, normalizers, texts
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.manifest_fields import (
    build_spec,
    parse_manifest_json,
    render_manifest_json,
    render_spec_fields,
)
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json, render_tokenizer_json

ENGINES = ["python"] if native_unavailable_reason() else ["native", "python"]


def both(normalizer, tokens=None) -> tuple[tokenizers.Tokenizer, list[Tokenizer]]:
    """Hugging Face's tokenizer and ours; no example if this one is refused."""
    data = file_of(normalizer, tokens)
    try:
        spec = parse_tokenizer_json(data)
    except FormatError:
        assume(False)
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    return theirs, [Tokenizer.from_spec(spec, engine=name) for name in ENGINES]


@given(normalizer=normalizers, text=texts, tokens=st.sampled_from([[], TOKENS]))
def test_ids_and_offsets(normalizer, text, tokens):
    theirs, ours = both(normalizer, tokens)
    expected = theirs.encode(text)
    for tokenizer in ours:
        assert tokenizer.encode(text) == expected.ids
        ids, offsets = tokenizer.encode_with_offsets(text, unit="char")
        assert ids == expected.ids
        if tokenizer.spec.normalizer == "steps":
            assert list(map(tuple, offsets.tolist())) == expected.offsets


@given(normalizer=normalizers, text=texts)
def test_streams_at_every_cut(normalizer, text):
    _, (tokenizer, *_) = both(normalizer)
    expected = tokenizer.encode(text)
    data = text.encode()
    for cut in range(len(text) + 1):
        stream = StreamingEncoder(tokenizer)
        ids = stream.feed(text[:cut])
        assert stream.bytes_settled <= len(text[:cut].encode())
        assert ids + stream.feed(text[cut:]) + stream.finish() == expected
        assert stream.bytes_settled == len(data)
    stream = StreamingEncoder(tokenizer)
    assert [id_ for c in text for id_ in stream.feed(c)] + stream.finish() == expected
