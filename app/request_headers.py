"""Request headers, read where they lie.

Starlette's mapping decodes and compares every name at every look; the five that a small request
takes cost as much as its encoding. Names are given as the server holds them: bytes in lower case.
Imports nothing of the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


def header_of(request: HTTPConnection, name: bytes) -> str:
    """The first header called `name`; empty where there is none."""
    for known, value in request.scope["headers"]:
        if known == name:
            found: str = value.decode("latin-1")
            return found
    return ""


def headers_of(request: HTTPConnection, name: bytes) -> tuple[str, ...]:
    """All headers called `name`, in their order."""
    headers = request.scope["headers"]
    return tuple([value.decode("latin-1") for known, value in headers if known == name])
