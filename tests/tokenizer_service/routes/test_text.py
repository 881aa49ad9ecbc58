"""/count, /truncate, /chunk and /verify: their responses and their refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from tokenizer_core import Tokenizer, TokenizerSpec, chunk_text, truncate_text
from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_service.rendering import decode as decode_answers
from tokenizer_service.rendering import json_values as answers
from tokenizer_service.rendering import text as text_answers

TEXT = (
    'The quick <|a|><|a|><|a|> brown fox, "héllo" 中文字符 👩‍👩‍👧 '
    "don't\r\n\r\n  \x00\ufeff\uffff 12345"
)
ROUTES: dict[str, dict[str, Any]] = {
    "/count": {"text": TEXT},
    "/truncate": {"text": TEXT, "max_tokens": 9},
    "/chunk": {"text": TEXT, "max_tokens": 9, "overlap_tokens": 3},
    "/verify": {"text": TEXT},
}


@pytest.fixture
def post(client: TestClient) -> Callable[..., httpx.Response]:
    def post(path: str, **body: Any) -> httpx.Response:
        return client.post(path, json=body)

    return post


def answer_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("path", ROUTES)
def test_the_response_is_the_same_under_v1_on_a_thread_and_in_windows(
    client: TestClient, starter: ArtifactRef, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = client.post(path, json=ROUTES[path])
    assert bare.json()["tokenizer"] == {
        "name": "starter",
        "version": starter.version,
        "digest": starter.digest,
    }
    assert bare.headers["Tokenizer-Version"] == str(starter)
    assert bare.headers["Tokenizer-Digest"] == starter.digest
    assert client.post("/v1" + path, json=ROUTES[path]).content == bare.content
    named = {**ROUTES[path], "tokenizer": str(starter)}
    assert client.post(path, json=named).content == bare.content
    assert client.post(path, json={**named, "tokenizer": "nope"}).status_code == 404
    other = client.post(path, json=named, headers={"If-Match": '"other"'})
    assert other.status_code == 412
    monkeypatch.setattr("tokenizer_service.rendering.respond.INLINE_BODY_BYTES", 0)
    assert client.post(path, json=ROUTES[path]).content == bare.content
    monkeypatch.setattr(answers, "_ID_WINDOW", 2)
    monkeypatch.setattr(answers, "_CHAR_WINDOW", 3)
    assert client.post(path, json=ROUTES[path]).content == bare.content


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert len(response.content) < 2000
    document: dict[str, Any] = response.json()
    return document


@pytest.mark.row(1, 13, 20)
@pytest.mark.parametrize("path", ROUTES)
def test_each_field_is_refused_by_its_name(client: TestClient, path: str) -> None:
    def refused(**changes: Any) -> tuple[str, str]:
        body = json.dumps({**ROUTES[path], **changes})
        headers = {"Content-Type": "application/json"}
        found = problem(client.post(path, content=body, headers=headers), 422)
        return found["code"], found["errors"][0]["pointer"]

    for forbidden in ("all", ["<|a|>"]):
        policies = {"allowed_special": "none", "disallowed_special": forbidden}
        assert refused(**policies) == ("special_token_forbidden", "/text")
    for field in ("allowed_special", "disallowed_special"):
        assert refused(**{field: ["<|nope|>"]}) == ("unknown_special_token", f"/{field}")
        assert refused(**{field: "some"}) == ("invalid_request", f"/{field}")
    assert refused(alowed_special="none") == ("invalid_request", "/alowed_special")
    assert refused(text="a\ud800")[0] == "lone_surrogate"
    for text in (1, True, {"a": "b"}, ["a", 1]):
        assert refused(text=text) == ("invalid_request", "/text")
    if path != "/count":
        assert refused(text=["a"]) == ("invalid_request", "/text")
    image = client.post(path, json=ROUTES[path], headers={"Accept": "image/png"})
    assert image.status_code == 406
    assert client.get(path).status_code == 405


WRONG_NUMBERS = ["true", "1.0", '"1"', "-1", "null", "[1]", str(2**63), "9" * 4000]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/count", "limit"),
        ("/truncate", "max_tokens"),
        ("/chunk", "max_tokens"),
        ("/chunk", "overlap_tokens"),
    ],
)
def test_a_number_of_tokens_is_an_integer_from_zero(
    client: TestClient, path: str, field: str
) -> None:
    rest = {key: value for key, value in ROUTES[path].items() if key != field}
    for number in WRONG_NUMBERS:
        if (field, number) == ("limit", "null"):
            continue  # the same as omitting it
        body = json.dumps(rest)[:-1] + f', "{field}": {number}}}'
        response = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert problem(response, 422)["errors"][0]["pointer"] == f"/{field}", number


def test_every_outcome_gives_its_memory_back(client: TestClient) -> None:
    budget = client.app.services.budget  # type: ignore[attr-defined]
    for path, body in ROUTES.items():
        for text in (TEXT, TEXT * 100):
            for extra in ({}, {"disallowed_special": "all", "allowed_special": "none"}):
                client.post(path, json={**body, "text": text, **extra})
                assert budget.used == 0, path


@pytest.mark.promise(13)
def test_without_free_memory_a_request_is_told_to_come_back(client: TestClient) -> None:
    budget = client.app.services.budget  # type: ignore[attr-defined]
    lease = budget.lease()
    lease.reserve(budget.maximum)
    for path, body in ROUTES.items():
        response = client.post(path, json=body)
        assert response.status_code == 503
        assert response.headers["Retry-After"] == "1"
    lease.release()
    assert client.post("/count", json=ROUTES["/count"]).status_code == 200


def test_count(post: Callable[..., httpx.Response], small_tokenizer: Tokenizer) -> None:
    n_tokens = small_tokenizer.count(TEXT)
    for limit, count, is_reached in (
        (None, n_tokens, False),
        (n_tokens, n_tokens, False),
        (n_tokens - 1, n_tokens - 1, True),
        (0, 0, True),
        (2**32 - 1, n_tokens, False),
    ):
        answer = answer_of(post("/count", text=TEXT, limit=limit))
        assert (answer["count"], answer["limit_exceeded"]) == (count, is_reached), limit
        assert set(answer) == {"count", "limit_exceeded", "tokenizer"}
    plain = answer_of(post("/count", text=TEXT, allowed_special="none"))["count"]
    assert plain == small_tokenizer.count(TEXT, allowed_special="none") > n_tokens
    assert answer_of(post("/count", text="", limit=0))["count"] == 0
    batch = answer_of(post("/count", text=["", TEXT, "the"], limit=1))
    assert (batch["count"], batch["limit_exceeded"]) == ([0, 1, 1], [False, True, False])
    assert answer_of(post("/count", text=[]))["count"] == []
    forbidden = post("/count", text=["a", "<|a|>"], allowed_special=[], disallowed_special="all")
    assert forbidden.json()["errors"][0]["pointer"] == "/text/1"


def test_truncate(post: Callable[..., httpx.Response], small_tokenizer: Tokenizer) -> None:
    n_tokens = small_tokenizer.count(TEXT)
    for limit in (0, 1, 8, n_tokens - 1, n_tokens, n_tokens + 1):
        for side in ("right", "left"):
            answer = answer_of(post("/truncate", text=TEXT, max_tokens=limit, side=side))
            part = truncate_text(small_tokenizer, TEXT, limit, side=side)
            assert answer["text"] == part.text
            assert answer["tokens"] == part.ids.tolist() == small_tokenizer.encode(part.text)
            assert answer["count"] == len(part.ids) <= limit
            assert answer["truncated"] is (limit < n_tokens)
    plain = answer_of(post("/truncate", text=TEXT, max_tokens=8, allowed_special="none"))
    assert plain["tokens"] == small_tokenizer.encode(plain["text"], allowed_special="none")
    assert post("/truncate", text=TEXT).status_code == 422
    assert post("/truncate", text=TEXT, max_tokens=1, side="middle").status_code == 422


def test_chunk(post: Callable[..., httpx.Response], small_tokenizer: Tokenizer) -> None:
    data = TEXT.encode()
    for limit, overlap in ((4, 0), (9, 3), (9, 8), (1000, 0)):
        options = {"max_tokens": limit, "overlap_tokens": overlap}
        chunks = answer_of(post("/chunk", text=TEXT, **options))["chunks"]
        expected = chunk_text(small_tokenizer, TEXT, limit, overlap_tokens=overlap)
        for chunk, part in zip(chunks, expected, strict=True):
            assert chunk == {
                "text": part.text,
                "tokens": small_tokenizer.encode(part.text),
                "start": part.start,
                "end": part.end,
            }
            assert data[chunk["start"] : chunk["end"]] == chunk["text"].encode()
        in_chars = answer_of(post("/chunk", text=TEXT, offset_unit="char", **options))["chunks"]
        for chunk, same in zip(in_chars, chunks, strict=True):
            assert TEXT[chunk["start"] : chunk["end"]] == chunk["text"] == same["text"]
    assert answer_of(post("/chunk", text="", max_tokens=1))["chunks"] == []


def test_limits_of_chunks_are_refused_by_name(
    post: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    for overlap in (3, 4):
        response = post("/chunk", text="a", max_tokens=3, overlap_tokens=overlap)
        assert response.status_code == 422
        assert response.json()["errors"][0]["pointer"] == "/overlap_tokens"
    none = post("/chunk", text="a", max_tokens=0)
    assert none.status_code == 422
    assert none.json()["errors"][0]["pointer"] == "/max_tokens"
    small = post("/chunk", text="ab 👩", max_tokens=3)
    assert small.status_code == 422
    problem = small.json()
    assert (problem["code"], problem["limit"], problem["actual"]) == ("max_tokens_too_small", 3, 4)
    assert problem["errors"][0]["pointer"] == "/max_tokens"
    monkeypatch.setattr(text_answers, "MAX_BATCH_ITEMS", 3)
    assert post("/chunk", text="1 2 3", max_tokens=2).status_code == 200
    many = post("/chunk", text="1 2 3 4", max_tokens=2)
    assert (many.status_code, many.json()["code"]) == (413, "too_many_chunks")
    assert (many.json()["limit"], many.json()["actual"]) == (3, 4)


def test_chunks_that_repeat_too_much(
    make_client: Callable[..., TestClient],
) -> None:
    text = "1 2 3 4 5 6 7 8 9 " * 20
    with make_client(max_response_bytes=4096) as client:
        fitting = client.post("/chunk", json={"text": text, "max_tokens": 20, "overlap_tokens": 5})
        assert fitting.status_code == 200
        body = {"text": text, "max_tokens": 20, "overlap_tokens": 19}
        response = client.post("/chunk", json=body)
    assert (response.status_code, response.json()["code"]) == (413, "chunks_too_large")
    assert response.json()["actual"] > response.json()["limit"] == 4096


def test_verify_a_text(
    post: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answer_of(post("/verify", text=TEXT))
    assert (answer["ok"], answer["first_difference"]) == (True, None)
    assert answer_of(post("/verify", text=""))["ok"] is True
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "the cat")
    answer = answer_of(post("/verify", text="the dog"))
    assert (answer["ok"], answer["first_difference"], answer["lossy"]) == (False, 4, False)


def test_verify_a_text_that_the_tokenizer_drops_in_part(
    post: Callable[..., httpx.Response], shared_store: ArtifactStore
) -> None:
    ranks = {bytes([byte]): byte for byte in range(256)}
    ref = shared_store.publish(TokenizerSpec.from_ranks(ranks, pattern=r"\p{L}+"), name="letters")
    answer = answer_of(post("/verify", text="ab 1 c", tokenizer=str(ref)))
    assert (answer["ok"], answer["first_difference"], answer["lossy"]) == (True, None, True)
    answer = answer_of(post("/verify", text="abc", tokenizer=str(ref)))
    assert (answer["ok"], answer["lossy"]) == (True, False)


def test_verify_ids(
    post: Callable[..., httpx.Response], small_tokenizer: Tokenizer, client: TestClient
) -> None:
    ids = small_tokenizer.encode(TEXT)
    assert answer_of(post("/verify", tokens=ids))["ok"] is True
    assert answer_of(post("/verify", tokens=[]))["ok"] is True
    by_byte = {token: id_ for id_, token in small_tokenizer.spec.vocab.items() if len(token) == 1}
    broken = [*ids, by_byte[b"\xff"]]
    answer = answer_of(post("/verify", tokens=broken))
    assert (answer["ok"], answer["first_difference"]) == (False, len(ids))
    assert answer_of(post("/verify", tokens=ids, allowed_special="none"))["ok"] is False
    forbidden = post("/verify", tokens=ids, allowed_special="none", disallowed_special="all")
    assert forbidden.json()["errors"][0]["pointer"] == "/tokens"
    largest = small_tokenizer.spec.largest_id
    for tokens, pointer in (([1, largest + 1], "/tokens/1"), ([2**32 - 1], "/tokens/0")):
        unknown = post("/verify", tokens=tokens)
        assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_token_id")
        assert unknown.json()["errors"][0]["pointer"] == pointer
    for both in ({}, {"text": "a", "tokens": [1]}, {"text": None}):
        assert post("/verify", **both).status_code == 422


@pytest.mark.row(3)
def test_wrong_ids_are_refused_by_their_place(post: Callable[..., httpx.Response]) -> None:
    for tokens, place in (([1, -1], "/1"), ([[1]], "/0"), ([2**32], "/0"), ("text", "")):
        errors = problem(post("/verify", tokens=tokens), 422)["errors"]
        assert errors[0]["pointer"] == f"/tokens{place}"


@pytest.mark.row(14)
def test_ids_to_verify_may_not_mean_too_much_text(
    make_client: Callable[..., TestClient],
    small_tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode_answers, "_WINDOW", 50)
    vocab = small_tokenizer.spec.vocab
    longest = max(vocab, key=lambda id_: len(vocab[id_]))
    count = 8192 // len(vocab[longest])
    with make_client(max_body_bytes=8192, max_response_bytes=8192) as client:
        assert client.post("/verify", json={"tokens": [longest] * count}).status_code == 200
        response = client.post("/verify", json={"tokens": [longest] * (count + 1)})
    assert (response.status_code, response.json()["limit"]) == (413, 8192)
    assert response.json()["actual"] == (count + 1) * len(vocab[longest])


def test_metrics_count_bytes_and_tokens(client: TestClient) -> None:
    def counted() -> np.ndarray:
        text = client.get("/metrics").text
        names = ("tokenizer_encode_bytes_total", "tokenizer_encode_tokens_total")
        return np.array([float(text.split(f"\n{name} ")[1].split()[0]) for name in names])

    def added_by(path: str, **body: Any) -> list[float]:
        before = counted()
        assert client.post(path, json=body).status_code == 200
        return list(counted() - before)

    n_bytes, ids = len(TEXT.encode()), client.post("/encode", json={"text": TEXT}).json()["tokens"]
    # Bytes and ids of the same text: their quotient is the bytes per token.
    assert added_by("/count", text=TEXT) == [n_bytes, len(ids)]
    assert added_by("/count", text=[TEXT, TEXT * 9], limit=len(ids)) == [n_bytes, len(ids)]
    part = client.post("/truncate", json={"text": TEXT * 9, "max_tokens": 3}).json()
    added = [len(part["text"].encode()), len(part["tokens"])]
    assert added_by("/truncate", text=TEXT * 9, max_tokens=3) == added
    overlapping = {"text": TEXT, "max_tokens": 4, "overlap_tokens": 2}
    chunks = client.post("/chunk", json=overlapping).json()["chunks"]
    assert len(chunks) > 1
    assert added_by("/chunk", **overlapping) == [
        sum(len(chunk["text"].encode()) for chunk in chunks),
        sum(len(chunk["tokens"]) for chunk in chunks),
    ]
    for body in ({"text": TEXT}, {"tokens": ids}):
        assert added_by("/verify", **body) == [0, 0]
