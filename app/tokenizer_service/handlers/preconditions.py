"""Preconditions: whether the headers and the query of a request allow what it asks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from tokenizer_client.schemas.tokens import NAME_PATTERN, PLAIN_NAME_PATTERN
from tokenizer_core.errors import UnknownSpecialTokenError
from tokenizer_core.registry import ArtifactRef
from tokenizer_service.http.bodies import require_acceptable, require_json
from tokenizer_service.http.headers import header_fields, header_of
from tokenizer_service.http.id_formats import IdsForm, choose_ids_form
from tokenizer_service.http.problem import Problem
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

TokenizerQuery = Annotated[
    str | None, Query(pattern=NAME_PATTERN, description="`name` or `name@version`.")
]
"""The tokenizer of a request, for routes with query parameters."""

PlainName = Annotated[str, Path(pattern=PLAIN_NAME_PATTERN)]
"""A name in a path: of a tokenizer, a corpus or token files."""


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


def require_json_exchange(request: HTTPConnection) -> None:
    """Require a request in JSON, without a query, whose client takes JSON; raises Problem."""
    require_json(request)
    require_no_query(request)
    require_acceptable(request, "application/json")


def require_json_for_ids(request: HTTPConnection) -> IdsForm | None:
    """As `require_json_exchange`, of a client that takes JSON or ids; returns the form of ids that
    it prefers, None for JSON."""
    require_json(request)
    require_no_query(request)
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
    """The ETag of what is said of a version, which never changes, and of the active one with what
    was served before: versions of the same ids may differ in chat templates."""
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
