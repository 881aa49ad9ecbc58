"""Responses reserve the memory that they need as JSON, where a character may have six bytes."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tokenizer_core import TokenizerSpec
from tokenizer_service.rendering import decode as decode_responses
from tokenizer_service.rendering import dialects as dialect_responses
from tokenizer_service.rendering import text as text_responses

CONTROLS = "\x01" * 40_000
QUOTES = '"\\' * 20_000
ASCII = "abc " * 10_000


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each reservation."""
    reserved: list[int] = []
    for responses in (decode_responses, dialect_responses, text_responses):
        monkeypatch.setattr(responses, "reserve_memory", reserved.append)
    return reserved


@pytest.mark.parametrize("text", [CONTROLS, QUOTES, ASCII], ids=["controls", "quotes", "ascii"])
def test_chunks_reserve_their_size_as_json(
    client: TestClient, reserved: list[int], text: str
) -> None:
    asked = {"text": text, "max_tokens": 2000, "overlap_tokens": 1000}
    response = client.post("/chunk", json=asked)
    assert response.status_code == 200
    assert 0.95 < sum(reserved) / len(response.content) < 1.05


@pytest.mark.parametrize("text", [CONTROLS, QUOTES], ids=["controls", "quotes"])
def test_decoded_text_reserves_its_size_as_json(
    client: TestClient, reserved: list[int], text: str
) -> None:
    ids = client.post("/encode", json={"text": text}).json()["tokens"]
    response = client.post("/decode", json={"tokens": ids})
    assert response.json()["text"] == text
    assert 0.95 < sum(reserved) / len(response.content) < 1.05


def test_bytes_that_are_not_utf_8_reserve_their_replacements(
    client: TestClient, reserved: list[int], small_spec: TokenizerSpec
) -> None:
    (number,) = (number for number, token in small_spec.vocab.items() if token == b"\xff")
    response = client.post("/decode", json={"tokens": [number] * 40_000})
    assert response.json()["text"] == "\ufffd" * 40_000
    assert 0.95 < sum(reserved) / len(response.content) < 1.05


def test_detokenizing_reserves_the_text_without_special_tokens_as_well(
    client: TestClient, reserved: list[int], small_spec: TokenizerSpec
) -> None:
    special = next(iter(small_spec.special_tokens.values()))
    for ids, n_texts in (([97] * 40_000, 1), ([97] * 40_000 + [special], 2)):
        reserved.clear()
        response = client.post("/detokenize", json={"tokens": ids})
        assert response.json()["text"] == "a" * 40_000
        # `prompt` and `content` are one text in memory.
        assert sum(reserved) == pytest.approx(n_texts * 40_000, rel=0.05)
