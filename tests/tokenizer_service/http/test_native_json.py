"""Reading a body in the native engine gives the same request or the same error."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.native_module import native_module
from tokenizer_client.schemas.text import ChunkRequest, CountRequest, TruncateRequest, VerifyRequest
from tokenizer_client.schemas.tokens import EncodeRequest
from tokenizer_core.engines import EngineChoice, decode_json_string, read_json_natively
from tokenizer_core.strict_json import StrictJsonError, read_json
from tokenizer_service.http import json as json_bodies
from tokenizer_service.http.bodies import read_model, validate
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.http.problem import Problem

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
        broken = random.choice(BREAKS)
        body = body[:place] + broken + body[place + random.randint(0, 1) :]
    for model in (EncodeRequest, CountRequest, TruncateRequest, ChunkRequest, VerifyRequest):
        expected = outcome(body, model, None)
        assert outcome(body, model, NATIVE) == expected
        assert outcome(body, model, PYTHON) == expected


def test_a_long_body_is_read_natively_only_with_the_native_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []

    def read_it(document: bytes, **limits: int) -> Any:
        read.append(len(document))
        return read_json_natively(document, **limits)

    monkeypatch.setattr(json_bodies, "read_json_natively", read_it)
    body = b' {"a": [1.5, null], "text" : "%b", "max_tokens": 9}' % (b"a" * 3000)
    for engine, lengths in ((None, []), (PYTHON, []), (NATIVE, [len(body)])):
        read.clear()
        assert parse_strict_json(body, engine) == json.loads(body)
        assert read == lengths
    parse_strict_json(b'{"text":"a"}', NATIVE)
    assert read == [len(body)]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.sampled_from(["", "\ud800", "a\nb", "é中😀", "role"])
    | st.lists(st.integers(-9, 10**7), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["", "a", "b", "role", "é"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values, st.booleans(), st.sampled_from([None, 1]), st.randoms())
def test_the_native_reader_reads_what_the_strict_parser_reads(
    value: Any, ascii_only: bool, indent: int | None, random: Any
) -> None:
    document = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    body = document.encode(errors="surrogatepass")
    for _ in range(random.randint(0, 2)):
        place = random.randrange(len(body) + 1)
        broken = random.choice([*BREAKS, b"[", b"]", b"{", b":", b"-", b"0", b"1", b".", b"e5"])
        body = body[:place] + broken + body[place + random.randint(0, 1) :]
    found = read_json_natively(body, most_values=100, most_containers=100)
    try:
        expected = read_json(body)
    except StrictJsonError:
        assert found is None
    else:
        # Not by `==`: 1 equals True and 1.0.
        assert found is None or repr(found[0]) == repr(expected)
        if found is not None:
            assert repr(read_json(body, window_chars=16)) == repr(expected)


def test_the_native_reader_has_limits_of_values_and_containers() -> None:
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "é\n"}]}] * 500,
        "tokens": list(range(-5, 100_000)),
        "texts": ["", "a", None, True, False, 0.7, -1e-5, {}, []],
    }
    for indent in (None, 2):
        document = json.dumps(body, indent=indent).encode()
        found = read_json_natively(document, most_values=10_000, most_containers=2_000)
        assert found is not None
        assert found[0] == json.loads(document)
        assert read_json_natively(document, most_values=10_000, most_containers=1_000) is None
        assert read_json_natively(document, most_values=4_000, most_containers=2_000) is None


@pytest.mark.parametrize(
    "body",
    [
        b"[1" + b" " * 300_000 + b"]",
        b'{"tokens":[1' + b"\n" * 300_000 + b",2]}",
        b"[true" + b" " * 300_000 + b",false, [1]]",
        b'{"text":"' + b"a" * ((1 << 18) - 7) + b"\\\\ud83d" + b"b" * ((1 << 22) + 100) + b'"}',
        b'{"text":"' + b"a" * ((1 << 18) - 7) + b"\\\\\\ud83d\\ude00" + b"b" * (1 << 22) + b'"}',
    ],
)
def test_a_large_body_means_the_same_for_both_engines(body: bytes) -> None:
    assert parse_strict_json(body, PYTHON) == parse_strict_json(body, NATIVE) == json.loads(body)


def test_every_string_that_json_writes_is_read_back() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11_0000)]))
    pieces = [every[start : start + 9973] for start in range(0, len(every), 9973)]
    for piece in pieces:
        for ascii_only in (False, True):
            document = json.dumps({"text": piece}, ensure_ascii=ascii_only).encode()
            assert decode_json_string(document, 9) == (piece, len(document) - 1)
