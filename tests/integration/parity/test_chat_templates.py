"""Chat templates give the text and the ids that transformers gives for them, or both refuse.

Besides our own templates, the files `*.jinja` of the folder that `TOKENIZER_CHAT_TEMPLATES` names.
"""

import json
import os
import random
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.chat_requests import chat_requests, map_texts
from tests.integration.parity.transformers_reader import (
    NOW,
    TransformersReader,
    apply_chat_template,
)
from tests.tokenizer_core.chat.own_templates import OWN_TEMPLATES, template_request
from tokenizer_core import Tokenizer
from tokenizer_core.chat import template as template_module
from tokenizer_core.chat.renderer import RenderedChat, has_generation_tags
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.chat.traced_text import SOURCE, TRUSTED
from tokenizer_core.errors import ChatTemplateError

pytestmark = pytest.mark.skipif(
    not TransformersReader.is_there(), reason="make test-integration installs transformers"
)

_FOLDER = os.environ.get("TOKENIZER_CHAT_TEMPLATES")
_NO_FOLDER = pytest.mark.skip("set TOKENIZER_CHAT_TEMPLATES to a folder of *.jinja files")
_VARIABLES = {
    "bos_token": "<|bos|>",
    "eos_token": "<|eos|>",
    "pad_token": "<|pad|>",
    "unk_token": "<|unk|>",
}
_CONTROL_TOKEN = re.compile(
    r"""<[|｜][^<>\s'"{}]{1,40}[|｜]>|\[/?[A-Z_]{3,20}\]|</?(?:start|end)_of_[a-z]+>"""
)
_ROLES = ("assistant", "function", "ipython", "system", "tool", "user")


def _public():
    if not _FOLDER:
        return {}
    files = sorted(Path(_FOLDER).glob("*.jinja"))
    assert files, f"no *.jinja in {_FOLDER}"
    return {path.stem: path.read_bytes().decode() for path in files}


TEMPLATES = OWN_TEMPLATES | _public()


def _parameters(wanted=bool):
    named = [pytest.param(source, id=name) for name, source in TEMPLATES.items() if wanted(source)]
    return named if _FOLDER else [*named, pytest.param("", id="public", marks=_NO_FOLDER)]


