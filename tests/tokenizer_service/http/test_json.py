"""Bodies as JSON: what the reader in windows and the native engine accept, refuse and limit. The
fuzz target `request_json` compares the reader in windows with the parser on broken bodies."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.native_module import native_module
from tokenizer_client.schemas.text import ChunkRequest, CountRequest, TruncateRequest, VerifyRequest
from tokenizer_client.schemas.tokens import EncodeRequest
from tokenizer_core.engines import EngineChoice, read_json_natively
from tokenizer_core.strict_json import StrictJsonError, read_json
from tokenizer_service.access.errors import TooManyContainersError, TooManyValuesError
from tokenizer_service.http import json as json_bodies
from tokenizer_service.http.bodies import read_model, validate
from tokenizer_service.http.json import MAX_CONTAINERS, MAX_VALUES, parse_body_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.problem_table import problem_of

NATIVE = EngineChoice("native", "a test", None)
PYTHON = EngineChoice("python", "a test", None)


@pytest.fixture(scope="session")
def compiled():
    native_module()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.lists(st.integers(-9, 10**7), max_size=4)
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=30
)
indents = st.sampled_from([None, 1])


def outcome(body, window_chars=1 << 18):
    try:
        return "value", json.dumps(parse_body_json(body, window_chars=window_chars))
    except (Problem, TooManyContainersError, TooManyValuesError) as error:
        problem = problem_of(error)
        return problem.status, problem.code


@pytest.mark.promise(19)
@given(documents, st.booleans(), st.integers(16, 40), indents)
def test_any_document_comes_out_as_json_reads_it(document, ascii_only, window, indent):
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    whole = outcome(body)
    assert whole == ("value", json.dumps(json.loads(body)))
    assert outcome(body, window) == whole


def test_a_wrong_mark_is_refused_in_windows_too():
    text = f'"{"a" * 100}"'
    for wrong in (
        *(f"[{text}, {last},]" for last in ('"text"', '"text" ', "[]", "{}", "1", "null")),
        *(f"{start}, {text}]" for start in ("[,[1]", "[[1],,[2]", '["a" , ,1', '[1,,"a"')),
        *(f"[{text}] 1", f"{{{text} 1}}", f"{{{text}: 1, 2: 3}}", f'{{"a": {text} "b": 1}}'),
    ):
        for window in (16, 24, 40, 1 << 18):
            assert outcome(wrong.encode(), window) == (400, "malformed_json"), (wrong, window)
    for n_before in range(40):  # an escape is cut by the end of a window, too
        lone = f'["{"a" * n_before}\\ud800b{"c" * 40}"]'.encode()
        assert outcome(lone, 16) == (422, "lone_surrogate"), n_before


@pytest.mark.row(1, 2, 4, 6)
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b'{"a":1}x', 400, "malformed_json"),
        (b'{"a":1,"a":2}', 400, "duplicate_key"),
        (b'\xef\xbb\xbf{"a":1}', 400, "byte_order_mark"),
        ('{"a":1}'.encode("utf-16"), 400, "invalid_utf8"),
        (b'{"a":"\xff"}', 400, "invalid_utf8"),
        (b'{"a":"\xed\xa0\x80"}', 400, "invalid_utf8"),
        (b'{"a":NaN}', 422, "not_a_number"),
        (b'{"a":"\\ud800"}', 422, "lone_surrogate"),
        (b'{"\\udfff":1}', 422, "lone_surrogate"),
        (b'{"a":["x",{"b":"\\uD83D\\uD83D\\uDE00"}]}', 422, "lone_surrogate"),
        (b"[" + b"9" * 5000 + b"]", 422, "number_too_long"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, 422, "invalid_request"),
        (b"[" * 900 + b"]" * 900, 422, "invalid_request"),
        (b"[" * 1001 + b"]" * 1001, 400, "nested_too_deep"),
        (b"[" * 400_000, 400, "nested_too_deep"),
        (b'"a\\qb"', 400, "malformed_json"),
        (b'["' + b'\\"' * 200_000, 400, "malformed_json"),
        (b"[0," * 1001 + b'"' + b'\\"' * 200_000, 400, "nested_too_deep"),
    ],
)
def test_a_bad_document_is_refused_by_its_code(body, status, code):
    # The parser's depth limit varies with the call stack; a limit of the API must not.
    def below(frames):
        return outcome(body) if frames == 0 else below(frames - 1)

    for found in (below(0), below(100)):
        # A body that fits the stack is parsed, and the schema refuses it with the same 422.
        assert found == (status, code) or (code == "invalid_request" and found[0] == "value")
    if len(body) > 40:
        assert outcome(body, 16)[0] in (400, 422)


@pytest.mark.parametrize("place", [0, 1, 63, 64, 65, 200])
def test_the_offset_of_invalid_utf8_is_exact_across_windows(place):
    head = "é" * 200
    for n_bytes, bad in ((2, b"\xff"), (1, b"\xe4\xb8"), (1, b"\xf0\x9f\x91")):
        body = b'"' + head.encode()[: place * 2 // n_bytes * n_bytes] + bad + b'" ' + b" " * 100
        wanted = len(body) - len(bad) - 102
        with pytest.raises(Problem) as caught:
            parse_body_json(body, window_chars=16)
        assert caught.value.byte_offset == wanted


@pytest.mark.row(6)
@pytest.mark.parametrize(
    ("head", "unit", "status", "code"),
    [
        (b'{"text":[', b'"",', 413, "batch_too_large"),
        (b'{"tokens":[', b"[],", 413, "batch_too_large"),
        (b'{"tokens":', b"[", 400, "nested_too_deep"),
        (b'{"text":[', b'{"":', 400, "nested_too_deep"),
    ],
)
def test_a_hostile_body_is_refused_before_it_is_decoded(head, unit, status, code, monkeypatch):
    def decode(body, window_chars):
        raise AssertionError("the body was decoded")

    monkeypatch.setattr(json_bodies, "read_json", decode)
    assert outcome(head + unit * (MAX_VALUES + 1)) == (status, code)


def test_a_body_may_hold_a_number_of_values(monkeypatch):
    assert (MAX_VALUES, MAX_CONTAINERS) == (1 << 20, 1 << 18)
    monkeypatch.setattr(json_bodies, "MAX_VALUES", 2000)
    monkeypatch.setattr(json_bodies, "MAX_CONTAINERS", 2000)
    for item in ("", [], {}):
        items = [item] * 1999
        assert parse_body_json(json.dumps(items).encode()) == items
        assert outcome(json.dumps([item] * 2000).encode()) == (413, "batch_too_large")
    monkeypatch.setattr(json_bodies, "MAX_CONTAINERS", 1500)
    for item, status in (("", "value"), ([], 413), ({}, 413)):
        assert outcome(json.dumps([item] * 1501).encode())[0] == status
    for text in ('"' * 2001, "[{" * 2001, '\\"[' * 2001):
        assert parse_body_json(json.dumps({"text": text}).encode()) == {"text": text}


BREAKS = [b'"', b"\\", b"\\u", b"\\ud83d", b"\x00", b"\xff", b",", b"}", b" "]
BRACKETS = [b"[", b"]", b"{", b":", b"-", b"0", b"1", b".", b"e5"]
options = st.dictionaries(
    st.sampled_from(["tokenizer", "allowed_special", "max_tokens", "text", "return", "é"]),
    st.sampled_from(["all", "none", None, 3, 1.5, "a@b", [], ["ids"], {"text": ["x"]}, "\ud800"]),
    max_size=3,
)


def broken(document, random, breaks):
    """The document with up to two changes."""
    body = document.encode(errors="surrogatepass")
    for _ in range(0 if random is None else random.randint(0, 2)):
        place = random.randrange(len(body) + 1)
        body = body[:place] + random.choice(breaks) + body[place + random.randint(0, 1) :]
    return body


def request_of(body, model, engine):
    """The request, or the whole problem; without an engine, as the strict parser gives it."""
    try:
        if engine is None:
            return validate(parse_body_json(body), model)
        return read_model(model, body, engine=engine)
    except Problem as problem:
        return problem.document("id")


@given(texts, options, st.booleans(), indents, st.randoms(), st.sampled_from([0, 2000]))
@example("", {}, True, None, None, 2000)
def test_any_body_is_the_same_request_for_both_engines(
    compiled, text, more, ascii_only, indent, random, n_spaces
):
    document = json.dumps({"text": text, **more}, ensure_ascii=ascii_only, indent=indent)
    body = broken(document + " " * n_spaces, random, BREAKS)
    for model in (EncodeRequest, CountRequest, TruncateRequest, ChunkRequest, VerifyRequest):
        expected = request_of(body, model, None)
        assert request_of(body, model, NATIVE) == expected
        assert request_of(body, model, PYTHON) == expected


def test_a_long_body_is_read_natively_only_with_the_native_engine(compiled, monkeypatch):
    read = []

    def read_it(document, **limits):
        read.append(len(document))
        return read_json_natively(document, **limits)

    monkeypatch.setattr(json_bodies, "read_json_natively", read_it)
    body = b' {"a": [1.5, null], "text" : "%b", "max_tokens": 9}' % (b"a" * 3000)
    for engine, lengths in ((None, []), (PYTHON, []), (NATIVE, [len(body)])):
        read.clear()
        assert parse_body_json(body, engine) == json.loads(body)
        assert read == lengths
    parse_body_json(b'{"text":"a"}', NATIVE)
    assert read == [len(body)]


values = st.recursive(
    scalars | st.floats() | st.sampled_from(["", "\ud800", "a\nb", "é中😀", "role"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["", "a", "b", "role", "é"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values, st.booleans(), indents, st.randoms())
def test_the_native_reader_reads_what_the_strict_parser_reads(
    compiled, value, ascii_only, indent, random
):
    document = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    body = broken(document, random, [*BREAKS, *BRACKETS])
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


def test_the_native_reader_leaves_what_is_invalid_to_the_parser(compiled):
    numbers = b"01 - -01 +1 .5 1. 1.e3 1e 1e+ 00.5 1e400 -1e400 1000000000000000000".split()
    words = b"[ [1 [1, [1,] [,1] { {}{} {a:1} {1:1} NaN Infinity -Infinity nul nulll true1".split()
    keys = [b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b'{"a":1,"\\u0061":2}']
    twice = b"{%b}" % b",".join(b'"%d":0' % (number % 30) for number in range(31))
    texts = [
        rb"\ud83d", rb"\ude00", rb"\ud83dx", rb"\ud83d\n", rb"\ud83d\u0041", rb"\ud83d\ud83d",
        rb"\x41", rb"\u12", rb"\u12g4", rb"\u+123", b"\\", b"\xff", b"\xc3", b"\xc3\\n",
        b"\\u00e9\xa9", b"\xed\xa0\x80",
    ]  # fmt: skip
    texts = [b'"%b"' % text for text in texts]
    others = [b"", b" ", b"\xef\xbb\xbf1", b"[1 2]", b'["a" 1]', b"[1]\x0c", b"[1]\x00", twice]
    for body in (*numbers, *words, *keys, *texts, *others):
        assert read_json_natively(body, most_values=100, most_containers=20) is None, body
    body = b"-999999999999999999"
    assert read_json_natively(body, most_values=1, most_containers=1) == (int(body),)


def test_the_native_reader_sees_an_escape_and_a_control_character_anywhere(compiled):
    limits = {"most_values": 9, "most_containers": 9}
    for n_before in range(200):
        part = "é" * (n_before // 2) + "x" * (n_before % 2)
        text = part.join(["", '"', "\\", "\n", "😀", "/", ""])
        for ascii_only in (False, True):
            document = json.dumps(text, ensure_ascii=ascii_only).encode()
            assert read_json_natively(document, **limits) == (text,)
        for control in ("\0", "\n", "\x1f"):
            document = f'"{part}{control}{part}"'.encode()
            assert read_json_natively(document, **limits) is None


def test_the_native_reader_has_limits_of_values_and_containers(compiled):
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "é\n"}]}] * 500,
        "tokens": list(range(-5, 100_000)),
        "texts": ["", "a", None, True, False, 0.7, -1e-5, {}, []],
    }
    for indent in (None, 2):
        document = json.dumps(body, indent=indent).encode()
        found = read_json_natively(document, most_values=10_000, most_containers=2_000)
        assert found[0] == json.loads(document)
        assert read_json_natively(document, most_values=10_000, most_containers=1_000) is None
        assert read_json_natively(document, most_values=4_000, most_containers=2_000) is None


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([[1, 2], [], ["a", 1, None, True, 2.5, {"b": []}]] * 8_000).encode(),
        b"[1" + b" " * 300_000 + b"]",
        b'{"tokens":[1' + b"\n" * 300_000 + b",2]}",
        b'{"text":"' + b"a" * ((1 << 18) - 7) + b"\\\\ud83d" + b"b" * ((1 << 22) + 100) + b'"}',
        b'{"text":"' + b"a" * ((1 << 18) - 7) + b"\\\\\\ud83d\\ude00" + b"b" * (1 << 22) + b'"}',
    ],
    ids=range(5),
)
def test_a_large_body_means_the_same_for_both_engines(compiled, body):
    assert parse_body_json(body, PYTHON) == parse_body_json(body, NATIVE) == json.loads(body)


def test_every_string_that_json_writes_is_read_back(compiled):
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11_0000)]))
    pieces = [every[start : start + 9973] for start in range(0, len(every), 9973)]
    for piece in pieces:
        for ascii_only in (False, True):
            document = json.dumps({"text": piece}, ensure_ascii=ascii_only).encode()
            found = read_json_natively(document, most_values=9, most_containers=9)
            assert found == ({"text": piece},)
