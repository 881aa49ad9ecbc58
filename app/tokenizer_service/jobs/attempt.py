"""One attempt at one job: start its child process, follow it, stop it, report the outcome.

An attempt always returns an outcome, even if the child, the disk or the caller fails. It writes
progress and never a final state: the runner acts on the outcome (promote, requeue, fail).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tokenizer_core.errors import DISK_FULL
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.job_limits import JobLimits
from tokenizer_service.jobs.kinds import KINDS
from tokenizer_service.jobs.process import JobProcess, StartProcess, describe_death
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.worker.child import describe_failure

log = logging.getLogger("tokenizer_service.jobs")

LOOK_SECONDS: Final = 0.25
"""How often an attempt checks limits and cancellation, and writes progress."""

GRACE_SECONDS: Final = 3.0
"""Time from SIGTERM to SIGKILL for a child that was cancelled or exceeded a limit."""

STOP_GRACE_SECONDS: Final = 1.0
"""The same time when the server itself shuts down, which must be quick."""

_RETRY_SECONDS: Final = 1.0

WAITED: Final = "processor_wait_percent"
"""The counter of a job whose process waits for a processor more than it runs."""

_MUCH_WAITED_PERCENT: Final = 50
_WAITED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt. `died`: the child ended without a result. `lost`: the server died.
    `stopped`: the server shuts down."""

    kind: Literal["published", "failed", "died", "lost", "cancelled", "stopped"]
    result: Mapping[str, Any] | None = None
    code: str = ""
    detail: str = ""


