"""PointerWatch: reads the mark of the registry's pointer, with a time limit.

A registry on a network may hang. A separate thread reads the mark; a shutdown does not wait for it,
and no other read starts while one is pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from typing import Final

from tokenizer_core.errors import ArtifactStorageError
from tokenizer_core.registry import Artifacts

PATIENCE_SECONDS: Final = 3.0


class PointerWatch:
    """Reads the mark of `store` for one event loop."""

    def __init__(self, store: Artifacts, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._store = store
        self._patience_seconds = patience_seconds
        self._asked: asyncio.Future[object] | None = None

    async def read(self) -> object:
        """The result of `Artifacts.pointer_mark`.

        Raises:
            ArtifactStorageError: the registry fails, or did not respond in time.
        """
        if self._asked is None:
            self._asked = _ask_in_thread(self._store)
        await asyncio.wait({self._asked}, timeout=self._patience_seconds)
        if not self._asked.done():
            raise ArtifactStorageError(
                errno.ETIMEDOUT, f"no answer for {self._patience_seconds:g} seconds"
            )
        asked, self._asked = self._asked, None
        return asked.result()


def _ask_in_thread(store: Artifacts) -> asyncio.Future[object]:
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
            mark = store.pointer_mark()
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, mark, failed)

    threading.Thread(target=ask, name="pointer", daemon=True).start()
    return asked
