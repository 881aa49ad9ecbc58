"""The defaults of the commands are those of the service."""

from tests.tokenizer_service.run_cli import Cli
from tokenizer_service.commands.command_line import (
    DEFAULT_ARTIFACTS_DIR,
    DEFAULT_TOKENIZER,
)
from tokenizer_service.settings import Settings


def test_the_defaults_are_those_of_the_settings() -> None:
    fields = Settings.model_fields
    assert str(fields["artifacts_dir"].default) == DEFAULT_ARTIFACTS_DIR
    assert fields["default"].default == DEFAULT_TOKENIZER


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
