"""Every error of the domain as a problem document: the one table of status, header and detail.

The domain raises errors with a stable `code` and values; only this module maps them to an HTTP
status and `Retry-After`; `http.dialect_errors` translates a status for the API of another server.
What is wrong with a request as HTTP is a `Problem` where it is found. A detail never repeats client
input.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from tokenizer_client.schemas.tokens import BatchTooLargeError
from tokenizer_core import errors as core
from tokenizer_core.presets import PRESETS
from tokenizer_service.access import errors as access
from tokenizer_service.http.problem import (
    MEDIA_TYPE,
    TITLES,
    Problem,
    internal_error,
    problem_of_validation,
    problem_response,
)
from tokenizer_service.jobs import errors as jobs
from tokenizer_service.jobs.database import JobDatabaseError, JobDatabaseUnusableError
from tokenizer_service.responses import errors as responses
from tokenizer_service.serving import errors as serving

log = logging.getLogger("tokenizer_service.responses.problem_table")


@dataclass(frozen=True, slots=True)
class Row:
    """How an error becomes a problem document.

    `detail` is a format string over `error`; by default it is the text of the error. `pointer` is
    one too: the place in the request, of which `detail` is the reason. The code, `limit`, `actual`,
    `byte_offset` and `wrong` (pointers and reasons) are attributes of the error. `log` is a line
    for the log in front of the error's text.
    """

    status: int
    detail: str = "{error}"
    retry_after: int | None = None
    """In seconds."""
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = "{error.code}"
    pointer: str | None = None
    log: str | None = None

    def problem(self, error: Any) -> Problem:
        """The problem document of `error`."""
        if self.log is not None:
            log.error("%s: %s", self.log, error)
        detail = self.detail.format(error=error)
        wrong = getattr(error, "wrong", None)
        if self.pointer is not None:
            wrong = [(self.pointer.format(error=error), detail)]
        retry = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return Problem(
            self.status,
            self.code.format(error=error),
            detail,
            errors=wrong,
            limit=getattr(error, "limit", None),
            actual=getattr(error, "actual", None),
            byte_offset=getattr(error, "byte_offset", None),
            headers={**self.headers, **retry},
        )


def problem_of(error: BaseException) -> Problem | None:
    """The problem document for `error`, or None when the error is a defect."""
    if isinstance(error, Problem):
        return error
    for kind in type(error).__mro__:
        row = TABLE.get(kind)
        if row is not None:
            return row.problem(error) if isinstance(row, Row) else row(error)
    return None


def _problem_of_disk(error: OSError) -> Problem:
    log.error("disk error: %s", error)
    return _problem_of_disk_error(serving.DiskError(error))


def _problem_of_disk_error(error: serving.DiskError) -> Problem:
    return (Row(507) if error.refuses_writes else Row(503, retry_after=30)).problem(error)


def _problem_of_placed(error: responses.PlacedError) -> Problem | None:
    problem = problem_of(error.cause)
    if problem is None:
        return None
    detail = error.detail or problem.detail
    return Problem(problem.status, problem.code, detail, errors=[(error.pointer, detail)])


def _problem_of_short_chunks(error: core.MaxTokensTooSmallError) -> Problem:
    return Problem(
        422,
        error.code,
        f"A character of the text has {error.n_tokens} tokens by itself and max_tokens is "
        f"{error.max_tokens}; a chunk never ends inside a character, so allow more.",
        errors=[("/max_tokens", f"below the {error.n_tokens} tokens of one character")],
        limit=error.max_tokens,
        actual=error.n_tokens,
        byte_offset=error.byte_offset,
    )


def _problem_of_shape(error: core.ChatShapeError) -> Problem:
    errors = [(error.place, error.detail)]
    return Problem(422, "invalid_request", f"{error.place}: {error.detail}", errors=errors)


def _problem_of_full_disk(error: OSError) -> Problem | None:
    """Map any OSError for a full disk to the 507; a full disk is never a defect."""
    return _problem_of_disk(error) if error.errno in serving.REFUSES_WRITES else None


def _problem_of_corrupt_artifact(error: core.ArtifactCorruptError) -> Problem:
    log.error("an artifact was refused: %s", error)
    what = error.version or "The stored tokenizer"
    remedy = "Restore it from a backup, or publish or import it again"
    if error.version and error.file:
        what += f" ({error.file})"
    elif error.file:  # the pointer
        what, remedy = error.file, "Promote a version (PUT /tokenizers/active)"
    return Problem(
        409,
        error.code,
        f"{what} fails its verification and is not loaded; the log of the server has the reason. "
        f"{remedy}.",
    )


def _problem_of_unknown_name(error: core.ArtifactNotFoundError) -> Problem:
    name = error.name
    if name in PRESETS:
        detail = (
            f"{name} is a preset, which is not published here. Publish it: `tokenizer import "
            f"--preset {name} --name {name}`, or POST /tokenizers/{name}?preset={name} with its "
            f"file."
        )
    elif name == "starter":
        detail = (
            "starter is the tokenizer of the package, which is not published here. Publish it: "
            "`tokenizer import starter --name starter`, or POST /tokenizers/starter with the "
            "files that `tokenizer convert starter --to transformers` writes."
        )
    elif isinstance(error, core.ModelNotFoundError):
        detail = (
            "No tokenizer has the name or alias that `model` gives{error.near}; GET /v1/models "
            "lists them. `tokenizer alias NAME ALIAS`, or PUT /v1/models/ALIAS, adds an alias. "
            "With TOKENIZER_MODEL=ignore the service ignores `model`."
        )
    else:
        detail = (
            "No such tokenizer, version or alias{error.near}; GET /tokenizers and /v1/models list "
            "them. "
            "`tokenizer import`, or POST /tokenizers/{{name}}, publishes one."
        )
    return Row(404, detail).problem(error)


def _problem_of_job_database(error: JobDatabaseError) -> Problem:
    if not error.is_away:  # an outage is logged when it begins
        log.error("the job database cannot be used: %s", error)
    if error.is_full or error.is_read_only:
        number = errno.EROFS if error.is_read_only else errno.ENOSPC
        return _problem_of_disk_error(serving.DiskError(OSError(number, "")))
    return Row(
        503,
        "The jobs cannot be read or written at the moment; the log of the server says why. "
        "Encoding of requests is not affected.",
        retry_after=5,
        code="job_store_unavailable",
    ).problem(error)


def _problem_of_http_error(error: HTTPException) -> Problem:
    details = {
        404: (
            "not_found",
            "No such route; /docs lists the routes. This service has no model: it encodes and "
            "counts.",
        ),
        405: ("method_not_allowed", "This route does not support that method."),
    }
    status = error.status_code
    code, detail = details.get(
        status, (f"http_{status}", TITLES.get(status, "The request failed."))
    )
    return Problem(status, code, detail, headers=error.headers)


TABLE: Final[Mapping[type[BaseException], Row | Callable[[Any], Problem | None]]] = {
    # Admission
    access.KeyRequiredError: Row(
        401,
        "{error.found}This route requires {error.accepted}, "
        "as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
        headers={"WWW-Authenticate": 'Bearer realm="tokenizer"'},
    ),
    access.AdminKeyRequiredError: Row(403, "This is a read key; the route requires an admin key."),
    access.OverloadedError: Row(
        503, "The requests in progress {error.reason}; try again.", retry_after=1
    ),
    access.WorkTooLongError: Row(
        413,
        "This request worked for more than {error.limit:g} seconds; send less at once. The "
        "operator can raise TOKENIZER_WORK_SECONDS.",
    ),
    access.TooManyConnectionsError: Row(
        503,
        "This process has reached its limit of {error.limit} connections; try again, or open "
        "fewer. The operator can raise TOKENIZER_MAX_CONNECTIONS.",
        retry_after=1,
    ),
    access.ShuttingDownError: Row(
        503, "The server is shutting down; send the request again.", retry_after=1
    ),
    # Limits of a request
    access.BodyTooLargeError: Row(
        413,
        "The body is larger than {error.limit} bytes. Send less at once, or stream it to "
        "/encode_stream or /decode_stream; the operator can raise TOKENIZER_MAX_BODY_BYTES.",
    ),
    access.TooManyContainersError: Row(
        413,
        "A body holds at most {error.limit} arrays and objects together; send several requests.",
    ),
    access.TooManyValuesError: Row(
        413,
        "A body holds at most {error.limit} strings, arrays and objects together; send several "
        "requests.",
    ),
    access.LineTooLongError: Row(
        413,
        "Line {error.number} is longer than {error.limit} bytes; send shorter lines, or raw ids as "
        "application/octet-stream.",
    ),
    BatchTooLargeError: Row(
        413, "A batch holds at most {error.limit} items; send several requests."
    ),
    access.TooManyTokensError: Row(
        413, "The text has {error.actual} tokens and max_tokens is {error.limit}."
    ),
    access.TooManyDetailedTokensError: Row(
        413,
        "Pieces, token strings and offsets are returned for at most {error.limit} tokens at once; "
        "send less text, or ask for ids only.",
    ),
    access.DecodedTextTooLargeError: Row(
        413, "These ids decode to more than {error.limit} bytes of text; send fewer at once."
    ),
    access.TooManyChunksError: Row(
        413,
        "A response holds at most {error.limit} chunks; send less text, or allow more tokens in "
        "each.",
    ),
    access.ChunksTooLargeError: Row(
        413,
        "The overlaps would repeat {error.actual} bytes of text and ids, more than {error.limit}; "
        "with this max_tokens, the largest overlap_tokens that fits is {error.largest_overlap}.",
    ),
    access.RequestsTooLargeError: Row(
        413,
        "Each prompt's request repeats the fields, in all more than "
        "{error.limit} bytes; send fewer prompts at once. The operator can raise "
        "TOKENIZER_MAX_RESPONSE_BYTES.",
    ),
    # What a request asks for
    responses.PlacedError: _problem_of_placed,
    responses.InvalidFieldError: Row(422),
    responses.UnknownTokenError: Row(404),
    responses.NotUtf8Error: Row(422),
    # Serving
    serving.NoTokenizerError: Row(503, retry_after=5),
    serving.SwapTimeoutError: Row(503, retry_after=30),
    serving.SwapFailedError: Row(503),
    serving.PromotionInProgressError: Row(409),
    serving.DiskError: _problem_of_disk_error,
    serving.FormatCannotHoldError: Row(422),
    # Jobs
    jobs.ImportRunningError: Row(
        409, "Another vocabulary is being imported; try again when it is done.", retry_after=10
    ),
    jobs.VocabularyImportError: Row(422),
    jobs.QueueFullError: Row(
        409,
        "Jobs that run or wait: {error.unfinished}; one may run and {error.limit} may wait. Try "
        "again when one has ended, cancel one, or raise TOKENIZER_TRAIN_QUEUE.",
        retry_after=30,
    ),
    jobs.JobRunningError: Row(
        409,
        "A job is running and TOKENIZER_TRAIN_QUEUE=0 lets none wait; try again when it has ended.",
        retry_after=30,
    ),
    jobs.IdempotencyConflictError: Row(
        422,
        "This Idempotency-Key belongs to job {error.job_id}, with a different request. Use a "
        "new key for a new request.",
    ),
    jobs.TooManyListenersError: Row(
        503,
        "Too many clients follow jobs; try again, or poll GET /jobs/{{id}} instead.",
        retry_after=5,
    ),
    jobs.InvalidInputsError: Row(422),
    jobs.VersionInUseError: Row(409, "This version is in use: {error}."),
    JobDatabaseError: _problem_of_job_database,
    JobDatabaseUnusableError: Row(503, "{error.remedy}"),
    # Corpora
    jobs.CorpusNotFoundError: Row(404, "No corpus has this id; see GET /corpora."),
    jobs.CorpusExistsError: Row(
        412,
        "There is a corpus with this id, and If-None-Match: * says that it must not be replaced. "
        "Choose another id, or leave the header out.",
    ),
    jobs.CorpusReplacedError: Row(
        409, "Another request has just replaced the corpus; send the request again."
    ),
    jobs.CorpusFormatError: Row(
        415,
        "The body is {error}. End the id in the format of the content, "
        "as in `/corpora/news.jsonl.gz`, or add `?format=`: txt, txt.gz, txt.zst, jsonl, "
        "jsonl.gz, jsonl.zst or parquet.",
    ),
    jobs.CorporaQuotaError: Row(
        413,
        "All corpora together would take more than {error.limit} bytes. Remove one with DELETE "
        "/corpora/{{id}}; the operator can raise TOKENIZER_CORPORA_MAX_BYTES.",
    ),
    # Token files
    jobs.TokenFilesNotFoundError: Row(404, "No token files have this id; see GET /token-files."),
    jobs.TokenFileNotFoundError: Row(
        404, "These token files have no such file; GET /token-files/{{id}} lists the files."
    ),
    jobs.TokenFilesExistError: Row(
        409,
        "There are token files of this id, or a job is to make them, and token files are never "
        "changed. Remove them with DELETE /token-files/{{id}}, or name others in token_files_id.",
    ),
    jobs.TokenFilesDamagedError: Row(
        409,
        "These token files fail their verification; the log of the server says why. Remove them "
        "with DELETE /token-files/{{id}} and encode the corpus again.",
    ),
    jobs.TokenFilesQuotaError: Row(
        413,
        "All token files together would take more than {error.limit} bytes. Remove some with "
        "DELETE /token-files/{{id}}; the operator can raise "
        "TOKENIZER_TOKEN_FILES_MAX_BYTES.",
    ),
    jobs.DiskTooSmallError: Row(
        507,
        "The token files will take about {error.actual} bytes, and {error.limit} are free where "
        "they are kept. Remove token files or corpora, mount a larger volume, or encode less.",
    ),
    # The library. A detail here replaces an error text that would repeat a name from the request.
    core.InvalidUtf8Error: Row(400),
    core.SpecialTokenForbiddenError: Row(
        422,
        "The text holds a special token that disallowed_special forbids. To recognise it, name it "
        "in allowed_special and not in disallowed_special; to encode it as plain text, send "
        '"none" as allowed_special and no disallowed_special.',
    ),
    core.SpecialTokenReachedError: Row(
        422,
        "As plain text, a part of these segments gives id {error.token_id} of a control token, "
        "which the vocabulary's merges make. Leave that text out, send special: true in all "
        "segments, or name another tokenizer.",
    ),
    core.UnknownSpecialTokenError: Row(
        422,
        "{error.option} names what is no special token of this tokenizer; GET /tokenizers/{{name}} "
        "lists them (added_tokens)",
        pointer="/{error.option}",
    ),
    core.UnknownTokenIdError: Row(
        422,
        "The id at index {error.index} is not in the vocabulary (largest id {error.largest_id}). "
        "Decode with the tokenizer that made these ids.",
    ),
    core.MaxTokensTooSmallError: _problem_of_short_chunks,
    core.UnknownPatternError: Row(422),
    core.PreTokenTooLongError: Row(413),
    core.SplitTooSlowError: Row(422),
    core.ChatShapeError: _problem_of_shape,
    core.ChatInputError: Row(422),
    core.ChatTemplateMissingError: Row(
        422, "The tokenizer has no chat template of this name; publish a version with it."
    ),
    core.ChatTemplateError: Row(
        422,
        "{error}. Send messages and variables that this template takes, or name another template.",
    ),
    core.ChatLimitError: Row(
        422,
        "{error}; send a shorter conversation. The operator can raise TOKENIZER_CHAT_SECONDS and "
        "TOKENIZER_CHAT_MEMORY_BYTES.",
    ),
    core.OutputStateError: Row(422, pointer="/stream_state"),
    core.OutputTooLongError: Row(413),
    core.WorkerProcessError: Row(
        503,
        "The process that did the work ended; the log of the server says why. Send the request "
        "again.",
        retry_after=1,
        log="a worker process died",
    ),
    core.VocabSizeError: Row(422),
    core.CorpusError: Row(422),
    core.ArtifactNotFoundError: _problem_of_unknown_name,
    core.AliasTakenError: Row(
        409,
        "This alias belongs to another tokenizer, or a tokenizer has it as its name; GET "
        "/v1/models lists them. Remove the alias first with DELETE /v1/models/ALIAS, or take "
        "another name.",
    ),
    core.NameReservedError: Row(
        409,
        "This is the name of a preset or of the package's tokenizer, which `--tokenizer NAME` "
        "finds with other ids. Take another name.",
    ),
    core.ArtifactNameError: Row(
        422,
        "Invalid name: a name has up to 64 of a-z 0-9 . _ - and starts with a "
        "letter or digit, a version reads like 20261121T041500Z-1a2b3c4d, an alias has 1 to 200 "
        "printable ASCII characters, and 'active' is taken.",
    ),
    core.ArtifactInUseError: Row(409),
    core.PointerMovedError: Row(409),
    core.ArtifactCorruptError: _problem_of_corrupt_artifact,
    core.ArtifactStorageError: _problem_of_disk,
    core.ArtifactError: Row(422),
    # The framework and the operating system
    RequestValidationError: lambda error: problem_of_validation(error.errors(), skip=1),
    HTTPException: _problem_of_http_error,
    OSError: _problem_of_full_disk,
    MemoryError: Row(
        503,
        "The server has no memory for this request at the moment; send it again later, or in "
        "smaller parts.",
        retry_after=5,
        code="out_of_memory",
        log="no memory for a request",
    ),
}
"""Error class -> its problem; the nearest base class with a row decides."""


def install_problem_handlers(app: FastAPI) -> None:
    """Make `app` respond with a problem document to these errors and their subclasses.

    The outermost middleware handles all other errors.
    """
    handled: tuple[type[Exception], ...] = (
        Problem,
        access.AccessError,
        responses.ResponseError,
        serving.ServingError,
        jobs.JobsError,
        core.TokenizerCoreError,
        BatchTooLargeError,
        RequestValidationError,
        HTTPException,
    )
    for kind in handled:
        app.add_exception_handler(kind, _handle)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route for OpenAPI: these statuses are problem documents.

    `routes.docs` adds the statuses that any route can return.
    """
    reference = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": reference}}}
        for status in sorted(statuses)
    }


async def _handle(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem is None:  # a class is registered but not mapped
        problem = internal_error(error, request.scope)
    if problem.status == 405:
        allowed = problem.headers["Allow"] = ", ".join(_allowed_methods(request))
        problem.detail = f"This route does not support {request.method}; it has {allowed}."
    return problem_response(problem, request.scope)


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes with this path; Starlette reports those of only one route."""
    allowed = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.router.routes
        )
    ]
    return [*allowed, "HEAD"] if "GET" in allowed else allowed  # the middleware serves HEAD as GET
