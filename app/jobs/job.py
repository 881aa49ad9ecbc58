"""A job as its row says: what was asked for, how far it is, how it ended, who holds it.

It stands alone because both databases, the runner, the routes and the commands speak of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.serving.process_marks import ProcessMark, this_host

Kind = Literal["train", "encode"]
State = Literal["queued", "running", "live", "succeeded", "failed", "cancelled"]
FINAL_STATES: Final = frozenset({"live", "succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Job:
    """One row. Times are Unix seconds, by the clock of the database."""

    id: str
    kind: Kind
    request: Mapping[str, Any]
    state: State
    phase: str
    progress: float
    counters: Mapping[str, int]
    cancel_requested: bool
    attempt: int
    """How often it was claimed or taken over: the epoch that fences what earlier owners write."""

    deaths: int
    takeovers: int
    """How often it was taken from an owner that nobody could look for, and that may still write
    where it wrote: what comes after has a place of its own."""

    owner: ProcessMark | None
    owner_host: str | None
    lease_ends_at: float | None
    child: ProcessMark | None
    result: Mapping[str, Any] | None
    error: Mapping[str, str] | None
    created_at: float
    started_at: float | None
    finished_at: float | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Job:
        """The job that a row of the table says."""
        return cls(
            id=row["id"],
            kind=row["kind"] or "train",  # None: an earlier version took it
            request=json.loads(row["request"]),
            state=row["state"],
            phase=row["phase"],
            progress=row["progress"],
            counters=json.loads(row["counters"]),
            cancel_requested=bool(row["cancel_requested"]),
            attempt=row["attempt"],
            deaths=row["deaths"] or 0,
            takeovers=row["takeovers"] or 0,
            owner=ProcessMark.from_json(row["owner"]),
            owner_host=row["owner_host"],
            lease_ends_at=row["lease_ends_at"],
            child=ProcessMark.from_json(row["child"]),
            result=None if row["result"] is None else json.loads(row["result"]),
            error=None if row["error"] is None else json.loads(row["error"]),
            created_at=row["created_at"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
        )

    @property
    def is_final(self) -> bool:
        """Whether nothing will change this job any more."""
        return self.state in FINAL_STATES

    @property
    def is_of_this_host(self) -> bool:
        """Whether the marks of its processes mean processes that can be looked for here."""
        return self.owner_host in (None, this_host())  # None: a version before leases claimed it
