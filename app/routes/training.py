"""Training over HTTP: take a job, show it, follow it, list them, cancel it. Admin keys only.

A request is answered as soon as its job is on the disk; the run itself happens in a child process
(`app.jobs`). What touches the disk runs in a thread. May import `answering`, `app.jobs`, `auth`,
`problems`, `request_bodies` and `services`.
"""

from __future__ import annotations

import asyncio
import errno
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.answering import read_within_limits
from app.auth import require_admin
from app.jobs.job_events import JobEvent, JobEventStream
from app.jobs.job_folder import JobFolder, is_job_id
from app.jobs.job_inputs import find_inputs
from app.jobs.job_schemas import JobList, JobView, TrainRequest
from app.jobs.job_store import IdempotencyConflictError, Job, QueueFullError
from app.jobs.job_views import summary_of, view_of
from app.problems import Problem, problem_responses
from app.request_bodies import json_request, require_json, validate
from app.services import Services, services_of
from app.strict_json import parse_strict_json

router = APIRouter(tags=["training"], dependencies=[Depends(require_admin)])

Answer = TypeVar("Answer")

_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_MAX_LISTED: Final = 200
_FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@router.post(
    "/train",
    status_code=202,
    response_model=JobView,
    responses={
        202: {"headers": {"Location": {"required": True, "schema": {"type": "string"}}}},
        **problem_responses(400, 403, 409, 413, 415, 422, 503, 507),
    },
    openapi_extra=json_request(TrainRequest),
)
async def start_training(
    request: Request,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(description="The same key and body give the same job; another body is 422."),
    ] = None,
) -> JobView:
    """Train a tokenizer on corpora, files or documents and, by default, serve what comes out.

    Answers at once with the job; its `Location` shows how it goes. Only one run goes on at a
    time, the others wait.
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
        job = await _off_the_loop(lambda: _take_job(services, body, idempotency_key))
    finally:
        lease.release()
    services.runner.wake()
    # Relative, so that a client behind /v1 or a proxy's prefix stays behind it.
    response.headers["Location"] = f"{request.url.path.rstrip('/')}/{job.id}"
    return view_of(job, services.settings.artifacts_dir)


@router.get("/train", response_model=JobList, responses=problem_responses(403, 422, 503))
async def list_jobs(
    request: Request, limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 50
) -> JobList:
    """The latest training jobs, newest first."""
    jobs = await _off_the_loop(lambda: services_of(request).jobs.latest(limit=limit))
    return JobList(jobs=[summary_of(job) for job in jobs])


@router.get("/train/{job_id}", response_model=JobView, responses=problem_responses(403, 404, 503))
async def show_job(request: Request, job_id: str) -> JobView:
    """One training job: its state, how far it is, and the end of its log."""
    job = await _find_job(request, job_id)
    return await asyncio.to_thread(view_of, job, services_of(request).settings.artifacts_dir)


@router.get(
    "/train/{job_id}/events",
    response_model=None,
    responses={
        200: {"content": {"text/event-stream": {}}},  # a schema would be one of a single event
        204: {"description": "It has ended, and Last-Event-ID says that its end was seen"},
        **problem_responses(403, 404, 503),
    },
)
async def follow_job(
    request: Request,
    job_id: str,
    last_event_id: Annotated[
        str | None, Header(description="The last event that was seen; it is not sent again.")
    ] = None,
) -> Response:
    """The job as server-sent events: what `GET /train/{job_id}` answers, each time it changed.

    The last event is the final state; the answer ends after it.
    """
    services = services_of(request)
    job = await _find_job(request, job_id)
    first = await asyncio.to_thread(JobEvent.of, job, services.settings.artifacts_dir)
    if first.is_final and first.id == last_event_id:
        return Response(status_code=204)  # which tells a browser not to come again
    return JobEventStream(
        services.job_watch,
        job_id,
        first,
        last_event_id=last_event_id,
        send_seconds=services.settings.send_seconds,
    )


@router.delete(
    "/train/{job_id}",
    response_model=JobView,
    responses={
        202: {"description": "The run is being ended", "model": JobView},
        **problem_responses(403, 404, 503, 507),
    },
)
async def cancel_job(request: Request, response: Response, job_id: str) -> JobView:
    """Cancel a job. Any number of times, in any state: one that has ended stays as it is.

    202 while a running one is being ended, 200 otherwise.
    """
    services = services_of(request)
    job = await _off_the_loop(lambda: _cancel(services, job_id) if is_job_id(job_id) else None)
    if job is None:
        raise _no_such_job()
    if not job.is_final:
        response.status_code = 202
    return await asyncio.to_thread(view_of, job, services.settings.artifacts_dir)


def _cancel(services: Services, job_id: str) -> Job | None:
    job = services.jobs.request_cancel(job_id)
    if job is not None and job.is_final:  # no runner comes to a job that never ran
        JobFolder.of(services.settings.artifacts_dir, job_id).remove_inputs()
    return job


async def _find_job(request: Request, job_id: str) -> Job:
    """The job; raises Problem where there is none of that id."""
    jobs = services_of(request).jobs
    job = await _off_the_loop(lambda: jobs.get(job_id) if is_job_id(job_id) else None)
    if job is None:
        raise _no_such_job()
    return job


def _take_job(services: Services, body: bytes, idempotency_key: str | None) -> Job:
    asked = validate(parse_strict_json(body), TrainRequest)
    del body
    digest = asked.digest()
    jobs, limit = services.jobs, services.settings.train_queue
    try:
        earlier = jobs.find_by_key(idempotency_key, digest)
        if earlier is not None:
            return earlier
        if jobs.count_unfinished() > limit:  # before anything is written
            raise QueueFullError(jobs.count_unfinished())
        return _store_job(services, asked, digest, idempotency_key)
    except IdempotencyConflictError as error:
        raise Problem(
            422,
            "idempotency_key_reused",
            f"This Idempotency-Key belongs to job {error.job_id}, whose request was another one. "
            f"Use a new key for a new request.",
        ) from None
    except QueueFullError as error:
        raise _no_place(limit, error.unfinished) from None


def _store_job(
    services: Services, asked: TrainRequest, digest: str, idempotency_key: str | None
) -> Job:
    job_id = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(6)
    folder = JobFolder.of(services.settings.artifacts_dir, job_id)
    try:
        files = find_inputs(asked, services.settings, services.corpora, folder)
        request = asked.model_dump(mode="json", exclude={"input_paths", "documents"})
        request["inputs"] = [file.to_json() for file in files]
        job = services.jobs.add(
            job_id,
            request,
            request_digest=digest,
            idempotency_key=idempotency_key,
            queue_limit=services.settings.train_queue,
        )
    except BaseException:
        folder.remove()
        raise
    if job.id != job_id:  # the same request won the race for this key
        folder.remove()
    return job


async def _off_the_loop(work: Callable[[], Answer]) -> Answer:
    """Run what touches the disk in a thread; a disk that refuses is said as what it is.

    Raises:
        Problem: 507 when no space is left, 503 when the job database is busy or unreadable.
    """
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise _storage_problem(full=error.errno in _FULL_DISK) from error
    except sqlite3.Error as error:
        raise _storage_problem(full=error_is_full_disk(error)) from error


def error_is_full_disk(error: sqlite3.Error) -> bool:
    """Whether SQLite says the disk is full; an I/O error while writing mostly is that as well."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR_WRITE")


def _storage_problem(*, full: bool) -> Problem:
    if full:
        return Problem(
            507,
            "disk_full",
            "No space is left where the artifacts are kept. Nothing was started; free some space "
            "and send the request again.",
        )
    return Problem(
        503,
        "job_store_unavailable",
        "The training jobs cannot be read or written at the moment; the log of the server says "
        "why. Encoding is not affected.",
        headers={"Retry-After": "5"},
    )


def _no_such_job() -> Problem:
    return Problem(404, "job_not_found", "There is no training job with this id; see GET /train.")


def _no_place(limit: int, unfinished: int) -> Problem:
    if limit == 0:
        detail = (
            "A training run is going on and TOKENIZER_TRAIN_QUEUE=0 lets none wait; "
            "try again when it has ended."
        )
        return Problem(409, "training_busy", detail, headers={"Retry-After": "30"})
    return Problem(
        409,
        "training_queue_full",
        f"{unfinished} training jobs are running or waiting and the queue holds {limit}; "
        f"try again when one has ended, cancel one, or raise TOKENIZER_TRAIN_QUEUE.",
        limit=limit,
        actual=max(0, unfinished - 1),
        headers={"Retry-After": "30"},
    )
