import json

import numpy as np
import pytest

from tests.tokenizer_service.routes.exchanges import JSON, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_service.responses import decode as decode_answers
from tokenizer_service.responses.errors import PlacedError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

TEXT = 'The quick <|a|> héllo 中文字符 👩‍👩‍👧 "\\/\x00\n\x7f\u2028'


@pytest.mark.row(11, 14)
def test_text_comes_back(client, post, refused, small_tokenizer, monkeypatch):
    ids = small_tokenizer.encode(TEXT)
    response = client.post("/decode", json={"tokens": ids})
    assert response.json()["text"] == TEXT
    assert response.headers["Tokenizer-Digest"] == small_tokenizer.spec.fingerprint
    assert response.json()["tokenizer"]["digest"] == small_tokenizer.spec.fingerprint
    kept = post("/decode", tokens=ids, skip_special_tokens=True)
    assert kept["text"] == TEXT.replace("<|a|>", "")
    batch = post("/decode", tokens=[ids, [], ids[:2]])
    assert batch["text"] == [TEXT, "", small_tokenizer.decode(ids[:2])]
    data = b"a\xf0\x9f\x91\xff\xe4\xb8b\xc3"
    by_byte = {token: id_ for id_, token in small_tokenizer.spec.vocab.items() if len(token) == 1}
    broken = [by_byte[bytes([byte])] for byte in data]
    assert post("/decode", tokens=broken)["text"] == data.decode(errors="replace")
    strict = refused("/decode", tokens=[[97], broken], errors="strict")
    assert strict == ("not_utf8", "/tokens/1")
    long = [*small_tokenizer.encode(TEXT * 30), *broken]
    whole = post("/decode", tokens=long)
    assert whole["text"] == small_tokenizer.decode(long)
    monkeypatch.setattr(decode_answers, "_WINDOW", 3)
    assert post("/decode", tokens=long) == whole


def test_an_empty_token_is_known(starter, small_tokenizer):
    spec = small_tokenizer.spec
    empty = spec.largest_id + 1
    larger = TokenizerSpec.from_merges({**spec.vocab, empty: b""}, spec.merges)
    live = LiveTokenizer.of(starter, Tokenizer.from_spec(larger))
    sizes = decode_answers.sizes_of(np.array([empty, 65, empty], dtype=np.uint32), live)
    assert sizes.tolist() == [0, 1, 0]
    with pytest.raises(PlacedError) as caught:
        decode_answers.sizes_of(np.array([empty, 65, empty + 1], dtype=np.uint32), live, "/tokens")
    assert caught.value.pointer == "/tokens/2"


@pytest.mark.row(2, 3, 5)
def test_wrong_ids_are_refused_by_their_place(client):
    for tokens, places in (
        ("[true]", ["/0"]), ("[1, 1.0]", ["/1"]), ('["1"]', ["/0"]),
        ("[1, 2, -1, null]", ["/2", "/3"]), ("[9223372036854775808]", ["/0"]),
        ("[4294967296]", ["/0"]), (f"[{'9' * 4000}]", ["/0"]), ("[[1], [2, true]]", ["/1/1"]),
        ("[[1], 2]", ["/1"]), ("[1, [2]]", ["/1"]), ("1", [""]), ('"text"', [""]), ("{}", [""]),
        ("null", [""]),
    ):  # fmt: skip
        response = client.post("/decode", content=f'{{"tokens": {tokens}}}', headers=JSON)
        errors = problem(response, 422)["errors"]
        assert [error["pointer"] for error in errors] == [f"/tokens{place}" for place in places]
    for number in ("NaN", "-Infinity", "9" * 4301):
        problem(client.post("/decode", content=f'{{"tokens": [{number}]}}', headers=JSON), 422)
    for bad in (True, [1]):
        response = client.post("/decode", json={"tokens": [1, *[bad] * 20_000]})
        assert problem(response, 422)["errors_total"] == 20_000


@pytest.mark.row(14)
def test_unknown_ids_are_named(client, post, refused, small_tokenizer):
    largest = small_tokenizer.spec.largest_id
    post("/decode", tokens=[largest])
    for tokens, place in (
        ([1, largest + 1], "/1"),
        ([2**32 - 1], "/0"),
        ([[1], [2, 3, largest + 1]], "/1/2"),
        ([*[1] * 100_000, largest + 1], "/100000"),
    ):
        assert refused("/decode", tokens=tokens) == ("unknown_token_id", f"/tokens{place}")
    assert str(largest) in client.post("/decode", json={"tokens": [largest + 1]}).text


@pytest.mark.row(14)
def test_text_over_the_limit_is_refused(make_client, small_tokenizer):
    limit = 8192
    vocab = small_tokenizer.spec.vocab
    longest = max(vocab, key=lambda id_: len(vocab[id_]))
    count = limit // len(vocab[longest])
    batch = [[longest] * 10] * (count // 10 + 1)
    with make_client(max_body_bytes=limit, max_response_bytes=limit) as client:
        for path, wrong in (
            ("/decode", [longest] * (count + 1)),
            ("/decode", batch),
            ("/verify", [longest] * (count + 1)),
        ):
            assert client.post(path, json={"tokens": [longest] * count}).status_code == 200
            body = json.dumps({"tokens": wrong}, separators=(",", ":"))
            found = problem(client.post(path, content=body, headers=JSON), 413)
            assert found["limit"] == limit
            assert found["actual"] == np.size(wrong) * len(vocab[longest])
