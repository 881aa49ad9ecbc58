"""The peak memory of this process and its children, sampled while training goes on.

Sampling rather than `ru_maxrss`, because the sum over processes at one moment is what a machine
must have, and because `ru_maxrss` remembers what the process did before training. It stands alone
so that `psutil` is imported only by a training run.
"""

from __future__ import annotations

import time
from typing import Final

import psutil

_INTERVAL_SECONDS: Final = 0.2


class PeakMemory:
    """The largest sum of resident sizes seen by `sample`.

    Pages shared between the processes count once for each, so this errs on the large side.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._next_sample = 0.0
        self.peak_bytes = 0

    def sample(self, *, now: bool = False) -> None:
        """Look, unless the last look was a moment ago (finding the children takes milliseconds)."""
        moment = time.monotonic()
        if moment < self._next_sample and not now:
            return
        total = 0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue  # it ended meanwhile
        self.peak_bytes = max(self.peak_bytes, total)
        self._next_sample = time.monotonic() + _INTERVAL_SECONDS
