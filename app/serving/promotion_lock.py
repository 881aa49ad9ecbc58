"""The promotion lock: one promotion at a time among all processes of this host.

A lock file, freed with its process however that ends. It stands alone because the disk under it may
fail in its own ways, which a client must be told as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import time
from typing import TYPE_CHECKING, Final

from app.serving.errors import PromotionInProgressError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_RETRY_SECONDS: Final = 0.05


@contextlib.asynccontextmanager
async def hold_promotion_lock(path: Path, timeout_seconds: float) -> AsyncIterator[None]:
    """Hold the lock at `path`, whose folder is made where it is missing.

    Raises:
        PromotionInProgressError: another promotion does not end in time.
        OSError: the disk does not let the file be opened or locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_seconds
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise PromotionInProgressError from None
                await asyncio.sleep(_RETRY_SECONDS)
        yield
