import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_service.http import json as json_bodies
from tokenizer_service.http.json import MAX_CONTAINERS, MAX_VALUES, parse_strict_json
from tokenizer_service.http.problem import Problem

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
keys = st.text(st.characters(exclude_categories=["Cs"]))
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=30
)


def outcome(body: bytes, window_chars: int = 1 << 18) -> tuple[Any, ...]:
    try:
        return "value", json.dumps(parse_strict_json(body, window_chars=window_chars))
    except Problem as problem:
        return problem.status, problem.code


@pytest.mark.promise(19)
@given(documents, st.booleans(), st.integers(16, 40), st.sampled_from([None, 1]))
def test_any_document_comes_out_as_json_reads_it(
    document: Any, ascii_only: bool, window: int, indent: int | None
) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    whole = outcome(body)
    assert whole == ("value", json.dumps(json.loads(body)))
    windowed = outcome(body, window)
    # A large body may not nest deeper than eight levels, nor hold a number longer than a window.
    assert windowed in (whole, (422, "invalid_request"), (422, "number_too_long"))


def test_a_wrong_comma_is_refused_in_windows_too() -> None:
    for last in ('"text"', '"text" ', "[]", "{}", "1", "null"):
        body = f'["{"a" * 100}", {last},]'.encode()
        for window in (16, 24, 40, 1 << 18):
            assert outcome(body, window) == (400, "malformed_json"), (last, window)
    for start in ("[,[1]", "[[1],,[2]", '["a" , ,1', '[1,,"a"'):
        body = f'{start}, "{"a" * 100}"]'.encode()
        for window in (16, 24, 40, 1 << 18):
            assert outcome(body, window) == (400, "malformed_json"), (start, window)


@given(documents, st.integers(16, 40), st.randoms(use_true_random=False))
def test_windows_accept_and_refuse_the_same(document: Any, window: int, random: Any) -> None:
    characters = list(json.dumps(document))
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(characters) + 1)
        character = random.choice('[]{}",:\\u0 1a\n\x01t-.eN')
        if random.random() < 0.5 and place < len(characters):
            characters[place] = character
        else:
            characters.insert(place, character)
    body = "".join(characters).encode()
    windowed, whole = outcome(body, window), outcome(body)
    if windowed not in ((422, "invalid_request"), (422, "number_too_long")):
        # When two things are wrong, the parser may report either.
        assert windowed == whole or "value" not in (windowed[0], whole[0]), body


@pytest.mark.row(1, 2, 4, 6)
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b'{"a":1}x', 400, "malformed_json"),
        (b'{"a":1,"a":2}', 400, "duplicate_key"),
        (b'[{"b":{"a":1,"a":1}}]', 400, "duplicate_key"),
        (b'\xef\xbb\xbf{"a":1}', 400, "byte_order_mark"),
        ('{"a":1}'.encode("utf-16"), 400, "byte_order_mark"),
        ('{"a":1}'.encode("utf-16-le"), 400, "malformed_json"),
        (b'{"a":"\xff"}', 400, "invalid_utf8"),
        (b'{"a":"\xed\xa0\x80"}', 400, "invalid_utf8"),
        (b'{"a":NaN}', 422, "not_a_number"),
        (b'{"a":1e400}', 422, "not_a_number"),
        (b'{"a":"\\ud800"}', 422, "lone_surrogate"),
        (b'{"\\udfff":1}', 422, "lone_surrogate"),
        (b'{"a":["x",{"b":"\\uD83D\\uD83D\\uDE00"}]}', 422, "lone_surrogate"),
        (b'"\\ud83d"', 422, "lone_surrogate"),
        (b"[" + b"9" * 5000 + b"]", 422, "number_too_long"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, 422, "invalid_request"),
        (b"[" * 900 + b"]" * 900, 422, "invalid_request"),
        (b"[" * 1001 + b"]" * 1001, 400, "nested_too_deep"),
        (b'{"a":' * 20_000, 400, "nested_too_deep"),
        (b"[" * 400_000, 400, "nested_too_deep"),
        (b'"a\nb"', 400, "malformed_json"),
        (b'"a\\qb"', 400, "malformed_json"),
    ],
)
def test_a_bad_document_is_refused_by_its_code(body: bytes, status: int, code: str) -> None:
    # The parser's depth limit varies with the call stack; a limit of the API must not.
    def below(frames: int) -> tuple[Any, ...]:
        return outcome(body) if frames == 0 else below(frames - 1)

    for found in (below(0), below(100)):
        # A body that fits the stack is parsed, and the schema refuses it with the same 422.
        assert found == (status, code) or (code == "invalid_request" and found[0] == "value")
    if len(body) > 40:
        assert outcome(body, 16)[0] in (400, 422)


