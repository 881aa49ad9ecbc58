"""Preconditions: which tokenizer serves a request, and whether it matches the request headers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from tokenizer_client.schemas.tokens import NAME_PATTERN, PLAIN_NAME_PATTERN
from tokenizer_core.errors import UnknownSpecialTokenError
from tokenizer_core.registry import ArtifactRef
from tokenizer_service.http.bodies import require_acceptable, require_json
from tokenizer_service.http.headers import header_fields, header_of
from tokenizer_service.http.problem import Problem
from tokenizer_service.services import Services, services_of
from tokenizer_service.serving.live_tokenizer import LiveTokenizer
from tokenizer_service.serving.live_tokenizers import ACTIVE

TokenizerQuery = Annotated[
    str | None, Query(pattern=NAME_PATTERN, description="`name` or `name@version`.")
]
"""The tokenizer of a request, for routes with query parameters."""

PlainName = Annotated[str, Path(pattern=PLAIN_NAME_PATTERN)]
"""A name in a path: of a tokenizer, a corpus or token files."""

_DISAGREE: Final = "model and tokenizer name two tokenizers; send one of them"


def require_known_query(request: HTTPConnection, *known: str, lists: Collection[str] = ()) -> None:
    """Raise 422 for a query parameter that would be ignored silently: one outside `known` and
    `lists`, and all but the last of one in `known`."""
    names = [name for name, _ in request.query_params.multi_items()]
    if not {*known, *lists}.issuperset(names):
        listed = ", ".join([*known, *lists])
        detail = f"Unknown query parameter; known: {listed or 'none'}."
        raise Problem(422, "invalid_request", detail)
    for name in known:
        if names.count(name) > 1:
            detail = f"The query parameter {name} is given {names.count(name)} times; give it once."
            raise Problem(422, "invalid_request", detail)


def require_no_query(request: HTTPConnection) -> None:
    """Raise 422 for query parameters of a route whose options are fields of its JSON body."""
    if request.scope["query_string"]:
        detail = "This route takes no query parameters; send options as fields of the JSON body."
        raise Problem(422, "invalid_request", detail)


def require_json_for_json(request: HTTPConnection) -> None:
    """Require a request without a query, in JSON, whose client takes JSON; raises Problem."""
    require_json(request)
    if request.scope["query_string"]:  # spares small requests a call
        require_no_query(request)
    require_acceptable(request, "application/json")


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
    if model and services.settings.model == "strict":
        live = services.models.find(model) if name is None else None
    else:
        live = services.live.active if name is None else services.live.peek(name)
    if live is not None:
        request.scope["state"]["tokenizer_headers"] = live.headers
        require_match(request, live.ref)
    return live


def choose_tokenizer_on_thread(
    request: HTTPConnection, name: str | None, model: str | None = None
) -> LiveTokenizer:
    """Same as `choose_tokenizer`, for a thread, which may wait for the disk."""
    services = services_of(request)
    if model and services.settings.model == "strict":
        live = services.models.get(model)
        if name is not None:
            named = services.live.get(name)
            is_exact = model in (ACTIVE, str(live.ref))
            if named.ref.name != live.ref.name or (is_exact and named.ref != live.ref):
                errors = [("/model", _DISAGREE), ("/tokenizer", _DISAGREE)]
                raise Problem(422, "model_conflict", f"/model: {_DISAGREE}.", errors=errors)
            live = named
    else:
        live = services.live.get(name)
    request.scope["state"]["tokenizer_headers"] = live.headers  # problem responses carry them too
    require_match(request, live.ref)
    return live


def require_known_specials(live: LiveTokenizer, names: str | Collection[str]) -> None:
    """Raise UnknownSpecialTokenError unless `names` (of `disallowed_special`) are special tokens.

    A misspelt name would forbid nothing without any sign. The check also prevents clients from
    having arbitrary strings searched for in each text.
    """
    if isinstance(names, str):
        return
    if not set(names) <= set(live.tokenizer.spec.special_tokens):
        raise UnknownSpecialTokenError("disallowed_special")


def version_tag(ref: ArtifactRef) -> str:
    """The ETag of what is said of a version, which never changes: versions of the same ids may
    differ in chat templates."""
    return f'"{ref.digest}-{ref}"'


def require_match(request: HTTPConnection, ref: ArtifactRef) -> None:
    """Raise 412 if If-Match is present and contains neither the digest nor the tag of this version.

    The comparison is strong, as RFC 9110 requires. An unquoted digest is accepted too, because it
    is unambiguous.
    """
    if b"if-match" not in header_fields(request.scope):
        return
    digest = ref.digest
    expected = {part.strip() for part in header_of(request, b"if-match").split(",")}
    if not expected.isdisjoint({"*", f'"{digest}"', digest, version_tag(ref)}):
        return
    raise Problem(
        412,
        "digest_mismatch",
        f"If-Match names another digest than {digest}, which this request is about. Name the "
        f"version you want, or take this digest.",
        headers={"ETag": f'"{digest}"'},
    )


def refuse_match(request: HTTPConnection) -> None:
    """Raise 412 if If-Match is present, for a change of something without an ETag: ignored, it
    would overwrite or remove what the client did not mean."""
    if b"if-match" in header_fields(request.scope):
        raise Problem(
            412,
            "no_entity_tag",
            "Corpora, token files and aliases have no ETag, so If-Match cannot be checked; nothing "
            "was changed. Compare what GET says, and send the request without If-Match.",
        )


def download_headers(etag: str, file: str) -> dict[str, str]:
    """The headers of a download, beside those that its 304 has too."""
    return {
        "ETag": etag,
        "Content-Disposition": f'attachment; filename="{file}"',
        "X-Content-Type-Options": "nosniff",
    }


def not_modified(request: Request, etag: str, headers: Mapping[str, str]) -> Response | None:
    """Return the 304 with `headers` if If-None-Match contains `etag`, else None.

    The comparison is weak, as RFC 9110 requires: a proxy that compresses makes tags weak.
    """
    known = {
        part.strip().removeprefix("W/") for part in header_of(request, b"if-none-match").split(",")
    }
    if etag in known:
        return Response(status_code=304, headers={**headers, "ETag": etag})
    return None
