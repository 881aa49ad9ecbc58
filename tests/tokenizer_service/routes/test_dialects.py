"""The dialects, in requests and responses as their own servers document them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import tokenizers
from starlette.testclient import TestClient

from tests.tokenizer_core.formats.small_specs import character_spec
from tests.tokenizer_service.conftest import settings_for
from tests.tokenizer_service.routes.exchanges import metrics, pointer, post, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import AddedToken
from tokenizer_service.main import create_app
from tokenizer_service.rendering import decode as decode_answers
from tokenizer_service.rendering import encode as encode_answers

BYTES = {byte: bytes([byte]) for byte in range(256)}
WORDS = {256: b"He", 257: b"ll", 258: b"o", 259: b" w", 260: b"or", 261: b"ld"}
MERGES = [(b"H", b"e"), (b"l", b"l"), (b" ", b"w"), (b"o", b"r"), (b"l", b"d")]


@pytest.fixture(scope="module")
def spec() -> TokenizerSpec:
    """Ids that are easy to follow: each byte is its own id, <s> 262 and <end> 263 surround a text,
    <a mark> 264 is content."""
    vocab = BYTES | {id_: token for id_, token in WORDS.items() if id_ != 258}
    added = [AddedToken("<s>", 262), AddedToken("<end>", 263), AddedToken("<a mark>", 264, False)]
    return TokenizerSpec.from_merges(vocab, MERGES, added, prefix_ids=(262,), suffix_ids=(263,))


@pytest.fixture(scope="module")
def around(shared_store: ArtifactStore, spec: TokenizerSpec) -> Iterator[TestClient]:
    """A service whose active tokenizer puts <s> and <end> around a text; `starter` adds nothing."""
    shared_store.publish(spec, name="around")
    settings = settings_for(shared_store).model_copy(update={"default": "around"})
    with TestClient(create_app(settings)) as client:
        yield client


HELLO = [256, 257, ord("o")]


def test_vllm_spells_a_vocabulary_of_characters_as_its_file_does(
    shared_store: ArtifactStore, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = str(shared_store.publish(character_spec(), name="characters"))
    asked = {"prompt": "a\u00e9 b<s>", "return_token_strs": True, "tokenizer": named}
    answer = post(client, "/tokenize", **asked)
    assert answer["tokens"] == [259, 258, 256, 0x62, 260]
    assert answer["token_strs"] == ["\u2581a", "\u00e9", "\u2581", "<0x62>", "<s>"]
    ids = [259, 258, 256, 0xF0, 0x9F]
    back = post(client, "/detokenize", tokens=ids, tokenizer=named)
    assert back["prompt"] == "a\u00e9 \ufffd\ufffd"
    monkeypatch.setattr(decode_answers, "_WINDOW", 1)
    as_bytes = {"Accept": "application/octet-stream"}
    raw = client.post("/decode", json={"tokens": [259, 259], "tokenizer": named}, headers=as_bytes)
    assert raw.content == b"a a"


def test_vllm(around: TestClient) -> None:
    answer = post(around, "/v1/tokenize", model="meta-llama/Llama-3", prompt="Hello")
    assert answer == {
        "count": 5,
        "max_model_len": -1,
        "tokens": [262, *HELLO, 263],
        "token_strs": None,
    }
    bare = post(around, "/tokenize", prompt="Hello", add_special_tokens=False)
    assert bare["tokens"] == HELLO
    asked = {"prompt": " w\u00e9<s><a mark>", "return_token_strs": True, "model": None}
    named = post(around, "/tokenize", **asked)
    assert named["tokens"] == [262, 259, 0xC3, 0xA9, 262, 264, 263]
    assert named["token_strs"] == ["<s>", "Ġw", "Ã", "©", "<s>", "<a mark>", "<end>"]
    back = post(around, "/v1/detokenize", model="m", tokens=[262, *HELLO, 263])
    assert back["prompt"] == "<s>Hello<end>"


def test_sglang(around: TestClient) -> None:
    answer = post(around, "/v1/tokenize", model="default", prompt=["Hello", ""])
    assert answer["tokens"] == [[262, *HELLO, 263], [262, 263]]
    assert answer["count"] == [5, 2]
    assert answer["max_model_len"] == -1
    tokens = [262, *HELLO, 264, 263]
    assert post(around, "/v1/detokenize", tokens=tokens)["text"] == "Hello<a mark>"
    kept = post(around, "/v1/detokenize", tokens=tokens, skip_special_tokens=False)
    assert kept["text"] == "<s>Hello<a mark><end>"
    assert post(around, "/v1/detokenize", tokens=[tokens, []])["text"] == ["Hello<a mark>", ""]
    assert post(around, "/v1/detokenize", tokens=[])["text"] == ""


def test_llama_cpp(around: TestClient) -> None:
    assert post(around, "/tokenize", content="Hello") == {"tokens": HELLO}
    added = post(around, "/tokenize", content="Hello", add_special=True)
    assert added == {"tokens": [262, *HELLO, 263]}
    assert post(around, "/tokenize", content="<s>") == {"tokens": [262]}
    plain = post(around, "/tokenize", content="<s>", parse_special=False)
    assert plain == {"tokens": list(b"<s>")}
    pieces = post(around, "/tokenize", content="He\u00e1<s>", with_pieces=True)
    assert pieces == {
        "tokens": [
            {"id": 256, "piece": "He"},
            {"id": 195, "piece": [195]},
            {"id": 161, "piece": [161]},
            {"id": 262, "piece": "<s>"},
        ]
    }
    assert post(around, "/detokenize", tokens=[262, *HELLO])["content"] == "<s>Hello"


def test_text_embeddings_inference(around: TestClient) -> None:
    hello = [
        {"id": 256, "text": "He", "special": False, "start": 0, "stop": 2},
        {"id": 257, "text": "ll", "special": False, "start": 2, "stop": 4},
        {"id": 111, "text": "o", "special": False, "start": 4, "stop": 5},
    ]
    before = {"id": 262, "text": "<s>", "special": True, "start": None, "stop": None}
    after = {"id": 263, "text": "<end>", "special": True, "start": None, "stop": None}
    answer = post(around, "/tokenize", inputs="Hello", add_special_tokens=True, prompt_name=None)
    assert answer == [[before, *hello, after]]
    assert post(around, "/tokenize", inputs="Hello") == answer
    bare = post(around, "/tokenize", inputs=["Hello", ""], add_special_tokens=False)
    assert bare == [hello, []]
    assert post(around, "/tokenize", inputs=[]) == []


def test_offsets_are_those_of_hugging_face(
    around: TestClient, spec: TokenizerSpec, tmp_path: Any
) -> None:
    """text-embeddings-inference takes the offsets from this library's Rust API, which counts bytes;
    its Python API counts characters."""
    Tokenizer.from_spec(spec).save_tokenizer_json(tmp_path / "tokenizer.json")
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = " wéor中<s>👩‍👧 <a mark> <end>\n"
    encoding = reference.encode(text)
    [answer] = post(around, "/tokenize", inputs=text)
    assert [token["id"] for token in answer] == encoding.ids
    assert [token["special"] for token in answer] == [m == 1 for m in encoding.special_tokens_mask]
    for token, (start, end) in zip(answer, encoding.offsets, strict=True):
        if not token["special"]:
            assert token["text"] == text[start:end]
            assert text.encode()[token["start"] : token["stop"]].decode() == token["text"]


def test_cohere(around: TestClient) -> None:
    answer = post(around, "/v1/tokenize", text="Hello w\u00e1", model="command-a-03-2025")
    assert answer == {
        "tokens": [*HELLO, 259, 195, 161],
        "token_strings": ["He", "ll", "o", " w", "\ufffd", "\ufffd"],
    }
    back = post(around, "/detokenize", tokens=HELLO, model="command-a-03-2025")
    assert back["text"] == "Hello"


def test_decode_and_detokenize(around: TestClient) -> None:
    ids = [262, *HELLO, 264, 263]
    assert post(around, "/decode", ids=ids) == ["Hello<a mark>"]
    assert post(around, "/decode", ids=[ids, []], skip_special_tokens=False) == [
        "<s>Hello<a mark><end>",
        "",
    ]
    assert post(around, "/decode", ids=[]) == [""]
    assert around.post("/decode", json={"ids": ids, "tokens": ids}).status_code == 422
    as_bytes = {"Accept": "application/octet-stream"}
    assert around.post("/decode", json={"ids": ids}, headers=as_bytes).status_code == 406
    texts = {"prompt": "<s>Hello", "content": "<s>Hello", "text": "Hello"}
    assert post(around, "/detokenize", tokens=[262, *HELLO]) == texts
    for skip, text in ((True, "Hello"), (False, "<s>Hello")):
        answer = post(around, "/detokenize", tokens=[262, *HELLO], skip_special_tokens=skip)
        assert set(answer.values()) == {text}
    assert post(around, "/detokenize", tokens=[0xC3])["prompt"] == "\ufffd"


@pytest.mark.row(3, 14)
def test_wrong_and_unknown_ids_are_refused_by_their_place(around: TestClient) -> None:
    for path, field in (("/decode", "ids"), ("/detokenize", "tokens")):
        for ids, place, code in (
            ([1, -1], "/1", "invalid_token_id"),
            ([True], "/0", "invalid_token_id"),
            ([2**32], "/0", "invalid_token_id"),
            ("text", "", "invalid_request"),
            ([1, 999], "/1", "unknown_token_id"),
        ):
            found = problem(around.post(path, json={field: ids}), 422, code)
            assert pointer(found) == f"/{field}{place}"
    unknown = around.post("/decode", json={"ids": [[1], [2, 999]]})
    assert pointer(problem(unknown, 422, "unknown_token_id")) == "/ids/1/1"


def test_unsupported_requests_are_refused(client: TestClient) -> None:
    for body, code in (
        ({"messages": [{"role": "user", "content": "x"}]}, "chat_template_missing"),
        ({"messages": [], "prompt": "x"}, "ambiguous_dialect"),
        ({"prompt": "x", "content": "x"}, "ambiguous_dialect"),
        ({"text": "x", "inputs": "x"}, "ambiguous_dialect"),
        ({"messages": []}, "invalid_request"),
        ({}, "invalid_request"),
        ([], "invalid_request"),
        # An option that would change ids or the response, and is not supported, is never ignored.
        ({"inputs": "x", "prompt_name": "query"}, "invalid_request"),
        ({"prompt": "x", "truncate_prompt_tokens": 5}, "invalid_request"),
        ({"content": "x", "add_special_tokens": False}, "invalid_request"),
        ({"text": "x", "add_special_tokens": True}, "invalid_request"),
        ({"prompt": "x", "add_special_tokens": 1}, "invalid_request"),
        ({"prompt": "x", "model": 5}, "invalid_request"),
    ):
        response = client.post("/tokenize", json=body)
        assert (response.status_code, response.json()["code"]) == (422, code), body


def test_a_request_may_name_a_tokenizer_or_its_digest(
    around: TestClient, small_tokenizer: Tokenizer
) -> None:
    digest = small_tokenizer.spec.fingerprint
    asked: list[Callable[..., httpx.Response]] = [
        lambda **k: around.post("/tokenize", json={"prompt": "the", **body}, **k),
        lambda **k: around.post("/detokenize", json={"tokens": [97], **body}, **k),
        lambda **k: around.post("/decode", json={"ids": [97], **body}, **k),
        lambda **k: around.get("/tokenizer_info", params=body, **k),
    ]
    for ask in asked:
        body: dict[str, str] = {}
        assert ask().headers["Tokenizer-Version"].startswith("around@")
        assert ask(headers={"If-Match": f'"{digest}"'}).status_code == 412
        body = {"tokenizer": "starter"}
        assert ask().headers["Tokenizer-Version"].startswith("starter@")
        assert ask(headers={"If-Match": f'"{digest}"'}).headers["Tokenizer-Digest"] == digest
        body = {"tokenizer": "nope"}
        assert ask().status_code == 404
    named = post(around, "/tokenize", prompt="the", tokenizer="starter")
    assert named["tokens"] == small_tokenizer.encode("the")  # a trained tokenizer adds nothing


def test_tokenizer_info(around: TestClient, client: TestClient) -> None:
    info = around.get("/tokenizer_info").json()
    assert info["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (info["bos_token"], info["eos_token"]) == ("<s>", "<end>")
    assert (info["add_bos_token"], info["add_eos_token"]) == (True, True)
    assert info["added_tokens_decoder"] == {"262": "<s>", "263": "<end>", "264": "<a mark>"}
    assert info["additional_special_tokens"] == ["<s>", "<end>"]
    trained = around.get("/tokenizer_info?tokenizer=starter").json()
    assert (trained["bos_token"], trained["eos_token"]) == (None, "<|endoftext|>")
    assert trained["add_eos_token"] is False
    assert client.get("/tokenizer_info?tokeniser=x").status_code == 422


def test_metrics_and_the_limit_of_detailed_tokens(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("encode_bytes_total", "encode_tokens_total", "decode_tokens_total")
    before = metrics(client, *names)
    n_tokens = len(post(client, "/tokenize", content="the fox é")["tokens"])
    post(client, "/detokenize", tokens=[97, 98])
    differences = [b - a for a, b in zip(before, metrics(client, *names), strict=True)]
    assert differences == [len("the fox é".encode()), n_tokens, 2]
    monkeypatch.setattr(encode_answers, "MAX_DETAILED_TOKENS", 3)
    for body in (
        {"prompt": "a b c d e", "return_token_strs": True},
        {"content": "a b c d e", "with_pieces": True},
        {"inputs": ["a", "b", "c", "d", "e"]},
        {"text": "a b c d e"},
    ):
        assert client.post("/tokenize", json=body).status_code == 413, body
    assert client.post("/tokenize", json={"prompt": "a b c d e"}).status_code == 200
    html = {"Accept": "text/html"}
    assert client.post("/tokenize", json={"text": "x"}, headers=html).status_code == 406
