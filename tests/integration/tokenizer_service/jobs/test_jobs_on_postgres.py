"""A service whose jobs are on PostgreSQL: as on SQLite, and during an outage of the database."""

from collections.abc import Callable

import pytest
from pydantic import SecretStr

from tests.integration.postgres_server import PASSWORD, PostgresServer
from tests.integration.server_process import wait_until
from tests.tokenizer_service.jobs.conftest import SLOW, Service, start_child
from tokenizer_service.jobs import runner as job_runner
from tokenizer_service.jobs.database import postgres as postgres_database

pytestmark = pytest.mark.slow


def wait_for_readiness(service: Service, status: str) -> None:
    wait_until(lambda: service.client.get("/readyz").json()["status"] == status)


def test_an_outage_of_the_database_loses_no_job(
    start_service: Callable[..., Service],
    own_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(postgres_database, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(job_runner, "_RETRY_SECONDS", 0.1)
    address = own_server.make("outage")
    service = start_service(
        start_process=start_child, engine="python", jobs_database=SecretStr(address)
    )
    assert service.wait(service.start())["state"] == "live"
    job_id = service.start(**SLOW)
    pid = service.wait_for_child(job_id)
    own_server.stop()
    try:
        wait_for_readiness(service, "degraded")
        assert "job database" in service.client.get("/readyz").json()["reason"]
        for method, path, body in (
            ("GET", "/jobs", None),
            ("GET", f"/jobs/{job_id}/events", None),
            ("DELETE", f"/jobs/{job_id}", None),
            ("POST", "/train", {"documents": ["a a"]}),
            ("DELETE", "/tokenizers/n/20261121T041500Z-1a2b3c4d", None),
        ):
            answer = service.client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "job_store_unavailable"), (
                path,
                answer.text,
            )
            assert answer.headers["retry-after"]
            assert "Encoding" in answer.json()["detail"]
        assert service.client.post("/encode", json={"text": "low"}).status_code == 200
        metrics = service.client.get("/metrics")
        assert metrics.status_code == 200
        assert "tokenizer_info{" in metrics.text
        assert "tokenizer_jobs{" not in metrics.text
    finally:
        own_server.start()
    wait_for_readiness(service, "ok")
    job = service.jobs.get(job_id)
    assert job is not None
    assert (job.state, job.attempt) == ("running", 1)
    assert job.child is not None
    assert job.child.pid == pid  # the job continued
    service.client.delete(f"/jobs/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
    assert service.wait(service.start(name="after"))["state"] == "live"
    said = [line for line in caplog.messages if "database" in line and "cannot" in line]
    assert len(said) <= 4, said  # not once for each request
    assert PASSWORD not in caplog.text
