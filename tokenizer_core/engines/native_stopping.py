"""Flags that stop calls of any engine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokenizer_core import stopping
from tokenizer_core.engines.native_import import native, unavailable_reason
from tokenizer_core.stopping import StopFlag

if TYPE_CHECKING:
    from collections.abc import Iterator


class _NativeStopFlag(StopFlag):
    """Also seen by calls of the compiled module."""

    def __init__(self) -> None:
        self.native = native.StopFlag()

    def cancel(self) -> None:
        super().cancel()
        self.native.set()


def make_stop_flag() -> StopFlag:
    """A new flag for `stoppable`."""
    return _NativeStopFlag() if unavailable_reason() is None else StopFlag()


@contextmanager
def stoppable(flag: StopFlag) -> Iterator[None]:
    """Within, calls of any engine on this thread look at `flag`.

    After `flag.cancel()` from another thread they raise CancelledError: the native engine within
    milliseconds, also in the threads of a batch and within one long pre-token, the Python engine
    after some 64 kB of text. Texts of a few kilobytes may be encoded to their end.

    Example:
        >>> from tokenizer_core.engines import make_stop_flag, stoppable
        >>> flag = make_stop_flag()
        >>> with stoppable(flag):
        ...     flag.is_cancelled
        False
    """
    before, stopping.current.flag = stopping.current.flag, flag
    if not isinstance(flag, _NativeStopFlag):
        try:
            yield
        finally:
            stopping.current.flag = before
        return
    native_before = native.look_at(flag.native)
    try:
        yield
    finally:
        stopping.current.flag = before
        native.look_at(native_before)
