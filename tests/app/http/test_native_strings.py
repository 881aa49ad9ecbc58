"""Decoding a body's first string in the native engine gives the same request or the same error."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.http import json as json_bodies
from app.http.bodies import read_model, validate
from app.http.json import parse_strict_json
from app.http.problem import Problem
from tests.native_module import native_module
from tokenizer_client.schemas.text import ChunkRequest, CountRequest, TruncateRequest, VerifyRequest
from tokenizer_client.schemas.tokens import EncodeRequest
from tokenizer_core.engines import EngineChoice, decode_json_string

NATIVE = EngineChoice("native", "a test", None)
PYTHON = EngineChoice("python", "a test", None)


@pytest.fixture(autouse=True)
def _is_compiled() -> None:
    native_module()


BREAKS = [b'"', b"\\", b"\\u", b"\\ud83d", b"\x00", b"\xff", b",", b"}", b" "]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
options = st.dictionaries(
    st.sampled_from(["tokenizer", "allowed_special", "max_tokens", "text", "return", "é"]),
    st.sampled_from(["all", "none", None, 3, 1.5, "a@b", [], ["ids"], {"text": ["x"]}, "\ud800"]),
    max_size=3,
)


def outcome(body: bytes, model: Any, engine: EngineChoice | None) -> object:
    """The request, or the whole problem; without an engine, as the strict parser gives it."""
    try:
        if engine is None:
            return validate(parse_strict_json(body), model)
        return read_model(model, body, engine=engine)
    except Problem as problem:
        return problem.document("id")


@given(
    texts,
    options,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.randoms(),
    st.sampled_from([0, 2000]),
)
@example("", {}, True, None, None, 2000)
def test_any_body_means_what_the_strict_parser_says(
    text: str,
    more: dict[str, Any],
    ascii_only: bool,
    indent: int | None,
    random: Any,
    n_spaces: int,
) -> None:
    document = json.dumps({"text": text, **more}, ensure_ascii=ascii_only, indent=indent)
    body = document.encode(errors="surrogatepass") + b" " * n_spaces
    for _ in range(0 if random is None else random.randint(0, 2)):
        place = random.randrange(len(body) + 1)
        broken = random.choice(
            [b'"', b"\\", b"\\u", b"\\ud83d", b"\x00", b"\xff", b",", b"}", b" "]
        )
        body = body[:place] + broken + body[place + random.randint(0, 1) :]
    for model in (EncodeRequest, CountRequest, TruncateRequest, ChunkRequest, VerifyRequest):
        expected = outcome(body, model, None)
        assert outcome(body, model, NATIVE) == expected
        assert outcome(body, model, PYTHON) == expected


def test_a_string_is_decoded_natively_only_with_the_native_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []

    def decode(document: bytes, start: int) -> Any:
        decoded.append(start)
        return decode_json_string(document, start)

    monkeypatch.setattr(json_bodies, "decode_json_string", decode)
    body = b' {"text" : "%b", "max_tokens": 9}' % (b"a" * 3000)
    for engine, starts in ((None, []), (PYTHON, []), (NATIVE, [11])):
        decoded.clear()
        assert parse_strict_json(body, engine) == json.loads(body)
        assert decoded == starts
    for short in (b'{"text":"a"}', b"[%b]" % (b"1," * 3000 + b"1"), b'{"a":1,%b' % body[2:]):
        parse_strict_json(short, NATIVE)
    assert decoded == [11]


def test_every_string_that_json_writes_is_read_back() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11_0000)]))
    pieces = [every[start : start + 997] for start in range(0, len(every), 997)]
    for piece in pieces:
        for ascii_only in (False, True):
            document = json.dumps({"text": piece}, ensure_ascii=ascii_only).encode()
            assert decode_json_string(document, 9) == (piece, len(document) - 1)


def test_random_bytes_are_refused_or_right() -> None:
    noise = random.Random(1)
    for _ in range(2000):
        document = b'{"text":"' + noise.randbytes(12) + b'"}'
        found = decode_json_string(document, 8)
        if found is not None and document[found[1] :] == b"}":
            assert json.loads(document) == {"text": found[0]}
