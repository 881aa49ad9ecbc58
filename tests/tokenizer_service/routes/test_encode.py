from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.profiles import first_and_thorough
from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.routes import exchanges
from tests.tokenizer_service.routes.exchanges import pointer, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_service.rendering import encode as encode_answers
from tokenizer_service.rendering import json_values as answers

TEXT = (
    "The quick brown fox<|a|> héllo 中文字符 👩‍👩‍👧 don't\r\n\r\n  \x00\ufeff\uffff\U0010ffff 12345"
)


def encode(client: TestClient, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = exchanges.post(client, "/encode", **body)
    return answer


@pytest.mark.row(11)
def test_ids_count_and_identity(
    client: TestClient, small_tokenizer: Tokenizer, starter: ArtifactRef
) -> None:
    for path in ("/encode", "/v1/encode"):
        response = client.post(path, json={"text": TEXT})
        answer = response.json()
        assert answer["tokens"] == small_tokenizer.encode(TEXT)
        assert answer["count"] == len(answer["tokens"])
        identity = {"name": "starter", "version": starter.version, "digest": starter.digest}
        assert answer["tokenizer"] == identity
        assert response.headers["Tokenizer-Version"] == str(starter)
        assert response.headers["Tokenizer-Digest"] == starter.digest
        assert set(answer) == {"tokens", "count", "tokenizer"}


@pytest.mark.row(12)
def test_ids_of_large_and_empty_texts(client: TestClient, small_tokenizer: Tokenizer) -> None:
    text = TEXT * 1500
    assert len(text) > 70_000
    for texts in ([], [""], [text, "", TEXT]):
        batch = encode(client, text=texts)
        assert batch["tokens"] == [small_tokenizer.encode(text) for text in texts]
        assert batch["count"] == [len(ids) for ids in batch["tokens"]]
        for one, ids in zip(texts, batch["tokens"], strict=True):
            assert encode(client, text=one)["tokens"] == ids


def test_options_in_the_query_beside_a_json_body_are_refused(client: TestClient) -> None:
    """They would be ignored: other ids than those of the tokenizer that the query names."""
    for path, body in (
        ("/encode", {"text": "x"}),
        ("/decode", {"tokens": [97]}),
        ("/count", {"text": "x"}),
        ("/truncate", {"text": "x", "max_tokens": 1}),
        ("/chunk", {"text": "x", "max_tokens": 1}),
        ("/verify", {"tokens": [97]}),
        ("/chat/encode", {"messages": []}),
        ("/tokenize", {"prompt": "x"}),
        ("/detokenize", {"tokens": [97]}),
        ("/v1/merges", {"tokens": [97]}),
    ):
        refused = client.post(f"{path}?tokenizer=other", json=body)
        assert refused.status_code == 422, path
        assert "fields of the JSON body" in refused.json()["detail"]


def test_an_unknown_parameter_of_a_list_is_refused(client: TestClient) -> None:
    for path in ("/info?tokenizer=x", "/tokenizers?name=x", "/jobs?state=failed", "/train?kind=a"):
        refused = client.get(path, headers={"X-API-Key": ADMIN_KEY})
        assert refused.status_code == 422, path
        assert "Unknown query parameter; known: " in refused.json()["detail"]


@pytest.mark.row(11)
@pytest.mark.parametrize("plane", first_and_thorough(range(17)))
def test_every_code_point_of_every_plane_comes_back(client: TestClient, plane: int) -> None:
    """Assigned or not, noncharacters, NUL, the byte order mark: all except surrogates."""
    codes = range(plane << 16, (plane + 1) << 16)
    text = "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
    # A codec that interprets a byte order mark would drop it at the beginning only.
    check_round_trip(client, f"\ufeff{text}\ufeff")


def check_round_trip(client: TestClient, text: str) -> None:
    """Encode and decode, by the one-shot routes and by the streams."""
    ids = encode(client, text=text)["tokens"]
    assert exchanges.post(client, "/decode", tokens=ids)["text"] == text
    streamed = client.post("/encode_stream", content=text.encode()).text.splitlines()
    assert [id_ for line in streamed[:-1] for id_ in json.loads(line)["tokens"]] == ids
    headers = {"Content-Type": "application/x-ndjson"}
    returned = client.post("/decode_stream", content="\n".join(streamed), headers=headers)
    assert "".join(json.loads(line)["text"] for line in returned.text.splitlines()[:-1]) == text


def test_limits(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    count = encode(client, text=TEXT)["count"]
    assert encode(client, text=TEXT, max_tokens=count)["count"] == count
    over = client.post("/encode", json={"text": ["a", TEXT], "max_tokens": count - 1})
    found = problem(over, 413, "too_many_tokens")
    assert (found["limit"], found["actual"], pointer(found)) == (count - 1, count, "/text/1")
    assert exchanges.post(client, "/count", text=[""] * 65_536)["count"] == [0] * 65_536
    many = client.post("/encode", json={"text": [""] * 65_537})
    assert (many.status_code, many.json()["actual"]) == (413, 65_537)
    monkeypatch.setattr(encode_answers, "MAX_DETAILED_TOKENS", 3)
    detailed = client.post("/encode", json={"text": ["a b", "c d"], "return": ["pieces"]})
    n_tokens = sum(encode(client, text=["a b", "c d"])["count"])
    assert detailed.status_code == 413
    assert (detailed.json()["limit"], detailed.json()["actual"]) == (3, n_tokens)


def test_ids_of_the_post_processor_only_on_request(
    shared_store: ArtifactStore, small_spec: TokenizerSpec, client: TestClient
) -> None:
    spec = dataclasses.replace(small_spec, prefix_ids=(256,))
    named = str(shared_store.publish(spec, name="with-prefix"))
    segments = [{"text": "the <|a|>", "special": True}, {"text": " end", "special": False}]
    for body in ({"text": "the end"}, {"segments": segments}):
        plain = encode(client, tokenizer=named, **body)["tokens"]
        for wanted in (["ids"], ["ids", "offsets"]):
            options = {"add_special_tokens": True, "return": wanted, "tokenizer": named}
            answer = encode(client, **body, **options)
            assert answer["tokens"] == [256, *plain]
        assert answer["offsets"][0] == [0, 0]


@pytest.mark.row(13)
def test_special_token_policy(client: TestClient, small_tokenizer: Tokenizer) -> None:
    text = "x<|a|><|a|><|a|>y<|endoftext|>"
    for allowed in ("all", "none", ["<|a|>"], ["<|a|>", "<|a|><|a|>"], []):
        ids = encode(client, text=text, allowed_special=allowed)["tokens"]
        assert ids == small_tokenizer.encode(text, allowed_special=allowed)
    for forbidden in ("all", ["<|endoftext|>"]):
        body = {"text": text, "allowed_special": ["<|a|>"], "disallowed_special": forbidden}
        problem(client.post("/encode", json=body), 422, "special_token_forbidden")
    wrong: list[Any] = [[""], ["x" * 257], [f"<{i}>" for i in range(129)], ["a", 1], "some"]
    for field in ("allowed_special", "disallowed_special"):
        unknown = client.post("/encode", json={"text": "a", field: ["<|nope|>"]})
        assert pointer(problem(unknown, 422, "unknown_special_token")) == f"/{field}"
        for names in wrong:
            refused = client.post("/encode", json={"text": "a", field: names})
            assert pointer(problem(refused, 422, "invalid_request")) == f"/{field}"


def test_pieces_are_the_bytes_of_the_ids(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = encode(client, text=TEXT, **{"return": ["pieces"]})
    assert "tokens" not in answer
    pieces = answer["pieces"]
    assert len(pieces) == answer["count"]
    assert b"".join(base64.b64decode(piece["bytes"]) for piece in pieces) == TEXT.encode()
    for piece in pieces:
        data = base64.b64decode(piece["bytes"])
        assert piece["text"] is None or piece["text"].encode() == data
    assert any(piece["text"] is None for piece in pieces)  # a character of several tokens
    body = {"text": TEXT * 20, "return": ["ids", "pieces", "offsets"]}
    whole = encode(client, **body)
    monkeypatch.setattr(answers, "_DESCRIBED_WINDOW", 7)
    monkeypatch.setattr(answers, "_ID_WINDOW", 5)
    assert encode(client, **body) == whole


def test_offsets_in_both_units(client: TestClient, small_tokenizer: Tokenizer) -> None:
    data = TEXT.encode()
    wanted = ["ids", "offsets"]
    answer = encode(client, text=TEXT, **{"return": wanted})
    for id_, (start, end) in zip(answer["tokens"], answer["offsets"], strict=True):
        assert small_tokenizer.decode_bytes([id_]) == data[start:end]
    in_chars = encode(client, text=TEXT, offset_unit="char", **{"return": wanted})
    for (start, end), (a, b) in zip(answer["offsets"], in_chars["offsets"], strict=True):
        # Exactly the characters that have a byte in the token.
        assert a == len(data[:start].decode(errors="ignore"))
        assert len(TEXT[:b].encode()) >= end > len(TEXT[: b - 1].encode())
    batch = encode(client, text=[TEXT, ""], **{"return": wanted})
    assert batch["offsets"] == [answer["offsets"], []]


@pytest.mark.row(28)
def test_a_request_may_name_a_tokenizer_or_its_digest(
    shared_store: ArtifactStore, other_spec: TokenizerSpec, client: TestClient, starter: ArtifactRef
) -> None:
    other = shared_store.publish(other_spec, name="other")
    for name in ("other", str(other)):
        response = client.post("/encode", json={"text": "a", "tokenizer": name})
        assert response.json()["tokens"] == [1097]
        assert response.headers["Tokenizer-Digest"] == other.digest

    def status(name: str, match: str = "*") -> int:
        asked = {"text": "a", "tokenizer": name}
        return client.post("/encode", json=asked, headers={"If-Match": match}).status_code

    unknown = ("nope", "starter@20200101T000000Z-00000000", "../x", "starter@../x", "starter\n")
    assert [status(name) for name in unknown] == [404, 404, 422, 422, 422]
    assert status("active", f'"x", "{starter.digest}"') == 200
    assert status("starter", f'"{other.digest}"') == 412
    assert status("starter", f'W/"{starter.digest}"') == 412
    assert status("other", f'"{other.digest}"') == 200


@pytest.mark.thorough
@pytest.mark.row(10)
@pytest.mark.parametrize("character", ["a", " ", "\u0301", "中"])
def test_a_megabyte_of_one_character(client: TestClient, character: str) -> None:
    text = character * (1_000_000 // len(character.encode()))
    answer = encode(client, text=text, allowed_special="none")
    decoded = client.post("/decode", json={"tokens": answer["tokens"]}).json()["text"]
    assert decoded == text


def test_without_memory_a_request_is_refused_and_the_next_is_served(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode_to_json", no_memory)
        refused = client.post("/encode", json={"text": TEXT})
    assert (refused.status_code, refused.json()["code"]) == (503, "out_of_memory")
    assert refused.headers["Retry-After"] == "5"
    assert encode(client, text=TEXT)["count"] > 0
