"""Texts, ids and conversations: options on the wire, wrong types, responses of another shape."""

import inspect
import json
import struct

import httpx
import numpy as np
import pytest

from tests.tokenizer_client.conftest import TOKENIZER, octets
from tokenizer_client import Client, UnexpectedResponseError
from tokenizer_client.arguments import plain_options, query_of
from tokenizer_client.client import CorpusResource
from tokenizer_client.schemas.chat import ChatEncodeRequest
from tokenizer_client.schemas.jobs import TrainRequest
from tokenizer_client.schemas.text import (
    AlignRequest,
    ChunkRequest,
    CountRequest,
    TruncateRequest,
    VerifyRequest,
)
from tokenizer_client.schemas.token_files import EncodeCorpusRequest
from tokenizer_client.schemas.tokens import EncodeRequest

U32, BATCH = "dtype=u32", "layout=batch"
ONE = struct.pack("<I", 5)
MANY = struct.pack("<IQI", 1, 1, 5)
"""A batch of one text with one id."""
MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
TEXTS = ["hello world", "a"]
ROWS = [[1, 2], [3]]


def as_json(**fields):
    return httpx.Response(200, json={"tokenizer": TOKENIZER, **fields})


def counts(count, exceeded=False):
    return as_json(count=count, limit_exceeded=exceeded)


def chat(**changes):
    fields = {
        "tokens": [1, 2, 3],
        "count": 3,
        "text": "a b",
        "mask": [0, 0, 1],
        "turns": [{"message": 1, "tokens": (2, 3), "problem": "end_of_conversation"}],
        "spans": [{"role": "user", "tokens": [0, 1]}, {"role": "assistant", "tokens": None}],
        "chat_template": {"name": "default", "sha256": "0"},
    }
    return as_json(**fields | changes)


def extended(**changes):
    fields = {"tokens": [5, 6], "mask": None, "count": 2, "first_drift": None}
    return as_json(**fields | changes)


def aligned(**changes):
    """Of the text `a`."""
    identity = {"name": "b", "version": "1", "digest": "0"}
    fields = {"tokens": [5], "other_tokens": [6], "other": identity}
    bounds = {"offsets": [0, 1], "other_offsets": [0, 1], "byte_offsets": [0, 1]}
    return as_json(**fields | bounds | changes)


def bodies(service):
    return [json.loads(request.content) for request in service.requests]


OF_CALLS = {"self", "corpus", "template_kwargs", "idempotency_key", "wait", "on_progress"}


def test_every_option_is_a_field_of_the_request():
    for call, model in (
        (Client.encode_with_pieces, EncodeRequest),
        (Client.encode_segments, EncodeRequest),
        (Client.count, CountRequest),
        (Client.truncate, TruncateRequest),
        (Client.chunk, ChunkRequest),
        (Client.verify, VerifyRequest),
        (Client.align, AlignRequest),
        (Client.encode_chat_with_mask, ChatEncodeRequest),
    ):
        assert inspect.signature(call).parameters.keys() - OF_CALLS <= model.model_fields.keys()
    for call, model in (Client.train, TrainRequest), (CorpusResource.encode, EncodeCorpusRequest):
        assert inspect.signature(call).parameters.keys() - OF_CALLS == model.model_fields.keys()


def test_options_as_json_and_as_a_query():
    options = {"allowed_special": {"b"}, "disallowed_special": (), "errors": "strict", "x": None}
    assert plain_options(options) == {"allowed_special": ["b"], "errors": "strict"}
    defaults = {"allowed_special": "all", "disallowed_special": (), "errors": "replace"}
    assert plain_options(defaults | {"shuffle": False, "seed": 0}) == {"seed": 0}
    assert plain_options({"allowed_special": ()}) == {"allowed_special": []}
    pairs = query_of({"tokenizer": "n", **options, "skip_special_tokens": True})
    assert pairs == (
        ("tokenizer", "n"),
        ("allowed_special", "b"),
        ("errors", "strict"),
        ("skip_special_tokens", "true"),
    )


