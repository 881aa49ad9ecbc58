"""Chat templates as data: what they may be, and a tokenizer that has them."""

import pickle
import re

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.chat_templates import ChatTemplates

END = "<|endoftext|>"
TWO = {"tool_use": "{{ tools }}\r\n", "default": "é{{ messages }}"}
FILE = ChatTemplates().to_json()


def test_a_copy_has_the_templates_and_nothing_else_changes():
    plain = Tokenizer.from_spec(trained_spec())
    assert (dict(plain.chat_templates), dict(plain.template_variables)) == ({}, {"eos_token": END})
    chat = plain.with_chat_templates(TWO)
    assert list(chat.chat_templates.items()) == sorted(TWO.items())
    assert dict(plain.chat_templates) == {}
    assert chat == plain
    assert chat.engine is plain.engine
    for copied in (pickle.loads(pickle.dumps(chat)), Tokenizer.from_spec(chat.spec)):
        assert copied.chat_templates == chat.chat_templates
    assert dict(chat.with_chat_templates({}).chat_templates) == {}
    for mapping in (chat.chat_templates, chat.template_variables):
        with pytest.raises(TypeError):
            mapping["default"] = "changed"


def test_variables_are_those_of_the_file_or_follow_from_the_special_tokens():
    spec = trained_spec(special_tokens=[END, AddedToken("<b>", 400)], prefix_ids=(400,))
    tokenizer = Tokenizer.from_spec(spec)
    assert dict(tokenizer.template_variables) == {"bos_token": "<b>", "eos_token": END}
    given = tokenizer.with_chat_templates(TWO, variables={"image_token": "<b>"})
    assert dict(given.template_variables) == {"image_token": "<b>"}
    assert dict(given.with_chat_templates({}).template_variables) == {"image_token": "<b>"}


@pytest.mark.parametrize(
    ("sources", "variables", "more", "words"),
    [
        ("{{ messages }}", None, {}, "must be a dict, name -> source, not str"),
        ({"../x": "a"}, None, {}, "the name '../x'"),
        ({"x" * 65: "a"}, None, {}, "1 to 64 letters"),
        ({"a": 1}, None, {}, "'a' is no text"),
        ({"a": "x\ud800"}, None, {}, "a lone surrogate at 1"),
        ({"a": "é" * (1 << 19) + "a"}, None, {}, "has 1048577 bytes"),
        ({str(i): "a" for i in range(17)}, None, {}, "17 chat templates; keep 16"),
        ({}, {"a b": "x"}, {}, "'a b' is no name of a variable"),
        ({}, {"eos_token": None}, {}, "eos_token is no text"),
        ({}, {f"v{i}": "" for i in range(1025)}, {}, "at most 1024 variables"),
        ({}, None, {"stop_tokens": ("x\ud800",)}, "a lone surrogate at 1"),
        ({}, None, {"control_tokens": ("<b>",) * 1025}, "at most 1024 stop or control tokens"),
        ({}, None, {"model_max_length": 0}, "an integer from 1 to 2^31"),
        ({}, None, {"model_max_length": 2**31 + 1}, "an integer from 1 to 2^31"),
        ({}, None, {"max_model_len": True}, "max_model_len must be an integer"),
        ({}, None, {"truncation_side": "middle"}, "must be left or right"),
        ({}, None, {"output_parser": "guess"}, "no output parser 'guess': one of hermes"),
        ({}, None, {"settings": {"padding_side": "top"}}, "'padding_side' may not be 'top'"),
        ({}, None, {"settings": {"model_input_names": "input_ids"}}, "'model_input_names' may not"),
        ({}, None, {"settings": {"use_fast": True}}, "'use_fast' may not be True"),
        ({}, None, {"settings": []}, "are a dict"),
    ],
)
def test_wrong_fields_are_refused(sources, variables, more, words):
    with pytest.raises(InvalidSpecError, match=re.escape(words)):
        ChatTemplates(sources, variables, **more)


def test_the_largest_templates_are_kept():
    chat = ChatTemplates({"a": "x" * (1 << 20)} | {str(i): "" for i in range(15)})
    assert ChatTemplates.from_json(chat.to_json()) == chat
    escaped = ChatTemplates({str(i): "\x01" * (1 << 20) for i in range(16)})
    with pytest.raises(InvalidSpecError, match="keep fewer chat templates"):
        escaped.to_json()


def test_the_file_and_its_digest():
    sources = dict(TWO)
    chat = ChatTemplates(sources, {"eos_token": END}, ("<b>",), ("<think>",), 4096, 512, "left")
    sources["default"] = "changed"
    again = ChatTemplates.from_json(chat.to_json())
    assert (again, again.to_json(), again.record()) == (chat, chat.to_json(), chat.record())
    assert list(again.sources.items()) == sorted(TWO.items())
    assert chat.record()["sha256"] != ChatTemplates(TWO).record()["sha256"]
    assert ChatTemplates().record() == {}
    assert ChatTemplates({}, {"eos_token": END}).record()["templates"] == {}
    assert chat.record()["templates"]["default"]["size_bytes"] == len(TWO["default"].encode())


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"templates": {}, "variables": null}',
        FILE.replace(b'"variables"', b'"more": 1, "variables"'),
        FILE.replace(b"null", b"[]", 1),
        FILE.replace(b"[]", b"null", 1),
        b"\xff",
    ],
)
def test_another_file_is_refused(data):
    with pytest.raises(FormatError, match=r"chat_templates\.json"):
        ChatTemplates.from_json(data)
