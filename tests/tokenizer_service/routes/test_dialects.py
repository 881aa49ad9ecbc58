"""The dialects, in requests and responses as their own servers document them."""

import pytest
import tokenizers

from tests.tokenizer_core.formats.small_specs import character_spec
from tests.tokenizer_service.conftest import serve
from tests.tokenizer_service.routes.exchanges import metrics, problem
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_service.handlers import encode as encode_answers
from tokenizer_service.responses import decode as decode_answers

WORDS = {256: b"He", 257: b"ll", 259: b" w", 260: b"or", 261: b"ld"}
MERGES = [(b"H", b"e"), (b"l", b"l"), (b" ", b"w"), (b"o", b"r"), (b"l", b"d")]
HELLO = [256, 257, ord("o")]


@pytest.fixture(scope="module")
def spec():
    """Ids that are easy to follow: each byte is its own id, <s> 262 and <end> 263 surround a text,
    <a mark> 264 is content."""
    vocab = {byte: bytes([byte]) for byte in range(256)} | WORDS
    added = [AddedToken("<s>", 262), AddedToken("<end>", 263), AddedToken("<a mark>", 264, False)]
    return TokenizerSpec.from_merges(vocab, MERGES, added, prefix_ids=(262,), suffix_ids=(263,))


@pytest.fixture(scope="module")
def client(shared_store, spec):
    """A service whose active tokenizer puts <s> and <end> around a text; `starter` adds nothing."""
    shared_store.publish(spec, name="around")
    with serve(shared_store, default="around") as client:
        yield client


def test_vllm_spells_a_vocabulary_of_characters_as_its_file_does(
    shared_store, client, post, monkeypatch
):
    named = str(shared_store.publish(character_spec(), name="characters"))
    asked = {"prompt": "a\u00e9 b<s>", "return_token_strs": True, "tokenizer": named}
    answer = post("/tokenize", **asked)
    assert answer["tokens"] == [259, 258, 256, 0x62, 260]
    assert answer["token_strs"] == ["\u2581a", "\u00e9", "\u2581", "<0x62>", "<s>"]
    back = post("/detokenize", tokens=[259, 258, 256, 0xF0, 0x9F], tokenizer=named)
    assert back["prompt"] == "a\u00e9 \ufffd\ufffd"
    monkeypatch.setattr(decode_answers, "_WINDOW", 1)
    as_bytes = {"Accept": "application/octet-stream"}
    raw = client.post("/decode", json={"tokens": [259, 259], "tokenizer": named}, headers=as_bytes)
    assert raw.content == b"a a"


def test_vllm_and_sglang(post):
    answer = post("/v1/tokenize", prompt="Hello")
    fixed = {"count": 5, "max_model_len": -1, "token_strs": None}
    assert answer == {"tokens": [262, *HELLO, 263], **fixed}
    assert post("/tokenize", prompt="Hello", add_special_tokens=False)["tokens"] == HELLO
    asked = {"prompt": " w\u00e9<s><a mark>", "return_token_strs": True, "model": None}
    named = post("/tokenize", **asked)
    assert named["tokens"] == [262, 259, 0xC3, 0xA9, 262, 264, 263]
    assert named["token_strs"] == ["<s>", "Ġw", "Ã", "©", "<s>", "<a mark>", "<end>"]
    back = post("/v1/detokenize", model="around", tokens=[262, *HELLO, 263])
    assert back["prompt"] == "<s>Hello<end>"
    # Only SGLang takes a batch.
    batch = post("/v1/tokenize", model="", prompt=["Hello", ""])
    assert batch["tokens"] == [[262, *HELLO, 263], [262, 263]]
    assert (batch["count"], batch["max_model_len"]) == ([5, 2], -1)
    tokens = [262, *HELLO, 264, 263]
    for ids, options, text in (
        (tokens, {}, "Hello<a mark>"),
        (tokens, {"skip_special_tokens": False}, "<s>Hello<a mark><end>"),
        ([tokens, []], {}, ["Hello<a mark>", ""]),
        ([], {}, ""),
    ):
        assert post("/v1/detokenize", tokens=ids, **options)["text"] == text


