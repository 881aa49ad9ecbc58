"""Request headers as one dict, cached in the scope of the request.

Starlette's mapping decodes and compares every name on every lookup, and a small request makes six
lookups. Names are lower-case bytes, as the server provides them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import HTTPConnection
    from starlette.types import Scope


_FIELDS: Final = "tokenizer_service.headers"


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
            fields = _join(headers)
        scope[_FIELDS] = fields
    return fields


def _join(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        fields[name] = fields[name] + b", " + value if name in fields else value
    return fields
