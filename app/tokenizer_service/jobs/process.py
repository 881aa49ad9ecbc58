"""The child process of a job, as its server sees it: start, events, permission to publish, end.

The child leads a new session, so that a signal to the server's terminal does not reach it, and one
signal ends it with all its workers. The server holds a pipe to the child's standard input open for
as long as it runs. When the server dies, even by SIGKILL, the pipe closes and the child exits.
The child writes one JSON object per line to standard output, and its log to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import IO, Any, Final

import tokenizer_core
import tokenizer_service
from tokenizer_core.blobs.locks import try_record_lock
from tokenizer_core.parallel import resident_bytes_of_tree
from tokenizer_service.jobs.kinds import JobKind
from tokenizer_service.serving.workers import ProcessIdentity

PUBLISH: Final = b"publish\n"
"""The server writes this to the child's standard input when the child may publish."""

_LOCK_POLL_SECONDS: Final = 0.05
_MAX_EVENT_BYTES: Final = 1 << 20
_SECRETS: Final = ("TOKENIZER_ADMIN_KEYS", "TOKENIZER_READ_KEYS", "TOKENIZER_JOBS_DATABASE")
# The child must not write into the metrics files of the serving processes.
_NOT_FOR_CHILDREN: Final = (*_SECRETS, "PROMETHEUS_MULTIPROC_DIR")


class JobProcess:
    """A running child process. `start` creates it; the caller must await `end` in every case."""

    def __init__(
        self, process: asyncio.subprocess.Process, identity: ProcessIdentity | None
    ) -> None:
        self._process = process
        self.identity = identity
        """The identity of the process; None if it ended before the server could read it."""

    @classmethod
    async def start(
        cls, job_folder: Path, scratch: Path, log: IO[bytes], *, niceness: int = 10
    ) -> JobProcess:
        """Start the child for the request in `job_folder`; its log goes to `log`."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without it the working directory could shadow a module
            "-m",
            "tokenizer_service.jobs.worker",
            str(niceness),
            str(job_folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=_environment(scratch),
            limit=_MAX_EVENT_BYTES,
        )
        return cls(process, ProcessIdentity.of(process.pid))

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The events that the child writes, until its standard output closes; skips other lines."""
        stdout = self._process.stdout
        if stdout is None:
            return
        while True:
            try:
                line = await stdout.readline()
            except ValueError:  # longer than any event; the rest of the line is not JSON
                continue
            if not line:
                return
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    async def let_publish(self) -> None:
        """Allow the child to publish; does nothing when it has ended."""
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(PUBLISH)
                await stdin.drain()

    def resident_bytes(self) -> int:
        """Resident memory of the child and its workers; blocks for some milliseconds."""
        return resident_bytes_of_tree(self._process.pid)

    def processor_times(self) -> tuple[int, int]:
        """Nanoseconds that the threads of the child ran, and that they waited for a processor;
        zeros where the system does not say."""
        ran = waited = 0
        for path in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # the thread has ended
                times = path.read_text("ascii").split()
                ran, waited = ran + int(times[0]), waited + int(times[1])
        return ran, waited

    async def wait(self) -> int:
        """Wait until the child has ended; returns its exit status, or minus a signal's number."""
        return await self._process.wait()

    async def end(self, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace; also end the workers of a dead child.

        Returns when the child has been reaped.
        """
        if self._process.returncode is None:
            signal_group(self._process.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), grace_seconds)
            except TimeoutError:
                signal_group(self._process.pid, signal.SIGKILL)
                await self._process.wait()
        signal_group(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()


StartProcess = Callable[[Path, Path, IO[bytes]], Awaitable[JobProcess]]
"""`JobProcess.start`, or what tests put in its place."""


def describe_death(return_code: int, kind: JobKind) -> tuple[str, str]:
    """The code and the message for a child that ended without reporting a result."""
    killed, crashed = f"{kind.agent}_killed", f"{kind.agent}_crashed"
    if return_code >= 0:
        return (
            crashed,
            f"the {kind.process} process ended with exit status {return_code} without a result; "
            f"the end of its log says why",
        )
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = f"signal {-return_code}"
    if name == "SIGKILL":
        return (
            killed,
            f"the {kind.process} process was killed by SIGKILL. When nobody did that by hand, the "
            f"system ran out of memory: {kind.less_memory}, or give the machine more memory, and "
            f"post the request again",
        )
    if name in ("SIGTERM", "SIGINT", "SIGHUP"):
        return (
            killed,
            f"the {kind.process} process was ended by {name} from outside; post the request again",
        )
    return (
        crashed,
        f"the {kind.process} process was ended by {name}, a crash in compiled code; "
        f"TOKENIZER_ENGINE=python does without it",
    )


class JobLock:
    """The lock that a child holds while it runs: one child at a time.

    The database records which job runs; this lock shows whether its process has really ended. A new
    child waits for the lock. So a stale child, which has not noticed yet that its server was
    killed, never publishes during or after the run of its successor. The lock is a record lock
    (`lockf`), not `flock`: a forked process does not inherit it, and the system drops it when the
    process dies for any reason.

    If every host runs its own job (`JobStore.host`), each host has its own lock: a host that is
    paused, or cut off from the database, must not block the others. The fence of the pointer
    rejects its late writes.
    """

    def __init__(self, artifacts_dir: Path, host: str = "") -> None:
        suffix = f"-{hashlib.sha256(host.encode()).hexdigest()[:16]}" if host else ""
        self._path = artifacts_dir / "run" / f"job{suffix}.lock"

    def acquire(self, *, timeout_seconds: float) -> bool:
        """Take the lock for the life of this process; False if another held it until the timeout.

        The descriptor stays open, because closing any descriptor of the file in this process would
        drop the lock.
        """
        descriptor = self._open()
        deadline = time.monotonic() + timeout_seconds
        while not try_record_lock(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                return False
            time.sleep(_LOCK_POLL_SECONDS)
        return True

    def is_free(self) -> bool:
        """Whether no other process holds the lock. Its holder must not call this."""
        descriptor = self._open()
        try:
            return try_record_lock(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def signal_group(leader_pid: int, number: signal.Signals) -> None:
    """Send a signal to the process group that `leader_pid` leads, if it still has a process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, number)


def _environment(scratch: Path) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_FOR_CHILDREN}
    environment["TMPDIR"] = str(scratch)
    environment["PYTHONUNBUFFERED"] = "1"
    # The child imports the packages this process has, wherever it found them.
    files = (tokenizer_service.__file__, tokenizer_core.__file__)
    folders = [str(Path(file or "").resolve().parent.parent) for file in files]
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([*folders, inherited] if inherited else folders)
    )
    return environment
