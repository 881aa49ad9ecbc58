"""Conversations: options on the wire, wrong types, and responses of another shape."""

import json

import httpx
import numpy as np
import pytest

from tests.tokenizer_client.calls.test_exchange import TOKENIZER, octets
from tokenizer_client import UnexpectedResponseError

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
FOUND = {
    "tokens": [1, 2, 3],
    "count": 3,
    "text": "a b",
    "mask": [0, 0, 1],
    "spans": [{"role": "user", "tokens": [0, 1]}, {"role": "assistant", "tokens": None}],
    "chat_template": {"name": "default", "sha256": "0"},
    "tokenizer": TOKENIZER,
}


def ids(*values):
    return octets(np.array(values, "<u4").tobytes(), "dtype=u32")


def test_the_fields_of_a_request(play):
    client, service = play(ids(1, 2), ids(1, 2))
    assert client.encode_chat(MESSAGES) == [1, 2]
    found = client.encode_chat_to_numpy(
        tuple(MESSAGES),
        tools=({"type": "function"},),
        documents=None,
        chat_template="rag",
        add_generation_prompt=True,
        continue_final_message="content",
        template_kwargs={"enable_thinking": False},
        max_tokens=2,
    )
    assert found.dtype == np.uint32
    bare, full = (json.loads(request.content) for request in service.requests)
    assert bare == {"messages": MESSAGES}
    assert full == {
        "messages": MESSAGES,
        "tools": [{"type": "function"}],
        "chat_template": "rag",
        "add_generation_prompt": True,
        "continue_final_message": "content",
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 2,
    }


def test_a_count_a_mask_and_spans_are_requested_and_read(play):
    fields = {key: FOUND[key] for key in ("count", "chat_template", "tokenizer")}
    client, service = play(httpx.Response(200, json=fields), httpx.Response(200, json=FOUND))
    assert client.count_chat(MESSAGES) == 3
    found = client.encode_chat_with_mask(MESSAGES, loss_rule="role")
    assert (found.tokens, found.mask, found.text) == ([1, 2, 3], [0, 0, 1], "a b")
    spans = [(span.role, span.tokens) for span in found.spans]
    assert spans == [("user", (0, 1)), ("assistant", None)]
    count, masked = (json.loads(request.content) for request in service.requests)
    assert count == {"messages": MESSAGES, "return": []}
    assert masked["return"] == ["ids", "text", "mask", "spans"]
    assert masked["loss_rule"] == "role"


def test_messages_of_another_form_are_refused(play):
    client, service = play()
    for method, messages, reason in (
        ("encode_chat", "hello", "not str"),
        ("encode_chat", MESSAGES[0], "not dict"),
        ("encode_chat_to_numpy", None, "not NoneType"),
        ("count_chat", [*MESSAGES, "x"], r"messages\[2\] is str"),
    ):
        with pytest.raises(TypeError, match=rf"{method}\(\).*{reason}"):
            getattr(client, method)(messages)
    assert not service.requests


def test_responses_of_another_shape_are_refused(play):
    for changes in (
        {"mask": [1]},
        {"tokens": [1, 2]},
        {"tokens": None},
        {"text": None},
        {"spans": FOUND["spans"][:1]},
        {"spans": [{"role": "user", "tokens": [0, 4]}, FOUND["spans"][1]]},
        {"spans": [{"role": "user", "tokens": [2, 1]}, FOUND["spans"][1]]},
    ):
        client, _ = play(httpx.Response(200, json={**FOUND, **changes}))
        with pytest.raises(UnexpectedResponseError):
            client.encode_chat_with_mask(MESSAGES)


def test_more_tokens_than_requested_are_refused(play):
    client, _ = play(ids(1, 2), httpx.Response(200, json=FOUND))
    with pytest.raises(UnexpectedResponseError, match="at most 1"):
        client.encode_chat(MESSAGES, max_tokens=1)
    with pytest.raises(UnexpectedResponseError, match="at most 1"):
        client.count_chat(MESSAGES, max_tokens=1)