def test_numbers_of_numpy_are_numbers(play):
    limits = {"max_tokens": np.int64(3), "add_special_tokens": np.bool_(True)}
    assert plain_options(limits) == {"max_tokens": 3, "add_special_tokens": True}
    assert plain_options({"shuffle": np.bool_(False)}) == {}
    client, service = play(octets(b"\x07\0\0\0", U32), counts(1))
    assert client.encode("a", max_tokens=np.int64(3)) == [7]
    assert client.fits("a", np.uint8(3))
    assert bodies(service) == [{"text": "a", "max_tokens": 3}, {"text": "a", "limit": 3}]


def test_no_added_tokens_on_the_wire(play):
    client, service = play(octets(b"\x07\0\0\0", U32), counts(1), counts(1), chat())
    none = {"added_tokens": "none"}
    assert client.encode("a", allowed_special="ordinary") == [7]
    assert client.count("a", allowed_special="ordinary") == 1
    assert client.count_segments([("a", False)], **none) == 1
    assert client.count_chat(MESSAGES, **none) == 3
    assert all(body.items() >= none.items() for body in bodies(service))
    assert all("allowed_special" not in body for body in bodies(service))


def test_segments_on_the_wire(play):
    client, service = play(octets(b"\x07\0\0\0", U32))
    assert client.encode_segments(iter([("<s>", True), ("a", False)]), max_tokens=1) == [7]
    segments = [{"text": "<s>", "special": True}, {"text": "a", "special": False}]
    assert bodies(service) == [{"segments": segments, "max_tokens": 1}]


def test_a_name_is_no_version(play):
    client, service = play()
    for call, more in ((client.tokenizers.remove, ()), (client.tokenizers.file, ("vocab.pkl",))):
        with pytest.raises(ValueError, match="'news' is a name without a version"):
            call("news", *more)
    assert bodies(service) == []


def test_ids_that_stay_on_the_wire(play):
    client, service = play(extended(), extended(mask=[1, 0]), extended())
    ids = np.array([5], dtype=np.int64)
    assert client.extend(ids, "a", allowed_special="none").tokens == [5, 6]
    assert client.extend([5], [("a", True)], mask=[np.uint8(1)]).mask == [1, 0]
    options = {"template_kwargs": {"x": 1}, "add_generation_prompt": True}
    assert client.extend_chat([5], iter(MESSAGES), (), **options).count == 2
    text, segments, messages = bodies(service)
    assert text == {"tokens": [5], "text": "a", "allowed_special": "none"}
    assert segments == {"tokens": [5], "mask": [1], "segments": [{"text": "a", "special": True}]}
    assert messages == {
        "tokens": [5],
        "messages_before": MESSAGES,
        "messages": [],
        "add_generation_prompt": True,
        "chat_template_kwargs": {"x": 1},
    }
    many = extended(tokens=[[5, 6]], mask=[None], count=[2], first_drift=[0])
    client, service = play(many)
    batch = [{"tokens": [5], "text": "a"}]
    assert client.extend_batch(batch, options={"max_tokens": 3}).first_drift == [0]
    assert bodies(service) == [{"batch": batch, "max_tokens": 3}]


def test_generated_ids_on_the_wire(play):
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    state = {
        "version": 1, "tokenizer": "m@1", "parser": "qwen3", "index": 0, "mode": "content",
        "held": [5], "n_given": 0, "is_first": False, "n_calls": 0, "last": [5], "n_chars": 0,
        "digest": "0" * 32,
    }  # fmt: skip
    part = as_json(chunk={"id": "1"}, stream_state=state)
    client, service = play(as_json(**whole, usage={}), part, part)
    response = {"request_id": "1", "choices": []}
    options = {"parser": "qwen3", "prompt_token_ids": np.array([7]), "chat_request": {"n": 1}}
    assert client.derender_chat(response, **options).object == "chat.completion"
    found = client.derender_chat_chunk(response, None)
    assert client.derender_chat_chunk(response, found.stream_state).chunk == {"id": "1"}
    one, first, second = bodies(service)
    sent = {"parser": "qwen3", "prompt_token_ids": [7], "chat_request": {"n": 1}}
    assert one == {"generate_response": response, **sent}
    assert first == {"stream": True, "generate_chunk": response, "stream_state": None}
    assert second == {**first, "stream_state": state}