def test_llama_cpp(post):
    pieces = [(256, "He"), (195, [195]), (161, [161]), (262, "<s>")]
    for text, options, tokens in (
        ("Hello", {}, HELLO),
        ("Hello", {"add_special": True}, [262, *HELLO, 263]),
        ("<s>", {}, [262]),
        ("<s>", {"parse_special": False}, list(b"<s>")),
        ("Heá<s>", {"with_pieces": True}, [{"id": id_, "piece": piece} for id_, piece in pieces]),
    ):
        assert post("/tokenize", content=text, **options) == {"tokens": tokens}
    assert post("/detokenize", tokens=[262, *HELLO])["content"] == "<s>Hello"


def test_llama_cpp_takes_texts_and_ids_in_turn(post, refused):
    for content, tokens in (
        (["Hello", 97, 98, "ld", "<s>"], [*HELLO, 97, 98, 261, 262]),
        ([97, "He", "llo"], [97, *HELLO]),  # each text is encoded by itself
        ([97], [97]),
        ([], []),
    ):
        assert post("/tokenize", content=content) == {"tokens": tokens}
    around = {"add_special": True}
    assert post("/tokenize", content=["He", 97, "He"], **around)["tokens"] == [
        262, 256, 263, 97, 256,
    ]  # fmt: skip
    assert post("/tokenize", content=[97, "He"], **around) == {"tokens": [97, 256]}
    plain = post("/tokenize", content=["<s>", 262], parse_special=False)
    assert plain == {"tokens": [*b"<s>", 262]}
    pieces = post("/tokenize", content=[256, "l"], with_pieces=True)
    assert pieces == {"tokens": [{"id": 256, "piece": "He"}, {"id": 108, "piece": "l"}]}
    for wrong in (["a", None], ["a", True], ["a", -1], ["a", ["b"]], ["a", 1.0], 5):
        assert refused("/tokenize", content=wrong) == ("invalid_request", "/content")
    found = refused("/tokenize", content=["a", 97, "b", 98, 999])
    assert found == ("unknown_token_id", "/content/4")


def test_props_of_llama_cpp(client, shared_store, spec):
    props = client.get("/props").json()
    assert props["default_generation_settings"] == {"n_ctx": 0, "params": {}}
    assert (props["model_alias"], props["chat_template"]) == ("around", "")
    assert (props["bos_token"], props["eos_token"]) == ("<s>", "<end>")
    assert props["modalities"] == {"vision": False, "audio": False}
    chat = ChatTemplates({"default": "{{ messages }}"}, max_model_len=4096)
    named = str(shared_store.publish(spec.with_chat(chat), name="long"))
    props = client.get("/v1/props?model=long&autoload=false").json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert (props["model_path"], props["chat_template"]) == (named, "{{ messages }}")
    assert client.get("/props?model=nope").status_code == 404
    problem(client.get("/props?slot=1"), 422)


