"""Jobs as server-sent events: in this process, and over a real socket.

Where no trainer is needed the job belongs to the test: a server leaves alone what a living process
holds, so that what happens to it is exactly what the test does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from app.commands.serving import GRACEFUL_SECONDS
from app.jobs.database import JobDatabaseError
from app.jobs.database.sqlite import SqliteDatabase
from app.jobs.errors import TooManyListenersError
from app.jobs.events import JobEvent, JobWatch
from app.jobs.job import Job
from app.jobs.queue import JobStore
from app.rendering.job_events import JobEventStream
from app.serving.process_marks import ProcessMark
from tests.app.jobs.conftest import READ_KEY, Service
from tests.end_to_end.server_process import ADMIN, Server, publish_bytes, serve

JOB_ID = "20261121T041500Z-0123456789ab"


def parse_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """(id, document) of each event; comments and `retry` are none."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in fields:
            assert set(fields) == {"id", "data"}
            events.append((fields["id"], json.loads(fields["data"])))
    return events


@pytest.fixture
def jobs(tmp_path: Path) -> JobStore:
    return JobStore.open(tmp_path / "artifacts")


def folder_of(jobs: JobStore) -> Path:
    assert isinstance(jobs.database, SqliteDatabase)
    return jobs.database.path.parent


@pytest.fixture
def job(jobs: JobStore) -> Job:
    """One that runs, in this process."""
    request = {"name": "n", "promote": "manual"}
    jobs.add(JOB_ID, request, request_digest="d", idempotency_key=None, queue_limit=8)
    job = jobs.claim_next(ProcessMark.of_this_process())
    assert job is not None
    return job


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


class Listener:
    """A client in this process: what was sent to it, and whether it is still there."""

    def __init__(self, watch: JobWatch, jobs: JobStore, **options: Any) -> None:
        self.gone, self.sent = asyncio.Event(), asyncio.Event()
        self.text = ""
        self.n_parts = 0
        job = jobs.get(JOB_ID)
        assert job is not None
        first = JobEvent.of(job, folder_of(jobs))
        options = {"last_event_id": None, **options}
        if options["last_event_id"] == "first":
            options["last_event_id"] = first.id
        stream = JobEventStream(watch, JOB_ID, first, **options)
        self.task = asyncio.create_task(stream({"type": "http"}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.text += message.get("body", b"").decode()
        self.n_parts += 1
        self.sent.set()

    async def wait_for(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(30):
            while self.text.count(text) < times:
                self.sent.clear()
                await self.sent.wait()


def test_only_what_changed_is_sent_and_nothing_twice(jobs: JobStore, job: Job) -> None:
    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs))
        new, seen = Listener(watch, jobs), Listener(watch, jobs, last_event_id="first")
        await new.wait_for("data: ")
        for _ in range(3):  # looks at which nothing is new
            await watch.next_look(JOB_ID, JobEvent("", b"", False))
        assert seen.text == "retry: 2000\n\n"
        jobs.set_progress(job, "learn", 0.7, {})
        await seen.wait_for('"progress":0.7')
        jobs.finish(job, "failed", error_code="c", detail="a\nb")
        await asyncio.gather(new.task, seen.task)
        for listener, expected in ((new, [0, 0.7, 0.7]), (seen, [0.7, 0.7])):
            events = parse_events(listener.text)
            assert [document["progress"] for _, document in events] == expected
            assert events[-1][1]["state"] == "failed"
            assert events[-1][1]["error"]["detail"] == "a\nb"
        assert watch.n_listeners == 0

    asyncio.run(asyncio.wait_for(follow(), 60))


def test_a_listener_that_takes_nothing_is_given_up(jobs: JobStore, job: Job) -> None:
    class Deaf(Listener):
        async def _send(self, message: Any) -> None:
            await asyncio.Event().wait()

    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs))
        listener = Deaf(watch, jobs, send_seconds=0.05)
        with pytest.raises(ClientDisconnect):
            await listener.task
        assert watch.n_listeners == 0

    asyncio.run(asyncio.wait_for(follow(), 60))


def test_all_listeners_are_looked_at_once(
    jobs: JobStore, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = JobStore.get
    monkeypatch.setattr(JobStore, "get", lambda self, id_: reads.append(id_) or read(self, id_))

    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs))
        listeners = [Listener(watch, jobs) for _ in range(5)]
        reads.clear()
        for count in range(4):
            await watch.next_look(JOB_ID, JobEvent("", b"", False))
            assert len(reads) == count + 1
        jobs.finish(job, "succeeded")
        await asyncio.gather(*(listener.task for listener in listeners))

    asyncio.run(asyncio.wait_for(follow(), 60))


def test_a_silent_stream_has_a_heartbeat(jobs: JobStore, job: Job) -> None:
    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs))
        often = Listener(watch, jobs, heartbeat_seconds=0)
        seldom = Listener(watch, jobs)
        await often.wait_for(":\n\n", times=3)
        jobs.finish(job, "cancelled")
        await asyncio.gather(often.task, seldom.task)
        assert len(parse_events(often.text)) == 2
        assert "\n:\n" not in seldom.text

    asyncio.run(asyncio.wait_for(follow(), 60))


def test_a_client_that_goes_frees_its_place(jobs: JobStore, job: Job) -> None:
    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs), max_listeners=1)
        first = Listener(watch, jobs)
        await first.wait_for("data: ")
        refused = Listener(watch, jobs)
        with pytest.raises(TooManyListenersError):
            await refused.task
        assert refused.n_parts == 0
        assert watch.n_listeners == 1
        first.gone.set()
        with pytest.raises(ClientDisconnect):
            await first.task
        assert watch.n_listeners == 0
        assert {task.get_name() for task in asyncio.all_tasks()} & {"job watch"} == set()
        again = Listener(watch, jobs)
        await again.wait_for("data: ")
        jobs.finish(job, "cancelled")
        await again.task

    asyncio.run(asyncio.wait_for(follow(), 60))


def test_a_job_that_is_forgotten_ends_the_stream(jobs: JobStore, job: Job) -> None:
    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs))
        listener = Listener(watch, jobs)
        await listener.wait_for("data: ")
        jobs.finish(job, "failed")
        jobs.forget_old(kept=0)
        await listener.task

    asyncio.run(asyncio.wait_for(follow(), 60))


def test_a_database_that_fails_for_a_while_ends_no_stream(
    jobs: JobStore, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        watch = JobWatch(jobs, folder_of(jobs))
        listener = Listener(watch, jobs)
        await listener.wait_for("data: ")
        with monkeypatch.context() as patch:
            patch.setattr(JobStore, "get", fail)
            for _ in range(2):
                await watch.next_look(JOB_ID, JobEvent("", b"", False))
        jobs.finish(job, "succeeded")
        await listener.task
        assert parse_events(listener.text)[-1][1]["state"] == "succeeded"

    def fail(self: JobStore, job_id: str) -> None:
        raise JobDatabaseError("database is locked")

    asyncio.run(asyncio.wait_for(follow(), 60))


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
        assert in_flight() == 2  # the stream, and this very request
    for _ in range(200):
        if in_flight() == 1:
            break
    assert in_flight() == 1
    # HEAD is the head alone: it must not follow the job for nobody.
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
        assert not list(_take_data(lines, 1))  # ended as it should, not cut off: no error here
    assert server.process.returncode == 0
    assert took < GRACEFUL_SECONDS  # which requests in progress get


def _take_data(lines: Iterator[str], count: int) -> Iterator[str]:
    for line in lines:
        if line.startswith("data: "):
            yield line
            count -= 1
            if not count:
                return
