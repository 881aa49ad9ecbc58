"""`tokenizer jobs` on PostgreSQL; tests/tokenizer_service/commands has the rest."""

import pytest

from tests.integration.postgres_server import PASSWORD, run_postgres
from tests.tokenizer_service.commands.test_jobs import FIRST, run_first
from tests.tokenizer_service.run_cli import Cli
from tokenizer_service.jobs.queue import JobStore


@pytest.mark.slow
def test_jobs_on_postgres_are_found_by_the_address(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
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
