"""GET / and its assets: the page that shows, compares and trains tokenizers. Public.

The server sends the files in `playground/` unchanged, without a build step, and all content has
this origin. The files and their hashes are read once; a browser revalidates its copy and gets a
304.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.requests import HTTPConnection

from tokenizer_service.handlers.stored import StoredBody, stored, with_etag
from tokenizer_service.http.problem import Problem

router = APIRouter(include_in_schema=False)

_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

_HEADERS: Final = {
    # All content has this origin and nothing is inline. The page neither submits forms nor can be
    # framed, and no string becomes markup or code in it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Revalidate each time: a page of one version would fail with a script of another.
    "Cache-Control": "no-cache",
}


@functools.cache
def assets() -> Mapping[str, StoredBody]:
    """All files of the page, by name."""
    found = {}
    for file in (files("tokenizer_service") / "playground").iterdir():
        media_type = _MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            found[file.name] = with_etag(file.read_bytes(), media_type, _HEADERS.items())
    return found


@stored(router, "/", is_public=True)
async def page(connection: HTTPConnection) -> StoredBody:
    """The page itself."""
    return assets()["index.html"]


@stored(router, "/playground/{file}", is_public=True)
async def page_file(connection: HTTPConnection) -> StoredBody:
    """A script, style sheet or image of the page."""
    asset = assets().get(connection.path_params["file"])
    if asset is None:
        raise Problem(404, "not_found", "No such file; the page is at `/`.")
    return asset
