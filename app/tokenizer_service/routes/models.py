"""/models: the names and aliases by which clients of other servers choose a tokenizer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from fastapi import APIRouter, Depends, Request
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.tokens import AliasRequest, ModelResponse, ModelsResponse
from tokenizer_service.access.auth import require_admin, require_read
from tokenizer_service.handlers.preconditions import refuse_match
from tokenizer_service.handlers.stored import StoredBody, stored, with_etag
from tokenizer_service.http.bodies import json_request, read_json
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import Services, services_of

router = APIRouter(tags=["tokenizers"])

_MAX_ALIAS_BYTES = 4096


@stored(
    router,
    "/models",
    summary="Names and aliases, in OpenAI's format",
    dependencies=[Depends(require_read)],
    responses={200: {"model": ModelsResponse}, **problem_responses(409, 422, 503)},
)
async def list_models(connection: HTTPConnection) -> StoredBody:
    """List what `model` may be in requests of other servers' clients."""
    services = services_of(connection)
    return await services.shared.run("models", _list, services)


def _list(services: Services) -> StoredBody:
    models = ModelsResponse(object="list", data=list(_models(services).values()))
    return with_etag(models.model_dump_json().encode())


@router.get(
    # `:path`, because an alias may have slashes.
    "/models/{model:path}",
    summary="One name or alias, in OpenAI's format",
    dependencies=[Depends(require_read)],
    responses=problem_responses(404, 409, 422, 503),
)
async def show_model(request: Request, model: str) -> ModelResponse:
    """Show which tokenizer serves requests for `model`, which may also be a `name@version`."""
    return await asyncio.to_thread(_model, services_of(request), model)


@router.put(
    "/models/{model:path}",
    summary="Add an alias",
    dependencies=[Depends(require_admin)],
    openapi_extra=json_request(AliasRequest),
    responses=problem_responses(400, 403, 404, 409, 412, 413, 415, 422, 503, 507),
)
async def add_alias(request: Request, model: str) -> ModelResponse:
    """Let requests name a tokenizer as `model`, its alias: 1 to 200 printable ASCII characters.

    An alias belongs to the name of a tokenizer. If that name is active, the active version serves
    it, else the version of the name that was active last, or its newest. As `tokenizer` it means
    the newest version, as the name does. To give the alias to another tokenizer, remove it first.
    """
    refuse_match(request)
    services = services_of(request)
    wanted = await read_json(request, AliasRequest, services.settings, _MAX_ALIAS_BYTES)
    await asyncio.to_thread(services.store.add_alias, model, wanted.tokenizer)
    services.models.forget()
    return await asyncio.to_thread(_model, services, model)


@router.delete(
    "/models/{model:path}",
    summary="Remove an alias",
    status_code=204,
    dependencies=[Depends(require_admin)],
    responses=problem_responses(403, 404, 409, 412, 422, 503, 507),
)
async def remove_alias(request: Request, model: str) -> None:
    """Remove an alias; its tokenizer stays."""
    refuse_match(request)
    services = services_of(request)
    await asyncio.to_thread(services.store.remove_alias, model)
    services.models.forget()


def _models(services: Services) -> dict[str, ModelResponse]:
    """Each name and alias, those of the active tokenizer first."""
    live = services.live.active
    active = {} if live is None else {live.ref.name: str(live.ref)}
    found = []
    for model, ref in services.store.models().items():
        name = ref.partition("@")[0]
        found.append((name not in active, model != name, model, active.get(name, ref)))
    return {model: _describe(model, ref) for _, _, model, ref in sorted(found)}


def _model(services: Services, model: str) -> ModelResponse:
    found = _models(services).get(model)
    return found or _describe(model, str(services.store.resolve_model(model)))


def _describe(model: str, ref: str) -> ModelResponse:
    published = datetime.strptime(ref.partition("@")[2][:16], "%Y%m%dT%H%M%SZ")
    return ModelResponse(
        id=model,
        object="model",
        created=int(published.replace(tzinfo=UTC).timestamp()),
        owned_by="tokenizer-service",
        root=ref,
    )
