"""The child process of a job as the server sees it: start, events, permission to publish, end.

It stands alone because all that can go wrong with a child is here and nothing about jobs is. The
child leads a session of its own, so that a signal to the server's terminal does not reach it and
one signal ends it with all its workers. Its standard input is a pipe this process holds open and
never closes while it lives: when the server is gone, by whatever means, the pipe ends and so does
the child. Standard output carries one JSON object a line; standard error is the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

import app
from app.jobs.work import JobWork
from app.serving.process_marks import ProcessMark, resident_bytes_of_tree, signal_group

PUBLISH: Final = b"publish\n"
"""What the child waits for on its standard input before it publishes."""

_MAX_EVENT_BYTES: Final = 1 << 20
_SECRETS: Final = ("TOKENIZER_ADMIN_KEYS", "TOKENIZER_READ_KEYS", "TOKENIZER_JOBS_DATABASE")
# The child serves nothing: it must not write into the serving processes' metrics files.
_NOT_FOR_CHILDREN: Final = (*_SECRETS, "PROMETHEUS_MULTIPROC_DIR")


class TrainerProcess:
    """A running trainer. Made by `start`; `end` must be awaited whatever happened."""

    def __init__(self, process: asyncio.subprocess.Process, mark: ProcessMark | None) -> None:
        self._process = process
        self.mark = mark
        """None when it had already ended before it could be looked at."""

    @classmethod
    async def start(cls, job_folder: Path, scratch: Path, log: IO[bytes]) -> TrainerProcess:
        """Start a child for the request in `job_folder`; its log goes to `log`.

        Raises:
            OSError: no process could be started (too many processes or open files).
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without it the working directory could shadow a module
            "-m",
            "app.jobs.worker",
            str(job_folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=_environment(scratch),
            limit=_MAX_EVENT_BYTES,
        )
        return cls(process, ProcessMark.of(process.pid))

    @property
    def return_code(self) -> int | None:
        """How it ended: an exit status, or minus the signal's number; None while it runs."""
        return self._process.returncode

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What it says, until its standard output ends. A line that is no event is left out."""
        stdout = self._process.stdout
        if stdout is None:
            return
        while True:
            try:
                line = await stdout.readline()
            except ValueError:  # longer than any event; the rest of it is no JSON and drops out
                continue
            if not line:
                return
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    async def let_publish(self) -> None:
        """Say that it may publish; nothing happens when it has ended meanwhile."""
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(PUBLISH)
                await stdin.drain()

    def resident_bytes(self) -> int:
        """Resident memory of it and its workers; blocks for some milliseconds."""
        return resident_bytes_of_tree(self._process.pid)

    async def wait(self) -> int:
        """Wait until it has ended and been reaped."""
        return await self._process.wait()

    async def end(self, grace_seconds: float) -> None:
        """End it and all its workers: SIGTERM, then SIGKILL when the grace is over.

        Returns when it has been reaped. Workers of a trainer that has ended already go as well.
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


def describe_death(return_code: int, work: JobWork) -> tuple[str, str]:
    """The code and the sentence for a child that ended without saying how it went.

    Example:
        >>> from app.jobs.work import TRAINING
        >>> describe_death(-9, TRAINING)[0]
        'trainer_killed'
    """
    killed, crashed = f"{work.agent}_killed", f"{work.agent}_crashed"
    if return_code >= 0:
        return (
            crashed,
            f"the {work.process} process ended with exit status {return_code} without a result; "
            f"the end of its log says why",
        )
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = f"signal {-return_code}"
    if name == "SIGKILL":
        return (
            killed,
            f"the {work.process} process was killed by SIGKILL. When nobody did that by hand, the "
            f"system ran out of memory: {work.less_memory}, or give the machine more memory, and "
            f"post the request again",
        )
    if name in ("SIGTERM", "SIGINT", "SIGHUP"):
        return (
            killed,
            f"the {work.process} process was ended by {name} from outside; post the request again",
        )
    return (
        crashed,
        f"the {work.process} process was ended by {name}, a crash in compiled code; "
        f"TOKENIZER_ENGINE=python does without it",
    )


def _environment(scratch: Path) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_FOR_CHILDREN}
    environment["TMPDIR"] = str(scratch)
    environment["PYTHONUNBUFFERED"] = "1"
    # A server run from a checkout finds `app` in its working directory; the child must as well.
    home = str(Path(app.__file__ or "").resolve().parent.parent)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([home, inherited] if inherited else [home])
    return environment
