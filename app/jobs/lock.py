"""The lock a trainer holds while it lives: one trainer at a time, and a dead server's one is seen.

The database says which job runs; this lock says whether its process is really gone. A new trainer
waits for it, so a stale one (its server was killed, it has not noticed yet) can never publish
beside or after its successor. A record lock (`lockf`), not `flock`: a child made by fork does not
inherit it, and the system drops it at the death of the process, however it dies.

Where every host runs a job of its own (`JobStore.host`), each has a lock of its own: one that is
paused, or that a partition keeps from the database, must not stop the others, and its late writes
are fenced elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.05


class TrainerLock:
    """The lock file of one artifacts folder, or of one host on it."""

    def __init__(self, artifacts_dir: Path, host: str = "") -> None:
        own = f"-{hashlib.sha256(host.encode()).hexdigest()[:16]}" if host else ""
        self._path = artifacts_dir / "run" / f"trainer{own}.lock"

    def acquire(self, *, timeout_seconds: float) -> bool:
        """Take the lock for the life of this process; False when another kept it that long.

        The descriptor stays open on purpose: closing any descriptor of the file in this process
        would drop the lock.
        """
        descriptor = self._open()
        deadline = time.monotonic() + timeout_seconds
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def is_free(self) -> bool:
        """Whether no other process holds it. Not for the process that does."""
        descriptor = self._open()
        try:
            return _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
