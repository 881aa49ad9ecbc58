"""Requests to a process that renders chat templates."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenizer_core.chat.render_worker import _read_request
from tokenizer_core.chat.renderer import _dump
from tokenizer_core.errors import ChatInputError

values = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2)
messages = st.dictionaries(st.sampled_from(["role", "content", "name"]), values)


@given(st.lists(messages, max_size=5), values)
@example([{"content": "ab\u00e9"}, {"role": "x"}, {"content": "c\U0001f600"}], None)
def test_a_process_reads_what_json_gives(chat: list[dict[str, Any]], tools: Any) -> None:
    request = {"messages": chat, "tools": tools}
    read = _read_request(_dump(request))
    assert list(read.pop("content_lengths")) == [
        len(message["content"]) if isinstance(message.get("content"), str) else None
        for message in chat
    ]
    # The same order of fields, which `tojson` writes.
    assert json.dumps(read) == json.dumps(request)


def test_messages_of_other_types_are_read_as_objects() -> None:
    class Text(str):
        __slots__ = ()

    chat = [MappingProxyType({"content": "a"}), {"content": Text("b")}, {"content": ("c", "d")}]
    read = _read_request(_dump({"messages": chat}))
    assert read["messages"] == [{"content": "a"}, {"content": "b"}, {"content": ["c", "d"]}]
    assert chat[0] == {"content": "a"}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": b"hello"}, "no JSON type; decode it first"),
        ({"content": [{"type": "text", "text": bytearray(b"hello")}]}, "no JSON type; decode it"),
        ({"content": memoryview(b"hello")}, "no JSON type; decode it first"),
        ({"content": "\ud800"}, "lone surrogate"),
        ({"role": "\ud800", "content": ""}, "lone surrogate"),
    ],
)
def test_a_value_that_is_not_json_is_refused(message: dict[str, Any], words: str) -> None:
    with pytest.raises(ChatInputError, match=words):
        _dump({"messages": [message]})
