"""Commands with a bucket and with PostgreSQL; tests/tokenizer_service/commands has the rest."""

from pathlib import Path

import pytest

from tests.integration.postgres_server import PASSWORD, run_postgres
from tests.integration.s3_server import open_with_shared_client
from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_service.commands.test_corpus import STORIES
from tests.tokenizer_service.commands.test_counts import both, digest
from tests.tokenizer_service.commands.test_jobs import FIRST, run_first
from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.training import pretoken_counts
from tokenizer_service.jobs.queue import JobStore

__all__ = ["both"]


def test_token_files_in_a_bucket_are_those_of_a_folder(trained, s3_bucket, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd()))
    Path("stories.txt").write_text(STORIES)
    address = f"{s3_bucket}/stories"
    encode = ("corpus", "encode", "stories.txt", "-o")
    out, _ = trained.run(*encode, address, "--temp-dir=s", "--json")
    assert out == trained.run(*encode, "tokens", "--json")[0]
    assert not list(Path("s").iterdir()), "what was uploaded is left on the disk"
    out, _ = trained.run("corpus", "verify", address, "--cache=c")
    assert out.decode().startswith(f"{address}: 4 files, 2 documents, ")
    [cached] = Path("c").iterdir()
    assert content(cached) == content(Path("tokens"))
    inspect = ("corpus", "inspect", address, "--cache=c")
    assert f"manifest: {address}/manifest.json" in trained.run(*inspect)[0].decode()
    ids, _ = trained.run("encode", "Two days, three.<|endoftext|>")
    assert trained.run(*inspect, "--document=1", "--ids")[0] == ids
    train = cached / "train.bin"
    train.write_bytes(train.read_bytes()[::-1])
    assert f"remove {train}" in trained.fail("corpus", "verify", address, "--cache=c", code=3)
    assert "has other token files already" in trained.fail(*encode, address, "--temp-dir=s")
    other = trained.fail(*encode, address, "--temp-dir=s", "--resume", "--shuffle")
    assert "is there already, and complete, by other settings (shuffle)" in other
    _, told = trained.run(*encode, address, "--temp-dir=s", "--resume")
    assert f"{address} is complete already" in told
    assert not list(Path("s").iterdir()), "it was encoded before it was refused"
    assert "never finished" in trained.fail("corpus", "inspect", f"{s3_bucket}/none", "--cache=c")
    error = trained.fail("corpus", "verify", "s3://me:secret@bucket/x", "--cache=c")
    assert "with nothing beside" in error
    assert "secret" not in error


def test_counts_in_a_bucket_are_those_on_the_disk(both, s3_bucket, monkeypatch):
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
    both.run("counts", "prune", f"{at}/ab.counts", "--min-count=3", "--output=p.counts")
    both.run("counts", "prune", "ab.counts", "--min-count=3", "--output=q.counts")
    assert (both.folder / "p.counts").read_bytes() == (both.folder / "q.counts").read_bytes()
    here = (both.folder / "ab.counts").read_bytes()
    assert there.read("ab.counts", max_bytes=1 << 20) == here
    assert digest(both, f"--from-counts={at}/ab.counts") == digest(both, "--from-counts=ab.counts")
    size = ("--vocab-size=270", "--name=x", f"--save-counts={at}/saved.counts")
    both.run("train", "corpus.txt", "other.txt", *size)
    assert there.read("saved.counts", max_bytes=1 << 20) == here
    there.put("ab.counts", here[:-1])
    assert "cut short" in both.fail("train", f"--from-counts={at}/ab.counts")
    assert "there is no none.counts" in both.fail("counts", "inspect", f"{at}/none.counts")


@pytest.mark.slow
def test_jobs_on_postgres_are_found_by_the_address(cli, monkeypatch):
    with run_postgres() as server:
        store = JobStore.open(cli.folder / "artifacts", server.address())
        store.add(FIRST, {"name": "news"}, request_digest="d", idempotency_key=None, queue_limit=8)
        monkeypatch.setenv("TOKENIZER_JOBS_DATABASE", server.address())
        monkeypatch.setenv("TOKENIZER_ARTIFACTS_DIR", str(cli.folder / "nowhere"))
        run_first(store)
        assert cli.run("jobs", "show")[0].split()[:3] == [FIRST.encode(), b"train", b"running"]
        assert b"is being ended" in cli.run("jobs", "cancel", FIRST)[0]
        (job,) = store.running()
        assert job.cancel_requested
        assert not (cli.folder / "nowhere").exists()
        server.stop()
        error = cli.fail("jobs", "list")
    assert "TOKENIZER_JOBS_DATABASE" in error
    assert PASSWORD not in error
