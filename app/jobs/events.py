"""A job as a stream of server-sent events: its document, sent again each time it changed.

`JobWatch` looks at all watched jobs together four times a second, however many listen;
`JobEventStream` is the answer to one listener. Plain ASGI, because the stock streaming answer
waits for the stream to end when the server is told to, and this one ends when the server is. An
event's id is a hash of its document, so that any process, after any restart, knows from
`Last-Event-ID` what a listener has seen. The format: html.spec.whatwg.org, server-sent events.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.access.deadlines import send_within
from app.access.limits import SEND_IDLE_SECONDS
from app.http.problem import Problem
from app.jobs.database import JobDatabaseError
from app.jobs.job import Job
from app.jobs.queue import JobStore
from app.jobs.views import view_of

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger("app.jobs")

LOOK_SECONDS: Final = 0.25
HEARTBEAT_SECONDS: Final = 15.0
"""After this long without an event a comment is sent, so that no proxy takes it for dead."""

MAX_LISTENERS: Final = 64
"""Streams open at once in each process; each holds a connection and little else."""

_RETRY_MILLISECONDS: Final = 2000
_LONGEST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The document of a job at one moment, as JSON on one line."""

    id: str
    document: bytes
    is_final: bool

    @classmethod
    def of(cls, job: Job, artifacts_dir: Path) -> JobEvent:
        """The event for the job as it is now; reads its log."""
        document = view_of(job, artifacts_dir).model_dump_json().encode()
        return cls(hashlib.sha256(document).hexdigest()[:32], document, job.is_final)

    def render(self) -> bytes:
        r"""The event as it is sent.

        Example:
            >>> JobEvent("1f", b'{"state":"live"}', True).render()
            b'id: 1f\ndata: {"state":"live"}\n\n'
        """
        return b"id: %b\ndata: %b\n\n" % (self.id.encode(), self.document)


class JobWatch:
    """Looks at the jobs somebody listens to. Used from the event loop only."""

    def __init__(
        self, jobs: JobStore, artifacts_dir: Path, *, max_listeners: int = MAX_LISTENERS
    ) -> None:
        self._jobs, self._artifacts_dir = jobs, artifacts_dir
        self._max_listeners = max_listeners
        self._listeners: Counter[str] = Counter()
        self._seen: Mapping[str, JobEvent | None] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def n_listeners(self) -> int:
        """Streams that are open."""
        return self._listeners.total()

    @contextlib.contextmanager
    def listening(self, job_id: str) -> Iterator[None]:
        """Have the job looked at.

        Raises:
            Problem: 503 with Retry-After when too many listen.
        """
        if self.n_listeners >= self._max_listeners:
            raise Problem(
                503,
                "too_many_listeners",
                "Too many follow jobs here; try again, or ask GET /jobs/{id} instead.",
                limit=self._max_listeners,
                headers={"Retry-After": "5"},
            )
        self._listeners[job_id] += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="job watch")
        try:
            yield
        finally:
            self._listeners -= Counter([job_id])
            if not self._listeners:
                self._task.cancel()
                self._task = None

    async def next_look(self, job_id: str, known: JobEvent) -> JobEvent | None:
        """The job at the next look, `known` where none came in time; None when it is forgotten."""
        looked = self._looked
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                await looked.wait()
        return self._seen.get(job_id, known)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._seen = await asyncio.to_thread(self._read, tuple(self._listeners))
            except (JobDatabaseError, OSError) as error:  # the next look tries again
                if not getattr(error, "is_away", False):  # which has been said
                    log.warning("the jobs cannot be looked at: %s", error)
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()

    def _read(self, job_ids: tuple[str, ...]) -> dict[str, JobEvent | None]:
        jobs = {job_id: self._jobs.get(job_id) for job_id in job_ids}
        return {
            job_id: None if job is None else JobEvent.of(job, self._artifacts_dir)
            for job_id, job in jobs.items()
        }


class JobEventStream(Response):
    """Sends `first`, and the job again each time it changed, until it is final."""

    def __init__(
        self,
        watch: JobWatch,
        job_id: str,
        first: JobEvent,
        *,
        last_event_id: str | None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        send_seconds: float = SEND_IDLE_SECONDS,
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, headers=headers, media_type="text/event-stream")
        del self.headers["content-length"]
        self._watch, self._job_id, self._first = watch, job_id, first
        self._last_event_id = last_event_id
        self._heartbeat_seconds, self._send_seconds = heartbeat_seconds, send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; returns after the final state, or when the client or the server goes.

        Raises:
            Problem: 503 when too many listen; nothing is sent then.
            ClientDisconnect: the client went away, or took nothing for too long.
        """
        with self._watch.listening(self._job_id):
            sending = asyncio.create_task(self._send_events(send))
            gone = asyncio.create_task(_wait_until_gone(receive))
            try:
                await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    raise ClientDisconnect
                sending.result()
            finally:
                for task in (sending, gone):
                    task.cancel()
                await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send_events(self, send: Send) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await self._send(send, {"type": "http.response.start", **start})
        await self._send_part(send, b"retry: %d\n\n" % _RETRY_MILLISECONDS)
        event: JobEvent | None = self._first
        seen, sent_at = self._last_event_id, time.monotonic()
        while event is not None:
            is_due = time.monotonic() - sent_at >= self._heartbeat_seconds
            if event.id != seen or is_due:
                await self._send_part(send, event.render() if event.id != seen else b":\n\n")
                seen, sent_at = event.id, time.monotonic()
            if event.is_final or _server_ends():
                break
            event = await self._watch.next_look(self._job_id, event)
        await self._send(send, {"type": "http.response.body", "body": b""})

    async def _send_part(self, send: Send, body: bytes) -> None:
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})

    async def _send(self, send: Send, message: Message) -> None:
        await send_within(self._send_seconds, send(message))


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # a body that came along


def _server_ends() -> bool:
    """Whether uvicorn was told to end.

    It waits for the answers that are open before it says so to the lifespan of the app, and for
    one that does not end by itself it would wait to the last second.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
