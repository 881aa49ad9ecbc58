"""GET /docs and /openapi.json: the API, to be read and tried.

The scripts of the page come from an installed package, not from a public server: it works where
there is no way out, and nobody is told who reads it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from app.access.auth import require_read
from app.http.problem import Problem

router = APIRouter(dependencies=[Depends(require_read)], include_in_schema=False)

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START: Final = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  tryItOutEnabled: true,
});
"""
_MEDIA_TYPES: Final = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_HEADERS: Final = {
    # Swagger UI sets styles on its elements.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@router.get("/openapi.json")
async def openapi_json(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """A page to read and try the routes."""
    return HTMLResponse(_PAGE.format(title=request.app.title), headers=_HEADERS)


@router.get("/docs/{file}")
async def docs_file(file: str) -> Response:
    """What the page is made of."""
    if file == "start.js":
        return Response(_START, media_type="text/javascript", headers=_HEADERS)
    media_type = _MEDIA_TYPES.get(file)
    if media_type is None:
        raise Problem(404, "not_found", "The page has no such file. Look at /docs.")
    return FileResponse(_assets() / file, media_type=media_type, headers=_HEADERS)


def _assets() -> Path:
    # Found, not imported: the package would make another application class for its two files.
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        raise RuntimeError("fastapi-offline is a dependency of this package; install it again")
    return Path(package.origin).parent / "static"
