"""The limits of a job: the time it takes, and the memory of its processes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from tokenizer_service.jobs.kinds import JobKind

_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")


class JobLimits:
    """The limits that a request asks for; `operators_bytes` is the operator's limit on memory, by
    default three quarters of the memory there is."""

    def __init__(
        self, asked: Mapping[str, Any], kind: JobKind, operators_bytes: int | None
    ) -> None:
        self._kind, self._seconds = kind, asked["seconds"]
        name = "the server's TOKENIZER_TRAIN_MEMORY_BYTES"
        if operators_bytes is None:
            # A quarter is for serving, and for growth until the next look.
            operators_bytes = available_memory_bytes() * 3 // 4
            name += ", by default 3/4 of its memory"
        self._bytes, self._bytes_name = operators_bytes, name
        if asked["memory_bytes"] is not None and asked["memory_bytes"] < operators_bytes:
            self._bytes, self._bytes_name = asked["memory_bytes"], "limits.memory_bytes"

    def exceeded(self, seconds: float, used_bytes: int) -> tuple[str, str] | None:
        """The code and the text of the error if the job took `seconds` and holds `used_bytes`."""
        if self._seconds is not None and seconds > self._seconds:
            return (
                "time_limit",
                f"{self._kind.process} took longer than limits.seconds = {self._seconds:g}; raise "
                f"the limit, or {self._kind.less_text}",
            )
        if used_bytes > self._bytes:
            return (
                "memory_limit",
                f"the {self._kind.process} processes held {used_bytes} bytes, more than "
                f"{self._bytes_name} = {self._bytes}; raise the limit, or {self._kind.less_memory}",
            )
        return None


def available_memory_bytes() -> int:
    """The memory of this machine, or less if a control group (a container) allows less."""
    limits = [psutil.virtual_memory().total]
    with contextlib.suppress(OSError):  # no such file: not Linux
        for line in _OWN_GROUPS.read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:  # version 2
                root, name = _GROUPS, "memory.max"
            elif "memory" in controllers.split(","):
                root, name = _GROUPS / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):  # a limit holds for all groups below
                with contextlib.suppress(OSError, ValueError):  # no such file; "max"
                    if folder.is_relative_to(root):
                        limits.append(int((folder / name).read_text("ascii")))
    return min(limits)
