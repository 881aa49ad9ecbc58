"""Which process is meant by a pid: its start time tells it from a later one with the same number.

It stands alone because three places ask (who owns a job, which trainer is an orphan, which memory
to add up) and a wrong answer would kill a stranger. Start times are counted from boot where the
system says so (Linux), so that a jump of the clock changes nothing. A mark means something on its
own host only, see `this_host`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process: its pid and when it started (seconds since boot; elsewhere Unix time)."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """The mark of a living process; None when there is none (a zombie has ended).

        Example:
            >>> mark = ProcessMark.of(os.getpid())
            >>> mark is not None and mark.is_alive()
            True
        """
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            if Path("/proc/self/stat").exists():
                return None
            return cls._of_portable(pid)
        except OSError:  # ESRCH: it ended between opening and reading
            return None
        # The second field is the program's name in parentheses, which may hold anything.
        fields = status[status.rindex(")") + 2 :].split()
        if fields[0] in "ZXx":
            return None
        return cls(pid, int(fields[19]) / os.sysconf("SC_CLK_TCK"))

    @classmethod
    def of_this_process(cls) -> ProcessMark:
        """The mark of the calling process."""
        mark = cls.of(os.getpid())
        if mark is None:
            raise RuntimeError("this process cannot find itself; is /proc readable?")
        return mark

    @classmethod
    def _of_portable(cls, pid: int) -> ProcessMark | None:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.Error:
            return None

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessMark.of(self.pid) == self

    def to_json(self) -> str:
        """The form kept in the database."""
        return json.dumps({"pid": self.pid, "started": self.started})

    @classmethod
    def from_json(cls, text: str | None) -> ProcessMark | None:
        """The mark kept in the database, or None."""
        if text is None:
            return None
        value = json.loads(text)
        return cls(int(value["pid"]), float(value["started"]))


def this_host() -> str:
    """What tells this machine from others: of a process where it differs, a mark says nothing.

    On Linux the boot and the pid namespace: containers of one machine do not see each other's
    processes either, and after a restart of the machine all earlier ones are another host's.
    Elsewhere the host's name.

    Example:
        >>> this_host() == this_host() != ""
        True
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def signal_group(leader_pid: int, number: signal.Signals) -> None:
    """Send a signal to the process group led by `leader_pid`, if there is any left of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, number)


def resident_bytes_of_tree(pid: int) -> int:
    """Resident memory of a process and all its descendants, added up; 0 when it is gone.

    Pages that several of them share are counted for each: an upper bound.
    """
    total = 0
    try:
        leader = psutil.Process(pid)
        members = [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return 0
    for member in members:
        with contextlib.suppress(psutil.Error):
            total += member.memory_info().rss
    return total
