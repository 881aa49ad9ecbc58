"""SharedWork: work that many requests ask for at the same time, done once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Result = TypeVar("Result")


class SharedWork:
    """Work on a thread that many requests ask for at once: a call gets the result of a run that
    began after it, and one run serves all calls that wait.

    After a run, the next one of its key waits for as long as the run took, so that many clients of
    a costly route leave the interpreter to others for half of the time.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}
        self._begun: dict[Hashable, asyncio.Future[None]] = {}
        """Done when the next run may begin."""

    async def run(
        self, key: Hashable, function: Callable[..., Result], *arguments: object
    ) -> Result:
        """The result of `function(*arguments)`, which equal keys share; raises as `function`."""
        task = self._waiting.get(key)
        if task is None:
            task = asyncio.create_task(self._run(key, function, *arguments))
            task.add_done_callback(_note_error)
            self._waiting[key] = task
        result: Result = await asyncio.shield(task)
        return result

    async def _run(
        self, key: Hashable, function: Callable[..., Result], *arguments: object
    ) -> Result:
        before = self._begun.get(key)
        if before is not None:
            await before
        loop = asyncio.get_running_loop()
        over = self._begun[key] = loop.create_future()
        del self._waiting[key]
        began_at = loop.time()
        try:
            return await asyncio.to_thread(function, *arguments)
        finally:
            loop.call_later(loop.time() - began_at, self._end, key, over)

    def _end(self, key: Hashable, over: asyncio.Future[None]) -> None:
        over.set_result(None)
        if self._begun.get(key) is over:
            del self._begun[key]


def _note_error(task: asyncio.Task[Any]) -> None:
    """Take the error of work whose callers have all left, which asyncio would log."""
    if not task.cancelled():
        task.exception()
