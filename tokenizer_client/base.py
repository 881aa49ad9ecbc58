"""What both clients share: the address and the key, the settings, and the runners of calls.

The calls are generators of steps (see `calls`). `Runner` performs the steps of one call by
blocking, `AsyncRunner` by awaiting.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import math
import os
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias, TypeVar

import httpx

from tokenizer_client.calls.exchange import (
    Emit,
    Emitting,
    Flow,
    Head,
    OnDisk,
    Open,
    Read,
    Step,
    Wait,
)
from tokenizer_client.calls.local_files import Source
from tokenizer_client.calls.retries import RetryPolicy, Session
from tokenizer_client.schemas.jobs import (
    AnyJobSummary,
    Corpus,
    PublishedTokenFiles,
    PublishedVersion,
)
from tokenizer_client.schemas.token_files import TokenFilesSummary
from tokenizer_client.schemas.tokens import TokenizerIdentity

T = TypeVar("T")
R = TypeVar("R")
Y = TypeVar("Y")

DEFAULT_URL: Final = "http://127.0.0.1:8000"
_UNIX: Final = "unix:"
_KEY: Final = re.compile(r"[\x21-\x7e]+")
_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A checked address and a key. Its repr and its errors never show the key.

    With `socket_path` the client connects to this Unix socket, and `url` only begins the targets.

    Example:
        >>> ServiceAddress.of("https://tokens.example/v1/", "secret")
        ServiceAddress(url='https://tokens.example/v1', socket_path=None)
        >>> ServiceAddress.of("unix:/run/tokenizer.sock", None)
        ServiceAddress(url='http://localhost', socket_path='/run/tokenizer.sock')
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    socket_path: str | None = None

    @classmethod
    def of(
        cls,
        base_url: str | None,
        api_key: str | None,
        environment: Mapping[str, str] = os.environ,
    ) -> ServiceAddress:
        """Use the arguments, else TOKENIZER_URL and TOKENIZER_API_KEY, else this machine.

        Raises:
            ValueError: the address is not http, https or a Unix socket, or contains a password; or
                the key is invalid.
        """
        given = base_url or environment.get("TOKENIZER_URL") or DEFAULT_URL
        key = api_key or environment.get("TOKENIZER_API_KEY") or None
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("an API key consists of visible ASCII characters, without spaces")
        if given.startswith(_UNIX):
            if not hasattr(socket, "AF_UNIX"):
                raise ValueError("this system has no Unix sockets; the address is http://HOST")
            path = given.removeprefix(_UNIX)
            if not path.startswith("/"):
                raise ValueError(
                    "the address of the service must be unix: and the absolute path of its socket"
                )
            return cls("http://localhost", key, path)
        try:
            url = httpx.URL(given)
        except httpx.InvalidURL:
            raise ValueError("the address of the service is not a URL") from None
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise ValueError(
                "the address of the service must be http://HOST, https://HOST or unix:/PATH"
            )
        if url.userinfo:
            raise ValueError("the address of the service holds a password; give api_key instead")
        return cls(str(url).rstrip("/"), key)

    @property
    def shown(self) -> str:
        """The address as the caller gives it."""
        return self.url if self.socket_path is None else _UNIX + self.socket_path


JobOrId: TypeAlias = str | AnyJobSummary
CorpusOrId: TypeAlias = str | Corpus
TokenFilesOrId: TypeAlias = str | TokenFilesSummary | PublishedTokenFiles
TokenizerOrName: TypeAlias = str | TokenizerIdentity | PublishedVersion
"""`name@version`, for most calls also `name`, or a tokenizer that the service described."""


def id_of(given: JobOrId | CorpusOrId | TokenFilesOrId) -> str:
    """The id of a thing of the service that may be given by its id.

    Raises:
        TypeError: neither.

    Example:
        >>> id_of("20261122T000000Z-0123456789ab")
        '20261122T000000Z-0123456789ab'
    """
    found = given if isinstance(given, str) else getattr(given, "id", None)
    if not isinstance(found, str):
        raise TypeError(f"give an id as a str, or what the client returned, not {given!r:.60}")
    return found


def name_of(given: TokenizerOrName) -> str:
    """`name@version` of a tokenizer that may be given by its name; raises TypeError otherwise.

    Example:
        >>> name_of(TokenizerIdentity(name="a", version="1", digest="d"))
        'a@1'
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, TokenizerIdentity | PublishedVersion):
        raise TypeError(f"give NAME or NAME@VERSION, or what the client returned: {given!r:.60}")
    return f"{given.name}@{given.version}"


