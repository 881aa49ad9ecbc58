"""The flag by which another thread ends a call that encodes or splits."""

from __future__ import annotations

import threading

from tokenizer_core.errors import CancelledError


class StopFlag:
    """Asks calls to end; once cancelled it stays so. Any thread may call `cancel`."""

    is_cancelled = False
    """Whether `cancel` was called."""

    def cancel(self) -> None:
        """End the calls that look at this flag, soon, with CancelledError."""
        self.is_cancelled = True


class _Current(threading.local):
    flag: StopFlag | None = None


current = _Current()
"""The flag that calls in Python on this thread look at."""


def check_stop() -> None:
    """Raises CancelledError if the flag of this thread is cancelled."""
    flag = current.flag
    if flag is not None and flag.is_cancelled:
        raise CancelledError("The call was cancelled.")
