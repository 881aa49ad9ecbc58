"""The starter tokenizer of the package is used where no folder of tokenizers was named."""

from __future__ import annotations

from tests.tokenizer_service.run_cli import Cli

IDS = b"16500 44 2067 33\n"
MISSING = "there is no tokenizer 'starter'"


def test_commands_find_it_in_an_empty_folder(cli: Cli) -> None:
    assert cli.run("encode", "Hello, world!")[0] == IDS
    assert cli.run("encode", "--tokenizer", "starter", "Hello, world!")[0] == IDS
    assert not (cli.folder / "artifacts").exists()


def test_a_version_of_it_is_found_and_another_is_not(cli: Cli) -> None:
    version = cli.run("inspect", "starter")[0].decode().split()[0]
    assert cli.run("encode", "--tokenizer", version, "Hello, world!")[0] == IDS
    cli.fail("encode", "--tokenizer", "starter@20200101T000000Z-00000000", "x")
    assert "'mine'" in cli.fail("encode", "x", TOKENIZER_DEFAULT="mine")
    assert "'other'" in cli.fail("encode", "--tokenizer", "other", "x")


def test_a_folder_with_tokenizers_and_none_active_does_not_fall_back(trained: Cli) -> None:
    assert trained.run("encode", "Hello, world!")[0] != IDS
    (trained.folder / "artifacts" / "active.json").unlink()
    line = trained.fail("encode", "x")
    assert "no tokenizer is active, and 'starter' is not published; name one (--tokenizer" in line
    assert line.endswith("make it active: tokenizer promote worked\n")
    assert trained.run("encode", "--tokenizer", "starter", "Hello, world!")[0] == IDS


def test_a_named_folder_does_not_fall_back(cli: Cli) -> None:
    for name in ("TOKENIZER_ARTIFACTS_DIR", "TOKENIZER_STORE"):
        assert MISSING in cli.fail("encode", "x", **{name: str(cli.folder / "empty")})
    assert MISSING in cli.fail("encode", "x", "--artifacts-dir", "empty")
    for named, reason in (
        ("", "TOKENIZER_ARTIFACTS_DIR is empty; name a folder"),
        ("corpus.txt", "is no folder of"),
    ):
        assert reason in cli.fail("list", TOKENIZER_ARTIFACTS_DIR=named)


def test_import_takes_it_into_a_named_folder(cli: Cli) -> None:
    other = ("--artifacts-dir", "other")
    cli.run("import", "starter", "--name", "starter", "--promote", *other)
    assert cli.run("encode", "Hello, world!", *other)[0] == IDS
    (manifest,) = (cli.folder / "other" / "tokenizers" / "starter").glob("*/manifest.json")
    manifest.write_text("x")
    assert "manifest" in cli.fail("import", "starter", "--name", "again", *other)
