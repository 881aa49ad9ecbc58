"""AsyncTokenizerClient: every call, awaited, under asyncio.

What a call does is written in the modules of calls; here its steps are done.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx

from tokenizer_client import corpus_calls, job_calls, service_calls, stream_calls, text_calls
from tokenizer_client.base_client import BaseClient, ClientOptions, describe_method
from tokenizer_client.retries import Session
from tokenizer_client.sources import Source
from tokenizer_client.steps import Emit, Emitting, Flow, Head, OnDisk, Open, Read, Step, Wait
from tokenizer_client.two_way_transport import AsyncTwoWayTransport

P = ParamSpec("P")
T = TypeVar("T")
Y = TypeVar("Y")


def _awaited(
    call: Callable[Concatenate[Session, P], Flow[T]],
) -> Callable[Concatenate[AsyncTokenizerClient, P], Coroutine[Any, Any, T]]:
    """A method that runs a call to its end."""

    @functools.wraps(call)
    async def method(client: AsyncTokenizerClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _Steps(client).run(call(client._session, *args, **kwargs))

    describe_method(method, call, "{}")
    return method


def _iterating(
    call: Callable[Concatenate[Session, P], Emitting[T]],
) -> Callable[Concatenate[AsyncTokenizerClient, P], AsyncGenerator[T, None]]:
    """A method that runs a call as far as its parts are asked for.

    Whoever leaves the loop early closes it: `async with contextlib.aclosing(...)`.
    """

    @functools.wraps(call)
    def method(
        client: AsyncTokenizerClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        return _Steps(client).iterate(call(client._session, *args, **kwargs))

    describe_method(method, call, "AsyncGenerator[{}, None]")
    return method


class AsyncTokenizerClient(BaseClient):
    """The service, from one event loop; as TokenizerClient, with `async with`, or `aclose`."""

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
        self._two_way = httpx.AsyncClient(
            transport=transport or AsyncTwoWayTransport(self._tls), **common
        )

    async def aclose(self) -> None:
        """Close all connections; those of pinned clients are the same."""
        await self._http.aclose()
        await self._two_way.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    encode = _awaited(text_calls.encode)
    encode_to_numpy = _awaited(text_calls.encode_to_numpy)
    encode_batch = _awaited(text_calls.encode_batch)
    encode_batch_to_numpy = _awaited(text_calls.encode_batch_to_numpy)
    encode_with_pieces = _awaited(text_calls.encode_with_pieces)
    decode = _awaited(text_calls.decode)
    decode_bytes = _awaited(text_calls.decode_bytes)
    decode_batch = _awaited(text_calls.decode_batch)
    count = _awaited(text_calls.count)
    count_batch = _awaited(text_calls.count_batch)
    fits = _awaited(text_calls.fits)
    truncate = _awaited(text_calls.truncate)
    chunk = _awaited(text_calls.chunk)
    verify = _awaited(text_calls.verify)
    verify_ids = _awaited(text_calls.verify_ids)
    describe_token = _awaited(text_calls.describe_token)

    encode_stream = _iterating(stream_calls.encode_stream)
    decode_stream = _iterating(stream_calls.decode_stream)
    encode_file = _awaited(stream_calls.encode_file)

    info = _awaited(service_calls.info)
    is_ready = _awaited(service_calls.is_ready)
    wait_until_ready = _awaited(service_calls.wait_until_ready)
    list_tokenizers = _awaited(service_calls.list_tokenizers)
    describe_tokenizer = _awaited(service_calls.describe_tokenizer)
    active_tokenizer = _awaited(service_calls.active_tokenizer)
    tokenizer_file = _awaited(service_calls.tokenizer_file)
    promote = _awaited(service_calls.promote)
    roll_back = _awaited(service_calls.roll_back)
    remove_version = _awaited(service_calls.remove_version)

    upload_corpus = _awaited(corpus_calls.upload_corpus)
    list_corpora = _awaited(corpus_calls.list_corpora)
    describe_corpus = _awaited(corpus_calls.describe_corpus)
    remove_corpus = _awaited(corpus_calls.remove_corpus)
    list_token_files = _awaited(corpus_calls.list_token_files)
    describe_token_files = _awaited(corpus_calls.describe_token_files)
    remove_token_files = _awaited(corpus_calls.remove_token_files)
    download_token_files = _awaited(corpus_calls.download_token_files)

    train = _awaited(job_calls.train)
    encode_corpus = _awaited(job_calls.encode_corpus)
    list_jobs = _awaited(job_calls.list_jobs)
    describe_job = _awaited(job_calls.describe_job)
    cancel_job = _awaited(job_calls.cancel_job)
    follow_job = _iterating(job_calls.follow_job)
    wait_for_job = _awaited(job_calls.wait_for_job)


class _Steps:
    """The steps of one call, done; it has one answer open at a time."""

    def __init__(self, client: AsyncTokenizerClient) -> None:
        self._client = client
        self._answer: httpx.Response | None = None
        self._body: AsyncGenerator[bytes, None] | None = None
        self._pieces: AsyncIterator[bytes]  # there once a flow has opened what it reads

    async def run(self, flow: Flow[T]) -> T:
        """The result of `flow`."""
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
        """Hand out the parts of `flow`."""
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
        """What resumes `flow` after `step`; its StopIteration cannot leave a coroutine."""
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
        http = self._client._two_way if step.request.is_two_way else self._client._http
        request = http.build_request(**self._client._request_options(step, self._body))
        self._answer = await http.send(request, stream=True)
        self._pieces = self._answer.aiter_bytes()
        return Head(self._answer.status_code, self._answer.headers)

    async def _close(self) -> None:
        if self._answer is not None:
            await self._answer.aclose()
        if self._body is not None:
            await self._body.aclose()  # and with it a file that it reads
