from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.profiles import first_and_thorough
from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_service.rendering import encode as encode_answers
from tokenizer_service.rendering import json_values as answers

TEXT = (
    "The quick brown fox<|a|> héllo 中文字符 👩‍👩‍👧 don't\r\n\r\n  \x00\ufeff\uffff\U0010ffff 12345"
)


def encode(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post("/encode", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
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


def test_ids_of_large_texts(client: TestClient, small_tokenizer: Tokenizer) -> None:
    text = TEXT * 3000
    assert len(text) > 70_000
    assert encode(client, text=text)["tokens"] == small_tokenizer.encode(text)
    batch = encode(client, text=[text, "", TEXT])
    assert batch["tokens"] == [small_tokenizer.encode(text), [], small_tokenizer.encode(TEXT)]
    assert batch["count"] == [len(ids) for ids in batch["tokens"]]


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


@pytest.mark.row(12)
def test_empty_text_and_empty_batch(client: TestClient) -> None:
    assert encode(client, text="")["tokens"] == []
    assert encode(client, text="")["count"] == 0
    assert encode(client, text=[])["tokens"] == []
    assert encode(client, text=[])["count"] == []


@pytest.mark.row(11)
@pytest.mark.parametrize("plane", first_and_thorough(range(17)))
def test_every_code_point_of_every_plane_comes_back(client: TestClient, plane: int) -> None:
    """Assigned or not, noncharacters, NUL, the byte order mark: all except surrogates."""
    codes = range(plane << 16, (plane + 1) << 16)
    check_round_trip(client, "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000))


@pytest.mark.row(11)
def test_odd_characters_come_back_from_either_end(client: TestClient) -> None:
    """A codec that interprets a byte order mark would drop it at the beginning only."""
    for odd in ("\x00", "\ufeff", "\uffff", "\u0378", "\U0010fffe"):
        for text in (odd, f"{odd}a", f"{odd}a{odd}"):
            check_round_trip(client, text)


def check_round_trip(client: TestClient, text: str) -> None:
    """Encode and decode, by the one-shot routes and by the streams."""
    ids = encode(client, text=text)["tokens"]
    assert client.post("/decode", json={"tokens": ids}).json()["text"] == text
    streamed = client.post("/encode_stream", content=text.encode()).text.splitlines()
    assert [id_ for line in streamed[:-1] for id_ in json.loads(line)["tokens"]] == ids
    returned = client.post(
        "/decode_stream",
        content="\n".join(streamed),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert "".join(json.loads(line)["text"] for line in returned.text.splitlines()[:-1]) == text


@pytest.mark.row(13)
def test_special_token_policy(client: TestClient, small_tokenizer: Tokenizer) -> None:
    text = "x<|a|><|a|><|a|>y<|endoftext|>"
    for allowed in ("all", "none", ["<|a|>"], ["<|a|>", "<|a|><|a|>"], []):
        ids = encode(client, text=text, allowed_special=allowed)["tokens"]
        assert ids == small_tokenizer.encode(text, allowed_special=allowed)
    for forbidden in ("all", ["<|endoftext|>"]):
        body = {"text": text, "allowed_special": ["<|a|>"], "disallowed_special": forbidden}
        response = client.post("/encode", json=body)
        assert response.status_code == 422
        assert response.json()["code"] == "special_token_forbidden"
    for field in ("allowed_special", "disallowed_special"):
        unknown = client.post("/encode", json={"text": "a", field: ["<|nope|>"]})
        assert unknown.status_code == 422
        assert unknown.json()["code"] == "unknown_special_token"
        assert unknown.json()["errors"][0]["pointer"] == f"/{field}"


@pytest.mark.row(13)
def test_names_of_special_tokens_have_limits(client: TestClient) -> None:
    wrong: list[Any] = [[""], ["x" * 257], [f"<{i}>" for i in range(129)], ["a", 1], "some"]
    for names in wrong:
        for field in ("allowed_special", "disallowed_special"):
            response = client.post("/encode", json={"text": "a", field: names})
            assert response.status_code == 422
            assert response.json()["errors"][0]["pointer"] == f"/{field}"


def test_pieces_are_the_bytes_of_the_ids(client: TestClient) -> None:
    answer = encode(client, text=TEXT, **{"return": ["pieces"]})
    assert "tokens" not in answer
    pieces = answer["pieces"]
    assert len(pieces) == answer["count"]
    assert b"".join(base64.b64decode(piece["bytes"]) for piece in pieces) == TEXT.encode()
    for piece in pieces:
        data = base64.b64decode(piece["bytes"])
        assert piece["text"] is None or piece["text"].encode() == data
    assert any(piece["text"] is None for piece in pieces)  # a character of several tokens


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


def test_many_pieces_and_offsets_are_rendered_in_windows(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"text": TEXT * 20, "return": ["ids", "pieces", "offsets"]}
    whole = client.post("/encode", json=body).json()
    monkeypatch.setattr(answers, "_DESCRIBED_WINDOW", 7)
    monkeypatch.setattr(answers, "_ID_WINDOW", 5)
    assert client.post("/encode", json=body).json() == whole


def test_more_detailed_tokens_than_the_limit(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_answers, "MAX_DETAILED_TOKENS", 3)
    response = client.post("/encode", json={"text": ["a b", "c d"], "return": ["pieces"]})
    assert response.status_code == 413
    counts = encode(client, text=["a b", "c d"])["count"]
    assert (response.json()["limit"], response.json()["actual"]) == (3, sum(counts))


def test_max_tokens(client: TestClient) -> None:
    count = encode(client, text=TEXT)["count"]
    assert encode(client, text=TEXT, max_tokens=count)["count"] == count
    response = client.post("/encode", json={"text": ["a", TEXT], "max_tokens": count - 1})
    assert response.status_code == 413
    problem = response.json()
    assert (problem["limit"], problem["actual"]) == (count - 1, count)
    assert problem["errors"][0]["pointer"] == "/text/1"


def test_post_processor_ids_only_on_request(
    store: ArtifactStore, small_spec: TokenizerSpec, make_client: Callable[..., TestClient]
) -> None:
    spec = TokenizerSpec.from_merges(
        small_spec.vocab, small_spec.merges, list(small_spec.special_tokens), prefix_ids=(256,)
    )
    store.publish(spec, name="with-prefix")
    with make_client(default="with-prefix") as client:
        plain = encode(client, text="the end")["tokens"]
        for wanted in (["ids"], ["ids", "offsets"]):
            options = {"add_special_tokens": True, "return": wanted, "offset_unit": "char"}
            answer = encode(client, text="the end", **options)
            assert answer["tokens"] == [256, *plain]
        assert answer["offsets"][0] == [0, 0]


def test_batch_limit(client: TestClient) -> None:
    counted = client.post("/count", json={"text": [""] * 65_536})
    assert counted.json()["count"] == [0] * 65_536
    response = client.post("/encode", json={"text": [""] * 65_537})
    assert response.status_code == 413
    assert response.json()["actual"] == 65_537


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
@pytest.mark.parametrize("character", ["a", "^", " ", "\n", "\u0301", "\u200d", "中"])
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
