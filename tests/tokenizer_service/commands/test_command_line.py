"""The defaults of the commands are those of the service."""

import pytest
from tokenizer_service.commands.command_line import (
    DEFAULT_ARTIFACTS_DIR,
    DEFAULT_TOKENIZER,
    CommandParser,
)
from tokenizer_service.settings import Settings

from tests.tokenizer_service.run_cli import Cli


def test_the_defaults_are_those_of_the_settings() -> None:
    fields = Settings.model_fields
    assert str(fields["artifacts_dir"].default) == DEFAULT_ARTIFACTS_DIR
    assert fields["default"].default == DEFAULT_TOKENIZER


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("corpus", "sample", "a.jsonl", "--share=0.999999", "-o", "s.jsonl"), "share", "fraction"),
        (
            ("corpus", "sample", "a.jsonl", "--share", "0.999999", "-o", "s.jsonl"),
            "share",
            "fraction",
        ),
        (("train", "corpus.txt", "--vocab-size=260", "--memory=16M"), "memory", "memory-limit"),
        (("train", "corpus.txt", "--vocab-size=260", "--scratch=."), "scratch", "temp-dir"),
        (
            ("counts", "make", "corpus.txt", "--run-storage=run", "-o", "x.counts"),
            "run-storage",
            "checkpoint-dir",
        ),
    ],
)
def test_renamed_options_work_for_one_release_and_warn(
    cli: Cli, words: tuple[str, ...], old: str, new: str
) -> None:
    (cli.folder / "a.jsonl").write_text('{"text": "low"}\n' * 100)
    _, warned = cli.run(*words)
    assert f"--{old} is now called --{new}; use that" in warned
    helped, _ = cli.run(words[0], *([words[1]] if words[0] != "train" else []), "--help")
    assert f"--{new} ".encode() in helped
    assert f"--{old} ".encode() not in helped


def test_an_option_that_is_given_twice_is_joined_or_refused(trained: Cli) -> None:
    (trained.folder / "more.txt").write_text("newest")
    both = trained.run("count", "--file", "corpus.txt", "more.txt")
    assert trained.run("count", "--file", "corpus.txt", "--file", "more.txt") == both
    for words in (
        ("decode", "--file=more.txt", "--file=corpus.txt"),
        ("train", "corpus.txt", "--separator=a", "--separator=b"),
        ("compare", "worked", "worked", "--corpus=more.txt", "--corpus=corpus.txt"),
        ("encode", "low", "--tokenizer=worked", "--tokenizer=worked"),
        ("train", "corpus.txt", "--vocab-size=290", "--vocab-size=260"),
    ):
        assert "is given twice; leave one out" in trained.fail(*words, code=2)


def test_words_after_two_dashes_are_no_options() -> None:
    parser = CommandParser(prog="p")
    parser.add_argument("--new")
    parser.add_argument("text", nargs="*")
    parser.rename_option("--old", "--new")
    parsed = parser.parse_args(["--old", "1", "--", "--old"])
    assert (parsed.new, parsed.text) == ("1", ["--old"])
