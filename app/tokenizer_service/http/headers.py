"""Request headers as one dict, cached in the scope of the request, and the media types in them.

Starlette's mapping decodes and compares every name on every lookup, and a small request makes six
lookups. Names are lower-case bytes, as the server provides them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

_FIELDS: Final = "tokenizer_service.headers"
_QUALITY: Final = re.compile(r"[01](\.\d{0,3})?")


def header_of(request: HTTPConnection, name: bytes) -> str:
    """The value of header `name`; repeated headers are joined by commas; empty if absent."""
    return header_fields(request.scope).get(name, b"").decode("latin-1")


def header_fields(scope: Scope) -> dict[bytes, bytes]:
    """All headers; headers with the same name are joined by commas."""
    fields: dict[bytes, bytes] | None = scope.get(_FIELDS)
    if fields is None:
        headers = scope["headers"]
        fields = dict(headers)
        if len(fields) < len(headers):
            fields = {}
            for name, value in headers:
                fields[name] = fields[name] + b", " + value if name in fields else value
        scope[_FIELDS] = fields
    return fields


@lru_cache(maxsize=64)  # almost all requests share a few values
def parse_media_type(value: str) -> tuple[str, dict[str, str]]:
    """A media type and its parameters, in lower case.

    Example:
        >>> parse_media_type('Text/Plain; charset="UTF-8"')
        ('text/plain', {'charset': 'utf-8'})
    """
    kind, *parameters = value.lower().split(";")
    pairs = (parameter.partition("=") for parameter in parameters)
    return kind.strip(), {name.strip(): word.strip().strip('"') for name, _, word in pairs}


@lru_cache(maxsize=64)
def accepted_types(accept: str) -> list[tuple[str, dict[str, str], float]]:
    """The media types in an Accept header, their parameters and qualities, as listed."""
    accepted = []
    for part in accept.split(","):
        if part.strip():
            kind, parameters = parse_media_type(part)
            given = parameters.get("q", "1")
            quality = float(given) if _QUALITY.fullmatch(given) else 1.0
            accepted.append((kind, parameters, quality))
    return accepted


@lru_cache(maxsize=64)
def accepts(accept: str, media_type: str, *, by_name: bool = False) -> bool:
    """Whether Accept includes `media_type`; with `by_name`, only if it is named in full."""
    accepted = accepted_types(accept)
    if not accepted:
        return not by_name
    named = {media_type} if by_name else {media_type, media_type.split("/")[0] + "/*", "*/*"}
    return any(kind in named and quality > 0 for kind, _, quality in accepted)
