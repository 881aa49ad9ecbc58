from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.tokenizer_service.no_ids import NO_IDS
from tests.tokenizer_service.routes.exchanges import post, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactRef
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering import decode as decode_answers
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

TEXT = 'The quick <|a|> héllo 中文字符 👩‍👩‍👧 "\\/\x00\n\x7f\u2028'


@pytest.mark.row(11)
def test_text_comes_back(
    client: TestClient, small_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = small_tokenizer.encode(TEXT)
    response = client.post("/decode", json={"tokens": ids})
    assert response.json()["text"] == TEXT
    assert response.headers["Tokenizer-Digest"] == small_tokenizer.spec.fingerprint
    assert response.json()["tokenizer"]["digest"] == small_tokenizer.spec.fingerprint
    kept = post(client, "/decode", tokens=ids, skip_special_tokens=True)
    assert kept["text"] == TEXT.replace("<|a|>", "")
    batch = post(client, "/decode", tokens=[ids, [], ids[:2]])
    assert batch["text"] == [TEXT, "", small_tokenizer.decode(ids[:2])]
    long = [*small_tokenizer.encode(TEXT * 30), 255, 200]
    whole = post(client, "/decode", tokens=long)
    assert whole["text"] == small_tokenizer.decode(long)
    monkeypatch.setattr(decode_answers, "_WINDOW", 3)
    assert post(client, "/decode", tokens=long) == whole


def test_an_empty_token_is_known(starter: ArtifactRef, small_tokenizer: Tokenizer) -> None:
    spec = small_tokenizer.spec
    empty = spec.largest_id + 1
    larger = TokenizerSpec.from_merges({**spec.vocab, empty: b""}, spec.merges)
    live = LiveTokenizer.of(starter, Tokenizer.from_spec(larger))
    sizes = decode_answers.sizes_of(np.array([empty, 65, empty], dtype=np.uint32), live)
    assert sizes.tolist() == [0, 1, 0]
    with pytest.raises(Problem) as caught:
        decode_answers.sizes_of(np.array([empty, 65, empty + 1], dtype=np.uint32), live, "/tokens")
    assert caught.value.errors[0][0] == "/tokens/2"


@pytest.mark.row(14)
def test_bytes_that_are_not_utf_8_are_replaced_or_refused(
    client: TestClient, small_tokenizer: Tokenizer
) -> None:
    data = b"a\xf0\x9f\x91\xff\xe4\xb8b\xc3"
    by_byte = {token: id_ for id_, token in small_tokenizer.spec.vocab.items() if len(token) == 1}
    ids = [by_byte[bytes([byte])] for byte in data]
    replaced = client.post("/decode", json={"tokens": ids}).json()["text"]
    assert replaced == data.decode(errors="replace")
    strict = client.post("/decode", json={"tokens": [[97], ids], "errors": "strict"})
    assert strict.status_code == 422
    assert strict.json()["code"] == "not_utf8"
    assert strict.json()["errors"][0]["pointer"] == "/tokens/1"


@pytest.mark.row(2, 3, 5)
def test_wrong_ids_are_refused_by_their_place(client: TestClient) -> None:
    def refused(tokens: str) -> dict[str, Any]:
        body, headers = f'{{"tokens": {tokens}}}', {"Content-Type": "application/json"}
        response = client.post("/decode", content=body, headers=headers)
        return problem(response, 422, response.json()["code"])

    for tokens, pointers in (
        *NO_IDS,
        ("[[1], [2, true]]", ["/tokens/1/1"]),
        ("[[1], 2]", ["/tokens/1"]),
        ("[1, [2]]", ["/tokens/1"]),
        ("null", ["/tokens"]),
    ):
        assert [error["pointer"] for error in refused(tokens)["errors"]] == pointers
    for number in ("NaN", "-Infinity", "9" * 4301):
        refused(f"[{number}]")
    for bad in ("true", "[1]"):
        assert refused(f"[1{f', {bad}' * 20_000}]")["errors_total"] == 20_000


@pytest.mark.row(14)
def test_unknown_ids_are_named(client: TestClient, small_tokenizer: Tokenizer) -> None:
    largest = small_tokenizer.spec.largest_id
    assert client.post("/decode", json={"tokens": [largest]}).status_code == 200
    for tokens, pointer in (
        ([1, largest + 1], "/tokens/1"),
        ([2**32 - 1], "/tokens/0"),
        ([[1], [2, 3, largest + 1]], "/tokens/1/2"),
        ([*[1] * 100_000, largest + 1], "/tokens/100000"),
    ):
        response = client.post("/decode", json={"tokens": tokens})
        assert response.status_code == 422
        assert response.json()["code"] == "unknown_token_id"
        assert response.json()["errors"][0]["pointer"] == pointer
        assert str(largest) in response.json()["detail"]


@pytest.mark.row(14)
def test_text_over_the_limit_is_refused(
    make_client: Callable[..., TestClient],
    small_tokenizer: Tokenizer,
) -> None:
    vocab = small_tokenizer.spec.vocab
    longest = max(vocab, key=lambda id_: len(vocab[id_]))
    limit = 8192
    count = limit // len(vocab[longest])
    with make_client(max_body_bytes=8192, max_response_bytes=8192) as client:
        assert client.post("/decode", json={"tokens": [longest] * count}).status_code == 200
        batch = [[longest] * 10] * (count // 10 + 1)
        for tokens in ([longest] * (count + 1), batch):
            body = json.dumps({"tokens": tokens}, separators=(",", ":"))
            headers = {"Content-Type": "application/json"}
            response = client.post("/decode", content=body, headers=headers)
            assert response.status_code == 413
            assert response.json()["limit"] == limit
            assert response.json()["actual"] > limit
