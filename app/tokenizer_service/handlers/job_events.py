"""A job as a stream of server-sent events: its document is sent again after each change.

Plain ASGI: at shutdown, Starlette's streaming response waits until its stream ends, while this
stream ends at shutdown. The format: html.spec.whatwg.org, server-sent events.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from tokenizer_service.http.responses import PartedResponse
from tokenizer_service.jobs.events import JobEvent, JobWatch

HEARTBEAT_SECONDS: Final = 15.0
"""The stream sends a comment after this long without an event, so that no proxy closes it."""

_RETRY_MILLISECONDS: Final = 2000


class JobEventStream(PartedResponse):
    """Sends `first`, then the job again after each change until the job has ended."""

    def __init__(
        self,
        watch: JobWatch,
        job_id: str,
        first: JobEvent,
        *,
        last_event_id: str | None,
        send_seconds: float,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, headers=headers, media_type="text/event-stream")
        del self.headers["content-length"]
        self._watch, self._job_id, self._first = watch, job_id, first
        self._last_event_id = last_event_id
        self._heartbeat_seconds, self.idle_seconds = heartbeat_seconds, send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; returns after the final state, or when the server shuts down.

        Raises:
            TooManyListenersError: raised before anything is sent.
            ClientDisconnect: the client disconnected, or read nothing for too long.
        """
        with self._watch.listening(self._job_id):
            await while_connected(receive, self._send_events(scope, send))

    async def _send_events(self, scope: Scope, send: Send) -> None:
        await self.send_head(scope, send)
        await self.send_part(scope, send, b"retry: %d\n\n" % _RETRY_MILLISECONDS)
        event: JobEvent | None = self._first
        seen, sent_at = self._last_event_id, time.monotonic()
        while event is not None:
            is_due = time.monotonic() - sent_at >= self._heartbeat_seconds
            if event.id != seen or is_due:
                part = event.render() if event.id != seen else b":\n\n"
                await self.send_part(scope, send, part)
                seen, sent_at = event.id, time.monotonic()
            if event.is_final or _server_ends():
                break
            event = await self._watch.next_look(self._job_id, event)
        await self.send_part(scope, send, b"", is_last=True)


async def wait_for_end(watch: JobWatch, job_id: str, first: JobEvent) -> None:
    """Return once the job has ended or is deleted, or when the server shuts down."""
    event: JobEvent | None = first
    while event is not None and not event.is_final and not _server_ends():
        event = await watch.next_look(job_id, event)


async def while_connected(
    receive: Receive, work: Coroutine[Any, Any, None], seconds: float | None = None
) -> None:
    """Do `work` for at most `seconds`; raise ClientDisconnect once the client has left. The whole
    body of its request must have been received."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_wait_until_gone(receive))
    try:
        await asyncio.wait({working, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        elif leaving.done():
            raise ClientDisconnect
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # a body of the request


def _server_ends() -> bool:
    """Whether uvicorn is shutting down.

    uvicorn waits for open responses before it ends the lifespan of the app. Without this check it
    would wait for the whole grace period.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
