"""Worker states: what each serving process of this host answers with, told through small files.

A promotion must know when every process has swapped, and processes of one server have no channel
between them: uvicorn starts them as strangers. So each writes `run/workers/<host>-<pid>.json`,
atomically, and reads the others'. A process that is gone is told by its start time and ignored;
processes of other hosts (a shared volume) follow the pointer too but are not waited for.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from app.serving.process_marks import ProcessMark

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One process: what it serves (None: nothing yet), and what it last failed to load, if so."""

    pid: int
    started: float
    name: str | None = None
    version: str | None = None
    digest: str | None = None
    engine: str | None = None
    failed: str | None = None
    reason: str | None = None


class WorkerStates:
    """The state files below `folder`, and this process' own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:64] or "localhost"
        self._mark = ProcessMark.of_this_process()
        self._own = folder / f"{self._host}-{self._mark.pid}.json"

    def new_state(self, **fields: str | None) -> WorkerState:
        """A state of this process."""
        return WorkerState(self._mark.pid, self._mark.started, **fields)

    def write(self, state: WorkerState) -> None:
        """Say what this process serves. Raises OSError where the folder cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        staged = self._own.with_suffix(".new")
        staged.write_text(json.dumps(asdict(state)), encoding="utf-8")
        staged.replace(self._own)

    def remove(self) -> None:
        """Take this process' file away: it serves no longer."""
        with contextlib.suppress(OSError):
            self._own.unlink()

    def read_alive(self) -> list[WorkerState]:
        """The states of all living processes of this host; files of dead ones are removed."""
        alive = []
        for path in sorted(self._folder.glob(f"{self._host}-*.json")):
            state = _read_state(path)
            if state is None:
                continue
            if ProcessMark(state.pid, state.started).is_alive():
                alive.append(state)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
        return alive


def _read_state(path: Path) -> WorkerState | None:
    """None for a file that vanished or is no state: nothing that serves wrote it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        state = WorkerState(**value)
    except (OSError, ValueError, TypeError):
        return None
    is_state = isinstance(state.pid, int) and isinstance(state.started, int | float)
    return state if is_state else None
