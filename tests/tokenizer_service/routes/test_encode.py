"""/encode, of a text, of a batch and of trusted segments; /count takes segments as well."""

import base64
import dataclasses
import json
import re

import numpy as np
import pytest

from tests.profiles import first_and_thorough
from tests.tokenizer_service.access.test_auth import ADMIN, PUBLIC, READ
from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.routes.exchanges import pointer, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.spec import AddedToken
from tokenizer_service.handlers import encode as encode_answers
from tokenizer_service.responses import json_values as answers

TEXT = (
    "The quick brown fox<|a|> héllo 中文字符 👩‍👩‍👧 don't\r\n\r\n  \x00\ufeff\uffff\U0010ffff 12345"
)
PARTS = [("<|a|>", True), ("héllo<|a|><|endoftext|> 中", False), ("文<|a|>", True), ("", False)]


def body_of(parts, **options):
    segments = [{"text": text, "special": special} for text, special in parts]
    return {"segments": segments, **options}


@pytest.mark.row(11, 12)
def test_ids_and_their_count(post, small_tokenizer):
    ids = small_tokenizer.encode(TEXT)
    answer = post("/encode", text=TEXT)
    assert (answer["tokens"], answer["count"]) == (ids, len(ids))
    assert set(answer) == {"tokens", "count", "tokenizer"}
    large = TEXT * 1500
    assert len(large) > 70_000
    for texts in ([], [""], [large, "", TEXT]):
        batch = post("/encode", text=texts)
        assert batch["tokens"] == [small_tokenizer.encode(text) for text in texts]
        assert batch["count"] == [len(ids) for ids in batch["tokens"]]
        assert [post("/encode", text=text)["tokens"] for text in texts] == batch["tokens"]


@pytest.mark.parametrize(
    ("address", "place", "words"),
    [
        ("POST /encode?tokenizer=other", "/tokenizer", "; options are fields of the JSON body"),
        ("POST /as/openai/v1/responses/input_tokens?tools=a", "/tools", "; options are fields"),
        ("POST /train?wiat=1", "/wiat", "; did you mean wait?; known: wait; options are fields"),
        ("GET /jobs?state=failed", "/state", "parameter; known: limit, kind"),
        ("GET /jobs?limit=1&kind=train&limit=2", "/limit", "given 2 times; give it once"),
        ("GET /corpora?a~/b", "/a~0~1b", "unknown query parameter; this route takes none"),
        ("GET /tokenizer_info?tokeniser=a", "/tokeniser", "; did you mean tokenizer?; known: "),
        ("POST /tokenizers/a?special=a%3D1&special=b%3D2&presett=gpt2", "/presett", "mean preset?"),
    ],
)
def test_a_query_parameter_that_would_be_ignored_is_refused(client, address, place, words):
    """Else the ids are of another tokenizer than the query names."""
    method, path = address.split()
    headers = {"X-API-Key": ADMIN_KEY}
    refused = client.request(method, path, json={}, headers=headers)
    assert f"{place}: " in refused.text
    assert words in refused.text


def test_every_route_of_our_own_refuses_an_unknown_query_parameter(client):
    """Clients of other servers, links and monitors add parameters, which change nothing."""
    ignoring = set()
    for method, path in PUBLIC | READ | ADMIN:
        address = re.sub("{[^}]+}", "x", path)
        query, headers = {"beta": "true", "alt": "json"}, {"X-API-Key": ADMIN_KEY}
        for prefix in ("", "/v1"):
            response = client.request(method, prefix + address, params=query, headers=headers)
            if "unknown query parameter" not in response.text:
                ignoring.add((method, path))
                continue
            assert response.status_code in (400, 422)  # 400: as vLLM
            assert "/beta" in response.text
    others = {("GET", "/models"), ("GET", "/models/{model:path}"), ("GET", "/docs")}
    others.add(("GET", "/docs/{file}"))
    conversations = ("render", "input_tokens", "count_tokens", ":countTokens", "apply-template")
    assert ignoring == {
        *(PUBLIC | others),
        *(route for route in READ if route[1].endswith(conversations)),
    }


@pytest.mark.row(11)
@pytest.mark.parametrize("plane", first_and_thorough(range(17)))
def test_every_code_point_of_every_plane_comes_back(client, post, plane):
    """Assigned or not, noncharacters, NUL, the byte order mark: all except surrogates; by the
    one-shot routes and by the streams."""
    codes = range(plane << 16, (plane + 1) << 16)
    # A codec that interprets a byte order mark would drop it at the beginning only.
    text = f"\ufeff{''.join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)}\ufeff"
    ids = post("/encode", text=text)["tokens"]
    assert post("/decode", tokens=ids)["text"] == text
    streamed = client.post("/encode_stream", content=text.encode()).text.splitlines()
    assert [id_ for line in streamed[:-1] for id_ in json.loads(line)["tokens"]] == ids
    headers = {"Content-Type": "application/x-ndjson"}
    returned = client.post("/decode_stream", content="\n".join(streamed), headers=headers)
    assert "".join(json.loads(line)["text"] for line in returned.text.splitlines()[:-1]) == text


