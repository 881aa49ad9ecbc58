"""Whether the version that a training job published is promoted, by `promote` of its request.

manual    no
auto      unless it is smaller than asked, or at most a tenth of the version that it replaces
always    yes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tokenizer_client.schemas.jobs import NotPromoted
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.registry import ArtifactRef
from tokenizer_service.jobs.queue import Job


class HeldBackError(Exception):
    """The published version is not promoted."""

    def __init__(self, why: NotPromoted) -> None:
        super().__init__(str(why))
        self.why = why


def is_promoted(job: Job) -> bool:
    """Whether the runner promotes what the job published, if `check_may_replace` allows it."""
    return bool(job.request.get("promote", "manual") != "manual")


def check_may_replace(
    job: Job, ref: ArtifactRef, replaced: ArtifactRef | None, size_of: Callable[[ArtifactRef], int]
) -> None:
    """Raise HeldBackError if the version `ref` of a job must not replace the active one. Blocks."""
    if job.request["promote"] == "always" or ref == replaced:
        return
    asked, got, size = job.request.get("vocab_size", 0), size_of(ref), None
    reason: Literal["size_not_reached", "ten_times_smaller", "replaced_not_readable"] | None = None
    if replaced is not None:
        try:
            size = size_of(replaced)
            reason = "ten_times_smaller" if 10 * got <= size else None
        except (TokenizerCoreError, OSError):
            reason = "replaced_not_readable"
    if got < asked:
        reason = "size_not_reached"
    if reason is not None:
        replaces = None if replaced is None else str(replaced)
        why = {"asked": asked, "got": got, "replaces": replaces, "replaces_vocab_size": size}
        raise HeldBackError(NotPromoted(reason=reason, **why))
