"""`tokenizer corpus` with a bucket; tests/tokenizer_service/commands has the rest."""

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_service.commands.test_corpus import cli
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core.blobs.bucket import ObjectStorage
from tokenizer_core.errors import StorageError
from tokenizer_service.commands import corpus

__all__ = ["cli"]


def test_token_files_in_a_bucket_are_those_of_a_folder(cli: Cli, s3_bucket: str) -> None:
    address = f"{s3_bucket}/stories"
    out, _ = cli.run("corpus", "encode", "stories.txt", "-o", address, "--temp-dir=s", "--json")
    local, _ = cli.run("corpus", "encode", "stories.txt", "-o", "tokens", "--json")
    assert out == local
    assert not list(Path("s").iterdir()), "what was uploaded is left on the disk"
    out, _ = cli.run("corpus", "verify", address, "--cache=c")
    assert out.decode().startswith(f"{address}: 4 files, 2 documents, ")
    [cached] = Path("c").iterdir()
    assert content(cached) == content(Path("tokens"))
    out, _ = cli.run("corpus", "inspect", address, "--cache=c")
    assert f"manifest: {address}/manifest.json" in out.decode()
    out, _ = cli.run("corpus", "inspect", address, "--cache=c", "--document=1")
    assert out.decode() == "Two days, three.<|endoftext|>\n"
    out, _ = cli.run("corpus", "inspect", address, "--cache=c", "--document=1", "--ids")
    assert out == cli.run("encode", "Two days, three.<|endoftext|>")[0]
    train = cached / "train.bin"
    train.write_bytes(train.read_bytes()[::-1])
    assert f"remove {train}" in cli.fail("corpus", "verify", address, "--cache=c", code=3)
    error = cli.fail("corpus", "encode", "stories.txt", "-o", address, "--temp-dir=s")
    assert "has other token files already" in error
    assert not list(Path("s").iterdir()), "it was encoded before it was refused"
    assert "never finished" in cli.fail("corpus", "inspect", f"{s3_bucket}/none", "--cache=c")
    error = cli.fail("corpus", "verify", "s3://me:secret@bucket/x", "--cache=c")
    assert "with nothing beside" in error
    assert "secret" not in error


def test_an_upload_that_failed_costs_no_encoding(
    cli: Cli, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("corpus", "encode", "stories.txt", "-o", f"{s3_bucket}/stories", "--temp-dir=s")
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise StorageError("the storage is away; look for it")

        patch.setattr(ObjectStorage, "put", fail)
        error = cli.fail(*command)
        assert "look for it. the token files are complete in s/" in error
        assert "with --resume uploads them" in error
    assert "never finished" in cli.fail("corpus", "inspect", f"{s3_bucket}/stories", "--cache=c")
    assert "give --resume to do that, or remove the folder" in cli.fail(*command)
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "encode_corpus", None)
        cli.run(*command, "--resume")
    assert not list(Path("s").iterdir())
    cli.run("corpus", "verify", f"{s3_bucket}/stories", "--cache=c")
