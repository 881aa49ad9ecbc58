"""Serving processes of this host: their identities, and the version that each one serves.

A promotion must know when every process has swapped, and uvicorn gives the processes of one server
no channel to each other. So each process writes `run/workers/<host>-<pid>.json` atomically and
reads the files of the others. The start time in a file distinguishes a dead process from a new one
with the same pid. A promotion does not wait for processes of other hosts (on a shared volume); they
follow the pointer.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from tokenizer_core.blobs.atomic_files import replacing


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process by its pid and its start time; valid only on its own host, see `this_host`.

    On Linux the start time counts seconds since boot, so that a jump of the clock has no effect; on
    other systems it is Unix time.
    """

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a running process; None if none has this pid (a zombie has ended)."""
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            if Path("/proc/self/stat").exists():
                return None
            return cls._of_portable(pid)
        except OSError:  # ESRCH: it ended between opening and reading
            return None
        # The second field is the program's name in parentheses, which may hold any character.
        fields = status[status.rindex(")") + 2 :].split()
        if fields[0] in "ZXx":
            return None
        return cls(pid, int(fields[19]) / os.sysconf("SC_CLK_TCK"))

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """The identity of the calling process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise RuntimeError("this process cannot find itself; is /proc readable?")
        return identity

    @classmethod
    def _of_portable(cls, pid: int) -> ProcessIdentity | None:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.Error:
            return None

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self

    def to_json(self) -> str:
        """The form in the job database."""
        return json.dumps({"pid": self.pid, "started": self.started})

    @classmethod
    def from_json(cls, text: str | None) -> ProcessIdentity | None:
        """Parse the form of `to_json`; None for None."""
        if text is None:
            return None
        value = json.loads(text)
        return cls(int(value["pid"]), float(value["started"]))


def this_host() -> str:
    """The name of the host on which a `ProcessIdentity` is valid.

    On Linux it is made of the boot id and the pid namespace, because containers of one machine do
    not see each other's processes, and after a reboot all earlier processes are gone. On other
    systems it is the host's name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


_PINNED: Final = ".pinned"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One process: the version it serves (None: none), and the one that it fails to load.

    `server` is the pid of the supervisor whose processes accept connections from one socket.
    """

    pid: int
    started: float
    name: str | None = None
    version: str | None = None
    digest: str | None = None
    engine: str | None = None
    failed: str | None = None
    reason: str | None = None
    n_failures: int = 0
    server: int | None = None

    @property
    def served(self) -> str | None:
        """`name@version` of what it serves."""
        return f"{self.name}@{self.version}" if self.name and self.version else None


class WorkerStates:
    """The state files in `folder`, and the files of this process.

    The versions that requests named are in files of their own: they change at other times, on
    other threads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:64] or "localhost"
        self._identity = ProcessIdentity.of_this_process()
        self._own = self._file_of(self._identity.pid)

    def new_state(self, *, n_failures: int = 0, **fields: str | None) -> WorkerState:
        """A state of this process."""
        pid, started = self._identity.pid, self._identity.started
        parent = multiprocessing.parent_process()
        server = None if parent is None else parent.pid
        return WorkerState(pid, started, n_failures=n_failures, server=server, **fields)

    def write(self, state: WorkerState) -> None:
        """Write the state of this process. Raises OSError if the folder is not writable."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._own, staged=self._own.with_suffix(".new")) as staged:
            staged.write_text(json.dumps(asdict(state)), encoding="utf-8")

    def write_pinned(self, versions: list[str]) -> None:
        """Write which versions this process holds for requests. Raises OSError as `write`."""
        path = self._own.with_suffix(_PINNED)
        self._folder.mkdir(parents=True, exist_ok=True)
        with replacing(path, staged=path.with_suffix(".pinned-new")) as staged:
            staged.write_text(json.dumps(versions), encoding="utf-8")

    def read_pinned(self) -> set[str]:
        """The versions that the running processes of this host hold for requests."""
        found: set[str] = set()
        for state in self.read_alive():
            with contextlib.suppress(OSError, ValueError, TypeError):
                path = self._file_of(state.pid).with_suffix(_PINNED)
                found.update(json.loads(path.read_text(encoding="utf-8")))
        return found

    def remove(self) -> None:
        """Remove the files of this process, which no longer serves."""
        _remove(self._own)

    def _file_of(self, pid: int) -> Path:
        return self._folder / f"{self._host}-{pid}.json"

    def read_alive(self) -> list[WorkerState]:
        """The states of all running processes of this host; removes the files of dead ones."""
        alive = []
        for path in sorted(self._folder.glob(f"{self._host}-*.json")):
            state = _read_state(path)
            if state is None:
                continue
            if ProcessIdentity(state.pid, state.started).is_alive():
                alive.append(state)
            else:
                _remove(path)
        return alive


def _remove(own: Path) -> None:
    for path in (own.with_suffix(_PINNED), own):
        with contextlib.suppress(OSError):
            path.unlink()


def _read_state(path: Path) -> WorkerState | None:
    """The state in a file; None if the file vanished or holds no state."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        state = WorkerState(**value)
    except (OSError, ValueError, TypeError):
        return None
    is_state = isinstance(state.pid, int) and isinstance(state.started, int | float)
    return state if is_state else None
