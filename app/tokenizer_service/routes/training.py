"""Training over HTTP: submit, show, follow, list and cancel jobs. Admin keys only.

The response to a request is sent once its job is on the disk; training runs in a child process
(`tokenizer_service.jobs`).
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from tokenizer_client.schemas.jobs import JobList, JobView, TrainRequest
from tokenizer_service.access.auth import require_admin
from tokenizer_service.http.bodies import json_request, require_json, validate
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.jobs.inputs import corpus_format, find_training_inputs, max_bad
from tokenizer_service.jobs.train_request import CheckedTrainRequest
from tokenizer_service.jobs.views import summary_of, view_of
from tokenizer_service.rendering.jobs import (
    ACCEPTED,
    EVENTS,
    IdempotencyKey,
    LastEventId,
    WaitSeconds,
    cancel_job,
    find_job,
    follow_job,
    off_the_loop,
    require_idempotency_key,
    take_job,
    view_after,
)
from tokenizer_service.rendering.preconditions import require_known_query
from tokenizer_service.rendering.problems import problem_responses
from tokenizer_service.rendering.respond import read_within_limits
from tokenizer_service.services import Services, services_of

if TYPE_CHECKING:
    from tokenizer_service.jobs.folder import JobFolder
    from tokenizer_service.jobs.queue import Job

router = APIRouter(tags=["training"], dependencies=[Depends(require_admin)])

_MAX_LISTED: Final = 200


@router.post(
    "/train",
    status_code=202,
    response_model=JobView,
    responses={**ACCEPTED, **problem_responses(400, 403, 409, 413, 415, 422, 503, 507)},
    openapi_extra=json_request(TrainRequest),
)
async def start_training(
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
    wait: WaitSeconds = 0,
) -> Any:
    """Train a tokenizer on corpora, files or documents and, by default, serve the result.

    Responds at once with the job, or waits for its end (`?wait=60`); follow the job at its
    `Location`. Only one job runs at a time
    (with PostgreSQL, one on each host); the others wait.
    """
    services = services_of(request)
    require_known_query(request, "wait")
    require_idempotency_key(idempotency_key)
    require_json(request)
    lease = services.budget.lease()
    try:
        body = await read_within_limits(request, lease)
        job = await off_the_loop(lambda: _take_training(services, body, idempotency_key))
    finally:
        lease.release()
    services.runner.wake()
    # A relative URL also works for clients whose URLs have a prefix, such as /v1 or a proxy's.
    response.headers["Location"] = f"{request.url.path.rstrip('/')}/{job.id}"
    return await view_after(request, response, job, wait)


@router.get("/train", response_model=JobList, responses=problem_responses(403, 422, 503))
async def list_training_jobs(
    request: Request, limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 50
) -> Any:
    """List the latest training jobs, newest first."""
    require_known_query(request, "limit")
    store = services_of(request).jobs
    jobs = await off_the_loop(lambda: store.latest(limit=limit, kind="train"))
    return {"jobs": [summary_of(job) for job in jobs]}


@router.get("/train/{job_id}", response_model=JobView, responses=problem_responses(403, 404, 503))
async def show_training_job(request: Request, job_id: str) -> Any:
    """Show one training job: its state, its progress and the end of its log."""
    job = await find_job(request, job_id, "train")
    return await asyncio.to_thread(view_of, job, services_of(request).settings.artifacts_dir)


@router.get("/train/{job_id}/events", response_model=None, responses=EVENTS)
async def follow_training_job(
    request: Request, job_id: str, last_event_id: LastEventId = None
) -> Response:
    """Stream the job as server-sent events: `GET /train/{job_id}` again after each change.

    The last event is the final state; the response then ends.
    """
    return await follow_job(request, job_id, last_event_id, "train")


@router.delete(
    "/train/{job_id}",
    response_model=JobView,
    responses={
        202: {"description": "The run is being cancelled", "model": JobView},
        **problem_responses(403, 404, 503, 507),
    },
)
async def cancel_training_job(request: Request, response: Response, job_id: str) -> Any:
    """Cancel a job in any state, any number of times; a job that has ended stays unchanged.

    Responds 202 while a running job is being stopped, 200 otherwise.
    """
    job = await cancel_job(request, job_id, "train")
    if not job.is_final:
        response.status_code = 202
    return await asyncio.to_thread(view_of, job, services_of(request).settings.artifacts_dir)


def _take_training(services: Services, body: bytes, idempotency_key: str | None) -> Job:
    asked = validate(parse_strict_json(body, services.engine), CheckedTrainRequest)
    del body

    def prepare(folder: JobFolder) -> dict[str, Any]:
        services.store.check_no_alias(asked.name)
        files = find_training_inputs(asked, services.settings, services.corpora, folder)
        request = asked.model_dump(mode="json", exclude={"input_paths", "documents"})
        return {
            **request,
            "corpus_format": corpus_format(asked, files),
            "max_bad": max_bad(asked),
            "inputs": [asdict(file) for file in files],
        }

    return take_job(services, "train", asked.digest(), idempotency_key, prepare)
