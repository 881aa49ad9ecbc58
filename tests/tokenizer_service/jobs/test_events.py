"""Jobs as server-sent events, in this process.

Most jobs here belong to the test's process: a server leaves the job of a running process alone, so
that only the test changes it.
"""

import asyncio
import json

import pytest
from starlette.requests import ClientDisconnect

from tokenizer_service.handlers.job_events import JobEventStream
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.database.sqlite import SqliteDatabase
from tokenizer_service.jobs.errors import TooManyListenersError
from tokenizer_service.jobs.events import JobEvent, JobWatch
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.workers import ProcessIdentity

pytestmark = pytest.mark.anyio

JOB_ID = "20261121T041500Z-0123456789ab"


def parse_events(text):
    """(id, document) of each event, without comments and `retry`."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in fields:
            assert set(fields) == {"id", "data"}
            events.append((fields["id"], json.loads(fields["data"])))
    return events


@pytest.fixture
def jobs(tmp_path):
    return JobStore.open(tmp_path / "artifacts")


def folder_of(jobs):
    assert isinstance(jobs.database, SqliteDatabase)
    return jobs.database.path.parent


@pytest.fixture
def job(jobs):
    """A running job of this process."""
    request = {"name": "n", "promote": "manual"}
    jobs.add(JOB_ID, request, request_digest="d", idempotency_key=None, queue_limit=8)
    return jobs.claim_next(ProcessIdentity.of_this_process())


class Listener:
    """A client in this process: what it received, and whether it is still connected."""

    def __init__(self, watch, jobs, **options):
        self.gone, self.sent = asyncio.Event(), asyncio.Event()
        self.text = ""
        self.n_parts = 0
        job = jobs.get(JOB_ID)
        first = JobEvent.of(job, folder_of(jobs))
        options = {"last_event_id": None, "send_seconds": 60, **options}
        if options["last_event_id"] == "first":
            options["last_event_id"] = first.id
        stream = JobEventStream(watch, JOB_ID, first, **options)
        self.task = asyncio.create_task(stream({"type": "http"}, self._receive, self._send))

    async def _receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.text += message.get("body", b"").decode()
        self.n_parts += 1
        self.sent.set()

    async def wait_for(self, text, times=1):
        async with asyncio.timeout(30):
            while self.text.count(text) < times:
                self.sent.clear()
                await self.sent.wait()


def fail(store, job_id):
    raise JobDatabaseError("database is locked")


@pytest.fixture
async def watch(jobs):
    """It has no listener at the end."""
    watch = JobWatch(jobs, folder_of(jobs))
    yield watch
    assert watch.n_listeners == 0


async def test_only_changes_are_sent_and_none_twice(watch, jobs, job, monkeypatch):
    reads = []
    read = JobStore.get

    def count(self, job_id):
        reads.append(job_id)
        return read(self, job_id)

    monkeypatch.setattr(JobStore, "get", count)
    monkeypatch.setattr("tokenizer_service.jobs.events._LONGEST_WAIT_SECONDS", 60)
    new, seen = Listener(watch, jobs), Listener(watch, jobs, last_event_id="first")
    often = Listener(watch, jobs, heartbeat_seconds=0)
    await often.wait_for(":\n\n", times=3)
    await new.wait_for("data: ")
    await watch.next_look(JOB_ID, JobEvent("", b"", False))
    reads.clear()
    for number in range(3):  # polls that find nothing new
        await watch.next_look(JOB_ID, JobEvent("", b"", False))
        assert len(reads) == number + 1  # one read serves all listeners
    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "get", fail)
        for _ in range(2):  # and polls that fail
            await watch.next_look(JOB_ID, JobEvent("", b"", False))
    assert seen.text == "retry: 2000\n\n"
    jobs.set_progress(job, "learn", 0.7, {})
    await seen.wait_for('"progress":0.7')
    jobs.finish(job, "failed", error_code="c", detail="a\nb")
    await asyncio.gather(new.task, seen.task, often.task)
    for listener, expected in ((new, [0, 0.7, 0.7]), (seen, [0.7, 0.7]), (often, [0, 0.7, 0.7])):
        events = parse_events(listener.text)
        assert [document["progress"] for _, document in events] == expected
        assert events[-1][1]["state"] == "failed"
        assert events[-1][1]["error"]["detail"] == "a\nb"
    assert "\n:\n" not in new.text


async def test_a_listener_that_reads_nothing_is_disconnected(watch, jobs, job):
    class Deaf(Listener):
        async def _send(self, message):
            await asyncio.Event().wait()

    with pytest.raises(ClientDisconnect):
        await Deaf(watch, jobs, send_seconds=0.05).task


async def test_a_disconnected_client_is_no_longer_counted(watch, jobs, job, monkeypatch):
    watch._max_listeners = 1
    first = Listener(watch, jobs)
    await first.wait_for("data: ")
    refused = Listener(watch, jobs)
    with pytest.raises(TooManyListenersError):
        await refused.task
    assert refused.n_parts == 0
    assert watch.n_listeners == 1
    await watch.next_look(JOB_ID, JobEvent("", b"", False))
    first.gone.set()
    with pytest.raises(ClientDisconnect):
        await first.task
    assert watch.n_listeners == 0
    assert "job watch" not in {task.get_name() for task in asyncio.all_tasks()}
    jobs.set_progress(job, "learn", 0.7, {})  # which no look has seen
    again = Listener(watch, jobs)
    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "get", fail)
        for _ in range(2):
            await watch.next_look(JOB_ID, JobEvent("", b"", False))
    assert [event["progress"] for _, event in parse_events(again.text)] == [0.7]
    jobs.finish(job, "failed")
    jobs.forget_old(kept=0)  # this ends the stream as well
    await again.task