def test_the_fields_of_a_chat_request(play):
    client, service = play(octets(ONE, U32), octets(ONE * 2, U32), chat(), chat())
    assert client.encode_chat(MESSAGES, messages_form="raw") == [5]
    found = client.encode_chat_to_numpy(
        tuple(MESSAGES),
        tools=({"type": "function"},),
        documents=None,
        chat_template="rag",
        add_generation_prompt=True,
        continue_final_message="content",
        template_kwargs={"enable_thinking": False},
        messages_form="decoded",
        max_tokens=2,
    )
    assert (found.dtype, found.tolist()) == (np.uint32, [5, 5])
    assert client.count_chat(MESSAGES) == 3
    found = client.encode_chat_with_mask(MESSAGES, loss_rule="role", turn_ends=("b",))
    assert (found.tokens, found.mask, found.text) == ([1, 2, 3], [0, 0, 1], "a b")
    spans = [(span.role, span.tokens) for span in found.spans]
    assert spans == [("user", (0, 1)), ("assistant", None)]
    bare, full, count, masked = bodies(service)
    assert bare == {"messages": MESSAGES}
    assert full == {
        "messages": MESSAGES,
        "tools": [{"type": "function"}],
        "chat_template": "rag",
        "add_generation_prompt": True,
        "continue_final_message": "content",
        "chat_template_kwargs": {"enable_thinking": False},
        "messages_form": "decoded",
        "max_tokens": 2,
    }
    assert count == {"messages": MESSAGES, "return": []}
    assert masked["return"] == ["ids", "text", "mask", "spans"]
    assert (masked["loss_rule"], masked["turn_ends"]) == ("role", ["b"])
    assert found.turns[0].tokens == (2, 3)


SEGMENT = r"segments\[0\] must be a text and whether"
WRONG_TYPES = [
    ("encode", TEXTS, r"call encode_batch\(\)"),
    ("encode", b"a", r"data\.decode\(\)"),
    ("encode_batch", "abc", r"call encode\(\)"),
    ("encode_batch", {"a": "b"}, "give a list"),
    ("encode_batch", ["a", b"b"], r"texts\[1\] is bytes"),
    ("encode_with_pieces", TEXTS, "once for each text"),
    ("encode_segments", [("a", 1)], SEGMENT),
    ("encode_segments_to_numpy", [(b"a", True)], SEGMENT),
    ("count", TEXTS, r"call count_batch\(\)"),
    ("decode", ROWS, r"call decode_batch\(\)"),
    ("decode", np.zeros((1, 1), int), r"call decode_batch\(\)"),
    ("decode", b"12", "list of integers"),
    ("decode", [1.5], r"ids\[0\] = 1\.5 is a float"),
    ("decode", [1, True], r"ids\[1\] = True is a bool"),
    ("decode", np.zeros(1), "float64"),
    ("decode_batch", [1, 2], r"rows\[0\] is int; call decode\(\)"),
    ("decode_batch", "12", "list of lists of ids"),
    ("verify_ids", ROWS, r"call verify_ids\(\) for each"),
    ("describe_token", True, "one id as an int, not bool"),
    ("encode_stream", [["a"]], "give"),
    ("encode_stream", 5, "give"),
    ("decode_stream", np.array([1, 2], np.uint32), "give"),
    ("encode_chat", "hello", r"encode_chat\(\).*not str"),
    ("encode_chat", MESSAGES[0], "not dict"),
    ("encode_chat_to_numpy", None, r"encode_chat_to_numpy\(\).*not NoneType"),
    ("count_chat", [*MESSAGES, "x"], r"messages\[2\] is str"),
]


