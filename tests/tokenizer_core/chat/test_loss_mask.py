"""Tokens of a conversation: special tokens from the template only, messages, and the loss mask."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.chat.own_templates import template_request
from tokenizer_core import Tokenizer
from tokenizer_core.chat.loss_mask import ChatEncoding
from tokenizer_core.chat.renderer import RenderedChat
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.chat.traced_text import FIRST_MESSAGE
from tokenizer_core.chat.turn_borders import find_turns
from tokenizer_core.errors import ChatInputError, ChatTemplateMissingError, TurnEndError
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.spec.chat_templates import ChosenTemplate

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
CHAT = [
    {"role": "system", "content": "be\u00e9"},
    {"role": "user", "content": "hi <|im_end|>"},
    {"role": "assistant", "content": "yo \U0001f600"},
    {"role": "user", "content": "more"},
    {"role": "assistant", "content": "end <|im_end|> end"},
]


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer({i: bytes([i]) for i in range(256)}, [], SPECIAL)
    return made.with_chat_templates({"default": CHATML, "tagged": TAGGED})


@pytest.fixture(scope="module")
def merging(engine):
    """A tokenizer whose tokens stand over the ends of messages."""
    merges = [(b"a", b"b"), (b"ab", b"a"), (b"b", b"\xc3"), (b"\xc3", b"\xa9"), (b"\xb8", b"\xad")]
    tokens = [bytes([i]) for i in range(256)] + [left + right for left, right in merges]
    return Tokenizer(dict(enumerate(tokens)), merges, engine=engine)


def learned(tokenizer, encoding, **options):
    """The texts of the runs of tokens where the loss counts."""
    mask = encoding.loss_mask(**options)
    assert mask.dtype == np.uint8
    assert mask.shape == encoding.ids.shape
    starts = np.flatnonzero(np.diff(np.append(0, mask.astype(np.int8))) == 1)
    ends = np.flatnonzero(np.diff(np.append(mask.astype(np.int8), 0)) == -1) + 1
    return [tokenizer.decode(encoding.ids[a:b]) for a, b in zip(starts, ends, strict=True)]


@given(
    st.lists(
        st.tuples(st.text("ab \u00e9\u4e2d\U0001f600", max_size=4), st.integers(0, 4)), max_size=9
    )
)
def test_tokens_of_a_message_are_those_with_a_byte_of_it(merging, parts):
    parts = [(text, origin) for text, origin in parts if text]
    text = "".join(part for part, _ in parts)
    lengths = np.array([len(part) for part, _ in parts], dtype=np.int32)
    origins = np.array([origin for _, origin in parts], dtype=np.int32)
    ids, offsets = merging.encode_with_offsets(text)
    encoding = ChatEncoding(
        np.array(ids, dtype=np.uint32),
        RenderedChat(text, lengths, origins, messages=[{}, {}, {}]),
        (),
        lambda: offsets,
        ChosenTemplate("default", ""),
    )
    owners = [origin for part, origin in parts for _ in part.encode()]
    # Each byte has the index of its token.
    tokens = [index for index, id_ in enumerate(ids) for _ in merging.spec.vocab[id_]]
    assert len(encoding.message_tokens()) == 3
    for message, found in enumerate(encoding.message_tokens()):
        own = [at for at, owner in enumerate(owners) if owner == FIRST_MESSAGE + message]
        expected = (tokens[own[0]], tokens[own[-1]] + 1) if own else None
        assert found == expected


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
# Refuses to be asked before the first turn of a conversation that begins with the assistant.
NEEDS_USER = (
    "{% if not messages|selectattr('role', 'equalto', 'user')|list %}"
    "{{ raise_exception('no user') }}{% endif %}" + CHATML
)
FIRST_ROLE = "{% if messages[0].role == 'system' %}{% endif %}" + CHATML
BEGUN = (
    "{% for m in messages %}{{ '<s>' if loop.first }}<|head|>{{ m.role }}<|/head|>{{ m.content }}"
    "<|turn|>{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|/head|>{% endif %}"
)
# The next role's token ends a turn, as in GLM 4.5.
ROLES = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ '<think></think>' if m.role == 'assistant' }}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}"
    "<think></think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
# Writes a system message only where there are messages, as Nemotron 3 does.
OPENING = (
    "{% for m in messages %}{{ '<|im_start|>system\nD<|im_end|>\n' if loop.first }}"
    "<|im_start|>{{ m.role }}\n{{ '<think></think>' if m.role == 'assistant' }}{{ m.content }}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
# As Phi-3: the end of a conversation where nothing is asked for.
CLOSED = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|endoftext|>{% endif %}"
)
# Asks with nothing, and a call begins with a token of its own, as Mistral's do.
INST_CALLS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}<|tool|>{{ m.content }}{% elif m.tool_calls %}"
    "<|call|>{{ m.tool_calls[0].name }}</s>{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
# A later message repeats the name of the call, as gpt-oss does.
REPEATED = (
    "{% set last = namespace(name='') %}{% for m in messages %}<|start|>"
    "{% if m.tool_calls %}{% set last.name = m.tool_calls[0].name %}assistant to={{ last.name }}"
    "<|call|>{% else %}{{ last.name if m.role == 'tool' else m.role }}<|message|>{{ m.content }}"
    "<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
# Writes one more message behind the last, as Command R+ does.
FOLLOWED = (
    "{% for m in messages %}<|head|>{{ m.role }}<|/head|>{{ m.content }}<|turn|>{% endfor %}"
    "<|head|>system<|/head|>Now<|turn|>"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>{% endif %}"
)
# Writes the header of a turn after each conversation, as Command A does.
HEADED = (
    "{% for m in messages %}<|head|>{{ m.role }}<|/head|>"
    "{{ '<|im_start|>' if m.role == 'assistant' }}{{ m.content }}<|turn|>{% endfor %}"
    "<|head|>assistant<|/head|>{{ '<|im_start|>' if add_generation_prompt }}"
)
# The result of a tool has no origin.
PADDED = CALLS.replace("\n{{ m.content }}", "\n{{ '%3s' % m.content if m.name else m.content }}")
# Writes results inside the turn of the call, as Gemma 4 does.
INSIDE = (
    "{% for m in messages if m.role != 'tool' %}<|head|>{{ m.role }}<|/head|>{% if m.tool_calls %}"
    "<|call|>{{ m.tool_calls[0].name }}{{ messages[loop.index].content }}<|call|>{% endif %}"
    "{{ m.content }}<|turn|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>{% endif %}"
)
CALL = '{"name": "f", "arguments": {}}'
MARKS = "start channel message return end endoftext user assistant head /head call turn tool system"


@pytest.mark.parametrize(
    ("template", "turns", "unlearned", "expected"),
    [
        (NEEDS_USER, "assistant:a user:q assistant:b", (), ["a<|im_end|>", "b<|im_end|>"]),
        (FIRST_ROLE, "assistant:a user:q assistant:b", (), ["a<|im_end|>", "b<|im_end|>"]),
        (FIRST_ROLE, "user:q assistant:a user:r assistant:b", (), ["a<|im_end|>", "b<|im_end|>"]),
        (BEGUN, "assistant:a user:q assistant:b", (), ["a<|turn|>", "b<|turn|>"]),
        (
            CHANNELS,
            "assistant:a user:q assistant:b",
            (),
            ["<|channel|>final<|message|>a<|end|>", "<|channel|>final<|message|>b<|return|>"],
        ),
        (THINKING, "assistant:a user:q assistant:b", (), ["a<|im_end|>", "</think>b<|im_end|>"]),
        # Of what asks for a turn, only the first tag is in front of the message's own text.
        (THINKING, "user:q assistant:<t>a user:q assistant:b", (3,), ["<t>a<|im_end|>"]),
        (
            OPENING,
            "assistant:a user:q assistant:b",
            (),
            ["</think>a<|im_end|>", "</think>b<|im_end|>"],
        ),
        (CLOSED, "user:q assistant:a user:r assistant:b", (), ["a<|end|>", "b<|end|>"]),
        (INST_CALLS, "user:q call: tool:t assistant:b", (), ["<|call|>f</s>", " b</s>"]),
        (REPEATED, "user:q call: tool:t assistant:b", (), [" to=f<|call|>", "<|message|>b<|end|>"]),
        (INST_CALLS, "assistant:a user:q assistant:b", (), [" a</s>", " b</s>"]),
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
        (PADDED, "user:q call:c named:2 assistant:b", (), ["c<|call|>", "b<|turn|>"]),
        (FOLLOWED, "user:q assistant:a user:r assistant:b", (), ["a<|turn|>", "b<|turn|>"]),
        # What a template writes around a call counts too.
        (CHATML, "user:q call:c", (), [f"c\n<tool_call>\n{CALL}\n</tool_call><|im_end|>"]),
        (HOISTED, "user:q assistant:a system:t user:r assistant:b", (), ["a<|end|>", "b<|end|>"]),
        (HOISTED, "system:s user:q assistant:a system:t user:r assistant:b", (2,), ["b<|end|>"]),
        (OPENED, "user:q assistant:a user:r assistant:b", (1,), ["b<|end|>"]),
        (UNENDED, "user:q assistant:a user:r assistant:b", (1,), ["b<|endoftext|>"]),
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
def test_every_learned_turn_has_its_own_end(template, turns, unlearned, expected):
    encoding = MARKED.encode_chat(messages_of(turns), chat_template=template, with_loss=True)
    assert learned(MARKED, encoding, unlearned=set(unlearned)) == expected


MARKED = Tokenizer(
    {i: bytes([i]) for i in range(256)}, [], [*SPECIAL, *(f"<|{mark}|>" for mark in MARKS.split())]
)


def messages_of(turns):
    messages = []
    for turn in turns.split(" "):
        role, _, content = turn.partition(":")
        more = {"call": {"role": "assistant", "tool_calls": [json.loads(CALL)]}}
        more["named"] = {"role": "tool", "name": "f"}
        messages.append({"role": role, "content": content, **more.get(role, {})})
    return messages


def described(turns, template, **options):
    """What is learned of each turn, and its problem."""
    encoding = MARKED.encode_chat(messages_of(turns), chat_template=template, with_loss=True)
    return [
        (turn.tokens and MARKED.decode(encoding.ids[slice(*turn.tokens)]), turn.problem)
        for turn in encoding.turns(**options)
    ]


def test_a_token_across_the_border_is_learned_with_its_characters_behind():
    tokens = {i: bytes([i]) for i in range(256)} | {256: b"><"}
    tokenizer = Tokenizer(tokens, [(b">", b"<")], SPECIAL)
    turns = messages_of("user:q assistant:a")
    encoding = tokenizer.encode_chat(turns, chat_template=THINKING, with_loss=True)
    assert learned(tokenizer, encoding) == ["></think>a<|im_end|>"]
    # White space that a control token includes does not make the header learned.
    added = [AddedToken("<|assistant|>", 257, rstrip=True), AddedToken("<|end|>", 258)]
    tokenizer = Tokenizer.from_spec(TokenizerSpec.from_merges(tokens, [], added))
    turns[1]["content"] = " a"
    encoding = tokenizer.encode_chat(turns, chat_template=CLOSED, with_loss=True)
    assert learned(tokenizer, encoding) == ["a<|end|>"]
    # Nor is half of a text learned that both ends begin with, where it is no token.
    spec = TokenizerSpec.from_merges(tokens, [], added[:1])
    encoding = Tokenizer.from_spec(spec).encode_chat(turns, chat_template=CLOSED, with_loss=True)
    assert [turn.problem for turn in encoding.turns()] == ["no_special_token"]
    assert learned(tokenizer, encoding) == ["a"]


def test_the_token_of_the_next_role_is_learned_if_it_is_declared():
    turns = "user:q assistant:a user:r assistant:b"
    with pytest.raises(
        TurnEndError, match=r"template \(given as source\) writes '<\|user\|>'.*--turn"
    ):
        described(turns, ROLES)
    for template, others in (
        (ROLES, "user:q assistant:a user:"),
        (OPENED, "user:q assistant:a user:b"),
        (UNENDED, turns),
        (HEADED, turns),
    ):
        with pytest.raises(TurnEndError):
            described(others, template)
    a, b = "\n<think></think>a<|user|>", ("\n<think></think>b", "end_of_conversation")
    assert described(turns, ROLES, turn_ends=["<|user|>"]) == [(a, None), b]
    # A turn of the assistant is no end of the one before it.
    found = described("assistant:c assistant:a user:", ROLES, turn_ends=["<|user|>"])
    assert found == [("\n<think></think>c", "no_special_token"), (a, None)]
    closed = ROLES.replace("{{ m.content }}", "{{ m.content }}{{ '</c>' if m.tool_calls }}")
    last = ("\n<think></think>c</c>", "end_of_conversation")
    assert described("user:q call:c", closed) == [last]
    declared = MARKED.with_chat_templates({"default": ROLES})
    chat = replace(declared.spec.chat, stop_tokens=("<|user|>",))
    declared = Tokenizer.from_spec(declared.spec.with_chat(chat))
    encoding = declared.encode_chat(messages_of(turns), with_loss=True)
    assert learned(declared, encoding) == [a, b[0]]
    for template in (ROLES, TAGGED):
        with pytest.raises(ChatInputError, match="'<none>' is no added token"):
            described(turns, template, turn_ends=["<none>"])


def test_the_first_declared_token_ends_a_turn_of_several():
    template = CHATML.replace("<|im_end|>", "<|end|><|im_end|><|turn|>")
    turns = "user:q assistant:a user:r"
    assert described(turns, template, turn_ends=["<|im_end|>"]) == [("a<|end|><|im_end|>", None)]
    assert described(turns, template) == [("a<|end|><|im_end|><|turn|>", None)]


def test_a_turn_whose_beginning_the_template_does_not_say_is_not_learned():
    # Nothing asks for a turn, and it has a header.
    for template in (
        PLAIN,
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}",
    ):
        with pytest.raises(
            ChatInputError, match=r"does not say where.*ignores add_generation_prompt"
        ):
            described("user:q assistant:a", template)
    # A turn with calls begins with another token than the prompt.
    other = CALLS.replace(
        "<|head|>{{ m.role }}", "{{ '<|tool|>' if m.tool_calls else '<|head|>' }}{{ m.role }}"
    )
    found = described("user:q call:c user:r assistant:a", other)
    assert found == [(None, "no_prompt"), ("a<|turn|>", None)]
    # What asks for a turn and the turn have only white space in common.
    with pytest.raises(ChatInputError, match="does not say where"):
        described("user:q assistant:a", PLAIN + "{% if add_generation_prompt %}\n{% endif %}")
    found = described("user:q call:c tool:2 assistant: user:r assistant:b", INSIDE)
    assert found == [(None, "interleaved"), (None, "no_text"), ("b<|turn|>", None)]
    # Neither what is in front of the turn nor what asks for others is known.
    refusing = (
        "{% if messages|length < 2 %}{{ raise_exception('') }}{% endif %}{% for m in messages %}"
        "{{ 'A' if loop.first }}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{{ 'now:' if messages|length > 1 }}{% endif %}"
    )
    found = described("assistant:a user:q assistant:now:b", refusing)
    assert found == [(None, "unanswered"), ("b<|end|>", None)]
    with pytest.raises(ChatInputError, match="refuses the messages in front"):
        described("assistant:a user:q", refusing)


def test_a_template_that_reads_parts_is_asked_with_parts():
    template = INSTRUCTION.replace("m.content", "m.content[0].text")
    made = MARKED.with_chat_templates({"default": template}, variables={"bos_token": "<s>"})
    turns = messages_of("user:q assistant:a user:r")
    encoding = made.encode_chat(turns, messages_form="decoded", with_loss=True)
    assert learned(made, encoding) == [" a</s>"]


def test_generation_tags_without_the_end_of_the_turn_are_reported():
    turns = "user:q assistant:a"
    assert described(turns, TAGGED) == [("a<|im_end|>", None)]
    template = TAGGED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")
    assert described(turns, template) == [("a", "outside_tags")]


def test_a_long_conversation_costs_a_few_renderings(monkeypatch):
    rendered = []

    class Counted(ChatTemplate):
        def render(self, request):
            rendered.append(len(request["messages"]))
            return super().render(request)

    messages = messages_of(" ".join(["user:q assistant:a"] * 100))
    for source, at_most in ((CHATML, 8), (CHATML.replace("m.role +", "m.role ~ loop.index +"), 33)):
        template, request = Counted(source), template_request({"messages": messages})
        found = find_turns(template, request, template.render(request))
        assert len(found["turns"]) == 100
        assert sum(rendered) <= at_most * len(messages)
        rendered.clear()


def test_turns_by_role_need_their_borders(tokenizer):
    without = tokenizer.encode_chat(CHAT)
    with pytest.raises(ValueError, match="with_loss=True"):
        without.loss_mask()
    tagged = tokenizer.encode_chat(CHAT, chat_template="tagged")
    assert tagged.loss_mask().any()
    assert tokenizer.encode_chat(CHAT[:2], with_loss=True).turns() == []


def test_loss_by_template_needs_its_tags(tokenizer):
    with pytest.raises(ChatInputError, match="use the loss rule 'role'"):
        tokenizer.encode_chat(CHAT, with_loss=True).loss_mask("template")


def test_the_template_of_a_name(tokenizer):
    assert tokenizer.encode_chat(CHAT, chat_template="{{ messages|length }}").text == "5"
    with pytest.raises(ChatTemplateMissingError, match="it has: default, tagged"):
        tokenizer.encode_chat(CHAT, chat_template="other")
    with pytest.raises(ChatTemplateMissingError, match=r"it has: none.*--chat-template FILE"):
        tokenizer.with_chat_templates({}).encode_chat(CHAT)
    named = tokenizer.with_chat_templates({"default": "no tools", "tool_use": "tools"})
    assert named.render_chat(CHAT, tools=[{}]).text == "tools"
    assert named.render_chat(CHAT, tools=[]).text == "tools"  # as in transformers
    assert named.render_chat(CHAT).text == "no tools"
