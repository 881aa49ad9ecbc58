"""Progress on standard error: bars on a terminal, elsewhere a line each minute.

Importing tqdm takes longer than most commands, so commands in a pipe do not import it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from tokenizer_core.training import TrainingProgress

_DELAY_SECONDS: Final = 0.3
"""Work that ends sooner shows no bar."""

_LINE_SECONDS: Final = 60.0


class HiddenBar:
    """A bar that shows nothing; with a `desc` a line each minute, for logs."""

    def __init__(self, total: float | None = None, desc: str = "") -> None:
        self.total, self._desc = total, desc
        self.n: float = 0
        self._next = time.monotonic() + _LINE_SECONDS

    def __enter__(self) -> HiddenBar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float = 1) -> None:
        """Add `n`, as tqdm does."""
        self.n += n
        if self._desc and time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            done = f"{self.n / self.total:.1%}" if self.total else f"{self.n:,.0f}"
            print(f"{self._desc}: {done}", file=sys.stderr, flush=True)

    def ignore(self, *_: object, **__: object) -> None:
        """Do nothing."""

    set_description = set_postfix_str = clear = close = refresh = ignore


def has_colours(stream: TextIO) -> bool:
    """Whether to write colours: on a terminal that is not dumb, and without NO_COLOR."""
    is_dumb = os.environ.get("TERM") == "dumb"
    return stream.isatty() and not os.environ.get("NO_COLOR") and not is_dumb


def progress_bar(*, quiet: bool, total: float | None = None, **options: Any) -> Any:
    """A tqdm bar over bytes with these `options`, or a HiddenBar."""
    if quiet:
        return HiddenBar()
    if not sys.stderr.isatty():
        return HiddenBar(total, options.get("desc", ""))
    from tqdm import tqdm

    shown: dict[str, Any] = {"unit": "B", "unit_scale": True, "leave": False}
    return tqdm(total=total, file=sys.stderr, **shown | {"delay": _DELAY_SECONDS} | options)


def follow(bar: Any) -> Callable[[int, int], None]:
    """A `progress` argument: shows the work done and the whole work in a bar."""

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return show


def add_quiet(parser: Any) -> None:
    """Add `--quiet`."""
    parser.add("-q --quiet", "show no progress")


class ProgressBars:
    """One bar for each phase of training."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._phase = ""

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def show(self, progress: TrainingProgress) -> None:
        """Show the progress of training."""
        if progress.phase != self._phase:
            self._close()
            self._phase = progress.phase
            unit = {"count": "B", "merge": " partitions"}.get(progress.phase, " merges")
            self._bar = progress_bar(
                quiet=self._quiet,
                total=progress.total,
                desc=progress.message,
                unit=unit,
                unit_scale=unit == "B",
                leave=True,
                delay=0,
            )
        follow(self._bar)(progress.done, progress.total)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
