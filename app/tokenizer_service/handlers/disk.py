"""Disk access of a request: on a thread, with its own error for a disk that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from tokenizer_service.serving.errors import DiskError

log = logging.getLogger("tokenizer_service.handlers.disk")

Result = TypeVar("Result")


async def off_the_loop(work: Callable[..., Result], *arguments: object) -> Result:
    """Call `work`, which reads or writes the disk, on a thread; an OSError becomes a DiskError."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        log.error("disk error: %s", error)
        raise DiskError(error) from error