def test_a_wrong_type_names_the_right_method_and_sends_nothing(play):
    client, service = play()
    for method, wrong, remedy in WRONG_TYPES:
        with pytest.raises(TypeError, match=remedy):
            list(getattr(client, method)(wrong))
    for method in ("fits", "truncate", "chunk"):
        with pytest.raises(TypeError, match=rf"{method}\(\) takes one text"):
            getattr(client, method)(TEXTS, 5)
    with pytest.raises(TypeError, match="max_tokens cannot be"):
        client.encode("a", max_tokens=object())
    for ids in ([-1], [1 << 32], np.array([-1])):
        with pytest.raises(ValueError, match="ids are integers from 0"):
            client.decode(ids)
    with pytest.raises(ValueError, match="lone surrogate") as told:
        client.count("secret \ud800")
    assert "secret" not in str(told.value)
    assert service.requests == []


def test_the_service_replaces_what_is_not_utf8(play):
    """A vocabulary with byte fallback has another number of U+FFFD than Python's `decode`."""
    client, service = play(
        octets(b"\xe2\x84"),
        as_json(text="\ufffd\ufffd"),
        octets(struct.pack("<IQ", 1, 2) + b"\xe2\x84", BATCH),
        as_json(text=["\ufffd\ufffd"]),
    )
    assert client.decode([np.uint32(1), np.int64(2)]) == "\ufffd\ufffd"
    assert service.requests[0].content == struct.pack("<2I", 1, 2)
    assert client.decode_batch([[1, 2]]) == ["\ufffd\ufffd"]
    kinds = ["application/octet-stream", "application/json"] * 2
    assert [sent.headers["accept"] for sent in service.requests] == kinds


