"""Client and AsyncClient: every call of the service, blocking and awaited.

The calls are generators of steps (see `calls`). `_Runner` performs the steps of one call by
blocking, `_AsyncRunner` by awaiting. `_blocking`, `_iterating`, `_awaited` and `_iterating_async`
turn a call into a method.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import os
import re
import ssl
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypedDict, TypeVar, Unpack

import httpx

from tokenizer_client.calls import corpora, jobs, service, streams, text
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
from tokenizer_client.transport import AsyncDuplexTransport, DuplexTransport

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Y = TypeVar("Y")

DEFAULT_URL: Final = "http://127.0.0.1:8000"
_KEY: Final = re.compile(r"[\x21-\x7e]+")
_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A checked address and a key. Its repr and its errors never show the key.

    Example:
        >>> ServiceAddress.of("https://tokens.example/v1/", "secret")
        ServiceAddress(url='https://tokens.example/v1')
    """

    url: str
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        base_url: str | None,
        api_key: str | None,
        environment: Mapping[str, str] = os.environ,
    ) -> ServiceAddress:
        """Use the arguments, else TOKENIZER_URL and TOKENIZER_API_KEY, else this machine.

        Raises:
            ValueError: the address is not http or https, or contains a password; or the key is
                invalid.
        """
        given = base_url or environment.get("TOKENIZER_URL") or DEFAULT_URL
        key = api_key or environment.get("TOKENIZER_API_KEY") or None
        try:
            url = httpx.URL(given)
        except httpx.InvalidURL:
            raise ValueError("the address of the service is not a URL") from None
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise ValueError("the address of the service must be http://HOST or https://HOST")
        if url.userinfo:
            raise ValueError("the address of the service holds a password; give api_key instead")
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("an API key consists of visible ASCII characters, without spaces")
        return cls(str(url).rstrip("/"), key)


class ClientOptions(TypedDict, total=False):
    """Options of both clients.

    `timeout_seconds` (60) bounds each wait for the service. `deadline_seconds` (300, None for none)
    bounds a whole call with its retries, except streams, transfers and waiting for jobs. `retries`
    sets how often to retry and how long to wait; `verify` sets how https verifies certificates.
    """

    timeout_seconds: float
    deadline_seconds: float | None
    retries: RetryPolicy
    verify: bool | ssl.SSLContext


class _BaseClient:
    """The address, the key and the session of either client."""

    def __init__(self, base_url: str | None, api_key: str | None, options: ClientOptions) -> None:
        self._address = ServiceAddress.of(base_url, api_key)
        self._session = Session(
            policy=options.get("retries", RetryPolicy()),
            timeout_seconds=options.get("timeout_seconds", 60.0),
            deadline_seconds=options.get("deadline_seconds", 300.0),
        )
        # Load certificates, which takes time, only for https.
        verify = options.get("verify", True)
        is_tls = self._address.url.startswith("https:")
        self._tls = httpx.create_ssl_context(verify) if is_tls else None

    def __repr__(self) -> str:
        pin = self._session.tokenizer or self._session.digest
        return f"{type(self).__name__}({self._address.url!r}{f', pinned to {pin}' if pin else ''})"

    def pinned(self, tokenizer: str | None = None, *, digest: str | None = None) -> Self:
        """A client that keeps using one tokenizer when another is promoted.

        `tokenizer` is `name@version` (`name`: its newest version). `digest` is the digest of a
        tokenizer; a response from another tokenizer raises DigestMismatchError. Both clients share
        their connections.

        Example:
            >>> active = client.active_tokenizer()
            >>> client.pinned(digest=active.digest).count("low") == client.count("low")
            True
        """
        pinned = copy.copy(self)
        pinned._session = replace(
            self._session,
            tokenizer=tokenizer or self._session.tokenizer,
            digest=digest or self._session.digest,
        )
        return pinned

    def _http_options(self) -> dict[str, Any]:
        """The arguments of httpx.Client and httpx.AsyncClient."""
        # No compression: ids compress badly, and a Range counts the bytes of the file itself.
        headers = {"User-Agent": "tokenizer-client", "Accept-Encoding": "identity"}
        if self._address.api_key is not None:
            headers["Authorization"] = f"Bearer {self._address.api_key}"
        return {
            "base_url": self._address.url,
            "headers": headers,
            "verify": self._tls or False,
        }

    def _request_options(self, step: Open, pieces: Any) -> dict[str, Any]:
        """The arguments of httpx's `build_request`; `pieces` are the body if it is a Source."""
        request = step.request
        connect = min(step.timeout_seconds, _CONNECT_SECONDS)
        return {
            "method": request.method,
            "url": request.path,
            "params": request.query,
            "headers": dict(request.headers),
            "content": pieces if isinstance(request.body, Source) else request.body,
            "timeout": httpx.Timeout(step.timeout_seconds, connect=connect),
        }


