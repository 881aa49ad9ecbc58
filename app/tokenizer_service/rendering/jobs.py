"""Jobs of every kind over HTTP: submit, find, follow and cancel them.

`/train`, `/corpora/{id}/encode` and `/jobs` share these functions. The response to a request is
sent once its job is on the disk. Disk access runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from fastapi import Header, Query
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs import kinds
from tokenizer_service.jobs.errors import TooManyListenersError
from tokenizer_service.jobs.events import JobEvent
from tokenizer_service.jobs.folder import JobFolder, is_job_id
from tokenizer_service.jobs.queue import Job, Kind
from tokenizer_service.jobs.views import view_of
from tokenizer_service.rendering.job_events import JobEventStream, wait_for_end, wait_until_gone
from tokenizer_service.rendering.problems import job_storage_problem, problem_responses
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from tokenizer_client.schemas.jobs import EncodeJobView, JobView
    from tokenizer_service.services import Services

Answer = TypeVar("Answer")

_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
MAX_WAIT_SECONDS: Final = 300
_FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

IdempotencyKey = Annotated[
    str | None,
    Header(description="The same key and body give the same job; another body is 422."),
]
LastEventId = Annotated[
    str | None, Header(description="The last event that was seen; it is not sent again.")
]

WaitSeconds = Annotated[
    float,
    Query(
        ge=0,
        le=MAX_WAIT_SECONDS,
        allow_inf_nan=False,
        description="Respond once the job has ended (200), or after this many seconds (202).",
    ),
]

_LOCATION: Final = {"Location": {"required": True, "schema": {"type": "string"}}}
ACCEPTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The job has ended; its state says how", "headers": _LOCATION},
    202: {"description": "The job is accepted", "headers": _LOCATION},
}
EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/event-stream": {}}},  # OpenAPI can describe only a single event
    204: {"description": "It has ended, and Last-Event-ID says that its end was seen"},
    **problem_responses(403, 404, 503),
}


def require_idempotency_key(key: str | None) -> None:
    """Raise 422 if `key` is given and is not a valid Idempotency-Key."""
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise Problem(
            422,
            "invalid_idempotency_key",
            "Idempotency-Key must be 1 to 200 visible ASCII characters.",
        )


def take_job(
    services: Services,
    kind: Kind,
    digest: str,
    idempotency_key: str | None,
    prepare: Callable[[JobFolder], dict[str, Any]],
) -> Job:
    """Return a new job, or the earlier job with this key; blocks.

    `prepare` returns the request that the job stores, and may write files to the folder it gets.
    It is called only if the queue accepts another job.

    Raises:
        QueueFullError: the queue is full.
        IdempotencyConflictError: the key was used for another request.
        OSError, JobDatabaseError: the disk or the database failed.
        Exception: any error that `prepare` raises.
    """
    earlier = services.jobs.find_by_key(idempotency_key, digest)
    if earlier is not None:
        return replace(earlier, kind=kind)  # the kind is unknown if its row is damaged
    services.jobs.require_place(services.settings.train_queue)  # before anything is written
    job_id = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(6)
    folder = JobFolder.of(services.settings.artifacts_dir, job_id)
    try:
        job = services.jobs.add(
            job_id,
            prepare(folder),
            kind=kind,
            request_digest=digest,
            idempotency_key=idempotency_key,
            queue_limit=services.settings.train_queue,
        )
    except BaseException:
        folder.remove()
        raise
    if job.id != job_id:  # an identical request won the race for this key
        folder.remove()
    return replace(job, kind=kind)


async def find_job(request: Request, job_id: str, kind: Kind | None = None) -> Job:
    """Return the job; raises Problem if no job has this id or it is of another kind."""
    jobs = services_of(request).jobs
    job = await off_the_loop(lambda: jobs.get(job_id) if is_job_id(job_id) else None)
    return _require_job(job, kind)


async def cancel_job(request: Request, job_id: str, kind: Kind | None = None) -> Job:
    """Cancel a job in any state; returns its new state. Raises as `find_job`."""
    services = services_of(request)
    await find_job(request, job_id, kind)
    folder = services.settings.artifacts_dir
    job = await off_the_loop(lambda: kinds.cancel_job(services.jobs, folder, job_id))
    return _require_job(job, kind)


async def wait_for_job(request: Request, job: Job, seconds: float) -> Job:
    """The job once it has ended, or as it is after `seconds`.

    Returns earlier when the server shuts down or has too many listeners: the job is accepted, so
    the response must name it.

    Raises:
        ClientDisconnect: the client has left; the job continues.
    """
    if seconds <= 0 or job.is_final:
        return job
    services = services_of(request)
    first = await asyncio.to_thread(JobEvent.of, job, services.settings.artifacts_dir)
    with contextlib.suppress(TooManyListenersError), services.job_watch.listening(job.id):
        waiting = asyncio.create_task(wait_for_end(services.job_watch, job.id, first))
        gone = asyncio.create_task(wait_until_gone(request.receive))
        tasks = {waiting, gone}
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    now = await off_the_loop(lambda: services.jobs.get(job.id))
    return job if now is None else replace(now, kind=job.kind)


async def view_after(
    request: Request, response: Response, job: Job, seconds: float
) -> JobView | EncodeJobView:
    """The document of a job just accepted, after `wait_for_job`; 200 if it ended."""
    folder = services_of(request).settings.artifacts_dir
    job = await wait_for_job(request, job, seconds)
    if seconds > 0 and job.is_final:
        response.status_code = 200
    return await asyncio.to_thread(view_of, job, folder)


async def follow_job(
    request: Request, job_id: str, last_event_id: str | None, kind: Kind | None = None
) -> Response:
    """The job as server-sent events. Raises as `find_job`; 503 for too many listeners."""
    services = services_of(request)
    job = await find_job(request, job_id, kind)
    first = await asyncio.to_thread(JobEvent.of, job, services.settings.artifacts_dir)
    if first.is_final and first.id == last_event_id:
        return Response(status_code=204)  # a browser then does not reconnect
    return JobEventStream(
        services.job_watch,
        job_id,
        first,
        last_event_id=last_event_id,
        send_seconds=services.settings.send_seconds,
    )


async def off_the_loop(work: Callable[[], Answer]) -> Answer:
    """Run disk access in a thread and report disk failures.

    Raises:
        Problem: 507 when no space is left or the disk is read-only, 503 when it fails.
        JobDatabaseError: the job database cannot be used.
    """
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise job_storage_problem(
            is_full=error.errno in _FULL_DISK, is_read_only=error.errno == errno.EROFS
        ) from error


def _require_job(job: Job | None, kind: Kind | None) -> Job:
    if job is not None and kind in (None, job.kind):
        return job
    if kind == "train":
        detail = "There is no training job with this id; see GET /train."
    else:
        detail = "There is no job with this id; see GET /jobs."
    raise Problem(404, "job_not_found", detail)
