"""TokenizerClient: every call, blocking.

What a call does is written in the modules of calls; here its steps are done.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx

from tokenizer_client import corpus_calls, job_calls, service_calls, stream_calls, text_calls
from tokenizer_client.base_client import BaseClient, ClientOptions, describe_method
from tokenizer_client.retries import Session
from tokenizer_client.sources import Source
from tokenizer_client.steps import Emit, Emitting, Flow, Head, OnDisk, Open, Read, Step, Wait
from tokenizer_client.two_way_transport import TwoWayTransport

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def _blocking(
    call: Callable[Concatenate[Session, P], Flow[T]],
) -> Callable[Concatenate[TokenizerClient, P], T]:
    """A method that runs a call to its end."""

    @functools.wraps(call)
    def method(client: TokenizerClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            next(_Steps(client).run(call(client._session, *args, **kwargs)))
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("a call with one result handed out a part")

    describe_method(method, call, "{}")
    return method


def _iterating(
    call: Callable[Concatenate[Session, P], Emitting[T]],
) -> Callable[Concatenate[TokenizerClient, P], Generator[T, None, None]]:
    """A method that runs a call as far as its parts are asked for."""

    @functools.wraps(call)
    def method(
        client: TokenizerClient, /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        return _Steps(client).run(call(client._session, *args, **kwargs))

    describe_method(method, call, "Generator[{}, None, None]")
    return method


class TokenizerClient(BaseClient):
    """The service, from threads: one client may be used by any number of them.

    `base_url` is by default TOKENIZER_URL, else http://127.0.0.1:8000; `api_key` by default
    TOKENIZER_API_KEY. `transport` takes the place of the network, for tests. Use it in a `with`, or
    `close` it.

    Raises:
        ValueError: no possible address or key.
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
        self._two_way = httpx.Client(transport=transport or TwoWayTransport(self._tls), **common)

    def close(self) -> None:
        """Close all connections; those of pinned clients are the same."""
        self._http.close()
        self._two_way.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    encode = _blocking(text_calls.encode)
    encode_to_numpy = _blocking(text_calls.encode_to_numpy)
    encode_batch = _blocking(text_calls.encode_batch)
    encode_batch_to_numpy = _blocking(text_calls.encode_batch_to_numpy)
    encode_with_pieces = _blocking(text_calls.encode_with_pieces)
    decode = _blocking(text_calls.decode)
    decode_bytes = _blocking(text_calls.decode_bytes)
    decode_batch = _blocking(text_calls.decode_batch)
    count = _blocking(text_calls.count)
    count_batch = _blocking(text_calls.count_batch)
    fits = _blocking(text_calls.fits)
    truncate = _blocking(text_calls.truncate)
    chunk = _blocking(text_calls.chunk)
    verify = _blocking(text_calls.verify)
    verify_ids = _blocking(text_calls.verify_ids)
    describe_token = _blocking(text_calls.describe_token)

    encode_stream = _iterating(stream_calls.encode_stream)
    decode_stream = _iterating(stream_calls.decode_stream)
    encode_file = _blocking(stream_calls.encode_file)

    info = _blocking(service_calls.info)
    is_ready = _blocking(service_calls.is_ready)
    wait_until_ready = _blocking(service_calls.wait_until_ready)
    list_tokenizers = _blocking(service_calls.list_tokenizers)
    describe_tokenizer = _blocking(service_calls.describe_tokenizer)
    active_tokenizer = _blocking(service_calls.active_tokenizer)
    tokenizer_file = _blocking(service_calls.tokenizer_file)
    promote = _blocking(service_calls.promote)
    roll_back = _blocking(service_calls.roll_back)
    remove_version = _blocking(service_calls.remove_version)

    upload_corpus = _blocking(corpus_calls.upload_corpus)
    list_corpora = _blocking(corpus_calls.list_corpora)
    describe_corpus = _blocking(corpus_calls.describe_corpus)
    remove_corpus = _blocking(corpus_calls.remove_corpus)
    list_token_files = _blocking(corpus_calls.list_token_files)
    describe_token_files = _blocking(corpus_calls.describe_token_files)
    remove_token_files = _blocking(corpus_calls.remove_token_files)
    download_token_files = _blocking(corpus_calls.download_token_files)

    train = _blocking(job_calls.train)
    encode_corpus = _blocking(job_calls.encode_corpus)
    list_jobs = _blocking(job_calls.list_jobs)
    describe_job = _blocking(job_calls.describe_job)
    cancel_job = _blocking(job_calls.cancel_job)
    follow_job = _iterating(job_calls.follow_job)
    wait_for_job = _blocking(job_calls.wait_for_job)


class _Steps:
    """The steps of one call, done; it has one answer open at a time."""

    def __init__(self, client: TokenizerClient) -> None:
        self._client = client
        self._answer: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._body: Generator[bytes, None, None] | None = None

    def run(self, flow: Generator[Step | Emit[T], Any, R]) -> Generator[T, None, R]:
        """Hand out the parts of `flow`, and return its result."""
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
        http = self._client._two_way if step.request.is_two_way else self._client._http
        request = http.build_request(**self._client._request_options(step, self._body))
        self._answer = http.send(request, stream=True)
        self._pieces = self._answer.iter_bytes()
        return Head(self._answer.status_code, self._answer.headers)

    def _close(self) -> None:
        if self._answer is not None:
            self._answer.close()
        if self._body is not None:
            self._body.close()  # and with it a file that it reads
