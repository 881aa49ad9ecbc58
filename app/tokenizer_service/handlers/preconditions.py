"""Preconditions: whether the headers and the query of a request allow what it asks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin

from fastapi import Path, Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from tokenizer_client.schemas.tokens import PLAIN_NAME_PATTERN, TOKENIZER_PATTERN
from tokenizer_core.errors import UnknownSpecialTokenError
from tokenizer_core.registry import ArtifactRef
from tokenizer_service.handlers.known_fields import BODY_FIELDS
from tokenizer_service.http.bodies import require_acceptable, require_json
from tokenizer_service.http.dialect_errors import OF_ROUTE
from tokenizer_service.http.headers import header_fields, header_of
from tokenizer_service.http.id_formats import IdsForm, choose_ids_form
from tokenizer_service.http.problem import MAX_NAME_CHARS, Problem, describe_unknown
from tokenizer_service.responses.errors import InvalidFieldError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

TokenizerQuery = Annotated[
    str | None,
    Query(pattern=TOKENIZER_PATTERN, description="`name` or its alias, or `name@version`."),
]
"""The tokenizer of a request, for routes with query parameters."""

PlainName = Annotated[str, Path(pattern=PLAIN_NAME_PATTERN)]
"""A name in a path: of a tokenizer, a corpus or token files."""

_TAKES_ANY_QUERY: Final = frozenset(
    {
        # Links to pages and monitors of probes have parameters of their own.
        *("/", "/playground/{file}", "/docs", "/docs/{file}", "/livez", "/readyz", "/health"),
        # Clients send theirs: Claude Code `beta`, Codex `client_version`, Google's `key` and `alt`;
        # a gateway passes on the query that it got.
        *("/models", "/models/{model:path}", *OF_ROUTE),
    }
)
"""Routes that ignore a query of GET and POST, unless they have parameters, or it names a field of
the body."""


async def require_known_query(request: Request) -> None:
    """As `check_query`, for every route that FastAPI serves."""
    check_query(request)


def check_query(request: HTTPConnection) -> None:
    """Raise InvalidFieldError for a query parameter that the matched route would ignore silently:
    one that it does not have, and all but the last of one that is no list."""
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    names = [name for name, _ in request.query_params.multi_items()]
    described = getattr(route, "openapi_extra", None) or {}
    has_json = "application/json" in described.get("requestBody", {}).get("content", ())
    dependant = getattr(route, "dependant", None)
    fields = [] if dependant is None else dependant.query_params
    is_lenient = route.path in _TAKES_ANY_QUERY and not fields
    if is_lenient and request.scope["method"] in ("GET", "POST"):
        names = [name for name in names if has_json and name in BODY_FIELDS]
    known = [field.alias for field in fields]
    known += [parameter["name"] for parameter in described.get("parameters", ())]
    refuse_unknown_query(names, known, has_json=has_json)
    lists = [field.alias for field in fields if _is_list(field.field_info.annotation)]
    for name in known:
        if name not in lists and names.count(name) > 1:
            raise InvalidFieldError(f"/{name}", f"given {names.count(name)} times; give it once")


def refuse_unknown_query(names: Iterable[str], known: Sequence[str], *, has_json: bool) -> None:
    """Raise InvalidFieldError for the first of `names` that is not `known`."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is None:
        return
    what = describe_unknown("query parameter", unknown, known)
    if has_json:
        what += "; options are fields of the JSON body"
    elif not known:
        what += "; this route takes none"
    pointer = unknown[:MAX_NAME_CHARS].replace("~", "~0").replace("/", "~1")
    raise InvalidFieldError(f"/{pointer}", what)


def _is_list(annotation: Any) -> bool:
    return list in (get_origin(annotation), *map(get_origin, get_args(annotation)))


def require_json_exchange(request: HTTPConnection) -> None:
    """Require a request in JSON whose client takes JSON; raises Problem."""
    require_json(request)
    require_acceptable(request, "application/json")


def require_json_for_ids(request: HTTPConnection) -> IdsForm | None:
    """As `require_json_exchange`, of a client that takes JSON or ids; returns the form of ids that
    it prefers, None for JSON."""
    require_json(request)
    return choose_ids_form(header_of(request, b"accept"))


def require_known_specials(live: LiveTokenizer, names: str | Collection[str]) -> None:
    """Raise UnknownSpecialTokenError unless `names` (of `disallowed_special`) are special tokens.

    A misspelt name would forbid nothing without any sign. The check also prevents clients from
    having arbitrary strings searched for in each text.
    """
    if isinstance(names, str):
        return
    if not set(names) <= set(live.tokenizer.spec.special_tokens):
        raise UnknownSpecialTokenError("disallowed_special")


def version_tag(ref: ArtifactRef, previous: ArtifactRef | None = None) -> str:
    """The ETag of a version, which never changes; with `previous`, that of the active version and
    what was served before it. Versions of one digest may differ in chat templates."""
    before = "" if previous is None else f";{previous}"
    return f'"{ref.digest}-{ref}{before}"'


def require_match(request: HTTPConnection, ref: ArtifactRef) -> None:
    """Raise 412 if If-Match is present and contains neither the digest nor the tag of this version.

    The comparison is strong, as RFC 9110 requires. An unquoted digest is accepted too, because it
    is unambiguous.
    """
    if b"if-match" not in header_fields(request.scope):
        return
    digest = ref.digest
    parts = (part.strip() for part in header_of(request, b"if-match").split(","))
    expected = {re.sub(';.*"$', '"', part) for part in parts}  # whatever was served before it
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
    """The headers of a download: its ETag, its file name, and no guessing of its type."""
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