def test_text_embeddings_inference(client, post, spec, tmp_path):
    hello = [
        {"id": 256, "text": "He", "special": False, "start": 0, "stop": 2},
        {"id": 257, "text": "ll", "special": False, "start": 2, "stop": 4},
        {"id": 111, "text": "o", "special": False, "start": 4, "stop": 5},
    ]
    before = {"id": 262, "text": "<s>", "special": True, "start": None, "stop": None}
    after = {"id": 263, "text": "<end>", "special": True, "start": None, "stop": None}
    answer = post("/tokenize", inputs="Hello", add_special_tokens=True, prompt_name=None)
    assert answer == [[before, *hello, after]]
    assert post("/tokenize", inputs="Hello") == answer
    assert post("/tokenize", inputs=["Hello", ""], add_special_tokens=False) == [hello, []]
    empty = problem(client.post("/tokenize", json={"inputs": []}), 400, "empty_inputs")
    assert (empty["error"], empty["error_type"]) == ("`inputs` cannot be empty", "Empty")
    info = client.get("/info").json()
    assert (info["model_id"], info["model_sha"]) == ("around", spec.fingerprint)
    assert (info["max_client_batch_size"], info["auto_truncate"]) == (65536, False)
    # Its offsets come from the Rust API of Hugging Face and count bytes; the Python API counts
    # characters.
    Tokenizer.from_spec(spec).save(tmp_path / "tokenizer.json")
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = " wéor中<s>👩‍👧 <a mark> <end>\n"
    encoding = reference.encode(text)
    [answer] = post("/tokenize", inputs=text)
    assert [token["id"] for token in answer] == encoding.ids
    assert [token["special"] for token in answer] == [m == 1 for m in encoding.special_tokens_mask]
    for token, (start, end) in zip(answer, encoding.offsets, strict=True):
        if not token["special"]:
            assert token["text"] == text[start:end]
            assert text.encode()[token["start"] : token["stop"]].decode() == token["text"]


def test_cohere(post):
    answer = post("/v1/tokenize", text="Hello w\u00e1", model="around")
    strings = ["He", "ll", "o", " w", "\ufffd", "\ufffd"]
    assert answer == {"tokens": [*HELLO, 259, 195, 161], "token_strings": strings}
    assert post("/detokenize", tokens=HELLO, model="around")["text"] == "Hello"


def test_decode_and_detokenize(client, post):
    ids = [262, *HELLO, 264, 263]
    assert post("/decode", ids=ids) == ["Hello<a mark>"]
    kept = post("/decode", ids=[ids, []], skip_special_tokens=False)
    assert kept == ["<s>Hello<a mark><end>", ""]
    assert post("/decode", ids=[]) == [""]
    as_bytes = {"Accept": "application/octet-stream"}
    assert client.post("/decode", json={"ids": ids}, headers=as_bytes).status_code == 406
    texts = {"prompt": "<s>Hello", "content": "<s>Hello", "text": "Hello"}
    assert post("/detokenize", tokens=[262, *HELLO]) == texts
    for skip, text in ((True, "Hello"), (False, "<s>Hello")):
        answer = post("/detokenize", tokens=[262, *HELLO], skip_special_tokens=skip)
        assert set(answer.values()) == {text}
    assert post("/detokenize", tokens=[0xC3])["prompt"] == "\ufffd"


@pytest.mark.row(3, 14)
def test_wrong_and_unknown_ids_are_refused_by_their_place(refused):
    for path, field in (("/decode", "ids"), ("/detokenize", "tokens")):
        for ids, place, code in (
            ([1, -1], "/1", "invalid_token_id"),
            ([True], "/0", "invalid_token_id"),
            ("text", "", "invalid_request"),
            ([1, 999], "/1", "unknown_token_id"),
            ([[1], [2, 999]], "/1/1", "unknown_token_id"),
        ):
            assert refused(path, **{field: ids}) == (code, f"/{field}{place}")


def test_unsupported_requests_are_refused(client, refused):
    for body, code in (
        ({"messages": [{"role": "user", "content": "x"}]}, "chat_template_missing"),
        ({"messages": [], "prompt": "x"}, "ambiguous_dialect"),
        ({"text": "x", "inputs": "x"}, "ambiguous_dialect"),
        ({"messages": []}, "invalid_request"),
        ({}, "invalid_request"),
        # An option that would change ids, and is not supported here, is never ignored.
        ({"inputs": "x", "prompt_name": "query"}, "invalid_request"),
        ({"prompt": "x", "truncate_prompt_tokens": 5}, "invalid_request"),
        # Aleph Alpha's client: it would read our ids as the texts of the tokens.
        ({"prompt": "x", "tokens": True, "token_ids": True}, "invalid_request"),
        ({"content": "x", "add_special_tokens": False}, "invalid_request"),
        ({"text": "x", "add_special_tokens": True}, "invalid_request"),
        ({"prompt": "x", "add_special_tokens": 2}, "invalid_request"),
        ({"prompt": "x", "model": 5}, "invalid_request"),
    ):
        assert refused("/tokenize", **body)[0] == code, body
    problem(client.post("/tokenize", json=[]), 422, "invalid_request")
    refused("/decode", ids=[1], tokens=[1])
    html = {"Accept": "text/html"}
    assert client.post("/tokenize", json={"text": "x"}, headers=html).status_code == 406


