"""Which tokenizer serves a request: by `tokenizer`, by `model`, or the active one.

    the request has                     version                                    decided in
    ----------------------------------  -----------------------------------------  ---------------
    no name, or `active`                the one that this process serves           LiveTokenizers
    either as NAME@VERSION              this one                                   Artifacts
    `tokenizer` as NAME or its alias    its newest                                 resolve_named
    `model` as NAME or its alias        the served one if that is of NAME;         ModelNames.get,
                                        else its last active one, or its newest    resolve_model
    both                                that of `tokenizer`; 422 if they disagree  here

`TOKENIZER_MODEL=ignore` reads no `model`.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeGuard

from starlette.requests import HTTPConnection, Request

from tokenizer_core.registry.versions import ACTIVE
from tokenizer_service.handlers.preconditions import require_match
from tokenizer_service.http.dialect_errors import note_model
from tokenizer_service.http.problem import Problem
from tokenizer_service.services import Services, services_of
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_DISAGREE: Final = "model and tokenizer name two tokenizers; send one of them"


async def choose_tokenizer(
    request: Request, name: str | None, model: str | None = None
) -> LiveTokenizer:
    """The tokenizer that serves `request`: that of `name` or `model`, or the active one.

    `model` is what clients of other servers send; empty counts as absent.

    Raises:
        Problem: 404 unknown, 409 corrupt, 412 when If-Match names another digest, 422 for a `name`
            and a `model` of two tokenizers, 503 without any tokenizer.
    """
    live = find_tokenizer(request, name, model)
    if live is None:
        live = await asyncio.to_thread(choose_tokenizer_on_thread, request, name, model)
    return live


def find_tokenizer(
    request: HTTPConnection, name: str | None, model: str | None = None
) -> LiveTokenizer | None:
    """Same as `choose_tokenizer`, without a wait: None for a tokenizer that is not in memory."""
    services: Services = request.scope["app"].services
    if _is_read(model, services):
        live = services.models.find(model) if name is None else None
    else:
        live = services.live.active if name is None else services.live.peek(name)
    return None if live is None else _matched(request, live)


def choose_tokenizer_on_thread(
    request: HTTPConnection, name: str | None, model: str | None = None
) -> LiveTokenizer:
    """Same as `choose_tokenizer`, for a thread, which may wait for the disk."""
    services = services_of(request)
    if not _is_read(model, services):
        return _matched(request, services.live.get(name))
    note_model(request.scope, model)
    live = services.models.get(model)
    if name is not None:
        named = services.live.get(name)
        is_exact = model in (ACTIVE, str(live.ref))
        if named.ref.name != live.ref.name or (is_exact and named.ref != live.ref):
            errors = [("/model", _DISAGREE), ("/tokenizer", _DISAGREE)]
            raise Problem(422, "model_conflict", f"/model: {_DISAGREE}.", errors=errors)
        live = named
    return _matched(request, live)


def _is_read(model: str | None, services: Services) -> TypeGuard[str]:
    """Whether the `model` of a request says which tokenizer it wants."""
    return bool(model) and services.settings.model == "strict"


def _matched(request: HTTPConnection, live: LiveTokenizer) -> LiveTokenizer:
    """`live`, if If-Match allows it. From here on problem responses carry its headers too."""
    request.scope["state"]["tokenizer_headers"] = live.headers
    require_match(request, live.ref)
    return live
