"""PUT, GET and DELETE /corpora: files of documents, uploaded as a stream. Admin keys only.

Disk access runs in a thread; memory never holds a whole file.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from tokenizer_client.schemas.jobs import Corpus, CorpusList, FieldName, FileFormat
from tokenizer_core.documents import format_of_name
from tokenizer_service.access.auth import require_admin
from tokenizer_service.handlers.disk import off_the_loop, require_folder
from tokenizer_service.handlers.preconditions import PlainName, refuse_match
from tokenizer_service.handlers.stored import respond_json
from tokenizer_service.http.bodies import FILE_REQUEST, body_windows, declared_length, require_file
from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs.corpora import CorpusUpload
from tokenizer_service.jobs.inputs import field_of_text, is_text_format
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import Services, services_of

router = APIRouter(tags=["corpora"], dependencies=[Depends(require_admin), Depends(require_folder)])

_WINDOW_BYTES: Final = 1024 * 1024


@router.put(
    "/corpora/{corpus_id}",
    summary="Upload a corpus",
    openapi_extra=FILE_REQUEST,
    response_model=Corpus,
    responses={
        201: {"description": "A new corpus was stored", "model": Corpus},
        **problem_responses(400, 403, 408, 412, 413, 415, 422, 503, 507),
    },
)
async def upload_corpus(
    request: Request,
    response: Response,
    corpus_id: PlainName,
    if_none_match: Annotated[
        str | None, Header(description="`*`: do not replace an existing corpus.")
    ] = None,
    format: Annotated[  # noqa: A002 - the usual name
        FileFormat | None,
        Query(description="How the body holds documents; by default as the id ends, else text."),
    ] = None,
    field: Annotated[
        FieldName | None,
        Query(description="Field of JSON lines or column of Parquet with the documents."),
    ] = None,
) -> Corpus:
    """Store the body as the corpus with this id, either completely or not at all.

    The body is text, JSON lines or Parquet, also packed with gzip or Zstandard. A body that is not
    what the id or `format` says is a 415.

    Responds 200 when the upload replaces an existing corpus. A waiting job that names the old
    corpus then fails; a running job continues to read the old one.
    """
    services = services_of(request)
    refuse_match(request)
    require_file(request)
    may_replace = (if_none_match or "").strip() != "*"
    if field is not None and is_text_format(format or format_of_name(corpus_id) or "txt"):
        raise field_of_text()
    n_declared = declared_length(request) or 0
    upload = await off_the_loop(
        lambda: services.corpora.begin(
            corpus_id,
            n_declared=n_declared,
            may_replace=may_replace,
            format="txt" if format == "text" else format,
            field=field,
        )
    )
    try:
        await _receive(request, services, upload)
        stored, replaced = await off_the_loop(upload.publish)
    finally:
        await off_the_loop(upload.close)
    if not replaced:
        response.status_code = 201
        response.headers["Location"] = request.url.path
    return stored


@router.get(
    "/corpora",
    summary="Every uploaded corpus",
    response_model=CorpusList,
    responses=problem_responses(403, 422, 503),
)
async def list_corpora(request: Request) -> Response:
    """List all corpora in order of id, and the quota they use."""
    corpora = services_of(request).corpora
    stored = await off_the_loop(corpora.all)
    used = await off_the_loop(corpora.used_bytes)
    return await respond_json(
        lambda: CorpusList(corpora=[*stored], bytes=used, max_bytes=corpora.max_bytes)
    )


@router.get(
    "/corpora/{corpus_id}",
    summary="One uploaded corpus",
    responses=problem_responses(403, 404, 422, 503),
)
async def show_corpus(request: Request, corpus_id: PlainName) -> Corpus:
    """Show the format, size, sha256 and upload time of a corpus, but not its text."""
    return await off_the_loop(services_of(request).corpora.get, corpus_id)


@router.delete(
    "/corpora/{corpus_id}",
    summary="Remove a corpus",
    status_code=204,
    responses=problem_responses(403, 404, 409, 412, 422, 503, 507),
)
async def remove_corpus(request: Request, corpus_id: PlainName) -> None:
    """Delete a corpus permanently; 409 while an unfinished job names it."""
    refuse_match(request)
    services = services_of(request)

    def remove() -> None:
        for job in services.jobs.unfinished():
            if corpus_id in (job.request.get("corpus_ids") or ()):
                raise Problem(
                    409,
                    "corpus_in_use",
                    f"Job {job.id} reads it; wait for the job, or cancel it with DELETE "
                    f"/jobs/{job.id}.",
                )
        services.corpora.remove(corpus_id)

    await off_the_loop(remove)


async def _receive(request: Request, services: Services, upload: CorpusUpload) -> None:
    windows = body_windows(
        request,
        _WINDOW_BYTES,
        grace_seconds=services.settings.header_seconds,
        idle_seconds=services.settings.stream_idle_seconds,
    )
    async for window in windows:
        await off_the_loop(upload.write, window)