@pytest.mark.row(45)
@pytest.mark.parametrize(
    ("path", "body", "near"),
    [
        ("/tokenize", {"prompt": "Hello"}, ("add_special_token", "modle", "prompt_names")),
        ("/tokenize", {"content": "Hello"}, ("parse_specials", "add_spezial", "tool")),
        ("/tokenize", {"inputs": "Hello"}, ("add_special_toknes", "tokeniser", "prompt_nam")),
        ("/tokenize", {"text": "Hello"}, ("texts", "models")),
        ("/detokenize", {"tokens": [97]}, ("skip_special_token", "token")),
        ("/decode", {"ids": [97]}, ("skip_special_token", "id")),
    ],
)
def test_unknown_fields_are_listed_and_near_misses_refused(client, refused, path, body, near):
    for name in near:
        assert refused(path, **body, **{name: "x"}) == ("invalid_request", f"/{name}")
    plain = client.post(path, json=body)
    asked = {**body, "temperature": 0.5, "stream": False, "user": None}
    answer = client.post(path, json=asked)
    assert answer.headers["Ignored-Fields"] == "temperature, stream"
    assert (answer.content, "Ignored-Fields" in plain.headers) == (plain.content, False)


def test_tokenizer_info(client):
    info = client.get("/tokenizer_info").json()
    assert info["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (info["bos_token"], info["eos_token"]) == ("<s>", "<end>")
    assert (info["add_bos_token"], info["add_eos_token"]) == (True, True)
    assert info["added_tokens_decoder"] == {"262": "<s>", "263": "<end>", "264": "<a mark>"}
    assert info["additional_special_tokens"] == ["<s>", "<end>"]
    trained = client.get("/tokenizer_info?tokenizer=starter").json()
    assert (trained["bos_token"], trained["eos_token"]) == (None, "<|endoftext|>")
    assert trained["add_eos_token"] is False
    assert "model_max_length" not in trained
    for query, status in (("tokeniser=x", 422), ("tokenizer=nope", 404)):
        problem(client.get(f"/tokenizer_info?{query}"), status)
    assert client.get("/tokenizer_info", headers={"If-Match": '"x"'}).status_code == 412


def test_tokenizer_info_has_what_the_folder_declared(client, spec, shared_store):
    declared = {"eos_token": "<s>", "pad_token": "<end>", "sep_token": "<s>"}
    chat = ChatTemplates({}, declared, model_max_length=131072, max_model_len=40960)
    shared_store.publish(spec.with_chat(chat), name="declared")
    info = client.get("/tokenizer_info?tokenizer=declared").json()
    assert info.items() >= {**declared, "model_max_length": 131072}.items()
    assert (info["bos_token"], info["unk_token"], "cls_token" in info) == (None, None, False)
    assert (info["add_bos_token"], info["add_eos_token"]) == (False, False)
    asked = {"prompt": "a", "tokenizer": "declared"}
    assert client.post("/tokenize", json=asked).json()["max_model_len"] == 40960


def test_metrics_and_the_limit_of_detailed_tokens(client, post, monkeypatch):
    names = ("encode_bytes_total", "encode_tokens_total", "decode_tokens_total")
    before = metrics(client, *names)
    n_tokens = len(post("/tokenize", content="the fox é")["tokens"])
    post("/detokenize", tokens=[97, 98])
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
