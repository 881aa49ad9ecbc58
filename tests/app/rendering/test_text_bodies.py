"""A body whose text was cut out is the request that the strict parser makes of it, or its error."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.http.bodies import validate
from app.http.json import parse_strict_json
from app.http.problem import Problem
from app.rendering import text_bodies
from app.rendering.text_bodies import parse_text_body
from tests.native_module import native_module
from tokenizer_client.schemas.text import ChunkRequest, CountRequest, TruncateRequest, VerifyRequest
from tokenizer_client.schemas.tokens import EncodeRequest
from tokenizer_core.engines import EngineChoice, cut_json_text

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
    """The request, or all that its problem says; without an engine, of the strict parser."""
    try:
        if engine is None:
            return validate(parse_strict_json(body), model)
        return parse_text_body(body, model, engine)
    except Problem as problem:
        return problem.document("id")


@given(texts, options, st.booleans(), st.sampled_from([None, 1]), st.randoms())
@example("", {}, True, None, None)
def test_any_body_means_what_the_strict_parser_says(
    text: str, more: dict[str, Any], ascii_only: bool, indent: int | None, random: Any
) -> None:
    document = json.dumps({"text": text, **more}, ensure_ascii=ascii_only, indent=indent)
    body = document.encode(errors="surrogatepass")
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


def test_what_is_left_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text_bodies._parse_without_text.cache_clear()
    parsed = []

    def parse(body: bytes) -> Any:
        parsed.append(body)
        return parse_strict_json(body)

    monkeypatch.setattr(text_bodies, "parse_strict_json", parse)
    for text in ("one", "two\\n", "é"):
        body = f'{{"text": "{text}", "max_tokens": 9}}'.encode()
        request = parse_text_body(body, EncodeRequest, NATIVE)
        expected = EncodeRequest(text=json.loads(body)["text"], max_tokens=9)
        assert (request, request.model_fields_set) == (expected, expected.model_fields_set)
        assert request.model_dump() == expected.model_dump()
    assert parsed == [b'{"text":"", "max_tokens": 9}']
    parse_text_body(b'{"text":"a","max_tokens":1}', EncodeRequest, PYTHON)
    assert len(parsed) == 2  # all of it: the Python engine is one of Python alone


def test_a_long_text_and_long_options_are_left_to_the_strict_parser() -> None:
    text_bodies._parse_without_text.cache_clear()
    options = json.dumps({"disallowed_special": ["x" * 200, "y" * 100]})[1:].encode()
    for body in (b'{"text":"%b"}' % (b"a" * (1 << 22)), b'{"text":"a",' + options):
        request = parse_text_body(body, EncodeRequest, NATIVE)
        assert request == validate(json.loads(body), EncodeRequest)
    assert text_bodies._parse_without_text.cache_info().currsize == 0


def test_every_string_that_json_writes_is_read_back() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11_0000)]))
    pieces = [every[start : start + 997] for start in range(0, len(every), 997)]
    for piece in pieces:
        for ascii_only in (False, True):
            document = json.dumps({"text": piece}, ensure_ascii=ascii_only).encode()
            assert cut_json_text(document) == (piece, b"}")


def test_random_bytes_are_refused_or_right() -> None:
    noise = random.Random(1)
    for _ in range(2000):
        document = b'{"text":"' + noise.randbytes(12) + b'"}'
        cut = cut_json_text(document)
        if cut is not None and cut[1] == b"}":
            assert json.loads(document) == {"text": cut[0]}
