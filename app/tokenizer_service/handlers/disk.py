"""Disk access of a request: on a thread, with its own error for a disk that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from fastapi import Request

from tokenizer_service.services import services_of
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


async def require_folder(request: Request) -> None:
    """For routes of the artifacts folder: raise DiskError if its volume is not mounted any more, as
    far as the tokenizers in it show that."""
    services = services_of(request)
    if services.settings.store is None:
        await off_the_loop(services.store.require_mounted)
