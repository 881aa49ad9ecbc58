"""/count, /truncate, /chunk, /verify and /align; and what they have in common with /encode."""

import json
import re

import pytest

from tests.tokenizer_service.routes.exchanges import JSON, metrics, pointer, post, problem
from tokenizer_core import Tokenizer, TokenizerSpec, align, chunk_text, truncate_text
from tokenizer_service.handlers import text as text_answers
from tokenizer_service.responses import json_values as answers

TEXT = (
    'The quick <|a|><|a|><|a|> brown fox, "héllo" 中文字符 👩‍👩‍👧 '
    "don't\r\n\r\n  \x00\ufeff\uffff 12345"
)
ROUTES = {
    "/encode": {"text": TEXT},
    "/count": {"text": TEXT},
    "/truncate": {"text": TEXT, "max_tokens": 9},
    "/chunk": {"text": TEXT, "max_tokens": 9, "overlap_tokens": 3},
    "/verify": {"text": TEXT},
    "/align": {"text": TEXT, "other": "active"},
}


@pytest.mark.parametrize("path", ROUTES)
def test_the_response_is_the_same_under_v1_on_a_thread_and_in_windows(
    client, starter, path, monkeypatch
):
    bare = client.post(path, json=ROUTES[path])
    identity = {"name": "starter", "version": starter.version, "digest": starter.digest}
    assert bare.json()["tokenizer"] == identity
    assert bare.headers["Tokenizer-Version"] == str(starter)
    assert bare.headers["Tokenizer-Digest"] == starter.digest
    assert client.post("/v1" + path, json=ROUTES[path]).content == bare.content
    named = {**ROUTES[path], "tokenizer": str(starter)}
    assert client.post(path, json=named).content == bare.content
    assert client.post(path, json={**named, "tokenizer": "nope"}).status_code == 404
    assert client.post(path, json=named, headers={"If-Match": '"other"'}).status_code == 412
    monkeypatch.setattr("tokenizer_service.handlers.respond.INLINE_BODY_BYTES", 0)
    assert client.post(path, json=ROUTES[path]).content == bare.content
    monkeypatch.setattr(answers, "_ID_WINDOW", 2)
    monkeypatch.setattr(answers, "_CHAR_WINDOW", 3)
    assert client.post(path, json=ROUTES[path]).content == bare.content


@pytest.mark.row(1, 13, 20)
@pytest.mark.parametrize("path", ROUTES)
def test_each_field_is_refused_by_its_name(client, refused, path):
    for changes, code, field in (
        ({"allowed_special": "none", "disallowed_special": "all"}, "forbidden", "text"),
        ({"allowed_special": [], "disallowed_special": ["<|a|>"]}, "forbidden", "text"),
        ({"allowed_special": ["<|nope|>"]}, "unknown", "allowed_special"),
        ({"disallowed_special": ["<|nope|>"]}, "unknown", "disallowed_special"),
        ({"allowed_special": "some"}, "invalid", "allowed_special"),
        ({"alowed_special": "none"}, "invalid", "alowed_special"),
        ({"text": 1}, "invalid", "text"),
        ({"text": {"a": "b"}}, "invalid", "text"),
        ({"text": ["a", 1]}, "invalid", "text"),
        ({"text": "a\ud800"}, "surrogate", "text"),
    ):
        found, place = refused(path, **{**ROUTES[path], **changes})
        assert code in found
        assert place == f"/{field}", changes
    if path not in ("/encode", "/count"):
        assert refused(path, **{**ROUTES[path], "text": ["a"]}) == ("invalid_request", "/text")
    image = client.post(path, json=ROUTES[path], headers={"Accept": "image/png"})
    assert image.status_code == 406
    assert client.get(path).status_code == 405


def test_a_number_of_tokens_is_an_integer_from_zero(client):
    wrong = ["true", "1.0", '"1"', "-1", "null", str(2**63), "9" * 4000]
    for path, field, numbers in (
        ("/count", "limit", [number for number in wrong if number != "null"]),
        ("/truncate", "max_tokens", wrong),
        ("/chunk", "max_tokens", wrong),
        ("/chunk", "overlap_tokens", wrong),
    ):
        rest = {key: value for key, value in ROUTES[path].items() if key != field}
        for number in numbers:
            body = json.dumps(rest)[:-1] + f', "{field}": {number}}}'
            response = client.post(path, content=body, headers=JSON)
            assert pointer(problem(response, 422, "invalid_request")) == f"/{field}", number


@pytest.mark.promise(13)
def test_every_outcome_gives_its_memory_back(client):
    budget = client.app.services.budget
    for path, body in ROUTES.items():
        for text in (TEXT, TEXT * 100):
            for extra in ({}, {"disallowed_special": "all", "allowed_special": "none"}):
                client.post(path, json={**body, "text": text, **extra})
                assert budget.used == 0, path
    lease = budget.lease()
    lease.reserve(budget.maximum)
    for path, body in ROUTES.items():
        response = client.post(path, json=body)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    lease.release()
    assert client.post("/count", json=ROUTES["/count"]).status_code == 200


