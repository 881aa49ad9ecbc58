"""`tokenizer counts` with a bucket; tests/tokenizer_service/commands has the rest."""

import pytest

from tests.integration.s3_server import open_with_shared_client
from tests.tokenizer_service.commands.test_counts import both, digest
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core.blobs import open_storage
from tokenizer_core.training import pretoken_counts

__all__ = ["both"]


def test_counts_in_a_bucket_are_those_on_the_disk(
    both: Cli, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"{s3_bucket}/counts"
    there = open_storage(at)
    # A new client for each call would take most of the time.
    monkeypatch.setattr(
        pretoken_counts,
        "open_stored",
        lambda address, **_: (open_with_shared_client(at), address.removeprefix(f"{at}/")),
    )
    both.run("counts", "make", "corpus.txt", f"--output={at}/a.counts")
    both.run("counts", "merge", f"{at}/a.counts", "b.counts", f"--output={at}/ab.counts")
    both.run("counts", "extend", f"{at}/a.counts", "other.txt")
    both.run("counts", "prune", f"{at}/ab.counts", "--min-count=3", "--output=p.counts")
    both.run("counts", "prune", "ab.counts", "--min-count=3", "--output=q.counts")
    assert (both.folder / "p.counts").read_bytes() == (both.folder / "q.counts").read_bytes()
    here = (both.folder / "ab.counts").read_bytes()
    assert [there.read(name, max_bytes=1 << 20) for name in there.names()] == [here, here]
    assert digest(both, f"--from-counts={at}/ab.counts") == digest(both, "--from-counts=ab.counts")
    size = ("--vocab-size=270", "--name=x", f"--save-counts={at}/saved.counts")
    both.run("train", "corpus.txt", "other.txt", *size)
    assert there.read("saved.counts", max_bytes=1 << 20) == here
    there.put("ab.counts", here[:-1])
    assert "cut short" in both.fail("train", f"--from-counts={at}/ab.counts")
    assert "there is no none.counts" in both.fail("counts", "inspect", f"{at}/none.counts")
