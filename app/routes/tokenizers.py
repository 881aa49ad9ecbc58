"""GET /tokenizers and PUT /tokenizers/active: what is published, what is served, the swap."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from app.auth import require_admin, require_read
from app.live_tokenizer import identity_of
from app.preconditions import require_match
from app.problems import problem_responses
from app.request_bodies import json_request, read_json
from app.schemas import (
    PromoteRequest,
    PromoteResponse,
    TokenizerIdentity,
    TokenizersResponse,
    TokenizerSummary,
)
from app.services import Services, services_of
from tokenizer_core.store import ArtifactRef

router = APIRouter(tags=["tokenizers"])

_MAX_PROMOTE_BYTES = 4096
_NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"


@router.get(
    "/tokenizers",
    summary="Every published tokenizer",
    dependencies=[Depends(require_read)],
    responses=problem_responses(503),
)
async def list_tokenizers(request: Request) -> TokenizersResponse:
    """All versions, names in order, newest first."""
    services = services_of(request)
    return await services.queue.run(_list, services, None)


@router.get(
    "/tokenizers/active",
    summary="The tokenizer that answers when a request names none",
    dependencies=[Depends(require_read)],
    responses=problem_responses(503),
)
async def show_active(request: Request, response: Response) -> TokenizerSummary:
    """The active version with its manifest; the ETag is what `PUT` takes in If-Match."""
    services = services_of(request)
    live = services.live.require_active()
    response.headers.update({**live.headers, "ETag": f'"{live.ref.digest}"'})
    return await services.queue.run(_summary, services, live.ref, True)


@router.get(
    "/tokenizers/{name}",
    summary="The versions of one tokenizer",
    dependencies=[Depends(require_read)],
    responses=problem_responses(404, 422, 503),
)
async def show_tokenizer(
    request: Request, name: Annotated[str, Path(pattern=_NAME)]
) -> TokenizersResponse:
    """The versions of `name` with their manifests, newest first."""
    services = services_of(request)
    return await services.queue.run(_list, services, name)


@router.put(
    "/tokenizers/active",
    summary="Promote or roll back",
    dependencies=[Depends(require_admin)],
    openapi_extra=json_request(PromoteRequest),
    responses=problem_responses(400, 403, 404, 409, 412, 413, 415, 422, 503, 507),
)
async def promote(request: Request, response: Response) -> PromoteResponse:
    """Make a version what answers when a request names none.

    The answer comes once every server process answers with it. With `If-Match` on the digest that
    is active now, nobody else's promotion is overwritten.
    """
    services = services_of(request)
    wanted = await read_json(request, PromoteRequest, max_bytes=_MAX_PROMOTE_BYTES)
    ref = await services.queue.run(services.store.resolve, wanted.tokenizer)
    previous = await services.live.promote(
        ref, check=lambda present: require_match(request, present.digest)
    )
    response.headers.update(
        {
            "Tokenizer-Version": str(ref),
            "Tokenizer-Digest": ref.digest,
            "ETag": f'"{ref.digest}"',
        }
    )
    return PromoteResponse(
        active=_identity(ref), previous=None if previous is None else _identity(previous)
    )


def _list(services: Services, name: str | None) -> TokenizersResponse:
    active = services.live.active
    if name is None:
        refs = services.store.list()
    else:
        refs = services.store.versions(name)
        if not refs:
            services.store.resolve(name)  # says whether the name or its files are wrong
    newest_first = sorted(refs, key=lambda ref: ref.version, reverse=True)
    newest_first.sort(key=lambda ref: ref.name)
    return TokenizersResponse(
        tokenizers=[_summary(services, ref, name is not None) for ref in newest_first],
        active=None if active is None else _identity(active.ref),
    )


def _summary(services: Services, ref: ArtifactRef, with_manifest: bool) -> TokenizerSummary:
    active = services.live.active
    manifest: dict[str, Any] = json.loads(services.store.read_manifest(ref).to_json())
    return TokenizerSummary(
        **identity_of(ref),
        active=active is not None and active.ref == ref,
        created_at=str(manifest.get("created_at", "")),
        manifest=manifest if with_manifest else None,
    )


def _identity(ref: ArtifactRef) -> TokenizerIdentity:
    return TokenizerIdentity(**identity_of(ref))
