"""Jobs of every kind over HTTP: list, show, follow and cancel them. Admin keys only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from tokenizer_client.schemas.jobs import AnyJobList, EncodeJobView, JobView
from tokenizer_service.access.auth import require_admin
from tokenizer_service.handlers import jobs
from tokenizer_service.handlers.jobs import EVENTS, MAX_LISTED, LastEventId
from tokenizer_service.handlers.preconditions import require_known_query
from tokenizer_service.responses.problems import problem_responses

router = APIRouter(tags=["jobs"], dependencies=[Depends(require_admin)])


@router.get("/jobs", response_model=AnyJobList, responses=problem_responses(403, 422, 503))
async def list_jobs(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
    kind: Annotated[Literal["train", "encode"] | None, Query(description="Only these.")] = None,
) -> Any:
    """List the latest jobs of every kind, newest first."""
    require_known_query(request, "limit", "kind")
    return await jobs.list_jobs(request, limit, kind)


@router.get(
    "/jobs/{job_id}",
    response_model=JobView | EncodeJobView,
    responses=problem_responses(403, 404, 503),
)
async def show_job(request: Request, job_id: str) -> Any:
    """Show one job: its state, its progress and the end of its log."""
    return await jobs.show_job(request, job_id)


@router.get("/jobs/{job_id}/events", response_model=None, responses=EVENTS)
async def follow_any_job(
    request: Request, job_id: str, last_event_id: LastEventId = None
) -> Response:
    """Stream the job as server-sent events: `GET /jobs/{job_id}` again after each change.

    The last event is the final state; the response then ends.
    """
    return await jobs.follow_job(request, job_id, last_event_id)


@router.delete(
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
