"""What the client raises, as a tree; made of answers here, so that all calls raise alike.

    ClientError
    ├── ConnectionLostError          not reached, or gone before the answer was whole
    ├── DeadlineExceededError        the time that was given is over
    ├── StreamCutOffError            a stream without its end, or with a wrong one
    ├── UnexpectedAnswerError        an answer that this service does not give
    ├── JobFailedError               a job that was waited for failed or was cancelled
    └── ProblemError                 the service says what is wrong and what to do
        ├── AuthenticationError      401, 403
        ├── NotFoundError            404
        ├── ConflictError            409
        ├── PreconditionFailedError  412: it is there already
        │   └── DigestMismatchError  412: another tokenizer than the pinned one
        ├── TooLargeError            413
        ├── InvalidRequestError      400, 406, 415, 416, 422
        └── UnavailableError         429, 502, 503, 504

No message holds a key or what was sent.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from tokenizer_client.schemas.jobs import AnyJobView


class ClientError(Exception):
    """The root of all errors that the client raises on purpose."""


class ConnectionLostError(ClientError):
    """The service was not reached, or the connection ended before the answer was whole.

    `was_sent` is false where not even a part of the request can have arrived.
    """

    def __init__(self, why: str, *, was_sent: bool) -> None:
        self.was_sent = was_sent
        place = "before the answer was whole" if was_sent else "before anything was sent"
        super().__init__(f"the connection to the service failed {place}: {why}")


class DeadlineExceededError(ClientError):
    """The time for the call is over; what went wrong last is its cause."""


class StreamCutOffError(ClientError):
    """A stream that has no end, or one that does not agree with what came before."""


class UnexpectedAnswerError(ClientError):
    """The answer is none of this service: another server, a proxy, or a much newer one."""


class JobFailedError(ClientError):
    """A job that was waited for ended as `failed` or `cancelled`; `code` says why."""

    def __init__(self, job: AnyJobView) -> None:
        self.job = job
        self.code = job.state if job.error is None else job.error.code
        detail = "" if job.error is None else f": {job.error.detail}"
        super().__init__(f"job {job.id} {job.state} ({self.code}){detail}")


class ProblemError(ClientError):
    """A problem document (RFC 9457) of the service.

    `detail` says what is wrong and what to do; `code` is a stable word. `limit` and `actual` name
    a limit that was passed, `errors` are pairs of a JSON pointer into the request and what is
    wrong there, `byte_offset` is a place in a text. `retry_after_seconds` is what the service
    asks for, `request_id` what its log has.
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
    """401 or 403: no key, a wrong one, or one that may only read."""


class NotFoundError(ProblemError):
    """404: no such tokenizer, version, token, corpus, token files, job or route."""


class ConflictError(ProblemError):
    """409: the queue is full, or what is named is in use or taken."""


class PreconditionFailedError(ProblemError):
    """412: what the request was to be done only without, or only with, is there, or is not."""


class DigestMismatchError(PreconditionFailedError):
    """412: another tokenizer than the one whose digest was asked for would have answered.

    `present_digest` is the one it would have been, where the service says so.
    """

    def __init__(
        self, status: int, document: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        super().__init__(status, document, headers)
        tag = headers.get("etag") or headers.get("tokenizer-digest")
        self.present_digest = None if tag is None else tag.strip('"')


class TooLargeError(ProblemError):
    """413: over a limit; `limit` and `actual` say which."""


class InvalidRequestError(ProblemError):
    """400, 406, 415, 416 or 422: the request cannot be answered as it is."""


class UnavailableError(ProblemError):
    """429, 502, 503 or 504: not now. Raised once the attempts are used up."""


_CLASSES: Final[dict[int, type[ProblemError]]] = {
    **dict.fromkeys((400, 406, 415, 416, 422), InvalidRequestError),
    **dict.fromkeys((401, 403), AuthenticationError),
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    413: TooLargeError,
    # 502 and 504 are a proxy's words for a connection to the service that was lost.
    **dict.fromkeys((429, 502, 503, 504), UnavailableError),
}


def problem_of(status: int, headers: Mapping[str, str], body: bytes | bytearray) -> ProblemError:
    """The error that an answer with this status means, whoever wrote its body.

    Example:
        >>> error = problem_of(404, {}, b'{"code": "not_found", "detail": "No such thing."}')
        >>> type(error).__name__, str(error)
        ('NotFoundError', '404 not_found: No such thing.')
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "code" not in document:
        document = {"detail": "no problem document came along; a proxy may have answered"}
    return problem_of_document(status, document, headers)


def problem_of_document(
    status: int, document: Mapping[str, Any], headers: Mapping[str, str]
) -> ProblemError:
    """The error that a problem document means."""
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
