"""Jobs of every kind: submit, list, show, follow and cancel them.

`/train`, `/corpora/{id}/encode` and `/jobs` share these functions. The response to a request is
sent once its job is on the disk. Disk access runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from fastapi import Header, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from tokenizer_client.schemas.jobs import AnyJobList, EncodeJobView, JobList, JobView
from tokenizer_service.handlers.disk import off_the_loop
from tokenizer_service.handlers.job_events import JobEventStream, wait_for_end, while_connected
from tokenizer_service.handlers.respond import read_within_limits
from tokenizer_service.handlers.stored import respond_json
from tokenizer_service.http.bodies import read_model, require_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs import kinds
from tokenizer_service.jobs.errors import TooManyListenersError
from tokenizer_service.jobs.events import JobEvent
from tokenizer_service.jobs.folder import JobFolder, is_job_id
from tokenizer_service.jobs.queue import Job, Kind
from tokenizer_service.jobs.views import summary_of, view_of
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import Services, services_of

Asked = TypeVar("Asked", bound=BaseModel)

_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
MAX_WAIT_SECONDS: Final = 300
MAX_LISTED: Final = 200

IdempotencyKey = Annotated[
    str | None, Header(description="The same key and body give the same job; another body is 422.")
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


async def submit_job(
    request: Request,
    response: Response,
    idempotency_key: str | None,
    wait: float,
    *,
    kind: Kind,
    model: type[Asked],
    digest: Callable[[Asked], str],
    prepare: Callable[[Asked, JobFolder], dict[str, Any]],
    prefix: str,
) -> tuple[Job, JobView | EncodeJobView]:
    """A new job for the body of `request`, or the earlier job with this key, and its document after
    a wait. `Location` is the job's URL below `prefix`.

    `digest` is the same for requests of the same job. `prepare` returns the request that the job
    stores, and may write files to the folder it gets; it is called only if the queue accepts
    another job.
    """
    services = services_of(request)
    if idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise Problem(
            422,
            "invalid_idempotency_key",
            "Idempotency-Key must be 1 to 200 visible ASCII characters.",
        )
    require_json(request)
    lease = services.budget.lease()
    try:
        body = await read_within_limits(request, lease)

        def take() -> Job:
            asked = read_model(model, body, services.engine)
            make = partial(prepare, asked)
            return _take_job(services, kind, digest(asked), idempotency_key, make)

        job = await off_the_loop(take)
    finally:
        lease.release()
    services.runner.wake()
    # A relative URL also works for clients whose URLs have a prefix, such as /v1 or a proxy's.
    response.headers["Location"] = f"{prefix}/{job.id}"
    now = await wait_for_job(request, job, wait)
    if wait > 0 and now.is_final:
        response.status_code = 200
    return job, await _view(services, now)


def _take_job(
    services: Services,
    kind: Kind,
    digest: str,
    idempotency_key: str | None,
    prepare: Callable[[JobFolder], dict[str, Any]],
) -> Job:
    """Return a new job, or the earlier job with this key; blocks."""
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


async def list_jobs(
    request: Request, limit: int, kind: Kind | None, model: type[JobList | AnyJobList]
) -> Response:
    """The latest jobs, newest first."""
    store = services_of(request).jobs
    jobs = await off_the_loop(lambda: store.latest(limit=limit, kind=kind))
    return await respond_json(lambda: model.model_validate({"jobs": [*map(summary_of, jobs)]}))


async def show_job(request: Request, job_id: str, kind: Kind | None = None) -> Response:
    """The document of a job; raises Problem if no job has this id or it is of another kind."""
    job, folder = (
        await _find_job(request, job_id, kind),
        services_of(request).settings.artifacts_dir,
    )
    return await respond_json(lambda: view_of(job, folder))


async def cancel_job(
    request: Request, response: Response, job_id: str, kind: Kind | None = None
) -> JobView | EncodeJobView:
    """Cancel a job in any state; its document, with 202 while it is being stopped. Raises as
    `show_job`."""
    services = services_of(request)
    await _find_job(request, job_id, kind)
    folder = services.settings.artifacts_dir
    job = await off_the_loop(kinds.cancel_job, services.jobs, folder, job_id)
    job = _require_job(job, kind)
    if not job.is_final:
        response.status_code = 202
    return await _view(services, job)


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
        end = wait_for_end(services.job_watch, job.id, first)
        await while_connected(request.receive, end, seconds)
    now = await off_the_loop(services.jobs.get, job.id)
    return job if now is None else replace(now, kind=job.kind)


async def follow_job(
    request: Request, job_id: str, last_event_id: str | None, kind: Kind | None = None
) -> Response:
    """The job as server-sent events. Raises as `show_job`, and TooManyListenersError."""
    services = services_of(request)
    job = await _find_job(request, job_id, kind)
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


async def _find_job(request: Request, job_id: str, kind: Kind | None) -> Job:
    jobs = services_of(request).jobs
    job = await off_the_loop(lambda: jobs.get(job_id) if is_job_id(job_id) else None)
    return _require_job(job, kind)


async def _view(services: Services, job: Job) -> JobView | EncodeJobView:
    return await asyncio.to_thread(view_of, job, services.settings.artifacts_dir)


def _require_job(job: Job | None, kind: Kind | None) -> Job:
    if job is not None and kind in (None, job.kind):
        return job
    what, path = ("training job", "/train") if kind == "train" else ("job", "/jobs")
    raise Problem(404, "job_not_found", f"There is no {what} with this id; see GET {path}.")