def test_a_character_cut_by_a_window_is_whole() -> None:
    escaped = json.dumps({"text": 'a👩\u200d👧b\\"\n' * 9}).encode()
    plain = json.dumps({"text": "é中👩" * 40}, ensure_ascii=False).encode()
    for body in (escaped, plain):
        for window in range(16, 60):
            assert parse_strict_json(body, window_chars=window) == json.loads(body)


@pytest.mark.parametrize("place", [0, 1, 63, 64, 65, 200])
def test_the_offset_of_invalid_utf8_is_exact_across_windows(place: int) -> None:
    head = "é" * 200
    for n_bytes, bad in ((2, b"\xff"), (1, b"\xe4\xb8"), (1, b"\xf0\x9f\x91")):
        body = b'"' + head.encode()[: place * 2 // n_bytes * n_bytes] + bad + b'" ' + b" " * 100
        wanted = len(body) - len(bad) - 102
        with pytest.raises(Problem) as caught:
            parse_strict_json(body, window_chars=16)
        assert caught.value.byte_offset == wanted


def test_a_long_list_is_read_in_windows() -> None:
    ids = list(range(60_000))
    assert parse_strict_json(json.dumps({"tokens": ids}).encode()) == {"tokens": ids}
    assert parse_strict_json(json.dumps(ids, indent=1).encode()) == ids
    rows = [[1, 2], [], [3], ["a", 1, None, True, 2.5, {"b": []}]] * 8_000
    assert parse_strict_json(json.dumps(rows).encode()) == rows


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
def test_a_hostile_body_is_refused_before_it_is_decoded(
    head: bytes, unit: bytes, status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(body: bytes, window_chars: int) -> Any:
        raise AssertionError("the body was decoded")

    monkeypatch.setattr(json_bodies, "read_json", decode)
    assert outcome(head + unit * (MAX_VALUES + 1)) == (status, code)


def test_a_string_without_an_end_is_refused() -> None:
    assert outcome(b'["' + b'\\"' * 200_000) == (400, "malformed_json")
    assert outcome(b"[0," * 1001 + b'"' + b'\\"' * 200_000) == (400, "nested_too_deep")


def test_a_text_may_hold_any_number_of_quotes_and_brackets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_bodies, "MAX_VALUES", 100)
    for text in ('"' * 1001, "[{" * 1001, '\\"[' * 1001):
        assert parse_strict_json(json.dumps({"text": text}).encode()) == {"text": text}


def test_a_body_may_hold_a_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_bodies, "MAX_VALUES", 2000)
    monkeypatch.setattr(json_bodies, "MAX_CONTAINERS", 2000)
    for item in ("", [], {}):
        items = [item] * 1999
        assert parse_strict_json(json.dumps(items).encode()) == items
        assert outcome(json.dumps([item] * 2000).encode()) == (413, "batch_too_large")
    monkeypatch.setattr(json_bodies, "MAX_CONTAINERS", 1500)
    for item, status in (("", "value"), ([], 413), ({}, 413)):
        assert outcome(json.dumps([item] * 1501).encode())[0] == status


@pytest.mark.row(6)
def test_too_many_small_arrays_are_refused() -> None:
    assert 2 * MAX_CONTAINERS < MAX_VALUES
    body = json.dumps({"tokens": [[97]] * MAX_CONTAINERS}).encode()
    assert outcome(body) == (413, "batch_too_large")