PIECE = {"text": "a", "bytes": "YQ=="}
CHUNK = {"text": "a", "tokens": [5], "start": 0, "end": 1}
TOKEN = {"bytes": "YQ==", "text": "a", "rank": None, "special": False, "parts": None}
NODE = {"bytes": "YQ==", "text": "a", "rank": None, "parts": None, "cut": False, "id": 5}
NONE, PART = {"role": "assistant", "tokens": None}, {"role": "user", "tokens": [0, 1]}
BATCH_OF_NO_UTF8 = octets(struct.pack("<IQ", 1, 1) + b"\xff", BATCH)
WORDS = (
    "not one|another|check the address|not in order|at most|no batch|cut off|of many|confirms"
    "|3 bytes|no text|not there"
)
WRONG_SHAPES = [
        ([octets(MANY, U32, BATCH)], "encode", ("a",), {}),
        ([octets(ONE)], "encode", ("a",), {}),
        ([octets(b"abc", U32)], "encode", ("a",), {}),
        ([octets(ONE[:2], "dtype=u16")], "encode_to_numpy", ("a",), {}),
        ([httpx.Response(200, json=[5])], "encode", ("a",), {}),
        ([octets(ONE * 2, U32)], "encode", ("a",), {"max_tokens": 1}),
        ([octets(ONE, U32)], "encode_batch", (["a"],), {}),
        ([octets(MANY, U32, BATCH)], "encode_batch", (["a", "b"],), {}),
        ([octets(b"a", BATCH)], "decode", ([5],), {}),
        ([octets(b"\xff"), as_json(text=["a"])], "decode", ([5],), {}),
        ([octets(b"a")], "decode_batch", ([[5]],), {}),
        ([octets(struct.pack("<IQ", 1, 1) + b"a", BATCH)], "decode_batch", ([[5], [5]],), {}),
        ([BATCH_OF_NO_UTF8, as_json(text="a")], "decode_batch", ([[5]],), {}),
        ([BATCH_OF_NO_UTF8, as_json(text=[])], "decode_batch", ([[5]],), {}),
        ([as_json(tokens=[5], count=2, pieces=[PIECE], offsets=[[0, 1]])],
            "encode_with_pieces", ("a",), {}),
        ([as_json(tokens=[5], count=1, pieces=[PIECE])], "encode_with_pieces", ("a",), {}),
        ([as_json(tokens=[[5]], count=1, pieces=[[PIECE]], offsets=[[[0, 1]]])],
            "encode_with_pieces", ("a",), {}),
        ([as_json(tokens=[5], count=1, pieces=[PIECE], offsets=[[0, 1]])],
            "encode_with_pieces", ("a",), {"max_tokens": 0}),
        ([counts([1], [False])], "count", ("a",), {}),
        ([counts(1)], "count_batch", (["a"],), {}),
        ([counts([1], [False])], "count_batch", (["a", "b"],), {}),
        ([counts(1, [False])], "fits", ("a", 2), {}),
        ([counts(3)], "fits", ("a", 2), {}),
        ([as_json(text="a", tokens=[5], count=2, truncated=True)], "truncate", ("aa", 2), {}),
        ([as_json(text="a", tokens=[5, 5], count=2, truncated=True)], "truncate", ("aa", 1), {}),
        ([as_json(chunks=[CHUNK | {"tokens": [5, 5]}])], "chunk", ("aa", 1), {}),
        ([as_json(chunks=[CHUNK | {"end": 2}, CHUNK])], "chunk", ("aa", 1), {}),
        ([as_json(chunks=[CHUNK | {"start": 2}])], "chunk", ("aa", 1), {}),
        ([as_json(ok=True, first_difference=1)], "verify", ("a",), {}),
        ([aligned(tokens=[])], "align", ("a", "b"), {}),
        ([aligned(offsets=[])], "align", ("a", "b"), {}),
        ([aligned(byte_offsets=[0, 2])], "align", ("a", "b"), {}),
        ([aligned(byte_offsets=[0, 1, 1])], "align", ("a", "b"), {}),
        ([as_json(ok=False, first_difference=None)], "verify_ids", ([5],), {}),
        ([as_json(id=6, tree=NODE, **TOKEN)], "describe_token", (5,), {}),
        ([httpx.Response(200, content=counts(1).content)], "count", ("a",), {}),
        ([httpx.Response(200, headers={"Content-Type": "application/x-ndjson"})],
            "encode_stream", (b"a",), {}),
        ([extended(tokens=[6, 7])], "extend", ([5], "a"), {}),
        ([extended(count=1)], "extend", ([5], "a"), {}),
        ([extended(mask=[1])], "extend", ([5], "a"), {"mask": [1]}),
        ([extended()], "extend", ([5], "a"), {"max_tokens": 1}),
        ([extended(tokens=[5])], "extend_chat", ([5, 6], MESSAGES, []), {}),
        ([extended(tokens=[[5]], mask=[], count=[1], first_drift=[None])],
            "extend_batch", ([{"tokens": [5], "text": ""}],), {}),
        ([octets(ONE * 2, U32)], "encode_chat", (MESSAGES,), {"max_tokens": 1}),
        ([chat()], "count_chat", (MESSAGES,), {"max_tokens": 1}),
        ([chat(mask=[1])], "encode_chat_with_mask", (MESSAGES,), {}),
        ([chat(tokens=[1, 2])], "encode_chat_with_mask", (MESSAGES,), {}),
        ([chat(tokens=None)], "encode_chat_with_mask", (MESSAGES,), {}),
        ([chat(text=None)], "encode_chat_with_mask", (MESSAGES,), {}),
        ([chat(spans=[PART])], "encode_chat_with_mask", (MESSAGES,), {}),
        ([chat(spans=[PART | {"tokens": [0, 4]}, NONE])], "encode_chat_with_mask", (MESSAGES,), {}),
        ([chat(spans=[PART | {"tokens": [2, 1]}, NONE])], "encode_chat_with_mask", (MESSAGES,), {}),
]  # fmt: skip


def test_a_response_of_another_shape_than_was_asked_for_is_an_error(play):
    for answers, method, arguments, options in WRONG_SHAPES:
        client, _ = play(*answers)
        with pytest.raises(UnexpectedResponseError, match=WORDS):
            list(getattr(client, method)(*arguments, **options))