class BaseClient:
    """The address, the key and the session of either client."""

    def __init__(
        self,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        max_retries: int | None,
        retries: RetryPolicy | None,
        deadline_seconds: float | None,
        verify: bool | ssl.SSLContext,
    ) -> None:
        if max_retries is not None and (retries is not None or max_retries < 0):
            raise ValueError("give max_retries, at least 0, or retries, which has max_attempts")
        if timeout is None or not 0 < timeout < math.inf:
            raise ValueError(
                f"timeout is a number of seconds above 0, not {timeout!r}; for no limit give a "
                f"large one, such as 86400"
            )
        if max_retries is not None:
            retries = RetryPolicy(max_attempts=max_retries + 1)
        self._address = ServiceAddress.of(base_url, api_key)
        self._session = Session(
            policy=retries or RetryPolicy(),
            timeout_seconds=timeout,
            deadline_seconds=deadline_seconds,
            socket_path=self._address.socket_path,
        )
        # Load certificates, which takes time, only for https.
        is_tls = self._address.url.startswith("https:")
        self._tls = httpx.create_ssl_context(verify) if is_tls else None
        # No compression: ids compress badly, and a Range counts the bytes of the file itself.
        self._headers = {"User-Agent": "tokenizer-client", "Accept-Encoding": "identity"}
        if self._address.api_key is not None:
            self._headers["Authorization"] = f"Bearer {self._address.api_key}"

    def __repr__(self) -> str:
        pin = self._session.tokenizer or self._session.digest
        pinned = f", pinned to {pin}" if pin else ""
        return f"{type(self).__name__}({self._address.shown!r}{pinned})"

    def pinned(
        self, tokenizer: TokenizerOrName | None = None, *, digest: str | None = None
    ) -> Self:
        """A client that keeps using one tokenizer when another is promoted.

        `tokenizer` is `name@version` (`name`: its newest version), or a tokenizer that the service
        described. `digest` is the digest of a
        tokenizer; a response from another tokenizer raises DigestMismatchError. Both clients share
        their connections.

        Example:
            >>> active = client.tokenizers.active()
            >>> client.pinned(digest=active.digest).count("low") == client.count("low")
            True
        """
        pinned = copy.copy(self)
        pinned._session = replace(
            self._session,
            tokenizer=name_of(tokenizer) if tokenizer else self._session.tokenizer,
            digest=digest or self._session.digest,
        )
        pinned._bind()
        return pinned

    def _bind(self) -> None:
        """Make the resources of this client, which refer to it."""
        raise NotImplementedError

    def _request_options(self, step: Open, pieces: Any) -> dict[str, Any]:
        """The arguments of httpx's `build_request`; `pieces` are the body if it is a Source."""
        request = step.request
        connect = min(step.timeout_seconds, _CONNECT_SECONDS)
        return {
            "method": request.method,
            "url": self._address.url + request.path,
            "params": request.query,
            "headers": {**self._headers, **request.headers},
            "content": pieces if isinstance(request.body, Source) else request.body,
            "timeout": httpx.Timeout(step.timeout_seconds, connect=connect),
        }


class Runner:
    """Performs the steps of one call by blocking; has one open response at a time."""

    def __init__(self, client: BaseClient, http: httpx.Client, duplex: httpx.Client) -> None:
        self._client, self._http, self._duplex = client, http, duplex
        self._response: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._body: Generator[bytes, None, None] | None = None

    def run(self, flow: Generator[Step | Emit[T], Any, R]) -> Generator[T, None, R]:
        """Yield the parts of `flow` and return its result."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Emit):
                    yield step.value
                    step = next(flow)
                    continue
                try:
                    result = self._do(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as end:
            returned: R = end.value
            return returned
        finally:
            flow.close()
            self._close()

    def _do(self, step: Step) -> Any:
        match step:
            case Open():
                return self._open(step)
            case Read():
                return next(self._pieces, None)
            case Wait(seconds):
                return time.sleep(seconds)
            case OnDisk(work):
                return work()

    def _open(self, step: Open) -> Head:
        self._close()
        body = step.request.body
        self._body = body.pieces() if isinstance(body, Source) else None
        http = self._duplex if step.request.is_duplex else self._http
        request = http.build_request(**self._client._request_options(step, self._body))
        self._response = http.send(request, stream=True, follow_redirects=False)
        self._pieces = self._response.iter_bytes()
        return Head(self._response.status_code, self._response.headers)

    def _close(self) -> None:
        if self._response is not None:
            self._response.close()
        if self._body is not None:
            self._body.close()  # closes the file it reads


class AsyncRunner:
    """Performs the steps of one call by awaiting; has one open response at a time."""

    def __init__(
        self, client: BaseClient, http: httpx.AsyncClient, duplex: httpx.AsyncClient
    ) -> None:
        self._client, self._http, self._duplex = client, http, duplex
        self._response: httpx.Response | None = None
        self._body: AsyncGenerator[bytes, None] | None = None
        self._pieces: AsyncIterator[bytes]  # set by `_open`

    async def run(self, flow: Flow[T]) -> T:
        """Return the result of `flow`."""
        try:
            step = next(flow)
            while True:
                step = (await self._outcome(flow, step))()
        except StopIteration as end:
            returned: T = end.value
            return returned
        finally:
            flow.close()
            await self._close()

    async def iterate(self, flow: Emitting[T]) -> AsyncGenerator[T, None]:
        """Yield the parts of `flow`."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Emit):
                    yield step.value
                    step = next(flow)
                else:
                    step = (await self._outcome(flow, step))()
        except StopIteration:
            return
        finally:
            flow.close()
            await self._close()

    async def _outcome(self, flow: Generator[Y, Any, Any], step: Step) -> Callable[[], Y]:
        """Perform `step`; return what resumes `flow`. (A coroutine cannot raise StopIteration.)"""
        try:
            result = await self._do(step)
        except BaseException as error:
            return functools.partial(flow.throw, error)
        return functools.partial(flow.send, result)

    async def _do(self, step: Step) -> Any:
        match step:
            case Open():
                return await self._open(step)
            case Read():
                return await anext(self._pieces, None)
            case Wait(seconds):
                return await asyncio.sleep(seconds)
            case OnDisk(work):
                return await asyncio.to_thread(work)

    async def _open(self, step: Open) -> Head:
        await self._close()
        body = step.request.body
        self._body = body.pieces_async() if isinstance(body, Source) else None
        http = self._duplex if step.request.is_duplex else self._http
        request = http.build_request(**self._client._request_options(step, self._body))
        self._response = await http.send(request, stream=True, follow_redirects=False)
        self._pieces = self._response.aiter_bytes()
        return Head(self._response.status_code, self._response.headers)

    async def _close(self) -> None:
        if self._response is not None:
            await self._response.aclose()
        if self._body is not None:
            await self._body.aclose()  # closes the file it reads
