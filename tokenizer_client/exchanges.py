"""Exchanges: a request and its whole answer, tried again where that may help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    DigestMismatchError,
    NotFoundError,
    ProblemError,
    UnexpectedAnswerError,
    problem_of,
)
from tokenizer_client.retries import Deadline, Repeat, Session
from tokenizer_client.steps import Flow, Head, Open, Read, Request, Wait

Model = TypeVar("Model", bound=BaseModel)

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
_MAX_PROBLEM_BYTES: Final = 1 << 16
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of the service that is no error."""

    headers: Mapping[str, str]
    body: bytearray

    def parse(self, model: type[Model]) -> Model:
        """The body as a `model`.

        Raises:
            UnexpectedAnswerError: it is none.
        """
        return parse_json(self.body, model)


def parse_json(body: bytes | bytearray, model: type[Model]) -> Model:
    """What the service says, as a `model`.

    Raises:
        UnexpectedAnswerError: it is none.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        wrong = ", ".join(
            ".".join(map(str, item["loc"])) or "the whole" for item in error.errors()[:4]
        )
        raise UnexpectedAnswerError(
            f"the answer is no {model.__name__} of this service ({wrong}); is the address right, "
            f"and the service as new as the client?"
        ) from None


def exchange(
    session: Session,
    request: Request,
    *,
    repeat: Repeat = Repeat.ALWAYS,
    deadline: Deadline | None = None,
) -> Flow[Answer]:
    """Send `request` until it is answered.

    Raises:
        ProblemError: the service says no; `UnavailableError` after the last attempt.
        ConnectionLostError: after the last attempt.
        DeadlineExceededError, UnexpectedAnswerError: as they say.
    """
    deadline = deadline or session.deadline(session.deadline_seconds)
    attempts = session.attempts(deadline, repeat)
    while True:
        try:
            head = yield from open_answer(session, request, deadline)
            return Answer(head.headers, (yield from read_whole(deadline)))
        except ClientError as failed:
            error = failed
        yield Wait(attempts.wait_seconds(error))


def remove(session: Session, path: str) -> Flow[None]:
    """DELETE what is at `path`. If an attempt whose answer was lost has done it, it is done."""
    deadline = session.deadline(session.deadline_seconds)
    attempts = session.attempts(deadline)
    while True:
        try:
            yield from open_answer(session, Request("DELETE", path), deadline)
            return
        except NotFoundError as failed:
            if attempts.may_be_done:
                return
            error: ClientError = failed
        except ClientError as failed:
            error = failed
        yield Wait(attempts.wait_seconds(error))


def open_answer(session: Session, request: Request, deadline: Deadline) -> Flow[Head]:
    """One attempt, up to the head of an answer that is no error.

    Raises:
        ProblemError: the service says no.
        ConnectionLostError, DeadlineExceededError, UnexpectedAnswerError: as they say.
        ValueError: the request cannot be sent.
    """
    deadline.check()
    try:
        head: Head = yield Open(request, min(session.timeout_seconds, deadline.seconds_left))
        if head.status >= 400:
            raise (yield from _read_problem(head))
    except (httpx.LocalProtocolError, httpx.UnsupportedProtocol):
        # Its message holds what cannot be sent.
        raise ValueError("a header of the request, perhaps a key, cannot be sent") from None
    except httpx.TransportError as error:
        deadline.check(error)
        raise lost(error) from error
    if head.status >= 300:
        raise UnexpectedAnswerError(
            f"the service answered {head.status}, a redirect, which is not followed (a key would "
            f"go along); give the address it leads to"
        )
    _check_digest(session, request, head)
    return head


def read_whole(deadline: Deadline) -> Flow[bytearray]:
    """The rest of the answer that is open."""
    body = bytearray()
    try:
        while (piece := (yield Read())) is not None:
            body += piece
            deadline.check()
    except httpx.TransportError as error:
        deadline.check(error)
        raise lost(error) from error
    return body


def lost(error: httpx.TransportError) -> ConnectionLostError:
    """What a failed connection means to the caller."""
    why = f"{type(error).__name__}: {error}".removesuffix(": ")
    return ConnectionLostError(why, was_sent=not isinstance(error, _NEVER_SENT))


def path_of(*parts: str) -> str:
    """The path of these parts, whatever is in them.

    Example:
        >>> path_of("corpora", "../x")
        '/corpora/..%2Fx'
    """
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def json_request(
    session: Session,
    path: str,
    fields: Mapping[str, Any],
    *,
    accept: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """A POST with `fields` as JSON, in their order, and the tokenizer the session is pinned to.

    Raises:
        ValueError: a text has a lone surrogate, which no UTF-8 holds.
    """
    try:
        # A megabyte of text in half a millisecond; the standard library takes five.
        body = to_json({**fields, **session.pin_fields})
    except PydanticSerializationError:
        raise ValueError(
            "the request cannot be JSON in UTF-8: a text has a lone surrogate (decode it with "
            "errors='replace' where it is read), or an option is of another type than it should be"
        ) from None
    sent = {"Content-Type": JSON, "Accept": accept, **session.pin_headers, **(headers or {})}
    return Request("POST", path, headers=sent, body=body)


def get(session: Session, path: str, model: type[Model], **query: str | None) -> Flow[Model]:
    """What is at `path`, as a `model`."""
    asked = tuple((name, value) for name, value in query.items() if value is not None)
    answer = yield from exchange(session, Request("GET", path, asked))
    return answer.parse(model)


def _read_problem(head: Head) -> Flow[ProblemError]:
    body = bytearray()
    while len(body) < _MAX_PROBLEM_BYTES and (piece := (yield Read())) is not None:
        body += piece
    return problem_of(head.status, head.headers, body)


def _check_digest(session: Session, request: Request, head: Head) -> None:
    """A proxy may drop If-Match; ids of another tokenizer must not go unnoticed."""
    if "If-Match" not in request.headers or session.digest is None:
        return
    present = head.headers.get("tokenizer-digest")
    if present is not None and present != session.digest:
        detail = "the answer is of another tokenizer than the pinned one; a proxy dropped If-Match"
        raise DigestMismatchError(412, {"code": "digest_mismatch", "detail": detail}, head.headers)
