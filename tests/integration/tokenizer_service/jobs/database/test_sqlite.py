"""`tokenizer serve` with several processes and a job database that it cannot use."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.integration.server_process import ADMIN, publish_bytes, serve, wait_until
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.queue import JobStore

N_CONNECTIONS = 8
"""Each connection may reach another process."""


def test_every_process_serves_with_a_damaged_job_database(tmp_path: Path) -> None:
    publish_bytes(tmp_path, "starter")
    JobStore.open(tmp_path)
    path = tmp_path / DATABASE_NAME
    sound = path.read_bytes()
    with serve(tmp_path, workers=2) as server:

        def get(route: str) -> httpx.Response:
            return httpx.get(f"{server.url}{route}", headers=ADMIN, timeout=30)

        def wait_for_status(status: str) -> None:
            wait_until(
                lambda: all(get("/readyz").json()["status"] == status for _ in range(N_CONNECTIONS))
            )

        assert get("/train").status_code == 200
        path.write_bytes(sound[:4096] + bytes(8192))
        wait_for_status("degraded")
        for _ in range(N_CONNECTIONS):
            assert server.encode_on_new_connection("text").status_code == 200
            response = get("/train")
            assert (response.status_code, response.json()["code"]) == (503, "job_database_unusable")
            assert get("/readyz").status_code == 200
        line = "the job database cannot be used"  # once for each process
        wait_until(lambda: server.output.count(line) >= 2)
        assert server.output.count(line) == 2
        assert "Traceback" not in server.output
        path.rename(path.with_suffix(".aside"))
        path.write_bytes(sound)
        wait_for_status("ok")
        assert get("/train").json()["jobs"] == []
