"""Which tokenizer a word on the command line is."""

import shutil

import pytest

from tests.tokenizer_service.run_cli import Cli
from tokenizer_core import Tokenizer
from tokenizer_core.presets import PRESETS, cached_paths

END = "<|endoftext|>"


@pytest.fixture
def other(trained: Cli) -> Cli:
    """The command, with a file of another tokenizer whose name is that of the published one."""
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save_tokenizer_json(
        trained.folder / "worked"
    )
    return trained


def test_a_published_tokenizer_comes_before_a_file_of_its_name(other: Cli) -> None:
    published = other.run("encode", "newest", "--tokenizer", "worked")[0]
    assert len(published.split()) < 6
    assert len(other.run("encode", "newest", "--tokenizer", "./worked")[0].split()) == 6
    (other.folder / "plain").write_bytes((other.folder / "worked").read_bytes())
    assert len(other.run("encode", "newest", "--tokenizer", "plain")[0].split()) == 6


def test_an_ambiguous_word_is_refused(other: Cli) -> None:
    for words in (
        ("convert", "worked", "--to=tokenizer.json", "-o", "t.json"),
        ("import", "worked", "--name=again"),
    ):
        assert "write ./worked for this one, or worked@VERSION" in other.fail(*words, code=2)
    other.run("import", "./worked", "--name=again")
    (other.folder / "gpt2").mkdir()
    assert "gpt2 is a preset" in other.fail("convert", "gpt2", "--to=gpt2", "-o", "x", code=2)


def test_a_folder_may_have_a_colon_or_a_comma_in_its_name(trained: Cli) -> None:
    for name in ("model:v1", "a,b"):
        trained.run("convert", "worked", "--to=transformers", "-o", name)
        trained.run("import", f"./{name}", "--name=again")
        assert trained.run("encode", "low", "--tokenizer", name) == trained.run("encode", "low")


def test_the_file_of_a_preset_with_its_pattern_has_its_special_tokens(cli: Cli) -> None:
    shutil.copyfile(next(cached_paths(PRESETS["r50k_base"])), cli.folder / "ranks.tiktoken")
    files = ("--pattern=r50k", "--files", "ranks.tiktoken")
    assert cli.run("encode", END, *files) == (b"50256\n", "")
    assert cli.run("encode", END, "--tokenizer=ranks.tiktoken:gpt2") == (b"50256\n", "")
    assert cli.run("encode", END, "--tokenizer=ranks.tiktoken") == (b"50256\n", "")
    (cli.folder / "alone").mkdir()
    shutil.copyfile(cli.folder / "ranks.tiktoken", cli.folder / "alone" / "r50k_base.tiktoken")
    for folder in ("--tokenizer=alone", "--tokenizer=./alone"):
        assert cli.run("encode", END, folder) == (b"50256\n", "")
    out, warned = cli.run("encode", END, "--tokenizer=ranks.tiktoken:cl100k")
    assert len(out.split()) == 7
    assert "names no special tokens" in warned


def test_a_word_names_files_where_files_are_expected(trained: Cli) -> None:
    shutil.copyfile(next(cached_paths(PRESETS["r50k_base"])), trained.folder / "ranks.tiktoken")
    trained.run("import", "ranks.tiktoken:gpt2", "--name=ranks")
    assert trained.run("encode", END, "--tokenizer=ranks")[0] == b"50256\n"
    assert "leave --pattern out" in trained.fail(
        "import", "ranks.tiktoken:gpt2", "--pattern=gpt2", "--name=x", code=2
    )
    trained.run("convert", "worked", "--to=gpt2", "-o", "files")
    pair = "files/vocab.json,files/merges.txt"
    trained.run("import", pair, "--name=pair")
    assert trained.run("encode", "newest", "--tokenizer=pair") == trained.run("encode", "newest")


def test_without_an_active_tokenizer_the_error_has_the_remedy(cli: Cli) -> None:
    cli.run("train", "corpus.txt", "--vocab-size", "265", "--name", "worked")
    line = cli.fail("inspect", "active")
    assert "no tokenizer is active; make one so: tokenizer promote NAME" in line
    assert "nothing was promoted before" in cli.fail("rollback", "worked")
    (cli.folder / "file").touch()
    assert "but a file" in cli.fail("encode", "x", "--tokenizer=gpt2", "--artifacts-dir=file")
