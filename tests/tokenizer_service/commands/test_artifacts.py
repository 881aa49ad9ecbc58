"""`tokenizer promote` and `rollback`: which version is served, and how to go back."""

import json
from pathlib import Path

import pytest

from tests.tokenizer_core.formats.model_folders import make_folder
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core import Tokenizer
from tokenizer_core.registry import ArtifactStore


@pytest.fixture
def versions(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three versions of `news`, and `starter`; nothing promoted."""
    for size in (258, 259, 260):
        cli.run("train", "corpus.txt", f"--vocab-size={size}", "--name=news")
    cli.run("train", "corpus.txt", "--vocab-size=261", "--name=starter")
    return [str(ref) for ref in ArtifactStore(cli.folder / "artifacts").versions("news")]


def served(cli: Cli) -> str:
    rows = json.loads(cli.run("list", "--json")[0])
    (active,) = [f"{row['name']}@{row['version']}" for row in rows if row["active"]]
    return active


def test_rollback_returns_to_the_version_served_before(cli: Cli, versions: list[str]) -> None:
    assert served(cli).startswith("starter@")  # the default, shown before any promotion
    assert "nothing was promoted before" in cli.fail("rollback")
    cli.run("promote", versions[0])
    cli.run("rollback")
    assert served(cli).startswith("starter@")
    cli.run("promote", versions[2])
    out, _ = cli.run("promote", versions[1])
    assert out.decode().splitlines()[-1] == f"back again:  tokenizer promote {versions[2]}"
    for expected in (versions[2], versions[1]):  # a second rollback undoes the first
        cli.run("rollback")
        assert served(cli) == expected
    found = json.loads(cli.run("rollback", "--json")[0])
    assert found["active"]["version"] == versions[2].partition("@")[2]
    assert found["previous"]["version"] == versions[1].partition("@")[2]


def test_rollback_of_a_name_goes_through_its_versions(cli: Cli, versions: list[str]) -> None:
    assert "promote news does it" in cli.fail("rollback", "news")
    cli.run("promote", "news")
    for expected in (versions[1], versions[0]):
        cli.run("rollback", "news")
        assert served(cli) == expected
    assert "the oldest version" in cli.fail("rollback", "news")
    assert "name alone" in cli.fail("rollback", versions[0], code=2)


def test_any_tokenizer_is_inspected_and_only_a_published_one_serves(trained: Cli) -> None:
    cli = trained
    tokenizer = Tokenizer.from_preset("gpt2")
    tokenizer.save_tokenizer_json(cli.folder / "tokenizer.json")
    shown = cli.run("inspect", "gpt2", "tokenizer.json", "worked")[0].decode()
    assert [line for line in shown.splitlines() if not line.startswith(" ")][:2] == [
        "gpt2",
        "tokenizer.json",
    ]
    assert f"digest       {tokenizer.spec.fingerprint}\n  kind         ranks" in shown
    assert shown.count("  made  ") == 1  # only a published one says when
    assert "has no manifest: leave out --json" in cli.fail("inspect", "gpt2", "--json")
    assert "no report of its training" in cli.fail("inspect", "gpt2", "--html=page.html")
    page, _ = cli.run("inspect", "worked", "--html", "-")
    assert page.startswith(b"<!doctype html>")
    assert b"longest tokens" not in page
    assert "name only one" in cli.fail("inspect", "worked", "gpt2", "--json", code=2)
    for command in ("promote", "rollback"):
        assert "it: tokenizer import --preset gpt2 --name gpt2" in cli.fail(command, "gpt2")
        path = str(cli.folder / "tokenizer.json")
        assert f"publish it: tokenizer import {path} --name NAME" in cli.fail(command, path)


def test_rollback_from_a_damaged_version(cli: Cli, versions: list[str]) -> None:
    cli.run("promote", versions[0])
    cli.run("promote", versions[1])
    name, _, version = versions[1].partition("@")
    manifest = Path("artifacts") / "tokenizers" / name / version / "manifest.json"
    manifest.write_text("{}")
    assert "manifest" in cli.fail("list")
    cli.run("rollback")
    assert served(cli) == versions[0]


def test_with_one_tokenizer_there_is_no_rollback(cli: Cli) -> None:
    cli.run("train", "corpus.txt", "--vocab-size=258", "--name=starter", "--promote")
    assert "all that was ever served" in cli.fail("rollback")
    cli.run("train", "corpus.txt", "--vocab-size=259", "--name=other")
    assert "there is no tokenizer 'none'" in cli.fail("rollback", TOKENIZER_DEFAULT="none")


def test_chat_templates_of_a_folder_and_of_files(cli: Cli) -> None:
    config = {"chat_template": [{"name": "rag", "template": "r"}], "eos_token": "<|endoftext|>"}
    make_folder(cli.folder / "model", tokenizer_config=config)
    (cli.folder / "a=b.jinja").write_text("d\n")
    options = ("--chat-template", "a=b.jinja", "--chat-template", "rag=a=b.jinja")

    def shown(*arguments: str) -> dict[str, str]:
        cli.run("import", "model", "--name=m", *arguments)
        store = ArtifactStore(cli.folder / "artifacts")
        chat = store.open(store.versions("m")[-1]).chat
        assert chat.variables == {"eos_token": "<|endoftext|>"}
        assert cli.run("convert", "m", "--to=transformers", f"--output=m{len(arguments)}")
        written = Tokenizer.load(cli.folder / f"m{len(arguments)}")
        assert (written.spec.chat.sources, written.spec.chat.variables) == (
            chat.sources, chat.variables,
        )  # fmt: skip
        return dict(chat.sources)

    assert shown() == {"rag": "r"}
    assert shown(*options[:2]) == {"default": "d\n", "rag": "r"}
    assert shown(*options) == {"default": "d\n", "rag": "d\n"}
    out = cli.run("inspect", "m")[0].decode()
    assert "chat         default  2 bytes  sha256 " in out
    assert "chat         rag  2 bytes  sha256 " in out
    twice = ("import", "model", "--name=m", *options[:2], *options[:2])
    assert "--chat-template gives default twice" in cli.fail(*twice, code=2)
    assert "x.jinja" in cli.fail("import", "model", "--name=m", "--chat-template=x.jinja")
    for source, reason in (("a\n{% for m in messages %}", "line 2"), ("{{" + "(" * 9_999, "deep")):
        (cli.folder / "loop.jinja").write_text(source)
        error = cli.fail("import", "model", "--name=m", "--chat-template=loop.jinja")
        assert "loop.jinja is no chat template: " in error
        assert reason in error
    wrong = "--chat-template=../x=a=b.jinja"
    assert "of a chat template must have" in cli.fail("import", "model", "--name=m", wrong)
    (cli.folder / "latin.jinja").write_bytes(b"\xff")
    wrong = "--chat-template=latin.jinja"
    assert "not UTF-8 at byte 0" in cli.fail("import", "model", "--name=m", wrong)


def test_a_refused_folder_is_imported_with_the_ids_of_its_file(cli: Cli) -> None:
    config = {"tokenizer_class": "GPT2Tokenizer", "chat_template": "{{ messages }}"}
    folder = make_folder(cli.folder / "model", pattern="cl100k", tokenizer_config=config)
    assert "--file-ids" in cli.fail("import", "model", "--name=m")
    cli.run("import", "model", "--name=m", "--file-ids")
    store = ArtifactStore(cli.folder / "artifacts")
    spec = store.open(store.resolve("m"))
    assert spec == Tokenizer.load(folder / "tokenizer.json").spec
    assert dict(spec.chat.sources) == {"default": "{{ messages }}"}
