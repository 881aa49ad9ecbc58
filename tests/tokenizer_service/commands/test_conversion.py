"""`tokenizer convert`: what it writes, prints and refuses."""

import json

import tiktoken
import tiktoken.load
import tokenizers

import tokenizer_core
from tokenizer_core import Tokenizer
from tokenizer_core.registry import ArtifactStore

LIBRARIES = {"tokenizer_core": tokenizer_core, "tokenizers": tokenizers, "tiktoken": tiktoken}
TEXT = "newest<|endoftext|> low widest lower  \n x"
TEMPLATE = "--chat-template=chat.jinja"


def worked(cli):
    store = ArtifactStore(cli.folder / "artifacts")
    return Tokenizer.from_spec(store.open(store.resolve("worked")))


def ids_of(loaded):
    if isinstance(loaded, tokenizers.Tokenizer):
        return list(loaded.encode(TEXT).ids)
    if isinstance(loaded, tiktoken.Encoding):
        return loaded.encode(TEXT, allowed_special="all")
    return list(loaded.encode(TEXT))


def test_a_converted_tokenizer_is_loaded_by_the_lines_it_prints(trained):
    left_out = {
        "tiktoken": b"left out: the split pattern (gpt2), the special tokens (1)\n",
        "tokenizer.json": b"left out: nothing that decides ids\n",
    }
    for target in ("tokenizer.json", "transformers", "tiktoken", "gpt2", "pickle"):
        out, error = trained.run("convert", "worked", "--to", target, "--output", f"as-{target}")
        assert error == ""
        assert b"read: 265 tokens, pattern gpt2, special tokens '<|endoftext|>'\n" in out
        assert b"read back: same" in out
        assert left_out.get(target, b"") in out
        printed = out.decode().partition("load it:\n")[2].split("\n")
        lines = [line.strip() for line in printed if line.strip().split(".")[0] in LIBRARIES]
        assert lines[0].startswith("tokenizer_core.Tokenizer.")
        for line in lines:
            assert ids_of(eval(line, dict(LIBRARIES))) == worked(trained).encode(TEXT), line


ERRORS = [
    (("none", "--to=tiktoken", "--output=x"), 1, "and there is no tokenizer 'none'"),
    (("a", "b", "--to", "tiktoken", "--output", "x"), 1, "a is not there"),
    (("worked", "--pattern=gpt2", "--to=gpt2", "--output=x"), 2, "there is no file worked"),
    (("corpus.txt", "--to", "tiktoken", "--output", "x"), 1, "none of"),
    (("./artifacts", "--to", "tiktoken", "--output", "x"), 1, "artifacts has no tokenizer.json"),
    (("artifacts/tokenizers/worked", "--to=gpt2", "-o=x"), 1, "load one of them: artifacts/"),
    (("worked", "--to", "tiktoken", "--output", "no/x"), 1, "no folder no; make it first"),
    (("llama", "--to=pickle", "--output=x"), 1, "llama3"),
    (("worked", "--to=gpt2", "--output=x", TEMPLATE), 2, "gpt2 has no chat template"),
]


def test_an_error_is_one_line_with_the_remedy(trained):
    trained.run("train", "corpus.txt", "--vocab-size=265", "--name=llama", "--pattern=llama3")
    (trained.folder / "chat.jinja").write_text("{{ messages }}")
    for arguments, code, words in ERRORS:
        assert words in trained.fail("convert", *arguments, code=code)
    assert not (trained.folder / "x").exists()


def test_a_file_that_is_there_is_replaced_by_force_only(trained):
    (trained.folder / "t.json").write_text("mine")
    convert = ("convert", "worked", "--to=tokenizer.json", "--output=t.json")
    assert trained.fail(*convert).endswith("another output, or overwrite it (--force)\n")
    assert (trained.folder / "t.json").read_text() == "mine"
    trained.run(*convert, "--force")
    assert tokenizers.Tokenizer.from_file(str(trained.folder / "t.json"))


def test_the_chat_template_of_a_folder_is_converted(trained):
    (trained.folder / "chat.jinja").write_text("{{ messages }}", encoding="utf-8")
    trained.run("convert", "worked", "--to=transformers", "--output=model", TEMPLATE)
    trained.run("convert", "./model", "--to=transformers", "--output=again")
    files = [trained.folder / name / "tokenizer_config.json" for name in ("model", "again")]
    first, second = (json.loads(file.read_bytes()) for file in files)
    assert first == second
    assert first["chat_template"] == "{{ messages }}"
    out, _ = trained.run("convert", "./model", "--to=gpt2", "--output=g")
    assert b"the chat templates (default)" in out
