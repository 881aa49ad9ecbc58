"""GET /tokenizers, with their files, POST /tokenizers/{name} and PUT /tokenizers/active: published
tokenizers, how to import one, the active tokenizer, and how to replace it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.tokens import (
    ActiveTokenizer,
    ImportedTokenizer,
    PromoteRequest,
    PromoteResponse,
    TokenizerIdentity,
    TokenizersResponse,
    TokenizerSummary,
    form,
)
from tokenizer_core.errors import ArtifactNotFoundError
from tokenizer_core.formats.model_folder import IDS
from tokenizer_core.presets import PRESETS
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.registry.versions import checked_name
from tokenizer_core.splitting.patterns import PATTERN_NAMES
from tokenizer_service.access.auth import require_admin, require_read
from tokenizer_service.access.errors import BodyTooLargeError
from tokenizer_service.handlers.preconditions import (
    PlainName,
    download_headers,
    not_modified,
    require_match,
    version_tag,
)
from tokenizer_service.handlers.stored import StoredBody, respond_stored, stored, with_etag
from tokenizer_service.http.bodies import (
    content_type_of,
    json_request,
    read_body,
    read_json,
    require_no_encoding,
)
from tokenizer_service.http.headers import header_fields, header_of
from tokenizer_service.http.problem import Problem
from tokenizer_service.http.responses import ChunkedBody
from tokenizer_service.responses.errors import InvalidFieldError
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import Services, services_of
from tokenizer_service.serving.artifact_files import MEDIA_TYPES
from tokenizer_service.serving.live_tokenizer import identity_headers, identity_of

router = APIRouter(tags=["tokenizers"])

_MAX_PROMOTE_BYTES = 4096
_MAX_IMPORT_BYTES: Final = 32 * 1024 * 1024
_SPECIAL: Final = form("(?s)^.+=[0-9]{1,10}$", "must be TOKEN=ID, with an id in decimal")
_FORM: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "The files, each a part whose name is that of the file.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"type": "string", "format": "binary"},
                }
            }
        },
    }
}
_NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "If-None-Match matches"}
}


@stored(
    router,
    "/tokenizers",
    summary="Every published tokenizer",
    dependencies=[Depends(require_read)],
    responses={200: {"model": TokenizersResponse}, **_NOT_MODIFIED, **problem_responses(422, 503)},
)
async def list_tokenizers(connection: HTTPConnection) -> StoredBody:
    """List all versions, ordered by name, newest first."""
    services = services_of(connection)
    return await services.shared.run("tokenizers", _list, services, None)


@router.get(
    "/tokenizers/active",
    summary="The active tokenizer",
    dependencies=[Depends(require_read)],
    response_model=ActiveTokenizer,
    responses={**_NOT_MODIFIED, **problem_responses(422, 503)},
)
async def show_active(request: Request) -> Response:
    """Show the active version with its manifest, and what a rollback would serve. `PUT` accepts its
    ETag in If-Match."""
    services = services_of(request)
    live = services.live.require_active()
    previous = services.live.previous
    etag = version_tag(live.ref, previous)
    unchanged = not_modified(request, etag, live.headers)
    if unchanged is not None:
        return unchanged
    content = await services.shared.run(etag, _render_active, services, live.ref, previous)
    body = StoredBody(content, headers=tuple(live.headers.items()), etag=etag)
    return respond_stored(request, body)


@router.get(
    "/tokenizers/{name}",
    summary="The versions of one tokenizer",
    dependencies=[Depends(require_read)],
    response_model=TokenizersResponse,
    responses={**_NOT_MODIFIED, **problem_responses(404, 422, 503)},
)
async def show_tokenizer(request: Request, name: PlainName) -> Response:
    """List the versions of `name` with their manifests, newest first."""
    services = services_of(request)
    body = await services.shared.run(("tokenizers", name), _list, services, name)
    return respond_stored(request, body)


@router.get(
    # `:path` so that a version of several parts, `../x`, gets a specific error.
    "/tokenizers/{name}/{version:path}/{file}",
    summary="One file of a version, for other programs",
    dependencies=[Depends(require_read)],
    response_model=None,
    responses={
        200: {"content": {kind: {} for kind in sorted(set(MEDIA_TYPES.values()))}},
        **_NOT_MODIFIED,
        **problem_responses(404, 409, 422, 503),
    },
)
async def download_file(
    request: Request,
    name: PlainName,
    version: str,
    file: Annotated[str, Path(json_schema_extra={"enum": list(MEDIA_TYPES)})],
) -> Response:
    """Download the tokenizer as `file`; 422 if that format would change its ids.

    `tokenizer.json` is for Hugging Face `tokenizers`. `tokenizer.tiktoken`, and `vocab.json` with
    `merges.txt`, store neither the split pattern nor which tokens are special: see the manifest.
    """
    services = services_of(request)
    if file not in MEDIA_TYPES:
        raise Problem(
            404, "file_not_found", f"A version has no such file; it has {', '.join(MEDIA_TYPES)}."
        )
    shared, named = services.shared, f"{name}@{version}"
    ref = await shared.run(("resolve", named), services.store.resolve, named)
    request.state.tokenizer_headers = identity_headers(ref)
    # Private: a shared cache would serve the file without checking a key.
    headers = {**identity_headers(ref), "Cache-Control": "private, no-cache"}
    etag = await shared.run(("tag", ref, file), services.files.tag, ref, file)
    unchanged = not_modified(request, etag, headers)
    if unchanged is not None:
        return unchanged
    data = await shared.run(("read", ref, file), services.files.read, ref, file)
    headers |= download_headers(etag, file)
    seconds = services.settings.send_seconds
    response = ChunkedBody([data], media_type=MEDIA_TYPES[file], idle_seconds=seconds)
    response.headers.update(headers)
    response.charge_to(services.budget.lease())
    return response


@router.post(
    "/tokenizers/{name}",
    summary="Import a vocabulary",
    status_code=201,
    dependencies=[Depends(require_admin)],
    openapi_extra=_FORM,
    responses=problem_responses(400, 403, 408, 409, 413, 415, 422, 503, 507),
)
async def import_vocabulary(
    request: Request,
    response: Response,
    name: PlainName,
    preset: Annotated[
        str | None, Query(description="The file is that of this published vocabulary.")
    ] = None,
    pattern: Annotated[
        str | None, Query(description="A named split pattern, for a .tiktoken file.")
    ] = None,
    special: Annotated[
        list[Annotated[str, Field(pattern=_SPECIAL)]] | None,
        Query(description="A special token and its id, `TOKEN=ID`; repeat for more."),
    ] = None,
    no_special: Annotated[
        bool, Query(description="The .tiktoken file has no special tokens.")
    ] = False,
    ids: Annotated[
        str | None,
        Query(
            description="The library whose ids a model folder gets where they differ: "
            f"{', '.join(IDS)}."
        ),
    ] = None,
) -> ImportedTokenizer:
    """Publish uploaded files as the newest version of `name`, and promote nothing.

    One file: `tokenizer.json`, a `.tiktoken` file, `tekken.json` or SentencePiece's
    `tokenizer.model`; the content says the format. Several: `vocab.json` with `merges.txt`, or
    those of a model folder (`tokenizer_config.json`, `chat_template.jinja`).

    A child process reads them, with limited memory and time; each serving process reads one
    import at a time.
    """
    checked_name(name)
    named = {"preset": (preset, PRESETS), "pattern": (pattern, PATTERN_NAMES)}
    for option, (value, known) in {**named, "ids": (ids, IDS)}.items():
        if value is not None and value not in known:
            raise InvalidFieldError(f"/{option}", f"it must be one of {', '.join(known)}")
    parts = (text.rpartition("=") for text in special or ())
    tokens = {token: int(id_) for token, _, id_ in parts}
    if len(tokens) < len(special or ()) or (no_special and tokens):
        raise InvalidFieldError("/special", "a token is given twice, or beside no_special")
    require_no_encoding(request)
    if content_type_of(request)[0] != "multipart/form-data":
        raise Problem(
            415,
            "form_required",
            "This route takes a form with the files. With curl, use `-F tokenizer.json=@FILE`.",
            headers={"Accept": "multipart/form-data"},
        )
    services = services_of(request)
    await asyncio.to_thread(services.store.require_mounted)
    lease = services.budget.lease()
    try:
        try:
            body = await read_body(
                request,
                max_bytes=min(_MAX_IMPORT_BYTES, services.settings.max_body_bytes),
                reserve=lease.reserve,
                grace_seconds=services.settings.header_seconds,
            )
        except BodyTooLargeError as error:
            raise Problem(
                413,
                error.code,
                f"The files are larger than {error.limit} bytes. Import them with the command "
                f"`tokenizer import`, which has no limit.",
                limit=error.limit,
                actual=error.actual,
            ) from None
        options = {
            "name": name,
            "preset": preset,
            "pattern": pattern,
            "special": tokens if tokens or no_special else None,
            "ids": ids,
            "content_type": header_of(request, b"content-type"),
        }
        imported = await services.imports.run(options, body)
    finally:
        lease.release()
    await asyncio.to_thread(services.retention.keep_newest, name)
    response.headers["Location"] = request.url.path
    return ImportedTokenizer(**imported)


@router.delete(
    "/tokenizers/{name}/{version}",
    summary="Remove one version",
    status_code=204,
    dependencies=[Depends(require_admin)],
    responses=problem_responses(403, 404, 409, 412, 422, 503, 507),
)
async def remove_version(request: Request, name: PlainName, version: str) -> None:
    """Delete a version permanently; 409 while it is in use.

    These versions are in use: the active one, the one active before it, the default, and any that
    an alias follows or a job is about to promote.
    """
    services = services_of(request)
    if b"if-match" in header_fields(request.scope):
        require_match(request, await asyncio.to_thread(services.store.resolve, f"{name}@{version}"))
    await asyncio.to_thread(services.retention.remove, name, version)


@router.put(
    "/tokenizers/active",
    summary="Promote or roll back",
    dependencies=[Depends(require_admin)],
    openapi_extra=json_request(PromoteRequest),
    responses=problem_responses(400, 403, 404, 409, 412, 413, 415, 422, 503, 507),
)
async def promote(request: Request, response: Response) -> PromoteResponse:
    """Make a version the active one, which serves requests that name no tokenizer. If it is
    already, nothing changes, and `previous` stays.

    The response is sent once every server process serves the new version. With `If-Match` on the
    digest or the ETag of the active version, the request cannot overwrite another client's
    promotion.
    """
    services = services_of(request)
    wanted = await read_json(request, PromoteRequest, services.settings, _MAX_PROMOTE_BYTES)
    ref = await asyncio.to_thread(services.store.resolve_named, wanted.tokenizer)
    return await _promote(request, response, ref)


@router.post(
    "/rollback",
    summary="Serve again what was served before",
    dependencies=[Depends(require_admin)],
    responses=problem_responses(403, 404, 409, 412, 422, 503, 507),
)
async def roll_back(request: Request, response: Response) -> PromoteResponse:
    """Promote what was active before the last promotion; a second call undoes the first.

    `If-Match` on the digest or the ETag of the active version undoes that promotion and no later
    one.
    """
    services = services_of(request)
    default = services.settings.default
    try:
        ref = await asyncio.to_thread(services.store.served_before, default)
    except ArtifactNotFoundError as error:
        await asyncio.to_thread(services.store.require_mounted)
        detail = f"There is nothing to go back to: {error}."
        raise Problem(404, "tokenizer_not_found", detail) from None
    return await _promote(request, response, ref)


async def _promote(request: Request, response: Response, ref: ArtifactRef) -> PromoteResponse:
    services = services_of(request)

    def check(present: ArtifactRef | None) -> None:
        if present is not None:
            require_match(request, services.live.shown_for(present))

    await services.live.promote(ref, check=check)
    previous = services.live.previous
    response.headers.update({**identity_headers(ref), "ETag": version_tag(ref, previous)})
    return PromoteResponse(
        active=_identity(ref), previous=None if previous is None else _identity(previous)
    )


def _list(services: Services, name: str | None) -> StoredBody:
    active = services.live.active
    if name is None:
        refs = services.store.list()
    else:
        refs = services.store.versions(name)
        if not refs:
            services.store.resolve(name)  # raises an error for a wrong name or wrong files
    newest_first = sorted(refs, key=lambda ref: ref.version, reverse=True)
    newest_first.sort(key=lambda ref: ref.name)
    summaries = []
    for ref in newest_first:
        with contextlib.suppress(ArtifactNotFoundError):  # removed after it was listed
            summaries.append(_summary(services, ref, name is not None))
    found = TokenizersResponse(
        tokenizers=summaries, active=None if active is None else _identity(active.ref)
    )
    return with_etag(found.model_dump_json().encode())


def _render_active(services: Services, ref: ArtifactRef, previous: ArtifactRef | None) -> bytes:
    summary = _summary(services, ref, True)
    shown = ActiveTokenizer(
        **summary.model_dump(), previous=None if previous is None else _identity(previous)
    )
    return shown.model_dump_json().encode()


def _summary(services: Services, ref: ArtifactRef, with_manifest: bool) -> TokenizerSummary:
    active = services.live.active
    manifest: dict[str, Any] = json.loads(services.store.read_manifest(ref).to_json())
    return TokenizerSummary(
        **identity_of(ref),
        active=active is not None and active.ref == ref,
        created_at=str(manifest.get("created_at", "")),
        manifest=manifest if with_manifest else None,
    )


def _identity(ref: ArtifactRef) -> TokenizerIdentity:
    return TokenizerIdentity(**identity_of(ref))
