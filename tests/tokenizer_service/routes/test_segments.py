"""Trusted segments on /encode and /count: every form, the limits, and the refusals."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactStore

PARTS = [("<|a|>", True), ("héllo<|a|><|endoftext|> 中", False), ("文<|a|>", True), ("", False)]


def body_of(parts: list[tuple[str, bool]], **options: Any) -> dict[str, Any]:
    segments = [{"text": text, "special": special} for text, special in parts]
    return {"segments": segments, **options}


@pytest.fixture
def ids(small_tokenizer: Tokenizer) -> list[int]:
    ids = small_tokenizer.encode_segments(PARTS)
    special = set(small_tokenizer.special_tokens.values())
    assert len([id_ for id_ in ids if id_ in special]) == 2
    return ids


@pytest.mark.parametrize("n_times", [1, 200])
def test_every_form_gives_the_ids_of_the_library(
    client: TestClient, small_tokenizer: Tokenizer, n_times: int
) -> None:
    parts = PARTS * n_times
    expected, offsets = small_tokenizer.encode_segments_with_offsets(parts)
    body = body_of(parts)
    plain = client.post("/encode", json=body).json()
    assert (plain["tokens"], plain["count"]) == (expected, len(expected))
    counted = client.post("/count", json=body).json()
    assert (counted["count"], counted["limit_exceeded"]) == (len(expected), False)
    for form, width in (("u32", "<u4"), ("u16", "<u2")):
        accept = f"application/octet-stream; dtype={form}"
        raw = client.post("/encode", json=body, headers={"Accept": accept})
        assert raw.headers["Content-Type"] == accept
        assert np.frombuffer(raw.content, width).tolist() == expected
    npy = client.post("/encode", json=body, headers={"Accept": "application/x-npy"})
    assert np.load(io.BytesIO(npy.content)).tolist() == expected
    if n_times == 1:
        detailed = client.post("/encode", json={**body, "return": ["ids", "pieces", "offsets"]})
        answer = detailed.json()
        assert (answer["tokens"], answer["offsets"]) == (expected, offsets.tolist())
        assert len(answer["pieces"]) == len(expected)
        in_characters = {**body, "return": ["offsets"], "offset_unit": "char"}
        answer = client.post("/encode", json=in_characters).json()
        _, offsets = small_tokenizer.encode_segments_with_offsets(parts, unit="char")
        assert answer["offsets"] == offsets.tolist()


def test_no_segments_and_one_of_nothing(client: TestClient) -> None:
    for parts in ([], [("", True)]):
        assert client.post("/encode", json=body_of(parts)).json()["tokens"] == []
        assert client.post("/count", json=body_of(parts)).json()["count"] == 0


def test_limits_are_those_of_a_text(client: TestClient, ids: list[int]) -> None:
    refused = client.post("/encode", json=body_of(PARTS, max_tokens=len(ids) - 1))
    assert (refused.status_code, refused.json()["code"]) == (413, "too_many_tokens")
    assert refused.json()["errors"][0]["pointer"] == "/segments"
    assert client.post("/encode", json=body_of(PARTS, max_tokens=len(ids))).status_code == 200
    counted = client.post("/count", json=body_of(PARTS, limit=2)).json()
    assert (counted["count"], counted["limit_exceeded"]) == (2, True)
    many = client.post("/count", json=body_of([("", False)] * 65_537))
    assert (many.status_code, many.json()["actual"]) == (413, 65_537)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"text": "a", "segments": []}, "/segments"),
        ({"segments": "a"}, "/segments"),
        ({"segments": ["a"]}, "/segments"),
        ({"segments": [{"text": "a"}]}, "/segments"),
        ({"segments": [{"text": "a", "special": 1}]}, "/segments"),
        ({"segments": [{"text": 1, "special": True}]}, "/segments"),
        ({"segments": [{"text": "a", "special": True, "role": "user"}]}, "/segments"),
        (body_of(PARTS, allowed_special="none"), "/segments"),
        (body_of(PARTS, disallowed_special="all"), "/segments"),
    ],
)
def test_wrong_segments_are_refused(client: TestClient, body: dict[str, Any], pointer: str) -> None:
    for path in ("/encode", "/count"):
        response = client.post(path, json=body)
        assert response.status_code == 422
        assert response.json()["code"] == "invalid_request"
        assert response.json()["errors"][0]["pointer"] == pointer


def test_a_lone_surrogate_is_refused(client: TestClient) -> None:
    parts = json.dumps(body_of([("\ud83d", True), ("\ude00", False)]))
    response = client.post("/encode", content=parts, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "lone_surrogate")


def test_plain_text_with_a_special_id_is_refused_with_the_remedy(
    shared_store: ArtifactStore, client: TestClient
) -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"ab"}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], ["ab"])
    named = str(shared_store.publish(spec, name="reached"))
    for path in ("/encode", "/count"):
        response = client.post(path, json=body_of([("ab", False)], tokenizer=named))
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, "special_token_reached")
        assert problem["errors"][0]["pointer"] == "/segments"
        assert "id 256" in problem["detail"]
        accepted = client.post(path, json=body_of([("ab", True)], tokenizer=named))
        assert accepted.status_code == 200
