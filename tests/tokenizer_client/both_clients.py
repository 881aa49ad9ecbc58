"""Both clients behind one interface, and simulated services."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx

from tokenizer_client import Client


class Awaited:
    """An AsyncClient, called as if it blocked."""

    def __init__(self, client: Any, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __repr__(self) -> str:
        return repr(self._client)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not callable(method):  # a resource
            return Awaited(method, self._runner)

        def ask(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            if inspect.iscoroutine(result):
                return self._runner.run(result)
            if inspect.isasyncgen(result):
                return self._iterate(result)
            return Awaited(result, self._runner)

        return ask

    def _iterate(self, parts: Any) -> Iterator[Any]:
        async def next_part() -> tuple[Any, ...]:
            try:
                return (await anext(parts),)
            except StopAsyncIteration:
                return ()

        try:
            while found := self._runner.run(next_part()):
                yield found[0]
        finally:
            self._runner.run(parts.aclose())

    def close(self) -> None:
        self._runner.run(self._client.aclose())


AnyClient = Client | Awaited


class Clock:
    """Simulated time: only `sleep` advances it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class Played:
    """A service that returns these responses in turn, and records the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        # A response belongs to one client, and the service may return one more than once.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    @property
    def n_left(self) -> int:
        return len(self._answers)


def problem(status: int, code: str = "a_code", **fields: Any) -> httpx.Response:
    headers = fields.pop("headers", {})
    document = {"title": "A title", "status": status, "detail": "The remedy.", "code": code}
    return httpx.Response(status, json=document | fields, headers=headers)


def with_session(client: AnyClient, **changes: Any) -> None:
    """Change the settings that the calls of a client share."""
    inner = client._client if isinstance(client, Awaited) else client
    inner._session = replace(inner._session, **changes)
