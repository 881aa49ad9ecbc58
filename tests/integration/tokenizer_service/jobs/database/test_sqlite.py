"""`tokenizer serve` with a job database that it cannot use."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.integration.server_process import ADMIN, Server, publish_bytes, serve, wait_until
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.queue import JobStore

N_CONNECTIONS = 8
"""With several workers each connection may reach another of them."""


def get(server: Server, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", headers=ADMIN, timeout=30)


def check_degraded(server: Server) -> None:
    for _ in range(N_CONNECTIONS):
        assert server.encode_on_new_connection("text").status_code == 200
        response = get(server, "/train")
        assert (response.status_code, response.json()["code"]) == (503, "job_database_unusable")
        ready = get(server, "/readyz")
        assert ready.status_code == 200


def wait_for_status(server: Server, status: str) -> None:
    """Wait until many connections in a row see this status; every process looks for itself."""
    wait_until(
        lambda: all(get(server, "/readyz").json()["status"] == status for _ in range(N_CONNECTIONS))
    )


def wait_for_lines(server: Server, workers: int) -> None:
    """Each process logs the outage once."""
    line = "the job database cannot be used"
    wait_until(lambda: server.output.count(line) >= workers)
    assert server.output.count(line) == workers


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    ref = publish_bytes(tmp_path / "artifacts", "starter")
    ArtifactStore(tmp_path / "artifacts").promote(ref)
    JobStore.open(tmp_path / "artifacts")
    return tmp_path / "artifacts"


@pytest.mark.parametrize(
    ("workers", "damage"), [(1, "zero pages"), pytest.param(2, "a folder", marks=pytest.mark.slow)]
)
def test_a_service_with_an_unusable_job_database_starts_and_encodes(
    artifacts: Path, workers: int, damage: str
) -> None:
    path = artifacts / DATABASE_NAME
    sound = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(sound[:4096] + bytes(len(sound) - 4096))
    with serve(artifacts, workers=workers) as server:
        check_degraded(server)
        wait_for_status(server, "degraded")
        assert "Traceback" not in server.output
        wait_for_lines(server, workers)
        path.rename(path.with_suffix(".aside"))
        path.write_bytes(sound)
        wait_for_status(server, "ok")
        assert get(server, "/train").json()["jobs"] == []


def test_a_job_database_damaged_under_a_service(artifacts: Path) -> None:
    path = artifacts / DATABASE_NAME
    with serve(artifacts, workers=2) as server:
        assert get(server, "/train").status_code == 200
        path.write_bytes(path.read_bytes()[:4096] + bytes(8192))
        wait_for_status(server, "degraded")
        check_degraded(server)
        assert "Traceback" not in server.output
        wait_for_lines(server, workers=2)