class Attempt:
    """One attempt; `run` once. `require_store` raises OSError if the job cannot publish now, which
    fails the job. `memory_bytes` is the operator's limit, see `JobLimits`;
    `start_process` starts the child."""

    def __init__(
        self,
        job: Job,
        folder: JobFolder,
        jobs: JobStore,
        stop: asyncio.Event,
        *,
        require_store: Callable[[], None],
        memory_bytes: int | None = None,
        start_process: StartProcess = JobProcess.start,
    ) -> None:
        self._job, self._folder, self._jobs, self._stop = job, folder, jobs, stop
        self._kind = KINDS[job.kind]
        self._require_store, self._start_process = require_store, start_process
        self._limits = JobLimits(job.request["limits"], self._kind, memory_bytes)
        self._phase, self._progress = "start", 0.0
        self._counters: dict[str, int] = {}
        self._written: tuple[str, float, int] = ("", -1.0, 0)
        self._waited_percent = 0
        self._times = (0, 0)
        self._times_at = 0.0
        self._outcome: Outcome | None = None
        self._started = 0.0

    async def run(self, request: Mapping[str, Any]) -> Outcome:
        """Start a child for `request`; return when the child and its workers have ended."""
        try:
            own = self._folder.again(self._job.takeovers)
            await asyncio.to_thread(own.write_request, request)
            log_file = await asyncio.to_thread(self._folder.log_path.open, "ab", buffering=0)
            try:
                process = await self._start_process(own.path, own.scratch_path, log_file)
            finally:
                log_file.close()
        except OSError as error:
            code, detail = describe_failure(error)
            if error.errno not in DISK_FULL:
                code = "start_failed"
                detail = f"the process of the job could not be started ({error.strerror}); see "
                detail += "the log of the server"
            return Outcome("failed", code=code, detail=detail)
        try:
            return await self._follow(process)
        finally:
            stopping = self._stop.is_set()
            await process.end(STOP_GRACE_SECONDS if stopping else GRACE_SECONDS)

    async def _follow(self, process: JobProcess) -> Outcome:
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
            reader.result()  # raises an error of the reader, which is not a death of the child
        finally:
            for task in (reader, stop):
                task.cancel()
            await asyncio.gather(reader, stop, return_exceptions=True)
        if self._outcome is not None:
            return self._outcome
        return Outcome("died", None, *describe_death(await process.wait(), self._kind))

    async def _look(self, process: JobProcess) -> Outcome | None:
        """The outcome if the server ends the attempt now."""
        if self._outcome is not None:
            return self._outcome  # the child has reported and is slow to exit
        if self._stop.is_set():
            return Outcome("stopped")
        try:
            if await asyncio.to_thread(self._jobs.is_cancel_requested, self._job):
                return Outcome("cancelled")
            await asyncio.to_thread(self._note_waiting, process)
            await self._write_progress()
        except JobDatabaseError as error:  # full, busy or away: the next look tries again
            self._log(error)
        return await self._over_limit(process)

    async def _over_limit(self, process: JobProcess) -> Outcome | None:
        used_bytes = await asyncio.to_thread(process.resident_bytes)
        exceeded = self._limits.exceeded(time.monotonic() - self._started, used_bytes)
        return None if exceeded is None else Outcome("failed", None, *exceeded)

    async def _write_progress(self, *, is_last: bool = False) -> None:
        now = (self._phase, round(self._progress, 4), self._waited_percent)
        is_known = self._phase in ("start", *self._kind.progress_of_phase)
        if (is_last or now != self._written) and is_known:
            counters = self._counters
            if self._waited_percent >= _MUCH_WAITED_PERCENT:
                counters = {**counters, WAITED: self._waited_percent}
            await asyncio.to_thread(
                self._jobs.set_progress, self._job, self._phase, self._progress, counters
            )
            self._written = now

    def _note_waiting(self, process: JobProcess) -> None:
        """How much of a second the child waited for a processor, in tens of percent."""
        now = time.monotonic()
        if now < self._times_at + _WAITED_SECONDS:
            return
        times = process.processor_times()
        ran, waited = (new - old for new, old in zip(times, self._times, strict=True))
        self._times, self._times_at = times, now
        self._waited_percent = round(10 * waited / (ran + waited)) * 10 if ran + waited > 0 else 0

    async def _read_events(self, process: JobProcess) -> None:
        async for event in process.events():
            kind = event.get("event")
            if kind == "progress":
                self._note_progress(event)
            elif kind == "ready":
                self._counters |= event.get("counters", {})
                # A short job gets here before the first look.
                self._outcome = await self._over_limit(process)
                if self._outcome is not None:
                    return
                try:
                    await asyncio.to_thread(self._require_store)
                except OSError as error:
                    self._outcome = Outcome("failed", None, *describe_failure(error))
                    return
                if await self._may_publish():
                    self._phase = "publish"
                    await process.let_publish()
                else:  # the next look ends the child
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

    async def _note_child(self, process: JobProcess) -> None:
        if process.identity is None:
            return
        try:
            await asyncio.to_thread(self._jobs.set_child, self._job, process.identity)
        except JobDatabaseError as error:  # only needed if this server dies
            self._log(error)

    async def _may_publish(self) -> bool:
        while True:
            try:
                # A short job ends before the first look, and counters may have grown since.
                await self._write_progress(is_last=True)
                return await asyncio.to_thread(self._jobs.allow_publishing, self._job)
            except JobDatabaseError as error:  # the child waits; cancel and stop still end it
                self._log(error)
                await asyncio.sleep(_RETRY_SECONDS)

    def _log(self, error: JobDatabaseError) -> None:
        if not error.is_away:  # an outage was logged when it began
            log.warning("job %s: the job database cannot be used: %s", self._job.id, error)

    def _note_progress(self, event: Mapping[str, Any]) -> None:
        phase, done, total = str(event["phase"]), int(event["done"]), int(event["total"] or 0)
        unknown = (self._progress, self._progress)
        start, end = self._kind.progress_of_phase.get(phase, unknown)
        part = min(1.0, done / total) if total else 0.0
        # A total may be an estimate that grows; progress never decreases.
        self._progress = max(self._progress, start + (end - start) * part)
        self._phase = phase
        self._counters |= {f"{phase}_done": done, f"{phase}_total": total}
        self._counters |= event.get("counters", {})
