"""Both clients behind one interface, over simulated services."""

import asyncio
import inspect
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

from tokenizer_client import AsyncClient, Client


class Awaited:
    """An AsyncClient, called as if it blocked."""

    def __init__(self, client, runner):
        self._client, self._runner = client, runner

    def __repr__(self):
        return repr(self._client)

    def __getattr__(self, name):
        method = getattr(self._client, name)
        if not callable(method):  # a resource
            return Awaited(method, self._runner)

        def ask(*args, **options):
            result = method(*args, **options)
            if inspect.iscoroutine(result):
                return self._runner.run(result)
            if inspect.isasyncgen(result):
                return self._iterate(result)
            return Awaited(result, self._runner)

        return ask

    def _iterate(self, parts):
        async def next_part():
            return await anext(parts, self)  # itself at the end

        try:
            while (part := self._runner.run(next_part())) is not self:
                yield part
        finally:
            self._runner.run(parts.aclose())

    def close(self):
        self._runner.run(self._client.aclose())


class Clock:
    """Simulated time: only `sleep` in the thread of the test advances it."""

    def __init__(self):
        self._thread, self._wait = threading.get_ident(), time.sleep
        self.now = 1000.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        if threading.get_ident() == self._thread:
            self.slept.append(seconds)
            self.now += seconds
        else:
            self._wait(seconds)  # a thread that an earlier test left

    async def sleep_async(self, seconds):
        self.sleep(seconds)


class Played:
    """A service that returns these responses in turn, and records the requests."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        # A response belongs to one client, and the service may return one more than once.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


TOKENIZER = {"name": "n", "version": "v", "digest": "d"}
JOB = {
    "id": "j", "name": "n", "state": "queued", "phase": "queued", "progress": 0.0, "counters": {},
    "result": None, "error": None, "created_at": "", "started_at": None, "finished_at": None,
    "kind": "train", "log_tail": [],
}  # fmt: skip


def counted(n=3):
    fields = {"count": n, "limit_exceeded": False, "tokenizer": TOKENIZER}
    return httpx.Response(200, json=fields)


def promoted(name="n"):
    return httpx.Response(200, json={"active": {**TOKENIZER, "name": name}, "previous": None})


def octets(content, *parameters):
    kind = "; ".join(("application/octet-stream", *parameters))
    return httpx.Response(200, content=content, headers={"Content-Type": kind})


def problem(status, code="a_code", *, headers=None, **fields):
    document = {"title": "A title", "status": status, "detail": "The remedy.", "code": code}
    return httpx.Response(status, json=document | fields, headers=headers)


@pytest.fixture(params=["blocking", "async"])
def make_client(request):
    """Make a client of either kind; closed with the test."""
    with ExitStack() as open_things:
        runner = open_things.enter_context(asyncio.Runner())

        def make(url=None, **options):
            if request.param == "blocking":
                client = Client(url, **options)
            else:
                client = Awaited(AsyncClient(url, **options), runner)
            open_things.callback(client.close)
            return client

        yield make


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep_async)
    return clock


@pytest.fixture
def play(make_client, clock):
    """A client of a simulated service, in simulated time; each wait has the longest jitter."""

    def start(*answers, **options):
        service = Played(*answers)
        transport = httpx.MockTransport(service)
        client = make_client("http://service.example", transport=transport, **options)
        inner = client._client if isinstance(client, Awaited) else client
        sender = inner._sender
        sender.session = replace(sender.session, clock=clock, draw=lambda: 1.0)
        return client, service

    return start
