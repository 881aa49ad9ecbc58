"""/train and /jobs: submit training jobs; list, show, follow and cancel them, and jobs of every
kind. Admin keys only.

The response to a request is sent once its job is on the disk; it runs in a child process
(`tokenizer_service.jobs`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from tokenizer_client.schemas.jobs import (
    AnyJobList,
    EncodeJobView,
    JobList,
    JobView,
    TrainRequest,
    find_document_separator,
)
from tokenizer_core.errors import InvalidSpecError, VocabSizeError
from tokenizer_service.access.auth import require_admin
from tokenizer_service.handlers import jobs
from tokenizer_service.handlers.jobs import (
    ACCEPTED,
    EVENTS,
    MAX_LISTED,
    IdempotencyKey,
    LastEventId,
    WaitSeconds,
)
from tokenizer_service.http.bodies import json_request
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.inputs import corpus_format, find_training_inputs, max_bad
from tokenizer_service.jobs.train_request import CheckedTrainRequest, check_extension
from tokenizer_service.responses.errors import InvalidFieldError
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import services_of

training = APIRouter(tags=["training"], dependencies=[Depends(require_admin)])
any_job = APIRouter(tags=["jobs"], dependencies=[Depends(require_admin)])


@training.post(
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

    def prepare(asked: CheckedTrainRequest, folder: JobFolder) -> dict[str, Any]:
        services.store.check_may_publish(asked.name)
        base = None
        if asked.extend:
            live = services.live.get(asked.extend)
            base = live.ref
            try:
                check_extension(asked, live.tokenizer.spec)
            except VocabSizeError as error:
                raise InvalidFieldError("/vocab_size", str(error)) from None
            except InvalidSpecError as error:
                raise InvalidFieldError("/extend", str(error)) from None
        files = find_training_inputs(asked, services.settings, services.corpora, folder)
        # The tokenizer to extend may not have the special token that is between documents.
        separator = (
            find_document_separator(asked.special_tokens) if base and asked.documents else ""
        )
        return {
            **asked.model_dump(mode="json", exclude={"input_paths", "documents"}),
            "extend": base and str(base),
            "corpus_format": corpus_format(asked, files, separator or ""),
            "max_bad": max_bad(asked),
            "inputs": [asdict(file) for file in files],
        }

    _, view = await jobs.submit_job(
        request,
        response,
        idempotency_key,
        wait,
        kind="train",
        model=CheckedTrainRequest,
        digest=CheckedTrainRequest.digest,
        prepare=prepare,
        prefix=request.url.path.rstrip("/"),
    )
    return view


@training.get("/train", response_model=JobList, responses=problem_responses(403, 422, 503))
async def list_training_jobs(
    request: Request, limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50
) -> Any:
    """List the latest training jobs, newest first."""
    return await jobs.list_jobs(request, limit, "train", JobList)


@training.get("/train/{job_id}", response_model=JobView, responses=problem_responses(403, 404, 503))
async def show_training_job(request: Request, job_id: str) -> Any:
    """Show one training job: its state, its progress and the end of its log."""
    return await jobs.show_job(request, job_id, "train")


@training.get("/train/{job_id}/events", response_model=None, responses=EVENTS)
async def follow_training_job(
    request: Request, job_id: str, last_event_id: LastEventId = None
) -> Response:
    """Stream the job as server-sent events: `GET /train/{job_id}` again after each change.

    The last event is the final state; the response then ends.
    """
    return await jobs.follow_job(request, job_id, last_event_id, "train")


@training.delete(
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
    return await jobs.cancel_job(request, response, job_id, "train")


@any_job.get("/jobs", response_model=AnyJobList, responses=problem_responses(403, 422, 503))
async def list_jobs(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
    kind: Annotated[Literal["train", "encode"] | None, Query(description="Only these.")] = None,
) -> Any:
    """List the latest jobs of every kind, newest first."""
    return await jobs.list_jobs(request, limit, kind, AnyJobList)


@any_job.get(
    "/jobs/{job_id}",
    response_model=JobView | EncodeJobView,
    responses=problem_responses(403, 404, 503),
)
async def show_job(request: Request, job_id: str) -> Any:
    """Show one job: its state, its progress and the end of its log."""
    return await jobs.show_job(request, job_id)


@any_job.get("/jobs/{job_id}/events", response_model=None, responses=EVENTS)
async def follow_any_job(
    request: Request, job_id: str, last_event_id: LastEventId = None
) -> Response:
    """Stream the job as server-sent events: `GET /jobs/{job_id}` again after each change.

    The last event is the final state; the response then ends.
    """
    return await jobs.follow_job(request, job_id, last_event_id)


@any_job.delete(
    "/jobs/{job_id}",
    response_model=JobView | EncodeJobView,
    responses={
        202: {"description": "The job is being cancelled", "model": JobView | EncodeJobView},
        **problem_responses(403, 404, 503, 507),
    },
)
async def cancel_any_job(request: Request, response: Response, job_id: str) -> Any:
    """Cancel a job in any state, any number of times; a job that has ended stays unchanged.

    Responds 202 while a running job is being stopped, 200 otherwise.
    """
    return await jobs.cancel_job(request, response, job_id)