def test_limits(client, post, monkeypatch):
    def over(path, code, **body):
        found = problem(client.post(path, json=body), 413, code)
        return found["limit"], found["actual"], pointer(found) if "errors" in found else ""

    for body, place in (
        ({"text": TEXT}, "/text"),
        ({"text": ["a", TEXT]}, "/text/1"),
        (body_of(PARTS), "/segments"),
    ):
        count = max(np.atleast_1d(post("/encode", **body)["count"]).tolist())
        post("/encode", **body, max_tokens=count)
        refused = over("/encode", "too_many_tokens", **body, max_tokens=count - 1)
        assert refused == (count - 1, count, place)
    counted = post("/count", **body_of(PARTS, limit=2))
    assert (counted["count"], counted["limit_exceeded"]) == (2, True)
    assert post("/count", text=[""] * 65_536)["count"] == [0] * 65_536
    for body in ({"text": [""] * 65_537}, body_of([("", False)] * 65_537)):
        assert over("/count", "batch_too_large", **body)[1] == 65_537
    n_tokens = sum(post("/encode", text=["a b", "c d"])["count"])

    def no_memory(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode_source", no_memory)
        problem(client.post("/encode", json={"text": TEXT}), 503, "out_of_memory")
    monkeypatch.setattr(encode_answers, "MAX_DETAILED_TOKENS", 3)
    body = {"text": ["a b", "c d"], "return": ["pieces"]}
    assert over("/encode", "too_many_detailed_tokens", **body) == (3, n_tokens, "")


def test_ids_of_the_post_processor_only_on_request(shared_store, small_spec, post):
    spec = dataclasses.replace(small_spec, prefix_ids=(256,))
    named = str(shared_store.publish(spec, name="with-prefix"))
    for body in ({"text": "the end"}, body_of([("the <|a|>", True), (" end", False)])):
        plain = post("/encode", tokenizer=named, **body)["tokens"]
        for wanted in (["ids"], ["ids", "offsets"]):
            options = {"add_special_tokens": True, "return": wanted, "tokenizer": named}
            answer = post("/encode", **body, **options)
            assert answer["tokens"] == [256, *plain]
        assert answer["offsets"][0] == [0, 0]


@pytest.mark.row(13)
def test_special_token_policy(post, refused, small_tokenizer):
    text = "x<|a|><|a|><|a|>y<|endoftext|>"
    for allowed in ("all", "none", ["<|a|>"], ["<|a|>", "<|a|><|a|>"], []):
        ids = post("/encode", text=text, allowed_special=allowed)["tokens"]
        assert ids == small_tokenizer.encode(text, allowed_special=allowed)
    wrong = [[""], ["x" * 257], [f"<{i}>" for i in range(129)], ["a", 1]]
    for field in ("allowed_special", "disallowed_special"):
        found = [refused("/encode", text="a", **{field: names}) for names in wrong]
        assert found == [("invalid_request", f"/{field}")] * len(wrong)


def test_pieces_and_offsets(client, post, small_tokenizer, monkeypatch):
    data = TEXT.encode()
    answer = post("/encode", text=TEXT, **{"return": ["ids", "pieces", "offsets"]})
    assert "tokens" not in post("/encode", text=TEXT, **{"return": ["pieces"]})
    pieces = answer["pieces"]
    assert len(pieces) == answer["count"]
    assert b"".join(base64.b64decode(piece["bytes"]) for piece in pieces) == data
    for piece in pieces:
        assert piece["text"] is None or piece["text"].encode() == base64.b64decode(piece["bytes"])
    assert any(piece["text"] is None for piece in pieces)  # a character of several tokens
    assert answer["offsets"] == small_tokenizer.encode_with_offsets(TEXT)[1].tolist()
    in_chars = post("/encode", text=TEXT, offset_unit="char", **{"return": ["offsets"]})
    assert in_chars["offsets"] == small_tokenizer.encode_with_offsets(TEXT, unit="char")[1].tolist()
    body = {"text": [TEXT * 20, ""], "return": ["ids", "pieces", "offsets"]}
    whole = post("/encode", **body)
    assert whole["offsets"][0][: len(pieces)] == answer["offsets"]
    assert whole["offsets"][1] == []
    monkeypatch.setattr(answers, "_DESCRIBED_WINDOW", 7)
    monkeypatch.setattr(answers, "_ID_WINDOW", 5)
    assert post("/encode", **body) == whole


@pytest.mark.row(28)
def test_a_request_may_name_a_tokenizer_or_its_digest(shared_store, other_spec, client, starter):
    other = shared_store.publish(other_spec, name="other")
    for name in ("other", str(other)):
        response = client.post("/encode", json={"text": "a", "tokenizer": name})
        assert response.json()["tokens"] == [1097]
        assert response.headers["Tokenizer-Digest"] == other.digest
    for name, match, status in (
        ("starter@20200101T000000Z-00000000", "*", 404),
        ("../x", "*", 404),
        ("starter@../x", "*", 404),
        ("starter\n", "*", 422),
        ("active", f'"x", "{starter.digest}"', 200),
        ("starter", f'W/"{starter.digest}"', 412),
        ("other", f'"{other.digest}"', 200),
    ):
        asked = {"text": "a", "tokenizer": name}
        answer = client.post("/encode", json=asked, headers={"If-Match": match})
        assert answer.status_code == status, name


@pytest.mark.parametrize(("n_times", "n_special"), [(0, 0), (1, 2), (200, 201)])
def test_segments_in_every_form_give_the_ids_of_the_library(
    client, post, small_tokenizer, n_times, n_special
):
    parts = PARTS * n_times
    expected, offsets = small_tokenizer.encode_segments_with_offsets(parts)
    special = set(small_tokenizer.special_tokens.values())
    # Two tokens `<|a|>` that meet are the token `<|a|><|a|>`.
    assert len([id_ for id_ in expected if id_ in special]) == n_special
    body = body_of(parts)
    assert post("/encode", **body)["tokens"] == expected
    assert post("/count", **body)["count"] == len(expected)
    accept = {"Accept": "application/octet-stream; dtype=u16"}
    raw = client.post("/encode", json=body, headers=accept)
    assert np.frombuffer(raw.content, "<u2").tolist() == expected
    detailed = post("/encode", **body, **{"return": ["ids", "pieces", "offsets"]})
    assert (detailed["tokens"], detailed["offsets"]) == (expected, offsets.tolist())
    assert len(detailed["pieces"]) == len(expected)


def test_added_tokens_none_recognises_none(client, post, refused, shared_store):
    tokens = [AddedToken("<s>", 256), AddedToken("  ", 257, special=False)]
    spec = TokenizerSpec.from_merges({byte: bytes([byte]) for byte in range(256)}, [], tokens)
    ref = str(shared_store.publish(spec, name="spaces"))
    none = {"tokenizer": ref, "added_tokens": "none"}
    text, plain = "<s>a  b", list(b"<s>a  b")
    assert post("/encode", text=text, tokenizer=ref)["tokens"] == [256, 97, 257, 98]
    assert post("/encode", text=text, **none)["tokens"] == plain
    assert post("/encode", text=[text], **none)["tokens"] == [plain]
    details = {"return": ["ids", "pieces", "offsets"]}
    assert len(post("/encode", text=text, **none, **details)["pieces"]) == len(plain)
    parts = body_of([(text, True), (text, False)], **none)
    assert post("/encode", **parts)["tokens"] == [256, 97, 257, 98, *plain]
    assert post("/count", **parts)["count"] == 4 + len(plain)
    assert post("/count", text=text, **none)["count"] == len(plain)
    assert post("/truncate", text=text, max_tokens=3, **none)["text"] == "<s>"
    assert len(post("/chunk", text=text, max_tokens=1, **none)["chunks"]) == len(plain)
    assert post("/verify", text=text, **none)["ok"]
    stream = f"/encode_stream?tokenizer={ref}&added_tokens=none"
    assert b'"tokens":[60,115,62' in client.post(stream, content=text.encode()).content
    assert client.post(f"{stream}&allowed_special=<s>", content=b"a").status_code == 422
    for path in ("/encode", "/count"):
        wrong = refused(path, text=text, allowed_special=["<s>"], **none)
        assert wrong == ("invalid_request", "/added_tokens")


def test_wrong_segments_are_refused(shared_store, refused):
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"ab"}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], ["ab"])
    reached = {"tokenizer": str(shared_store.publish(spec, name="reached"))}
    bodies = [
        {"text": "a", "segments": []},
        {"segments": "a"},
        {"segments": ["a"]},
        {"segments": [{"text": "a"}]},
        {"segments": [{"text": "a", "special": 1}]},
        {"segments": [{"text": 1, "special": True}]},
        {"segments": [{"text": "a", "special": True, "role": "user"}]},
        body_of(PARTS, allowed_special="none"),
        body_of(PARTS, disallowed_special="all"),
    ]
    for path in ("/encode", "/count"):
        assert refused(path) == ("invalid_request", "")
        for body in bodies:
            assert refused(path, **body) == ("invalid_request", "/segments"), body
        surrogates = body_of([("\ud83d", True), ("\ude00", False)])
        assert refused(path, **surrogates)[0] == "lone_surrogate"
        plain = refused(path, **body_of([("ab", False)]), **reached)
        assert plain == ("special_token_reached", "/segments")
