"""One attempt at one job: start its child process, follow it, stop it, say how it went.

It stands alone because the runner decides what a result means (promote, requeue, fail) and this
only makes sure that there is one, whatever the child, the disk or the caller does. It returns an
outcome and writes progress; it never writes a final state.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.jobs.database import JobDatabaseError
from app.jobs.folder import JobFolder
from app.jobs.job import Job
from app.jobs.process import TrainerProcess, describe_death
from app.jobs.queue import JobStore
from app.jobs.work import WORK_OF_KIND

log = logging.getLogger("app.jobs")

LOOK_SECONDS: Final = 0.25
"""How often a running child is looked at: limits, cancellation, progress into the database."""

GRACE_SECONDS: Final = 3.0
"""From SIGTERM to SIGKILL for a child that was cancelled or went over a limit."""

STOP_GRACE_SECONDS: Final = 1.0
"""The same when the server itself is told to end, which must not take long."""

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt went. `died`: the child ended without saying why. `stopped`: the server ends,
    nothing is known to be wrong."""

    kind: Literal["published", "failed", "died", "cancelled", "stopped"]
    result: Mapping[str, Any] | None = None
    code: str = ""
    detail: str = ""


class TrainingRun:
    """One attempt; `run` once.

    `memory_bytes` is the operator's bound: a request may set a lower one, not a higher.
    """

    def __init__(
        self,
        job: Job,
        folder: JobFolder,
        jobs: JobStore,
        stop: asyncio.Event,
        *,
        memory_bytes: int | None = None,
    ) -> None:
        self._job, self._folder, self._jobs, self._stop = job, folder, jobs, stop
        self._work = WORK_OF_KIND[job.kind]
        self._memory_limit = _lower_memory_limit(job.request["limits"], memory_bytes)
        self._phase, self._progress = "start", 0.0
        self._counters: dict[str, int] = {}
        self._written: tuple[str, float] = ("", -1.0)
        self._outcome: Outcome | None = None
        self._started = 0.0

    @property
    def progress(self) -> float:
        """How far it is, 0 to 1."""
        return self._progress

    async def run(self, request: Mapping[str, Any]) -> Outcome:
        """Do what `request` says, and publish; returns when the child and its workers are gone."""
        try:
            own = self._folder.again(self._job.takeovers)
            await asyncio.to_thread(own.write_request, request)
            log_file = await asyncio.to_thread(self._folder.open_log)
            try:
                process = await TrainerProcess.start(own.path, own.scratch_path, log_file)
            finally:
                log_file.close()
        except OSError as error:
            return _failed_to_start(error)
        try:
            return await self._follow(process)
        finally:
            stopping = self._stop.is_set()
            await process.end(STOP_GRACE_SECONDS if stopping else GRACE_SECONDS)

    async def _follow(self, process: TrainerProcess) -> Outcome:
        self._started = time.monotonic()
        await self._note_child(process)
        reader = asyncio.create_task(self._read_events(process))
        stop = asyncio.create_task(self._stop.wait())
        try:
            while not reader.done():
                await asyncio.wait(
                    {reader, stop}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if reader.done():
                    break
                ended = await self._look(process)
                if ended is not None:
                    return ended
            reader.result()  # a defect in reading must not pass for a dead trainer
        finally:
            for task in (reader, stop):
                task.cancel()
            await asyncio.gather(reader, stop, return_exceptions=True)
        if self._outcome is not None:
            return self._outcome
        return Outcome("died", None, *describe_death(await process.wait(), self._work))

    async def _look(self, process: TrainerProcess) -> Outcome | None:
        """What ends the run from this side, if anything does."""
        if self._outcome is not None:
            return self._outcome  # it has said how it went and takes its time to leave
        if self._stop.is_set():
            return Outcome("stopped")
        try:
            if await asyncio.to_thread(self._jobs.is_cancel_requested, self._job):
                return Outcome("cancelled")
            await self._write_progress()
        except JobDatabaseError as error:  # full, busy or away: the next look tries again
            self._say(error)
        return await self._over_limit(process)

    async def _over_limit(self, process: TrainerProcess) -> Outcome | None:
        limits = self._job.request["limits"]
        seconds = time.monotonic() - self._started
        if limits["seconds"] is not None and seconds > limits["seconds"]:
            return Outcome(
                "failed",
                code="time_limit",
                detail=f"{self._work.process} took longer than limits.seconds = "
                f"{limits['seconds']:g}; raise the limit, or {self._work.less_text}",
            )
        if self._memory_limit is not None:
            limit_bytes, name = self._memory_limit
            used = await asyncio.to_thread(process.resident_bytes)
            if used > limit_bytes:
                return Outcome(
                    "failed",
                    code="memory_limit",
                    detail=f"the {self._work.process} processes held {used} bytes, more than "
                    f"{name} = {limit_bytes}; raise the limit, or {self._work.less_memory}",
                )
        return None

    async def _write_progress(self) -> None:
        now = (self._phase, round(self._progress, 4))
        if now != self._written and self._phase in self._work.progress_of_phase:
            await asyncio.to_thread(
                self._jobs.set_progress, self._job, self._phase, self._progress, self._counters
            )
            self._written = now

    async def _read_events(self, process: TrainerProcess) -> None:
        async for event in process.events():
            kind = event.get("event")
            if kind == "progress":
                self._note_progress(event)
            elif kind == "ready":
                # A short run comes here before it was ever looked at.
                self._outcome = await self._over_limit(process)
                if self._outcome is not None:
                    return
                if await self._may_publish():
                    self._phase = "publish"
                    await process.let_publish()
                else:  # the next look ends it
                    log.info(
                        "job %s: it may not publish, it was cancelled or is another's by now",
                        self._job.id,
                    )
            elif kind == "published":
                self._outcome = Outcome("published", dict(event["result"]))
            elif kind == "error":
                self._outcome = Outcome(
                    "failed", code=str(event.get("code")), detail=str(event.get("detail"))
                )

    async def _note_child(self, process: TrainerProcess) -> None:
        if process.mark is None:
            return
        try:
            await asyncio.to_thread(self._jobs.set_child, self._job, process.mark)
        except JobDatabaseError as error:  # only whoever clears up after a dead server misses it
            self._say(error)

    async def _may_publish(self) -> bool:
        while True:
            try:
                await self._write_progress()  # a short run is never looked at before it ends
                return await asyncio.to_thread(self._jobs.allow_publishing, self._job)
            except JobDatabaseError as error:  # the trainer waits; cancel and stop still end it
                self._say(error)
                await asyncio.sleep(_RETRY_SECONDS)

    def _say(self, error: JobDatabaseError) -> None:
        if not error.is_away:  # which has been said, and may last
            log.warning("job %s: the job database cannot be used: %s", self._job.id, error)

    def _note_progress(self, event: Mapping[str, Any]) -> None:
        phase, done, total = str(event["phase"]), int(event["done"]), int(event["total"] or 0)
        unknown = (self._progress, self._progress)
        start, end = self._work.progress_of_phase.get(phase, unknown)
        part = min(1.0, done / total) if total else 0.0
        # Never backwards: a total may be an estimate that grows.
        self._progress = max(self._progress, start + (end - start) * part)
        self._phase = phase
        self._counters |= {f"{phase}_done": done, f"{phase}_total": total}
        self._counters |= event.get("counters", {})


def _lower_memory_limit(
    limits: Mapping[str, Any], operators_bytes: int | None
) -> tuple[int, str] | None:
    """The limit that is met first, and the name under which it can be raised."""
    both = (
        (limits["memory_bytes"], "limits.memory_bytes"),
        (operators_bytes, "the server's TOKENIZER_TRAIN_MEMORY_BYTES"),
    )
    return min(((limit, name) for limit, name in both if limit is not None), default=None)


def _failed_to_start(error: OSError) -> Outcome:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Outcome(
            "failed",
            code="disk_full",
            detail="no space is left where the artifacts are kept; free some and post the "
            "request again",
        )
    return Outcome(
        "failed",
        code="start_failed",
        detail=f"the process of the job could not be started ({error.strerror}); "
        f"see the log of the server",
    )