def _describe_method(method: Callable[..., Any], call: Callable[..., Any], form: str) -> None:
    """Make `help` show the result type of `call`, formatted by `form`, for `method`."""
    returned = str(call.__annotations__["return"]).partition("[")[2].removesuffix("]")
    signature = inspect.signature(call).replace(return_annotation=form.format(returned))
    method.__signature__ = signature  # type: ignore[attr-defined]


def _blocking(
    call: Callable[Concatenate[Session, P], Flow[T]],
) -> Callable[Concatenate[Client, P], T]:
    """Make a method that runs a call to its end."""

    @functools.wraps(call)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            next(_Runner(client).run(call(client._session, *args, **kwargs)))
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("a call with one result emitted a part")

    _describe_method(method, call, "{}")
    return method


def _iterating(
    call: Callable[Concatenate[Session, P], Emitting[T]],
) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:
    """Make a method that runs a call lazily, part by part."""

    @functools.wraps(call)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return _Runner(client).run(call(client._session, *args, **kwargs))

    _describe_method(method, call, "Generator[{}, None, None]")
    return method


def _awaited(
    call: Callable[Concatenate[Session, P], Flow[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Make a method that runs a call to its end."""

    @functools.wraps(call)
    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _AsyncRunner(client).run(call(client._session, *args, **kwargs))

    _describe_method(method, call, "{}")
    return method


def _iterating_async(
    call: Callable[Concatenate[Session, P], Emitting[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]]:
    """Make a method that runs a call lazily, part by part.

    Use `async with contextlib.aclosing(...)` to leave the loop early.
    """

    @functools.wraps(call)
    def method(
        client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        return _AsyncRunner(client).iterate(call(client._session, *args, **kwargs))

    _describe_method(method, call, "AsyncGenerator[{}, None]")
    return method


class Client(_BaseClient):
    """The service, blocking; any number of threads may share one client.

    `base_url` defaults to TOKENIZER_URL, then http://127.0.0.1:8000; `api_key` to
    TOKENIZER_API_KEY. Tests pass a `transport` instead of the network. Use the client in a `with`,
    or `close` it.

    Raises:
        ValueError: the address or the key is invalid.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(base_url, api_key, options)
        common = self._http_options()
        self._http = httpx.Client(transport=transport, **common)
        self._duplex = httpx.Client(transport=transport or DuplexTransport(self._tls), **common)

    def close(self) -> None:
        """Close all connections, which pinned clients share."""
        self._http.close()
        self._duplex.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    encode = _blocking(text.encode)
    encode_to_numpy = _blocking(text.encode_to_numpy)
    encode_batch = _blocking(text.encode_batch)
    encode_batch_to_numpy = _blocking(text.encode_batch_to_numpy)
    encode_with_pieces = _blocking(text.encode_with_pieces)
    decode = _blocking(text.decode)
    decode_bytes = _blocking(text.decode_bytes)
    decode_batch = _blocking(text.decode_batch)
    count = _blocking(text.count)
    count_batch = _blocking(text.count_batch)
    fits = _blocking(text.fits)
    truncate = _blocking(text.truncate)
    chunk = _blocking(text.chunk)
    verify = _blocking(text.verify)
    verify_ids = _blocking(text.verify_ids)
    describe_token = _blocking(text.describe_token)

    encode_stream = _iterating(streams.encode_stream)
    decode_stream = _iterating(streams.decode_stream)
    encode_file = _blocking(streams.encode_file)

    info = _blocking(service.info)
    is_ready = _blocking(service.is_ready)
    wait_until_ready = _blocking(service.wait_until_ready)
    list_tokenizers = _blocking(service.list_tokenizers)
    describe_tokenizer = _blocking(service.describe_tokenizer)
    active_tokenizer = _blocking(service.active_tokenizer)
    tokenizer_file = _blocking(service.tokenizer_file)
    promote = _blocking(service.promote)
    roll_back = _blocking(service.roll_back)
    remove_version = _blocking(service.remove_version)

    upload_corpus = _blocking(corpora.upload_corpus)
    list_corpora = _blocking(corpora.list_corpora)
    describe_corpus = _blocking(corpora.describe_corpus)
    remove_corpus = _blocking(corpora.remove_corpus)
    list_token_files = _blocking(corpora.list_token_files)
    describe_token_files = _blocking(corpora.describe_token_files)
    remove_token_files = _blocking(corpora.remove_token_files)
    download_token_files = _blocking(corpora.download_token_files)

    train = _blocking(jobs.train)
    encode_corpus = _blocking(jobs.encode_corpus)
    list_jobs = _blocking(jobs.list_jobs)
    describe_job = _blocking(jobs.describe_job)
    cancel_job = _blocking(jobs.cancel_job)
    follow_job = _iterating(jobs.follow_job)
    wait_for_job = _blocking(jobs.wait_for_job)


class AsyncClient(_BaseClient):
    """The service, awaited, from one event loop; see Client. Use `async with`, or `aclose`."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(base_url, api_key, options)
        common = self._http_options()
        self._http = httpx.AsyncClient(transport=transport, **common)
        self._duplex = httpx.AsyncClient(
            transport=transport or AsyncDuplexTransport(self._tls), **common
        )

    async def aclose(self) -> None:
        """Close all connections, which pinned clients share."""
        await self._http.aclose()
        await self._duplex.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    encode = _awaited(text.encode)
    encode_to_numpy = _awaited(text.encode_to_numpy)
    encode_batch = _awaited(text.encode_batch)
    encode_batch_to_numpy = _awaited(text.encode_batch_to_numpy)
    encode_with_pieces = _awaited(text.encode_with_pieces)
    decode = _awaited(text.decode)
    decode_bytes = _awaited(text.decode_bytes)
    decode_batch = _awaited(text.decode_batch)
    count = _awaited(text.count)
    count_batch = _awaited(text.count_batch)
    fits = _awaited(text.fits)
    truncate = _awaited(text.truncate)
    chunk = _awaited(text.chunk)
    verify = _awaited(text.verify)
    verify_ids = _awaited(text.verify_ids)
    describe_token = _awaited(text.describe_token)

    encode_stream = _iterating_async(streams.encode_stream)
    decode_stream = _iterating_async(streams.decode_stream)
    encode_file = _awaited(streams.encode_file)

    info = _awaited(service.info)
    is_ready = _awaited(service.is_ready)
    wait_until_ready = _awaited(service.wait_until_ready)
    list_tokenizers = _awaited(service.list_tokenizers)
    describe_tokenizer = _awaited(service.describe_tokenizer)
    active_tokenizer = _awaited(service.active_tokenizer)
    tokenizer_file = _awaited(service.tokenizer_file)
    promote = _awaited(service.promote)
    roll_back = _awaited(service.roll_back)
    remove_version = _awaited(service.remove_version)

    upload_corpus = _awaited(corpora.upload_corpus)
    list_corpora = _awaited(corpora.list_corpora)
    describe_corpus = _awaited(corpora.describe_corpus)
    remove_corpus = _awaited(corpora.remove_corpus)
    list_token_files = _awaited(corpora.list_token_files)
    describe_token_files = _awaited(corpora.describe_token_files)
    remove_token_files = _awaited(corpora.remove_token_files)
    download_token_files = _awaited(corpora.download_token_files)

    train = _awaited(jobs.train)
    encode_corpus = _awaited(jobs.encode_corpus)
    list_jobs = _awaited(jobs.list_jobs)
    describe_job = _awaited(jobs.describe_job)
    cancel_job = _awaited(jobs.cancel_job)
    follow_job = _iterating_async(jobs.follow_job)
    wait_for_job = _awaited(jobs.wait_for_job)


class _Runner:
    """Performs the steps of one call by blocking; has one open response at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
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
        http = self._client._duplex if step.request.is_duplex else self._client._http
        request = http.build_request(**self._client._request_options(step, self._body))
        self._response = http.send(request, stream=True)
        self._pieces = self._response.iter_bytes()
        return Head(self._response.status_code, self._response.headers)

    def _close(self) -> None:
        if self._response is not None:
            self._response.close()
        if self._body is not None:
            self._body.close()  # closes the file it reads


class _AsyncRunner:
    """Performs the steps of one call by awaiting; has one open response at a time."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
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
        http = self._client._duplex if step.request.is_duplex else self._client._http
        request = http.build_request(**self._client._request_options(step, self._body))
        self._response = await http.send(request, stream=True)
        self._pieces = self._response.aiter_bytes()
        return Head(self._response.status_code, self._response.headers)

    async def _close(self) -> None:
        if self._response is not None:
            await self._response.aclose()
        if self._body is not None:
            await self._body.aclose()  # closes the file it reads
