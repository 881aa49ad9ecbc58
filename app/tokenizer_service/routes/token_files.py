"""POST /corpora/{id}/encode, and /token-files: a job encodes corpora to token files. Admin keys
only.

Invalid requests are refused before a job is created. Disk access runs in a thread.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

from tokenizer_client.schemas.jobs import EncodeJobView
from tokenizer_client.schemas.token_files import EncodeCorpusRequest, TokenFilesList, TokenFilesView
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.spec.document_end import END_OF_TEXT
from tokenizer_service.access.auth import require_admin
from tokenizer_service.handlers.choose_tokenizer import choose_tokenizer_on_thread
from tokenizer_service.handlers.disk import off_the_loop, require_folder
from tokenizer_service.handlers.jobs import ACCEPTED, IdempotencyKey, WaitSeconds, submit_job
from tokenizer_service.handlers.preconditions import (
    PlainName,
    download_headers,
    not_modified,
    refuse_match,
)
from tokenizer_service.handlers.stored import respond_json
from tokenizer_service.http.bodies import json_request
from tokenizer_service.http.responses import FileBody, requested_span
from tokenizer_service.jobs.errors import TokenFilesExistError
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.inputs import (
    conversation_options,
    corpus_format,
    estimate_bytes,
    find_encoding_inputs,
    max_bad,
    plan_encoding,
)
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import Services, services_of
from tokenizer_service.serving.live_tokenizer import identity_headers, identity_of

router = APIRouter(
    tags=["token files"], dependencies=[Depends(require_admin), Depends(require_folder)]
)

_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_TAG_HEADERS: Final = {
    "ETag": {"required": True, "schema": {"type": "string"}, "description": "Of the sha256"},
    "Accept-Ranges": {"required": True, "schema": {"type": "string"}},
}


@router.post(
    "/corpora/{corpus_id}/encode",
    summary="Encode corpora to token files",
    status_code=202,
    response_model=EncodeJobView,
    responses={**ACCEPTED, **problem_responses(400, 403, 404, 409, 412, 413, 415, 422, 503, 507)},
    openapi_extra=json_request(EncodeCorpusRequest),
)
async def encode_corpus(
    request: Request,
    response: Response,
    corpus_id: PlainName,
    idempotency_key: IdempotencyKey = None,
    wait: WaitSeconds = 0,
) -> Any:
    """Encode one corpus or several to token files for training a model.

    Responds at once with the job, or waits for its end (`?wait=60`); follow the job at its
    `Location`. Jobs run one at a time. After
    its process or server is killed, a job resumes from its checkpoint and writes the same bytes.
    """
    prefix = request.url.path.removesuffix("/").removesuffix(f"/corpora/{corpus_id}/encode")
    job, view = await submit_job(
        request,
        response,
        idempotency_key,
        wait,
        kind="encode",
        model=EncodeCorpusRequest,
        digest=lambda asked: asked.digest(corpus_id),
        prepare=partial(_prepare, request, corpus_id),
        prefix=f"{prefix}/jobs",
    )
    if not job.is_damaged:  # an earlier job with this key may be, and names no tokenizer then
        named = {key: job.request["tokenizer"][key] for key in ("name", "version", "digest")}
        response.headers.update(identity_headers(ArtifactRef(**named)))
    return view


@router.get(
    "/token-files",
    summary="All token files",
    response_model=TokenFilesList,
    responses=problem_responses(403, 422, 503),
)
async def list_token_files(request: Request) -> Any:
    """List all token files in order of id, and the disk space they use."""
    store = services_of(request).token_files
    found, used = await off_the_loop(store.all), await off_the_loop(store.used_bytes)
    return await respond_json(
        lambda: TokenFilesList(token_files=found, bytes=used, max_bytes=store.max_bytes)
    )


@router.get(
    "/token-files/{token_files_id}",
    summary="One set of token files",
    response_model=TokenFilesView,
    responses=problem_responses(403, 404, 409, 422, 503),
)
async def show_token_files(request: Request, token_files_id: PlainName) -> Response:
    """Show the manifest: the tokenizer, the corpora, the splits and each file."""
    store = services_of(request).token_files
    view = await off_the_loop(store.describe, token_files_id)
    return await respond_json(lambda: view)


@router.get(
    "/token-files/{token_files_id}/{file}",
    summary="One file of token files",
    response_model=None,
    responses={
        200: {"content": {_JSON: {}, _BYTES: {}}, "headers": _TAG_HEADERS},
        206: {
            "description": "The requested range",
            "content": {_JSON: {}, _BYTES: {}},
            "headers": _TAG_HEADERS,
        },
        304: {"description": "If-None-Match matches"},
        **problem_responses(403, 404, 409, 416, 422, 503),
    },
)
async def download_token_file(request: Request, token_files_id: PlainName, file: str) -> Response:
    """Download a stored file or a `Range` of it; the ETag is its sha256.

    An interrupted download resumes with `Range` and `If-Range`, as with `curl -C -`.
    """
    services = services_of(request)
    opened = await off_the_loop(services.token_files.open_file, token_files_id, file)
    try:
        etag = f'"{opened.sha256}"'
        # Private: a shared cache would serve the file without checking a key.
        headers = {"Cache-Control": "private, no-cache", "Accept-Ranges": "bytes"}
        unchanged = not_modified(request, etag, headers)
        if unchanged is not None:
            os.close(opened.descriptor)
            return unchanged
        headers |= download_headers(etag, file)
        return FileBody(
            opened.descriptor,
            requested_span(request, opened.n_bytes, etag),
            opened.n_bytes,
            headers=headers,
            media_type=_JSON if file.endswith(".json") else _BYTES,
            idle_seconds=services.settings.send_seconds,
        )
    except BaseException:
        os.close(opened.descriptor)
        raise


@router.delete(
    "/token-files/{token_files_id}",
    summary="Remove token files",
    status_code=204,
    responses=problem_responses(403, 404, 412, 422, 503, 507),
)
async def remove_token_files(request: Request, token_files_id: PlainName) -> None:
    """Delete token files permanently. Programs that have a file open or mapped keep reading it."""
    refuse_match(request)
    store = services_of(request).token_files
    await off_the_loop(store.remove, token_files_id)


def _prepare(
    request: Request, corpus_id: str, asked: EncodeCorpusRequest, folder: JobFolder
) -> dict[str, Any]:
    """The request that the job stores."""
    services = services_of(request)
    token_files_id = asked.token_files_id or folder.path.name.lower()
    _require_free(services, token_files_id)
    files = find_encoding_inputs(asked, corpus_id, services.corpora)
    live = choose_tokenizer_on_thread(request, asked.tokenizer)
    plan, arguments = plan_encoding(asked, live, files)
    n_bytes = estimate_bytes(files, live.tokenizer, plan)
    # A shuffle writes all ids twice and removes the first copy at its end.
    services.token_files.require_room(2 * n_bytes if asked.shuffle else n_bytes)
    return {
        "token_files_id": token_files_id,
        "corpus_ids": [corpus_id, *asked.further_corpora],
        "inputs": [asdict(file) for file in files],
        "tokenizer": {**identity_of(live.ref), "fingerprint": live.tokenizer.spec.fingerprint},
        "plan": arguments,
        "corpus_format": corpus_format(asked, files, separator=END_OF_TEXT),
        "separator": asked.separator,
        "max_bad": max_bad(asked),
        "conversations": conversation_options(asked) if asked.format == "chat" else None,
        "validation_share": asked.validation_share,
        "shuffle": asked.shuffle,
        "workers": asked.workers,
        "limits": asked.limits.model_dump(),
    }


def _require_free(services: Services, token_files_id: str) -> None:
    """Raise TokenFilesExistError if the id is taken, or an unfinished job is to create it."""
    services.token_files.require_free(token_files_id)
    for job in services.jobs.unfinished():
        if job.request.get("token_files_id") == token_files_id:
            raise TokenFilesExistError
