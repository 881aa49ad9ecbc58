"""`tokenizer chat`: conversations from files, the forms of the output, and wrong input."""

import gzip
import json

import pytest

from tests.tokenizer_service.chats import END, SPEC, START, chatml_ids, say, with_templates
from tokenizer_core.registry import ArtifactStore

CHAT = say("Hi", f"no {END}")
TURNS = (("user", "Hi"), ("assistant", f"no {END}"))


@pytest.fixture
def chat(cli, rendering_here):
    """The command in a folder whose default tokenizer has chat templates."""
    ArtifactStore(cli.folder / "artifacts").publish(with_templates(SPEC), name="starter")
    (cli.folder / "chat.json").write_text(json.dumps(CHAT))
    return cli


def printed(ids):
    return " ".join(map(str, ids)).encode() + b"\n"


def test_a_conversation_becomes_ids_text_a_count_or_pieces(chat):
    ids = chatml_ids(*TURNS)
    assert ids.count(257) == 2  # the one in the message is plain text
    text = f"{START}user\nHi{END}\n{START}assistant\nno {END}{END}\n"
    for options, expected in (
        ((), printed(ids)),
        (("--no-generation-prompt",), printed(ids)),
        (("--generation-prompt",), printed(chatml_ids(*TURNS, prompt=True))),
        (("--text",), text.encode()),
        (("--count",), b"%d\n" % len(ids)),
        (("--add-special-tokens",), printed([257, *ids])),
    ):
        assert chat.run("chat", "chat.json", *options) == (expected, "")
    assert chat.run("chat", "-", stdin=json.dumps(CHAT).encode())[0] == printed(ids)
    lines = chat.run("chat", "chat.json", "--pieces")[0].decode().splitlines()
    assert lines[:2] == [f'256\t"{START}"', '117\t"u"']
    assert len(lines) == len(ids)
    rows = [say("a"), {"messages": say("b"), "id": 1}]
    (chat.folder / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    out, _ = chat.run("chat", "chats.jsonl")
    assert out == printed(chatml_ids(("user", "a"))) + printed(chatml_ids(("user", "b")))


def test_messages_are_decoded_and_one_that_is_not_written_is_named(chat):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (chat.folder / "chat.json").write_text(json.dumps([{"role": "user", "content": parts}]))
    assert chat.run("chat", "chat.json") == (printed(chatml_ids(("user", "a\nb"))), "")
    (chat.folder / "last.jinja").write_text("{{ messages[-1].content }}")
    (chat.folder / "chat.json").write_text(json.dumps(say("a", "b")))
    out, log = chat.run("chat", "chat.json", "--template", "last.jinja", "--text")
    assert out == b"b"
    assert log == "note: chat.json, messages[0].content: the chat template writes nothing of it\n"


def test_a_template_for_a_tokenizer_without_one(cli, rendering_here, monkeypatch):
    monkeypatch.setenv("TOKENIZER_DEFAULT", "plain")
    ArtifactStore(cli.folder / "artifacts").publish(SPEC, name="plain")
    (cli.folder / "chat.json").write_text(json.dumps(say("Hi")))
    (cli.folder / "chat.jinja").write_text("{{ messages[0].content }}<|im_end|>")
    ids = printed([*b"Hi", 257])
    refused = cli.fail("chat", "chat.json")
    assert "--template, or publish a version with it: tokenizer import NAME" in refused
    assert cli.run("chat", "chat.json", "--template", "chat.jinja")[0] == ids
    add = ("import", "plain", "--name", "plain", "--chat-template", "chat.jinja")
    cli.run(*add)
    assert cli.run("chat", "chat.json")[0] == ids
    assert "there is no file nothing" in cli.fail("import", "nothing", "--name", "a")
    assert "there is no file plain" in cli.fail(*add, "--pattern", "gpt2", code=2)


def test_tools_and_variables_reach_the_named_template(chat):
    tools = [{"name": "f"}]
    (chat.folder / "tools.json").write_text(json.dumps(tools))
    (chat.folder / "with.json").write_text(json.dumps({"messages": CHAT, "tools": tools}))
    dropped = "note: {}, tools: the chat template does not know them\n"
    for words in (("chat.json", "--tools=tools.json"), ("with.json",)):
        assert chat.run("chat", *words)[1] == ""
        assert chat.run("chat", *words, "--template", "tagged")[1] == dropped.format(words[0])
    text = chat.run("chat", "chat.json", "--tools", "tools.json", "--text")[0].decode()
    assert text.startswith(f'{START}system\n{{"name": "f"}}{END}')
    assert chat.run("chat", "with.json", "--text")[0].decode() == text
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": f"no {END}"}]
    (chat.folder / "with.json").write_text(json.dumps({"conversations": turns, "tools": tools}))
    assert chat.run("chat", "with.json", "--text")[0].decode() == text
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    (chat.folder / "with.json").write_text(json.dumps({"messages": CHAT, "system": "s", **kwargs}))
    shown = chat.run("chat", "with.json", "--text", "--generation-prompt")[0].decode()
    assert shown.startswith(f"{START}system\ns{END}")
    assert shown.endswith("<think></think>")
    options = ("--generation-prompt", "--kwargs", '{"enable_thinking": false}', "--text")
    assert chat.run("chat", "chat.json", *options)[0].endswith(b"<think></think>")
    by_name = chat.run("chat", "chat.json", "--template", "tagged", "--text")[0].decode()
    assert by_name == f"{START}user\nHi{END}{START}assistant\nno {END}{END}"
    assert "default, parts" in chat.fail("chat", "chat.json", "--template", "rag")


def test_wrong_input_is_one_line(chat):
    for name, content, reason in (
        ("a.json", b"", "is empty"),
        ("b.json", b"[1", "b.json, line 1, is not JSON"),
        ("c.json", b'{"a": 1}', "no list of messages"),
        ("h.json", b'{"messages": []}', "h.json: the conversation has no messages"),
        ("d.json", b'[{"role": "user"}]\n{"a": 1}\n', "d.json, line 2, has no list of messages"),
        ("i.jsonl", b'[]\n{"messages": 1}\n', "i.jsonl, line 2: messages must be"),
        ("e.json", b"\xff", "not UTF-8: invalid bytes at offset 0"),
        ("f.json", b"[1]", "f.json: messages[0] is int"),
        ("j.jsonl", b'[{"role": "user", "content": ""}]\n\n[{"role": ""}]', "line 3: messages[0]"),
        ("k.jsonl.gz", gzip.compress(b"[]"), "k.jsonl.gz is packed with gzip, and this command"),
        ("twice.json", b'[\n{"role": "user", "role": "system"}]', "the same key twice"),
        ("twice.jsonl", b'[]\n[{"content": "", "content": "a"}]', "line 2, has the same key twice"),
        ("g.json", b'[{"role": "narrator", "content": ""}]', "this template has no role narrator"),
    ):
        (chat.folder / name).write_bytes(content)
        assert reason in chat.fail("chat", name), name
    assert "no.json" in chat.fail("chat", "no.json")
    assert "JSON list" in chat.fail("chat", "chat.json", "--tools", "c.json")
    assert "the same key twice" in chat.fail("chat", "chat.json", "--tools", "twice.json")
    for options, reason in (
        (("--kwargs", "{"), "not JSON"),
        (("--kwargs", '{"a": 1, "a": 2}'), "the same key twice"),
        (("--kwargs", "[]"), "JSON object"),
        (("--text", "--count"), "not allowed with"),
    ):
        assert reason in chat.fail("chat", "chat.json", *options, code=2)