def test_count(post, refused, small_tokenizer):
    n_tokens = small_tokenizer.count(TEXT)
    for limit, count, is_reached in (
        (None, n_tokens, False),
        (n_tokens, n_tokens, False),
        (n_tokens - 1, n_tokens - 1, True),
        (0, 0, True),
        (2**32 - 1, n_tokens, False),
    ):
        answer = post("/count", text=TEXT, limit=limit)
        assert (answer["count"], answer["limit_exceeded"]) == (count, is_reached), limit
    plain = post("/count", text=TEXT, allowed_special="none")["count"]
    assert plain == small_tokenizer.count(TEXT, allowed_special="none") > n_tokens
    assert post("/count", text="", limit=0)["count"] == 0
    batch = post("/count", text=["", TEXT, "the"], limit=1)
    assert (batch["count"], batch["limit_exceeded"]) == ([0, 1, 1], [False, True, False])
    assert post("/count", text=[])["count"] == []
    policies = {"allowed_special": [], "disallowed_special": "all"}
    assert refused("/count", text=["a", "<|a|>"], **policies)[1] == "/text/1"


def test_truncate(post, refused, small_tokenizer):
    n_tokens = small_tokenizer.count(TEXT)
    for limit in (0, 1, 8, n_tokens - 1, n_tokens, n_tokens + 1):
        for side in ("right", "left"):
            answer = post("/truncate", text=TEXT, max_tokens=limit, side=side)
            part = truncate_text(small_tokenizer, TEXT, limit, side=side)
            assert answer["text"] == part.text
            assert answer["tokens"] == part.ids.tolist() == small_tokenizer.encode(part.text)
            assert answer["count"] == len(part.ids) <= limit
            assert answer["truncated"] is (limit < n_tokens)
    plain = post("/truncate", text=TEXT, max_tokens=8, allowed_special="none")
    assert plain["tokens"] == small_tokenizer.encode(plain["text"], allowed_special="none")
    assert refused("/truncate", text=TEXT)[1] == "/max_tokens"
    assert refused("/truncate", text=TEXT, max_tokens=1, side="middle")[1] == "/side"


def test_chunk(post, small_tokenizer):
    for limit, overlap in ((4, 0), (9, 8), (1000, 0)):
        options = {"text": TEXT, "max_tokens": limit, "overlap_tokens": overlap}
        chunks = post("/chunk", **options)["chunks"]
        expected = chunk_text(small_tokenizer, TEXT, limit, overlap_tokens=overlap)
        for chunk, part in zip(chunks, expected, strict=True):
            ids = small_tokenizer.encode(part.text)
            place = {"start": part.start, "end": part.end}
            assert chunk == {"text": part.text, "tokens": ids, **place}
            assert TEXT.encode()[part.start : part.end] == part.text.encode()
        in_chars = post("/chunk", offset_unit="char", **options)["chunks"]
        for chunk, same in zip(in_chars, chunks, strict=True):
            assert TEXT[chunk["start"] : chunk["end"]] == chunk["text"] == same["text"]
    assert post("/chunk", text="", max_tokens=1)["chunks"] == []


def test_limits_of_chunks_are_refused_by_name(make_client, monkeypatch):
    overlapping = {"text": "1 2 3 4 5 6 7 8 9 " * 20, "max_tokens": 20}
    with make_client(max_response_bytes=4096) as client:

        def refused(status, code, **body):
            found = problem(client.post("/chunk", json=body), status, code)
            if status == 422:
                field = "overlap_tokens" if "overlap_tokens" in body else "max_tokens"
                assert pointer(found) == f"/{field}"
            return found.get("limit"), found.get("actual")

        for overlap in (3, 4):
            refused(422, "invalid_request", text="a", max_tokens=3, overlap_tokens=overlap)
        refused(422, "invalid_request", text="a", max_tokens=0)
        assert refused(422, "max_tokens_too_small", text="ab 👩", max_tokens=3) == (3, 4)
        post(client, "/chunk", **overlapping, overlap_tokens=5)
        limit, actual = refused(413, "chunks_too_large", **overlapping, overlap_tokens=19)
        assert limit == 4096 < (actual or 0)
        for text in (overlapping["text"], "ab" * 300 + " some words, 12 345 👩" * 40):
            body = {"text": text, "max_tokens": 20, "overlap_tokens": 19}
            found = problem(client.post("/chunk", json=body), 413, "chunks_too_large")
            assert pointer(found) == "/overlap_tokens"
            largest = int(re.search(r"fits is (\d+)", found["detail"])[1])
            assert 0 < largest < 19
            post(client, "/chunk", **{**body, "overlap_tokens": largest})
        monkeypatch.setattr(text_answers, "MAX_BATCH_ITEMS", 3)
        post(client, "/chunk", text="1 2 3", max_tokens=2)
        assert refused(413, "too_many_chunks", text="1 2 3 4", max_tokens=2) == (3, 4)


