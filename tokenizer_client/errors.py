"""The tree of the client's errors, and the functions that make one from a response, or from none.

No message contains a key or a part of a request.
"""

from __future__ import annotations

import email.utils
import errno
import json
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tokenizer_client.schemas.jobs import AnyJobView


class ClientError(Exception):
    """The base of all errors that the client raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without `__init__`, whose arguments are not those of the message."""
        return Exception.__new__, (type(self), *self.args), vars(self)


class ConnectionLostError(ClientError):
    """The service was not reached, or the connection ended before the response was complete.

    `was_sent` is false if no part of the request can have arrived. `refused_by` is the address at
    which nothing listens, or None.
    """

    def __init__(self, why: str, *, was_sent: bool, refused_by: str | None = None) -> None:
        self.was_sent, self.refused_by = was_sent, refused_by
        if refused_by is not None:
            super().__init__(f"connection refused at {refused_by}; is the service running?")
            return
        when = "before the response was complete" if was_sent else "before anything was sent"
        super().__init__(f"the connection to the service failed {when}: {why}")


class DeadlineExceededError(ClientError):
    """The deadline of the call has passed; `__cause__` is the last failure."""


class StreamCutOffError(ClientError):
    """A stream ended early, or its last record contradicts the frames before it."""


class UnexpectedResponseError(ClientError):
    """The response came from another server, such as a proxy or a much newer service."""


class JobFailedError(ClientError):
    """The job ended as `failed` or `cancelled`; `code` says why."""

    def __init__(self, job: AnyJobView) -> None:
        self.job = job
        self.code = job.state if job.error is None else job.error.code
        detail = "" if job.error is None else f": {job.error.detail}"
        super().__init__(f"job {job.id} {job.state} ({self.code}){detail}")


class ProblemError(ClientError):
    """A problem document (RFC 9457) of the service.

    `detail` says what is wrong and names the remedy; `code` is a stable word. `limit` and `actual`
    describe an exceeded limit. `errors` holds pairs of a JSON pointer into the request and its
    fault, `byte_offset` an offset in a text. The service asks to wait `retry_after_seconds`, and
    its log identifies the request by `request_id`.
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        self.status = status
        self.code = str(document.get("code") or f"http_{status}")
        self.title = str(document.get("title") or "Error")
        self.detail = str(document.get("detail") or "")
        self.limit = _number(document.get("limit"))
        self.actual = _number(document.get("actual"))
        self.byte_offset = _number(document.get("byte_offset"))
        self.errors = _pointers(document.get("errors"))
        self.retry_after_seconds = _parse_retry_after(headers.get("retry-after"))
        self.request_id = headers.get("x-request-id")
        super().__init__(f"{status} {self.code}: {self.detail or self.title}")


class AuthenticationError(ProblemError):
    """401 or 403: no key, a wrong key, or a key that may only read."""


class NotFoundError(ProblemError):
    """404: no such tokenizer, version, token, corpus, token files, job or route."""


class ConflictError(ProblemError):
    """409: the queue is full, or the resource is in use or exists already."""


class PreconditionFailedError(ProblemError):
    """412: a precondition of the request (If-Match, If-None-Match) does not hold."""


class DigestMismatchError(PreconditionFailedError):
    """412: the tokenizer is not the one whose digest the request asks for.

    `present_digest` is its digest, or None if the service does not report it.
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        super().__init__(status, document, headers)
        tag = headers.get("etag") or headers.get("tokenizer-digest")
        self.present_digest = None if tag is None else tag.strip('"')


class TooLargeError(ProblemError):
    """413: the request exceeds a limit; `limit` and `actual` say which."""


class InvalidRequestError(ProblemError):
    """400, 406, 415, 416 or 422: the request is invalid."""


class UnavailableError(ProblemError):
    """429, 502, 503 or 504: the service is busy or unavailable. Raised after the last attempt."""


_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

_CLASSES: Final[dict[int, type[ProblemError]]] = {
    **dict.fromkeys((400, 406, 415, 416, 422), InvalidRequestError),
    **dict.fromkeys((401, 403), AuthenticationError),
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    413: TooLargeError,
    # A proxy sends 502 and 504 when it loses its connection to the service.
    **dict.fromkeys((429, 502, 503, 504), UnavailableError),
}


def problem_of(status: int, headers: Mapping[str, str], body: bytes | bytearray) -> ProblemError:
    """The error for a response with this status; a proxy may have written its body."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "code" not in document:
        document = {"detail": "no problem document in the response; a proxy may have sent it"}
    return problem_of_document(status, document, headers)


def problem_of_document(
    status: int, document: Mapping[str, Any], headers: Mapping[str, str]
) -> ProblemError:
    """The error for a problem document."""
    if document.get("code") == "digest_mismatch":
        return DigestMismatchError(status, document, headers)
    return _CLASSES.get(status, ProblemError)(status, document, headers)


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _pointers(items: Any) -> list[tuple[str, str]]:
    if not isinstance(items, list):
        return []
    return [
        (str(item.get("pointer", "")), str(item.get("detail", "")))
        for item in items
        if isinstance(item, dict)
    ]


def _parse_retry_after(value: str | None) -> float | None:
    """Seconds, or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def connection_lost(
    error: httpx.TransportError, socket_path: str | None = None
) -> ConnectionLostError:
    """The error for a failure of httpx; `socket_path` is the Unix socket of the service, if any."""
    why = f"{type(error).__name__}: {error}".removesuffix(": ")
    refused_by = None
    if isinstance(error, httpx.ConnectError) and _is_refused(error):
        url = error.request.url
        refused_by = f"{url.scheme}://{url.netloc.decode()}"
        if socket_path is not None:
            refused_by = f"unix:{socket_path}"
    was_sent = not isinstance(error, _NEVER_SENT)
    return ConnectionLostError(why, was_sent=was_sent, refused_by=refused_by)


def _is_refused(error: BaseException | None) -> bool:
    """Whether nothing listens at any address of the host: httpx and asyncio hide it in a cause.

    A file is not found where a Unix socket would be.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_refused, error.exceptions))
    if error is None or isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return error is not None
    if isinstance(error, OSError) and str(error).startswith("Multiple exceptions: "):
        return str(error).count(f"[Errno {errno.ECONNREFUSED}]") == str(error).count("[Errno ")
    return _is_refused(error.__cause__ or error.__context__)