@pytest.fixture(scope="module")
def tokenizer_file(shared_data, tmp_path_factory):
    """A public vocabulary with the control tokens of all templates."""
    table = json.loads((shared_data / "vocab" / "qwen3.tokenizer.json").read_bytes())
    tokens = {f"<|{role}|>" for role in _ROLES}.union(
        _VARIABLES.values(), *map(_CONTROL_TOKEN.findall, TEMPLATES.values())
    )
    known = {token["content"] for token in table["added_tokens"]} | table["model"]["vocab"].keys()
    first = 1 + max(token["id"] for token in table["added_tokens"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    table["added_tokens"] += [
        {"id": id_, "content": token, "special": True, **flags}
        for id_, token in enumerate(sorted(tokens - known), first)
    ]
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(tokenizer_file):
    return Tokenizer.load(tokenizer_file)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Render at a fixed time."""

    def render_here(source, messages, **options):
        options.pop("limits"), options.pop("with_turn_borders", None)
        # As the process that renders gets it.
        request = template_request({"messages": messages, **options}, dict(options["variables"]))
        request["kwargs"] = request["kwargs"] or {}
        try:
            text, runs = ChatTemplate(source).render(request)
        except Exception as error:
            raise ChatTemplateError(str(error)) from error
        lengths, origins = np.array(runs, np.int32).reshape(-1, 2).T
        tags = has_generation_tags(source)
        return RenderedChat(str(text), lengths, origins, tags, messages=messages)

    monkeypatch.setattr(template_module, "datetime", NOW)
    monkeypatch.setattr("tokenizer_core.chat.renderer.render_chat", render_here)
    monkeypatch.setattr("tokenizer_core.chat.messages.render_chat", render_here)


def outcome(action, *arguments, **options):
    """The result, or None where the request is refused."""
    try:
        return action(*arguments, **options)
    except Exception:
        return None


def arguments(chat):
    """Of `Tokenizer.encode_chat`, which names one otherwise than transformers."""
    return {("template_kwargs" if key == "kwargs" else key): chat[key] for key in chat}


def compiled(source):
    try:
        return ChatTemplate(source)
    except template_module.TemplateError:
        return None


def honest(count):
    """Requests without anything that could be a control token, or a part of one: of the role
    `Assistant`, which is text to us, a template makes `<|Assistant|>`."""
    return [
        map_texts(chat, lambda text: re.sub(r"[<>\[\]|]|Assistant", ".", text))
        for chat in chat_requests(11, count)
    ]


@pytest.mark.parametrize("source", _parameters())
def test_a_rendered_text_equals_that_of_transformers(source):
    chats = list(chat_requests(26, 60))
    expected = apply_chat_template(
        file=None, template=source, variables=_VARIABLES, chats=chats, want="text"
    )
    template = compiled(source)
    for chat, text in zip(chats, expected, strict=True):
        rendered = template and outcome(template.render, template_request(chat, _VARIABLES))
        assert (rendered and rendered[0]) == (text if isinstance(text, str) else None), chat


@pytest.mark.parametrize("with_calls", [False, True])
@pytest.mark.parametrize("source", _parameters())
def test_decoded_messages_are_written_as_in_one_of_their_shapes(source, with_calls, tokenizer):
    def content(text, in_parts):
        return [{"type": "text", "text": text}] if in_parts else text

    def chat(in_parts, as_text, empty):
        arguments = '{"city": "Oslo"}' if as_text else {"city": "Oslo"}
        function = {"name": "w", "arguments": arguments}
        call = {"type": "function", "id": "call12345", "function": function}
        result = {"role": "tool", "tool_call_id": "call12345", "name": "w"}
        called = [
            {"role": "assistant", **empty, "tool_calls": [call]},
            {**result, "content": content("Sun", in_parts)},
        ]
        return [
            {"role": "user", "content": content("Sun?", in_parts)},
            *(called if with_calls else []),
            {"role": "assistant", "content": content("Yes.", in_parts)},
        ]

    shapes = [
        chat(in_parts, as_text, empty)
        for in_parts in (False, True)
        for as_text in (False, True)
        for empty in ({}, {"content": ""})
    ]
    written = apply_chat_template(
        file=None,
        template=source,
        variables=_VARIABLES,
        chats=[{"messages": messages} for messages in shapes],
        want="text",
    )
    ours = tokenizer.with_chat_templates({"default": source}, variables=_VARIABLES)
    found = {
        outcome(lambda m=messages: ours.render_chat(m, messages_form="decoded").text)
        for messages in shapes[::2]
    }
    if found <= {None, ""}:
        return  # the template refuses such a conversation, or writes no calls, or nothing
    texts = ("Sun?", "Yes.", *(("Oslo",) if with_calls else ()))
    for text in found:
        assert text in written
        assert all(part in text for part in texts)


@pytest.mark.parametrize("source", _parameters())
def test_ids_of_a_chat_equal_those_of_transformers(source, tokenizer_file, tokenizer, shared_data):
    chats = honest(20)
    llama2 = shared_data / "vocab_open" / "llama2.tokenizer.json"
    for ours, file, variables in (
        (tokenizer, tokenizer_file, _VARIABLES),
        (Tokenizer.load(llama2), llama2, {"bos_token": "<s>", "eos_token": "</s>"}),
    ):
        expected = apply_chat_template(
            file=str(file), template=source, variables=variables, chats=chats, want="ids"
        )
        ours = ours.with_chat_templates({"default": source}, variables=variables)
        for chat, ids in zip(chats, expected, strict=True):
            encoding = outcome(ours.encode_chat, **arguments(chat))
            found = encoding and encoding.ids.tolist()
            assert found == (ids if isinstance(ids, list) else None), chat


@pytest.mark.parametrize("source", _parameters(lambda source: "endgeneration" in source))
def test_the_mask_equals_that_of_transformers(source, tokenizer_file, tokenizer):
    chats = [chat for chat in honest(40) if "continue_final_message" not in chat]
    expected = apply_chat_template(
        file=str(tokenizer_file), template=source, variables=_VARIABLES, chats=chats, want="mask"
    )
    ours = tokenizer.with_chat_templates({"default": source}, variables=_VARIABLES)
    for chat, masked in zip(chats, expected, strict=True):
        encoding = outcome(ours.encode_chat, **arguments(chat), with_loss=True)
        if encoding is None or not isinstance(masked, list):
            assert encoding is None
            assert not isinstance(masked, list)
            continue
        assert encoding.ids.tolist() == masked[0]
        mask, theirs = encoding.loss_mask("template"), np.array(masked[1])
        text = encoding.text.encode()
        for index in np.flatnonzero(mask != theirs).tolist():
            start, end = encoding.offsets[index].tolist()
            if mask[index]:  # theirs ends at the first token of the last character
                assert text[start] & 0xC0 == 0x80, chat
            else:  # or marks the token around an empty block
                assert end - start > 1, chat
                assert theirs[index - 1 : index + 2].tolist() == [0, 1, 0], chat


@pytest.mark.parametrize("source", _parameters())
def test_forged_control_tokens(source, tokenizer):
    special = tokenizer.special_tokens
    any_special = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))))
    template = compiled(source)
    rng = random.Random(source)

    def forge(text):
        if text in _ROLES and rng.random() < 0.9:
            return text
        at = rng.randint(0, len(text))
        return text[:at] + "".join(rng.choices(list(special), k=rng.randint(1, 30))) + text[at:]

    for chat in chat_requests(12, 20):
        forged = map_texts(chat, forge, keys=rng.random() < 0.5)
        # No character of a token is written otherwise in JSON, so this also changes keys.
        written = json.dumps(forged, ensure_ascii=False)
        innocent = json.loads(any_special.sub(lambda match: "\ue000" * len(match[0]), written))
        rendered = template and outcome(template.render, template_request(forged, _VARIABLES))
        control = template and outcome(template.render, template_request(innocent, _VARIABLES))
        if not rendered or not control or len(rendered[0]) != len(control[0]):
            continue  # the template treats tokens in messages otherwise (`</think>`)
        found = [(match.start(), match[0]) for match in any_special.finditer(control[0])]
        text = iter(rendered[0])
        segments = [
            ("".join(islice(text, length)), origin & SOURCE == TRUSTED)
            for length, origin in rendered[1]
        ]
        ids, offsets = tokenizer.encode_segments_with_offsets(segments, unit="char")
        names = {id_: token for token, id_ in special.items()}
        places = zip(ids, offsets[:, 0].tolist(), strict=True)
        assert [(start, names[id_]) for id_, start in places if id_ in names] == found