def test_verify_a_text(post, shared_store, monkeypatch):
    def verify(**body):
        answer = post("/verify", **body)
        return answer["ok"], answer["first_difference"], answer["lossy"]

    ranks = {bytes([byte]): byte for byte in range(256)}
    ref = shared_store.publish(TokenizerSpec.from_ranks(ranks, pattern=r"\p{L}+"), name="letters")
    for text in (TEXT, ""):
        assert verify(text=text) == (True, None, False)
    assert verify(text="ab 1 c", tokenizer=str(ref)) == (True, None, True)
    assert verify(text="abc", tokenizer=str(ref)) == (True, None, False)
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "the cat")
    assert verify(text="the dog") == (False, 4, False)


def test_align_two_tokenizers(client, post, shared_store, small_tokenizer, monkeypatch):
    ranks = {bytes([byte]): byte for byte in range(256)}
    spec = TokenizerSpec.from_ranks(ranks, {"<|a|>": 300}, pattern=r"\p{L}+")
    ref = shared_store.publish(spec, name="letters")
    for options in ({}, {"allowed_special": "none"}, {"allowed_special": ["<|a|>"]}):
        found = post("/align", text=TEXT, other="letters", **options)
        expected = align(small_tokenizer, Tokenizer.from_spec(spec), TEXT, **options)
        names = ("tokens", "other_tokens", "offsets", "other_offsets", "byte_offsets")
        assert [found[name] for name in names] == [array.tolist() for array in expected]
        assert found["other"] == {"name": "letters", "version": ref.version, "digest": ref.digest}
    problem(client.post("/align", json={"text": "a", "other": "nope"}), 404, "tokenizer_not_found")
    monkeypatch.setattr("tokenizer_service.handlers.encode.MAX_DETAILED_TOKENS", 3)
    for fields in ({"other": "active"}, {"other": "active", "tokenizer": "letters"}):
        response = client.post("/align", json={"text": "abcdefgh", **fields})
        problem(response, 413, "too_many_detailed_tokens")


def test_verify_ids(post, refused, small_tokenizer):
    ids = small_tokenizer.encode(TEXT)
    for sound in (ids, []):
        assert post("/verify", tokens=sound)["ok"] is True
    by_byte = {token: id_ for id_, token in small_tokenizer.spec.vocab.items() if len(token) == 1}
    answer = post("/verify", tokens=[*ids, by_byte[b"\xff"]])
    assert (answer["ok"], answer["first_difference"]) == (False, len(ids))
    assert post("/verify", tokens=ids, allowed_special="none")["ok"] is False
    policies = {"allowed_special": "none", "disallowed_special": "all"}
    assert refused("/verify", tokens=ids, **policies)[1] == "/tokens"
    largest = small_tokenizer.spec.largest_id
    for tokens, code, place in (
        ([1, largest + 1], "unknown_token_id", "/1"),
        ([2**32 - 1], "unknown_token_id", "/0"),
        ([1, -1], "invalid_token_id", "/1"),
        ([[1]], "invalid_token_id", "/0"),
        ([2**32], "invalid_token_id", "/0"),
        ("text", "invalid_request", ""),
    ):
        assert refused("/verify", tokens=tokens) == (code, f"/tokens{place}")
    wrong = [{}, {"text": "a", "tokens": [1]}, {"text": None}]
    for body in wrong:
        assert refused("/verify", **body)[0] == "invalid_request"


def test_metrics_count_bytes_and_tokens(client, post):
    """Bytes and ids of the same text: their quotient is the bytes per token."""

    def added_by(path, **body):
        names = ("encode_bytes_total", "encode_tokens_total")
        before = metrics(client, *names)
        answer = post(path, **body)
        after = metrics(client, *names)
        return [later - earlier for earlier, later in zip(before, after, strict=True)], answer

    ids = post("/encode", text=TEXT)["tokens"]
    once = [len(TEXT.encode()), len(ids)]
    assert added_by("/count", text=TEXT)[0] == once
    assert added_by("/count", text=[TEXT, TEXT * 9], limit=len(ids))[0] == once
    added, part = added_by("/truncate", text=TEXT * 9, max_tokens=3)
    assert added == [len(part["text"].encode()), len(part["tokens"])]
    added, answer = added_by("/chunk", text=TEXT, max_tokens=4, overlap_tokens=2)
    texts = [chunk["text"] for chunk in answer["chunks"]]
    assert len(texts) > 1
    n_tokens = sum(len(chunk["tokens"]) for chunk in answer["chunks"])
    assert added == [len("".join(texts).encode()), n_tokens]
    assert added_by("/verify", text=TEXT)[0] == [0, 0]
    assert added_by("/verify", tokens=ids)[0] == [0, 0]
