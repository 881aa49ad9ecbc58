"""Errors of serving: nothing is served, a swap failed, a tokenizer cannot do what is asked."""

from __future__ import annotations

import errno
from typing import Final

from tokenizer_core.errors import DISK_FULL

REFUSES_WRITES: Final = DISK_FULL | {errno.EROFS}
"""Error numbers of a full disk, and of a read-only one."""


class ServingError(Exception):
    """A tokenizer cannot be served or swapped. `code` is a stable word; the text is a message for
    the caller."""

    code: str


class NoTokenizerError(ServingError):
    """Nothing is served."""

    code = "no_tokenizer"


class SwapTimeoutError(ServingError):
    """A process did not swap in time; all processes returned to the previous version."""

    code = "swap_timeout"

    def __init__(self, seconds: float, waiting: int) -> None:
        super().__init__(
            f"{waiting} server processes did not load it within {seconds:g} seconds; all serve the "
            "previous tokenizer again. See the log, then promote again."
        )


class SwapFailedError(ServingError):
    """A process could not load the new version; all processes returned to the previous one."""

    code = "swap_failed"

    def __init__(self, reason: str) -> None:
        super().__init__(f"A server process could not load it ({reason}); nothing changed.")


class PromotionInProgressError(ServingError):
    """Another promotion held the lock for too long."""

    code = "promotion_in_progress"

    def __init__(self) -> None:
        super().__init__("Another promotion is in progress; try again when it has ended.")


class DiskError(ServingError):
    """The disk `refuses_writes`, or fails. The message hides paths; the log has `str` of the
    OSError."""

    def __init__(self, error: OSError) -> None:
        self.refuses_writes = error.errno in REFUSES_WRITES
        if error.errno == errno.EROFS:
            self.code = "disk_read_only"
            message = (
                "The server's disk is read-only, so nothing was changed; serving continues. The "
                "operator can mount it for writing."
            )
        elif self.refuses_writes:
            self.code = "disk_full"
            message = (
                "The server's disk is full, so nothing was changed; serving continues. Remove "
                "corpora, token files or versions, and send the request again."
            )
        else:
            self.code = "storage_failed"
            message = (
                "The disk of the server cannot be read or written; the log of the server says why."
            )
        super().__init__(message)


class FormatCannotHoldError(ServingError):
    """A file format cannot hold the tokenizer: reading it back would give other ids."""

    code = "format_cannot_hold_it"
