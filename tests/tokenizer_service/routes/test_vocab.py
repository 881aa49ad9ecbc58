"""/vocab/{id}: one token, and the merges that produce it."""

from __future__ import annotations

import base64
from itertools import chain
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.tokenizer_service.routes.exchanges import Post, pointer, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactStore


def show(client: TestClient, id_: int, **query: Any) -> dict[str, Any]:
    response = client.get(f"/vocab/{id_}", params=query)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def single_bytes(node: dict[str, Any]) -> bytes:
    """The bytes at the ends of a tree, of one byte each."""
    if node["parts"] is not None:
        return b"".join(map(single_bytes, node["parts"]))
    data = base64.b64decode(node["bytes"])
    assert len(data) == 1
    assert not node["cut"]
    return data


def test_every_token_is_what_the_vocabulary_says(
    client: TestClient, small_spec: TokenizerSpec
) -> None:
    for id_ in [*range(0, 256, 15), *range(256, small_spec.largest_id, 7), small_spec.largest_id]:
        token = small_spec.vocab[id_]
        answer = show(client, id_, depth=16)
        assert answer["id"] == answer["tree"]["id"] == id_
        assert base64.b64decode(answer["bytes"]) == token
        assert answer["text"] is None or answer["text"].encode() == token
        assert answer["special"] is (id_ in small_spec.special_tokens.values())
        if answer["rank"] is None:
            assert answer["parts"] is None
        else:
            left, right = small_spec.merges[answer["rank"]]
            assert [small_spec.vocab[part] for part in answer["parts"]] == [left, right]
            assert [part["id"] for part in answer["tree"]["parts"]] == answer["parts"]
        if not answer["special"]:
            assert single_bytes(answer["tree"]) == token
    whole = answer["tree"]
    assert whole["parts"] is not None
    assert show(client, id_)["tree"] == whole
    assert show(client, id_, depth=0)["tree"] == {**whole, "parts": None, "cut": True}
    one = show(client, id_, depth=1)
    assert one["parts"] == answer["parts"]
    assert any(part["cut"] for part in one["tree"]["parts"])


def test_wrong_ids_and_queries_are_refused(client: TestClient, small_spec: TokenizerSpec) -> None:
    for bad in ("1.0", "-1", "01", "1e2", "%20 97", "٣", "9" * 4000, "97%0a"):
        assert pointer(problem(client.get(f"/vocab/{bad}"), 422, "invalid_request")) == "/token_id"
    for query in ("depth=17", "depth=-1", "depth=", "deepth=1", "depth=1&depth=2"):
        problem(client.get(f"/vocab/97?{query}"), 422, "invalid_request")
    assert client.get("/vocab/97?tokenizer=../x").status_code == 422
    missing = client.get("/v1/vocab/97", headers={"If-Match": '"other"'})
    problem(missing, 412, "digest_mismatch")
    for id_ in (small_spec.largest_id + 1, 2**32 - 1):
        found = problem(client.get(f"/vocab/{id_}"), 404, "unknown_token_id")
        assert str(small_spec.largest_id) in found["detail"]


def test_ranks(shared_store: ArtifactStore, client: TestClient, post: Post) -> None:
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 256, b"abc": 257}
    spec = TokenizerSpec.from_ranks(ranks, {"<|a|>": 300}, pattern="cl100k")
    shared_store.publish(spec, name="ranks")
    for id_, rank, parts in ((257, 257, [256, 99]), (300, None, None)):
        answer = show(client, id_, tokenizer="ranks")
        assert (answer["rank"], answer["parts"], answer["special"]) == (rank, parts, id_ == 300)
    listed = post("/merges", tokens=[257, 300], tokenizer="ranks")
    assert listed["merges"][-1] == [257, 256, 99, 258]
    assert 300 not in [made for made, *_ in listed["merges"]]
    gap = client.get("/vocab/299?tokenizer=ranks")
    problem(gap, 404, "unknown_token_id")
    named = client.get("/vocab/97?tokenizer=ranks")
    assert named.headers["Tokenizer-Version"].startswith("ranks@")
    problem(client.get("/vocab/97?tokenizer=nope"), 404, "tokenizer_not_found")


@pytest.mark.parametrize("n_merges", [0, 7])
def test_undoing_merges_gives_the_encoding_by_a_smaller_vocabulary(
    post: Post, small_spec: TokenizerSpec, n_merges: int
) -> None:
    text = "the lowest newer widest<|endoftext|> naïve 中文 lower new\n"
    ids = Tokenizer.from_spec(small_spec).encode(text)
    answer = post("/merges", tokens=sorted(set(ids)))
    n_own = len(small_spec.vocab) - len(small_spec.special_tokens)
    assert (answer["base_size"], answer["full_size"]) == (256, n_own)
    sizes = [size for *_, size in answer["merges"]]
    assert sizes == sorted(sizes)
    undone = {made: parts for made, *parts, size in answer["merges"] if size > 256 + n_merges}

    def undo(id_: int) -> list[int]:
        if id_ not in undone:
            return [id_]
        return list(chain.from_iterable(map(undo, undone[id_])))

    smaller = TokenizerSpec.from_merges(
        small_spec.vocab,
        small_spec.merges[:n_merges],
        [*small_spec.special_tokens],
        pattern=small_spec.pattern,
    )
    assert list(chain.from_iterable(map(undo, ids))) == Tokenizer.from_spec(smaller).encode(text)


def test_merges_of_none_unknown_and_too_many_tokens(client: TestClient, post: Post) -> None:
    assert post("/merges", tokens=[])["merges"] == []
    unknown = client.post("/merges", json={"tokens": [97, 4_000_000]})
    assert "4000000" in problem(unknown, 404, "unknown_token_id")["detail"]
    assert post("/merges", tokens=[97] * 4096)["merges"] == []
    many = client.post("/merges", json={"tokens": [97] * 4097})
    assert "4,096" in str(problem(many, 422, "invalid_request"))
