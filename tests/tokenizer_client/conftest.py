"""Both clients, over simulated services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.tokenizer_client.both_clients import AnyClient, Awaited, Clock, Played, with_session
from tokenizer_client import AsyncClient, Client, base

MakeClient = Callable[..., AnyClient]


@pytest.fixture(params=["blocking", "async"])
def make_client(request: pytest.FixtureRequest) -> Iterator[MakeClient]:
    """Make a client of either kind; closed with the test."""
    with ExitStack() as open_things:
        runner = open_things.enter_context(asyncio.Runner())

        def make(url: str | None = None, **options: Any) -> AnyClient:
            if request.param == "blocking":
                client: AnyClient = Client(url, **options)
            else:
                client = Awaited(AsyncClient(url, **options), runner)
            open_things.callback(client.close)
            return client

        yield make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(base, "time", SimpleNamespace(sleep=clock.sleep))
    awaited = SimpleNamespace(sleep=clock.sleep_async, to_thread=asyncio.to_thread)
    monkeypatch.setattr(base, "asyncio", awaited)
    return clock


@pytest.fixture
def play(make_client: MakeClient, clock: Clock) -> Callable[..., tuple[AnyClient, Played]]:
    """A client of a simulated service, in simulated time; each wait has the longest jitter."""

    def start(*answers: httpx.Response | Exception, **options: Any) -> tuple[AnyClient, Played]:
        service = Played(*answers)
        transport = httpx.MockTransport(service)
        client = make_client("http://service.example", transport=transport, **options)
        with_session(client, clock=clock, draw=lambda: 1.0)
        return client, service

    return start
