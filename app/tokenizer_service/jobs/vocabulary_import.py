"""Imports of uploaded vocabularies: one at a time, each in a child process within limits.

The server itself reads no uploaded byte. The child is that of a job, outside the queue: an import
takes seconds, and a training job may take hours.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import shutil
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokenizer_core.errors import AliasTakenError, NameReservedError
from tokenizer_service.access.errors import WorkTooLongError
from tokenizer_service.jobs.errors import ImportRunningError, VocabularyImportError
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.kinds import IMPORTING
from tokenizer_service.jobs.process import JobProcess, StartProcess, describe_death
from tokenizer_service.serving.errors import DiskError
from tokenizer_service.settings import Settings

log = logging.getLogger("tokenizer_service.jobs")

MEMORY_BYTES: Final = 1 << 31
"""Address space that the child may take beside its code; 19 MB of tekken.json take 0.4 GB."""

_PREFIX: Final = "import-"
_CONFLICTS: Final = {error.code: error for error in (NameReservedError, AliasTakenError)}
_OF_DISK: Final = {"disk_full", "storage_error", "storage_failed", "storage_unavailable"}


class VocabularyImports:
    """The imports of this process."""

    def __init__(self, settings: Settings, start_process: StartProcess | None = None) -> None:
        self._settings = settings
        self._start = start_process or partial(JobProcess.start, niceness=settings.job_nice)
        self._lock = asyncio.Lock()

    async def run(self, request: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        """Publish what the form `body` holds; the name, version, digest and size of the result."""
        if self._lock.locked():
            raise ImportRunningError
        async with self._lock:
            try:
                folder = await asyncio.to_thread(self._write, request, body)
                try:
                    return await self._follow(folder)
                finally:
                    await asyncio.to_thread(shutil.rmtree, folder.path, ignore_errors=True)
            except OSError as error:
                log.error("an import failed: %s", error)
                raise DiskError(error) from error

    def _write(self, request: Mapping[str, Any], body: bytes) -> JobFolder:
        settings = self._settings
        parent = settings.artifacts_dir.absolute() / "run"
        parent.mkdir(parents=True, exist_ok=True)
        oldest = time.time() - 2 * settings.work_seconds
        for left in parent.glob(f"{_PREFIX}*"):  # of a server that was killed
            with contextlib.suppress(FileNotFoundError):  # another process removes it
                if left.stat().st_mtime < oldest:
                    shutil.rmtree(left, ignore_errors=True)
        folder = JobFolder(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)))
        try:
            folder.write_request(
                {
                    **request,
                    "kind": "import",
                    "artifacts_dir": str(settings.artifacts_dir.absolute()),
                    "store": settings.store,
                    "memory_bytes": MEMORY_BYTES,
                }
            )
            (folder.path / "body").write_bytes(body)
        except BaseException:
            folder.remove()
            raise
        return folder

    async def _follow(self, folder: JobFolder) -> dict[str, Any]:
        seconds = self._settings.work_seconds
        with folder.log_path.open("wb") as log_file:
            process = await self._start(folder.path, folder.scratch_path, log_file)
        last: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                async for event in process.events():
                    last = event
                died = await process.wait()
        except TimeoutError:
            raise WorkTooLongError(seconds) from None
        finally:
            await process.end(0)
        if last.get("event") == "published":
            return dict(last["result"])
        code, detail = last.get("code"), last.get("detail")
        if code is None or detail is None:
            code, detail = describe_death(died, IMPORTING)
        log.warning("an import failed (%s): %s", code, "; ".join(folder.log_tail()))
        if code in _CONFLICTS:
            raise _CONFLICTS[code](detail)
        if code in _OF_DISK:
            raise OSError(errno.ENOSPC if code == "disk_full" else errno.EIO, detail)
        raise VocabularyImportError(code, detail)
