"""Jobs as server-sent events, with real child processes and over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.jobs.queue import Job, JobStore

from tests.integration.server_process import ADMIN, Server, publish_bytes, serve
from tests.tokenizer_service.jobs.conftest import READ_KEY, Service
from tests.tokenizer_service.jobs.test_events import JOB_ID, job, jobs, parse_events

__all__ = ["job", "jobs"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    publish_bytes(tmp_path / "artifacts", "starter")
    with serve(tmp_path / "artifacts") as server:
        yield server


def test_a_job_is_followed_to_its_end(service: Service) -> None:
    job_id = service.start()
    answer = service.client.get(f"/train/{job_id}/events")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Length" not in answer.headers
    assert answer.text.startswith("retry: 2000\n\n")
    events = parse_events(answer.text)
    assert len({id_ for id_, _ in events}) == len(events)
    documents = [document for _, document in events]
    assert documents[-1]["state"] == "live"
    assert documents[-1] == service.job(job_id)
    assert [d["progress"] for d in documents] == sorted(d["progress"] for d in documents)
    last = events[-1][0]
    seen = service.client.get(f"/train/{job_id}/events", headers={"Last-Event-ID": last})
    assert (seen.status_code, seen.content) == (204, b"")
    again = service.client.get(f"/v1/train/{job_id}/events", headers={"Last-Event-ID": "other"})
    assert parse_events(again.text) == events[-1:]


def test_who_may_follow_and_what(service: Service) -> None:
    job_id = service.start()
    for key, status in ((READ_KEY, 403), ("wrong", 401)):
        headers = {"X-API-Key": key}
        assert service.client.get(f"/train/{job_id}/events", headers=headers).status_code == status
    for unknown in (JOB_ID, "nope", "..%2Fx"):
        assert service.client.get(f"/train/{unknown}/events").status_code == 404
    head = service.client.head(f"/train/{job_id}/events")
    assert (head.status_code, head.content) == (200, b"")


def test_too_many_listeners_are_told_to_come_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = service.start()
    monkeypatch.setattr(service.services.job_watch, "_max_listeners", 0)
    answer = service.client.get(f"/train/{job_id}/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "too_many_listeners")
    assert answer.headers["Retry-After"]


def test_over_a_socket_events_come_as_they_happen(jobs: JobStore, job: Job, server: Server) -> None:
    with server.client() as client, client.stream("GET", f"/train/{JOB_ID}/events") as answer:
        lines = answer.iter_lines()
        seen = [json.loads(line[6:]) for line in _take_data(lines, 1)]
        jobs.set_progress(job, "learn", 0.6, {"learn_done": 1})
        seen += [json.loads(line[6:]) for line in _take_data(lines, 1)]
        jobs.finish(job, "succeeded")
        seen += [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        assert [document["state"] for document in seen] == ["running", "running", "succeeded"]
        assert seen[1]["counters"] == {"learn_done": 1}
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=5) as other:
        assert other.get("/livez").status_code == 200


def test_over_a_socket_a_client_that_goes_costs_nothing(
    jobs: JobStore, job: Job, server: Server
) -> None:
    def in_flight() -> float:
        found = httpx.get(f"{server.url}/metrics").text
        return float(
            next(x for x in found.splitlines() if x.startswith("tokenizer_inflight "))[19:]
        )

    with server.client() as client, client.stream("GET", f"/train/{JOB_ID}/events") as answer:
        lines = answer.iter_lines()
        list(_take_data(lines, 1))
        assert in_flight() == 2  # the stream, and this request itself
    for _ in range(200):
        if in_flight() == 1:
            break
    assert in_flight() == 1
    # HEAD sends only the headers: it must not follow the job.
    with server.client() as client:
        assert client.head(f"/train/{JOB_ID}/events").status_code == 200
        assert client.get("/livez").status_code == 200  # on the same connection


@pytest.mark.promise(9)
def test_sigterm_ends_a_stream_and_does_not_wait_for_it(
    jobs: JobStore, job: Job, server: Server
) -> None:
    with server.client() as client, client.stream("GET", f"/train/{JOB_ID}/events") as answer:
        lines = answer.iter_lines()
        list(_take_data(lines, 1))
        took = server.terminate(seconds=60)
        assert not list(_take_data(lines, 1))  # ended properly, not cut off: no error here
    assert server.process.returncode == 0
    assert took < GRACEFUL_SECONDS  # the requests in progress get this time


def _take_data(lines: Iterator[str], count: int) -> Iterator[str]:
    for line in lines:
        if line.startswith("data: "):
            yield line
            count -= 1
            if not count:
                return
