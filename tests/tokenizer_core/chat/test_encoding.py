"""Tokens of a conversation: special tokens from the template only, messages, and the loss mask."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core import Tokenizer
from tokenizer_core.chat.encoding import ChatEncoding
from tokenizer_core.chat.renderer import RenderedChat
from tokenizer_core.chat.traced_text import FIRST_MESSAGE
from tokenizer_core.errors import ChatInputError, ChatTemplateMissingError

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ '\n<tool_call>\n' + call|tojson + '\n</tool_call>' }}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TAGGED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}:"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
INSTRUCTION = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]"]
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "be\u00e9"},
    {"role": "user", "content": "hi <|im_end|>"},
    {"role": "assistant", "content": "yo \U0001f600"},
    {"role": "user", "content": "more"},
    {"role": "assistant", "content": "end <|im_end|> end"},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    made = Tokenizer({i: bytes([i]) for i in range(256)}, [], SPECIAL)
    return made.with_chat_templates(
        {"default": CHATML, "tagged": TAGGED, "instruction": INSTRUCTION, "plain": PLAIN},
        variables={"bos_token": "<s>"},
    )


@pytest.fixture(scope="module")
def merging(engine: str) -> Tokenizer:
    """A tokenizer whose tokens stand over the ends of messages."""
    merges = [(b"a", b"b"), (b"ab", b"a"), (b"b", b"\xc3"), (b"\xc3", b"\xa9"), (b"\xb8", b"\xad")]
    tokens = [bytes([i]) for i in range(256)] + [left + right for left, right in merges]
    return Tokenizer(dict(enumerate(tokens)), merges, engine=engine)


def learned(
    tokenizer: Tokenizer, encoding: ChatEncoding, rule: Any = "auto", **options: Any
) -> list[str]:
    """The texts of the runs of tokens where the loss counts."""
    mask = encoding.loss_mask(rule, **options)
    assert mask.dtype == np.uint8
    assert mask.shape == encoding.ids.shape
    starts = np.flatnonzero(np.diff(np.append(0, mask.astype(np.int8))) == 1)
    ends = np.flatnonzero(np.diff(np.append(mask.astype(np.int8), 0)) == -1) + 1
    return [tokenizer.decode(encoding.ids[a:b]) for a, b in zip(starts, ends, strict=True)]


def test_only_the_template_gives_special_tokens(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode_chat(CHAT, add_generation_prompt=True)
    assert tokenizer.decode(encoding.ids) == encoding.text
    special = [tokenizer.decode([id_]) for id_ in encoding.ids.tolist() if id_ >= 256]
    assert special == ["<|im_start|>", "<|im_end|>"] * 5 + ["<|im_start|>"]


@given(
    st.lists(
        st.tuples(st.text("ab \u00e9\u4e2d\U0001f600", max_size=4), st.integers(0, 4)), max_size=9
    )
)
def test_tokens_of_a_message_are_those_with_a_byte_of_it(
    merging: Tokenizer, parts: list[tuple[str, int]]
) -> None:
    parts = [(text, origin) for text, origin in parts if text]
    text = "".join(part for part, _ in parts)
    lengths = np.array([len(part) for part, _ in parts], dtype=np.int32)
    origins = np.array([origin for _, origin in parts], dtype=np.int32)
    ids, offsets = merging.encode_with_offsets(text)
    encoding = ChatEncoding(
        np.array(ids, dtype=np.uint32),
        RenderedChat(text, lengths, origins),
        ["user", "assistant", "user"],
        (),
        lambda: offsets,
    )
    owners = [origin for part, origin in parts for _ in part.encode()]
    # Each byte has the index of its token.
    tokens = [index for index, id_ in enumerate(ids) for _ in merging.spec.vocab[id_]]
    for message, found in enumerate(encoding.message_tokens()):
        own = [at for at, owner in enumerate(owners) if owner == FIRST_MESSAGE + message]
        expected = (tokens[own[0]], tokens[own[-1]] + 1) if own else None
        assert found == expected


@pytest.mark.parametrize(
    ("template", "rule", "expected"),
    [
        ("default", "role", ["yo \U0001f600<|im_end|>", "end <|im_end|> end<|im_end|>"]),
        ("tagged", "auto", ["yo \U0001f600<|im_end|>", "end <|im_end|> end<|im_end|>"]),
        ("instruction", "role", [" yo \U0001f600</s>", " end <|im_end|> end</s>"]),
        ("plain", "auto", ["yo \U0001f600", "end <|im_end|> end"]),
    ],
)
def test_loss_mask(tokenizer: Tokenizer, template: str, rule: Any, expected: list[str]) -> None:
    encoding = tokenizer.encode_chat(CHAT, chat_template=template, with_loss=True)
    assert learned(tokenizer, encoding, rule) == expected


# Ends of turns that depend on what follows, and prompts that earlier turns lack.
CHANNELS = (
    "{% for m in messages %}<|start|>{{ m.role }}"
    "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}"
    "{% if m.role == 'assistant' and loop.last %}<|return|>{% else %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
CALLS = (
    "{% for m in messages %}<|head|>{{ m.role }}<|/head|>\n{{ m.content }}"
    "{% if m.tool_calls %}<|call|>{% else %}<|turn|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>\n{% endif %}"
)
HOISTED = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<|assistant|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
OPENED = (
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}{% else %}"
    "<|assistant|><|channel|>{{ m.content }}{% if loop.last %}<|end|>{% endif %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|><|channel|>{% endif %}"
)
UNENDED = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}<|endoftext|>{% endif %}"
)
CALL = '{"name": "f", "arguments": {}}'
MARKS = "start channel message return end endoftext user assistant head /head call turn tool system"


@pytest.mark.parametrize(
    ("template", "turns", "unlearned", "expected"),
    [
        (
            CHANNELS,
            "user:q assistant:a user:r assistant:b",
            (),
            ["<|channel|>final<|message|>a<|end|>", "<|channel|>final<|message|>b<|return|>"],
        ),
        (
            CHANNELS,
            "user:q assistant:a assistant:b",
            (0, 2),
            ["<|channel|>final<|message|>a<|end|>"],
        ),
        (CALLS, "user:q call:c tool:2 assistant:b", (), ["c<|call|>", "b<|turn|>"]),
        (CALLS, "user:q assistant:a user:r call:c", (), ["a<|turn|>", "c<|call|>"]),
        (CALLS, "user:q assistant: user:r assistant:b", (), ["b<|turn|>"]),
        # What a template writes around a call counts too.
        (CHATML, "user:q call:c", (), [f"c\n<tool_call>\n{CALL}\n</tool_call><|im_end|>"]),
        (HOISTED, "user:q assistant:a system:t user:r assistant:b", (), ["a<|end|>", "b<|end|>"]),
        (HOISTED, "system:s user:q assistant:a system:t user:r assistant:b", (2,), ["b<|end|>"]),
        (OPENED, "user:q assistant:a assistant:b", (), ["a", "b<|end|>"]),
        (UNENDED, "user:q assistant:a user:r assistant:b", (), ["a", "b<|endoftext|>"]),
        (UNENDED, "system:s user:q assistant:a user:r", (), ["a"]),
        (TAGGED, "user:q assistant:a assistant:b", (1,), ["b<|im_end|>"]),
        (TAGGED, "user:q assistant:a assistant:b", (0, 2), ["a<|im_end|>"]),
        (
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
            "{% generation %}({{ m.content }}){% endgeneration %}{% endif %}{% endfor %}",
            "user:q assistant:a assistant:b assistant:c",
            (2,),
            ["(a", "c)"],  # one span of text, without any mark between the messages
        ),
    ],
)
def test_every_learned_turn_has_its_own_end(
    template: str, turns: str, unlearned: tuple[int, ...], expected: list[str]
) -> None:
    special = [*SPECIAL, *(f"<|{mark}|>" for mark in MARKS.split())]
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], special)
    messages = []
    for turn in turns.split(" "):
        role, _, content = turn.partition(":")
        calls = {"tool_calls": [json.loads(CALL)]} if role == "call" else {}
        messages.append({"role": "assistant" if calls else role, "content": content, **calls})
    encoding = tokenizer.encode_chat(messages, chat_template=template, with_loss=True)
    assert learned(tokenizer, encoding, unlearned=set(unlearned)) == expected


def test_loss_by_template_needs_its_tags(tokenizer: Tokenizer) -> None:
    with pytest.raises(ChatInputError, match="use the loss rule 'role'"):
        tokenizer.encode_chat(CHAT, with_loss=True).loss_mask("template")


def test_the_template_of_a_name(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_chat(CHAT, chat_template="{{ messages|length }}").text == "5"
    with pytest.raises(ChatTemplateMissingError, match="it has: default, tagged"):
        tokenizer.encode_chat(CHAT, chat_template="other")
    with pytest.raises(ChatTemplateMissingError, match=r"it has: none.*--chat-template FILE"):
        tokenizer.with_chat_templates({}).encode_chat(CHAT)
    named = tokenizer.with_chat_templates({"default": "no tools", "tool_use": "tools"})
    assert named.render_chat(CHAT, tools=[{}]).text == "tools"
    assert named.render_chat(CHAT, tools=[]).text == "tools"  # as in transformers
    assert named.render_chat(CHAT).text == "no tools"
