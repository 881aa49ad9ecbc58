# Made from async_exchange.py by tests/tokenizer_client/make_client.py.
"""Exchanges: one request and its response, repeated if a retry may succeed."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, Final, Self

import httpx

from tokenizer_client.address import ServiceAddress
from tokenizer_client.arguments import query_of
from tokenizer_client.errors import (
    ClientError,
    NotFoundError,
    StreamCutOffError,
    UnexpectedResponseError,
    connection_lost,
    problem_of,
)
from tokenizer_client.local_files import Source
from tokenizer_client.retries import Attempts, Deadline, Session
from tokenizer_client.wire import (
    IDS,
    JSON,
    OCTETS,
    FrameReader,
    Model,
    Request,
    WholeResponse,
    path_of,
    render_json,
    require_digest,
    require_media_type,
    require_same,
)

_CONNECT_SECONDS: Final = 10.0
_QUERY_OPTIONS: Final = (
    "allowed_special",
    "disallowed_special",
    "added_tokens",
    "skip_special_tokens",
    "errors",
)
_MAX_PROBLEM_BYTES: Final = 1 << 16


class Sender:
    """Sends requests to the service; `session` has the retries, the deadline and the pin.

    `duplex` sends the bodies that are a Source.
    """

    def __init__(
        self,
        address: ServiceAddress,
        session: Session,
        http: httpx.Client,
        duplex: httpx.Client,
    ) -> None:
        self.session = session
        self.address, self._http, self._duplex = address, http, duplex
        # No compression: ids compress badly, and a Range counts the bytes of the file itself.
        self._headers = {"User-Agent": "tokenizer-client", "Accept-Encoding": "identity"}
        if address.api_key is not None:
            self._headers["Authorization"] = f"Bearer {address.api_key}"

    def pinned(self, tokenizer: str | None, digest: str | None) -> Self:
        """A sender with the same connections and another pin."""
        other = copy.copy(self)
        other.session = replace(self.session, tokenizer=tokenizer, digest=digest)
        return other

    def get(self, path: str, model: type[Model], **query: object) -> Model:
        """GET `path` and parse the response as a `model`."""
        asked = tuple((name, str(value)) for name, value in query.items() if value is not None)
        return self.send(Request("GET", path, asked)).parse(model)

    def get_one(self, kind: str, id_: str, model: type[Model]) -> Model:
        """GET one resource of a kind; the response must have its id."""
        found = self.get(path_of(kind, id_), model)
        require_same("id", getattr(found, "id", None), id_)
        return found

    def post(
        self,
        path: str,
        fields: Mapping[str, Any],
        model: type[Model],
        headers: Mapping[str, str] | None = None,
    ) -> Model:
        """POST `fields` and the pin as JSON, and parse the response as a `model`."""
        request = self._json_request(path, fields, {"Accept": JSON, **(headers or {})})
        return self.send(request).parse(model)

    def post_for_ids(self, path: str, fields: Mapping[str, Any], form: str) -> bytearray:
        """POST `fields` and the pin as JSON; return ids, whose media type must be `form`."""
        response = self.send(self._json_request(path, fields, {"Accept": IDS}))
        require_media_type(response.headers, form)
        return response.body

    def _json_request(
        self, path: str, fields: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Request:
        if self.session.tokenizer is not None:
            fields = {**fields, "tokenizer": fields.get("tokenizer", self.session.tokenizer)}
        sent = {"Content-Type": JSON, **self.session.pin_headers, **headers}
        return Request("POST", path, headers=sent, body=render_json(fields))

    def bytes_request(
        self,
        path: str,
        form: str,
        body: bytes | Source,
        arguments: Mapping[str, Any],
        accept: str = OCTETS,
    ) -> Request:
        """A POST of bytes of the media type `form`; its query has the options among `arguments`,
        the `locals()` of a method, and the pin."""
        options = {name: arguments[name] for name in _QUERY_OPTIONS if name in arguments}
        query = query_of({"tokenizer": self.session.tokenizer, **options})
        headers = {"Content-Type": form, "Accept": accept, **self.session.pin_headers}
        return Request("POST", path, query, headers, body)

    def put(
        self,
        path: str,
        fields: Mapping[str, Any],
        model: type[Model],
        headers: Mapping[str, str] | None = None,
        *,
        is_idempotent: bool = True,
    ) -> Model:
        """PUT `fields` as JSON, without the pin, and parse the response as a `model`."""
        deadline_seconds = self.session.deadline_seconds
        attempts = Attempts(self.session, deadline_seconds, is_idempotent=is_idempotent)
        sent = {"Content-Type": JSON, **(headers or {})}
        request = Request("PUT", path, headers=sent, body=render_json(fields))
        return self.send(request, attempts).parse(model)

    def delete(self, path: str) -> None:
        """DELETE `path`. A 404 counts as success when an earlier attempt may have deleted it."""
        attempts = Attempts(self.session, self.session.deadline_seconds)
        try:
            self.send(Request("DELETE", path), attempts)
        except NotFoundError:
            if not attempts.may_be_done:
                raise

    def send(self, request: Request, attempts: Attempts | None = None) -> WholeResponse:
        """Send `request`, with retries, until a whole response arrives.

        Raises:
            ProblemError: the service refuses; `UnavailableError` after the last attempt.
            ConnectionLostError: after the last attempt.
            DeadlineExceededError, UnexpectedResponseError: see their classes.
        """
        attempts = attempts or Attempts(self.session, self.session.deadline_seconds)
        while True:
            try:
                with self.open(request, attempts.deadline) as response:
                    body = bytearray()
                    for piece in response.iter_bytes():
                        body += piece
                        attempts.deadline.check()
                    return WholeResponse(response.headers, body)
            except ClientError as error:
                self.wait(attempts, error, request)

    def wait(self, attempts: Attempts, error: ClientError, request: Request) -> None:
        """Wait until the next attempt at `request`; raises `error` if there is none."""
        seconds = attempts.wait_seconds(error, is_repeatable=request.is_repeatable)
        time.sleep(seconds)

    def payloads(self, request: Request, reader: FrameReader) -> Generator[bytes, None, None]:
        """The payloads of a stream, as they arrive; retries only before the response has begun.

        Raises:
            StreamCutOffError: the stream ended early.
            ProblemError and others: see `send`.
        """
        attempts = Attempts(self.session, deadline_seconds=None)  # a stream may take any time
        while True:
            try:
                with self.open(request, attempts.deadline) as response:
                    require_media_type(response.headers, OCTETS)
                    reader.digest = response.headers.get("tokenizer-digest", "")
                    try:
                        for piece in response.iter_bytes():
                            if payload := reader.feed(piece):
                                yield payload
                    except httpx.TransportError as error:
                        raise StreamCutOffError(
                            f"the stream was cut off ({type(error).__name__}); its parts so far "
                            f"are not all"
                        ) from error
                    return
            except ClientError as error:
                if reader.digest is not None:
                    raise
                self.wait(attempts, error, request)

    @contextlib.contextmanager
    def open(self, request: Request, deadline: Deadline) -> Generator[httpx.Response, None, None]:
        """Make one attempt; the response reports no error, and ends with the block.

        Raises:
            ProblemError: the service refuses.
            ConnectionLostError: also while the block reads the response.
            DeadlineExceededError, UnexpectedResponseError: see their classes.
            ValueError: the request cannot be sent.
        """
        deadline.check()
        response, pieces, http = None, None, self._http
        content: bytes | Generator[bytes, None, None] | None
        if isinstance(request.body, Source):
            content = pieces = request.body.pieces()
            http = self._duplex
        else:
            content = request.body
        if http.is_closed:
            raise ClientError("the client is closed; make another one")
        try:
            seconds = min(self.session.timeout_seconds, deadline.seconds_left)
            built = http.build_request(
                request.method,
                self.address.url + request.path,
                params=request.query,
                headers={**self._headers, **request.headers},
                content=content,
                timeout=httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
            )
            response = http.send(built, stream=True, follow_redirects=False)
            self.session.reached.set()
            _require_success(response)
            if "If-Match" in request.headers:
                require_digest(response.headers, self.session.digest)
            yield response
        except httpx.TransportError as error:
            if response is None and isinstance(
                error, httpx.LocalProtocolError | httpx.UnsupportedProtocol
            ):
                # Do not repeat httpx's message: it holds the header.
                raise ValueError(
                    "a header of the request, perhaps the key, cannot be sent"
                ) from None
            deadline.check(error)
            raise connection_lost(error, self.address.socket_path) from error
        finally:
            if response is not None:
                response.close()
            if pieces is not None:
                pieces.close()  # closes the file it reads


def _require_success(response: httpx.Response) -> None:
    """Raise ProblemError for a refusal, UnexpectedResponseError for a redirect."""
    if response.status_code >= 400:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) >= _MAX_PROBLEM_BYTES:
                break
        raise problem_of(response.status_code, response.headers, body)
    if response.status_code >= 300:
        raise UnexpectedResponseError(
            f"the service responded with {response.status_code}, a redirect. The client does not "
            f"follow redirects, which would send the key along; give the address it leads to"
        )
