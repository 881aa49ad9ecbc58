"""PointerWatch: reads the mark of the registry's pointer, with a time limit.

A registry on a network may hang. A separate thread reads the mark; a shutdown does not wait for it,
and no other read starts while one is pending. The thread also polls: an idle event loop sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import threading
import time
from typing import Final

from tokenizer_core.errors import ArtifactStorageError
from tokenizer_core.registry import Artifacts

PATIENCE_SECONDS: Final = 3.0
_WATCH_SECONDS: Final = 1.0
_ANY_MARK: Final = object()


class PointerWatch:
    """Reads the mark of `store` for one event loop."""

    def __init__(self, store: Artifacts) -> None:
        self._store = store
        self._asked: asyncio.Future[object] | None = None

    async def read(self, known: object = _ANY_MARK) -> object:
        """The result of `Artifacts.pointer_mark`; waits a second for one that is not `known`.

        Raises:
            ArtifactStorageError: the registry fails, or did not respond in time.
        """
        if self._asked is None:
            self._asked = _ask_in_thread(self._store, known)
        await asyncio.wait({self._asked}, timeout=PATIENCE_SECONDS + _WATCH_SECONDS)
        if not self._asked.done():
            raise ArtifactStorageError(
                errno.ETIMEDOUT, f"no answer for {PATIENCE_SECONDS:g} seconds"
            )
        asked, self._asked = self._asked, None
        return asked.result()


def _ask_in_thread(store: Artifacts, known: object) -> asyncio.Future[object]:
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[object] = loop.create_future()

    def settle(mark: object, error: Exception | None) -> None:
        if asked.cancelled():
            return
        if error is None:
            asked.set_result(mark)
        else:
            asked.set_exception(error)

    def ask() -> None:
        mark: object = None
        failed: Exception | None = None
        try:
            until = time.monotonic() + _WATCH_SECONDS
            while (mark := store.pointer_mark()) == known and time.monotonic() < until:
                # The jitter keeps replicas from polling at the same moment.
                time.sleep(store.poll_seconds * random.uniform(0.8, 1.2))
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, mark, failed)

    threading.Thread(target=ask, name="pointer", daemon=True).start()
    return asked
