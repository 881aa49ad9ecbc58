"""The runner: a task in each server process that runs jobs, one at a time per host.

It claims the oldest queued job, makes an attempt at it, and promotes the version that the job
published. Only the runner moves a job from one state to the next:

    queued -> running -> live, succeeded, failed or cancelled
                 |
                 +-> queued, when the server shuts down, or a process died and the job may restart

When its server shuts down, a running job returns to the queue and starts again with the next
server. When a server process is killed, another one (or the next start) ends the orphaned child. A
job that can resume is queued again, also if only the child died; any other job fails, because it
may have used up the memory. Servers of other hosts queue a job again when its lease has ended.

An owner that was only paused, or cut off, may continue late. The database refuses all its writes by
the number of the attempt. The order of steps fences its writes to the active pointer:

    the owner        1 reads the pointer's state   2 asks whether it holds the lease
    promotes:        3 moves the pointer if it is still in the state of 1
    another takes    a takes the job               b fences: rewrites the pointer, unchanged
    the job over:    c queues the job again, or ends it

If 2 comes before a, so does 1. Then either 3 comes before b, as if the job had been taken over just
afterwards, or 3 finds that the pointer has moved. If 2 comes after a, the database denies the
lease. So an earlier owner promotes nothing after b, and the job starts again, or fails, only after
b. Asking for the lease before reading the state, or fencing before taking the job, would leave a
gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from tokenizer_core.errors import PointerMovedError, TokenizerCoreError
from tokenizer_core.registry import ArtifactRef, Artifacts
from tokenizer_service.jobs.attempt import Attempt, Outcome
from tokenizer_service.jobs.auto_promotion import HeldBackError, check_may_replace, is_promoted
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.folder import JobFolder, is_job_id
from tokenizer_service.jobs.kinds import KINDS, child_settings, clear_away
from tokenizer_service.jobs.process import JobLock, JobProcess, StartProcess, signal_group
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.restarts import next_step
from tokenizer_service.jobs.version_retention import VersionRetention
from tokenizer_service.jobs.worker.context import say
from tokenizer_service.serving.errors import ServingError
from tokenizer_service.serving.live_tokenizers import LiveTokenizers
from tokenizer_service.serving.workers import ProcessIdentity
from tokenizer_service.settings import Settings

log = logging.getLogger("tokenizer_service.jobs")

Written = TypeVar("Written")

POLL_SECONDS: Final = 1.0
"""How often a process looks for jobs that another process queued, and for dead owners."""

RENEWALS: Final = 12
"""Renewals in the time of one lease; the lease holds if one of them succeeds."""

_RETRY_SECONDS: Final = 1.0
_FORGET_SECONDS: Final = 3600.0


class JobRunner:
    """Runs the jobs of one artifacts folder in a server process.

    The lifespan of the app calls `start` and `stop`; a route calls `wake` after it added a job.
    """

    def __init__(
        self,
        settings: Settings,
        store: Artifacts,
        live: LiveTokenizers,
        jobs: JobStore,
        *,
        poll_seconds: float = POLL_SECONDS,
        start_process: StartProcess | None = None,
    ) -> None:
        self._settings, self._store, self._live, self._jobs = settings, store, live, jobs
        self._artifacts_dir = settings.artifacts_dir.absolute()
        self._lock = JobLock(self._artifacts_dir, jobs.host)
        self._retention = VersionRetention(settings, store, live, jobs)
        self._start_process = start_process or partial(JobProcess.start, niceness=settings.job_nice)
        self._poll_seconds = poll_seconds
        self._renew_seconds = jobs.lease_seconds / RENEWALS
        self._me = ProcessIdentity.of_this_process()
        self._stop = asyncio.Event()
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._forget_at = 0.0

    async def start(self) -> None:
        """Start looking for jobs."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._work(), name="job-runner")

    async def stop(self) -> None:
        """End the running child and requeue its job; return when both are done."""
        self._stop.set()
        self._woken.set()
        if self._task is not None:
            await self._task
            self._task = None

    def wake(self) -> None:
        """Look for jobs now. Any thread may call this."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no runner waits
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _work(self) -> None:
        while not self._stop.is_set():
            self._woken.clear()
            try:
                job = await asyncio.to_thread(self._look)
                if job is not None:
                    await self._run_guarded(job)
                    continue
            except JobDatabaseError as error:
                if not error.is_away:  # an outage was logged when it began
                    log.warning("cannot read the jobs: %s; trying again", error)
                await self._sleep(_RETRY_SECONDS)
                continue
            except Exception:  # if the runner ended, all later jobs would stay queued
                log.exception("error in the job runner; it continues")
                await self._sleep(_RETRY_SECONDS)
                continue
            await self._sleep(self._poll_seconds)

    def _look(self) -> Job | None:
        """Clear up, and claim a job."""
        self._forget_old()
        if not self._jobs.count_unfinished():
            return None
        self._reap()
        job = self._jobs.claim_next(self._me)
        if job is None or is_job_id(job.id):
            return job
        self._jobs.fail_damaged(job)  # it can have no folder
        return None

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)

    async def _run_guarded(self, job: Job) -> None:
        lease = asyncio.create_task(self._keep_lease(job), name="job lease")
        try:
            await self._run(job)
        except JobDatabaseError:  # the server shuts down and cannot write the end
            raise
        except Exception:
            log.exception("job %s: internal error", job.id)
            detail = "an internal error; the log of the server has it under this job"
            await asyncio.to_thread(clear_away, self._artifacts_dir, job)
            await self._finish(job, "failed", "internal_error", detail)
        finally:
            lease.cancel()
            await asyncio.gather(lease, return_exceptions=True)

    async def _keep_lease(self, job: Job) -> None:
        """Renew the lease until cancelled, or until another owner has the job.

        `Attempt` notices another owner sooner and ends the child.
        """
        seconds, held = self._renew_seconds, True
        while held:
            await asyncio.sleep(seconds)
            try:
                held = await asyncio.to_thread(self._jobs.renew_lease, job)
                seconds = self._renew_seconds
            except JobDatabaseError as error:  # full, busy or away: try again
                log.warning("job %s: its lease cannot be renewed: %s", job.id, error)
                seconds = min(self._renew_seconds, _RETRY_SECONDS)

    async def _run(self, job: Job) -> None:
        folder = JobFolder.of(self._artifacts_dir, job.id)
        log.info("job %s begins", job.id)
        if job.result is not None:  # an earlier attempt published, and its server ended then
            outcome = Outcome("published", job.result)
        else:
            attempt = Attempt(
                job,
                folder,
                self._jobs,
                self._stop,
                require_store=self._store.require_mounted,
                memory_bytes=self._settings.train_memory_bytes,
                start_process=self._start_process,
            )
            outcome = await attempt.run(self._request_of(job))
        step = next_step(job, outcome, self._me)
        if step == "requeue":
            await self._requeue(job, died=outcome.kind == "died")
            return
        if not await self._write(lambda: self._jobs.renew_lease(job)):
            # The files may already belong to the next attempt, of a server on another host.
            log.warning(
                "job %s: %s, but another process has taken over the job", job.id, outcome.kind
            )
            await self._write(lambda: self._clear_if_ended(job))
            return
        # Before the end is written: a client that reads it must find the inputs removed.
        await asyncio.to_thread(clear_away, self._artifacts_dir, job)
        if step == "settle":
            result = outcome.result or {}
            await self._write(lambda: self._jobs.set_result(job, result))
            await self._settle_published(job, result)
        else:
            await self._finish(job, step, outcome.code or None, outcome.detail)
        current = await self._write(lambda: self._jobs.get(job.id))
        is_done = current is not None and current.state in ("live", "succeeded")
        if is_done and job.kind == "train":
            await asyncio.to_thread(self._retention.keep_newest, job.request["name"])

    async def _requeue(self, job: Job, *, died: bool = False) -> None:
        """Put the job back into the queue, or end it if it was cancelled meanwhile."""
        await self._write(lambda: self._jobs.requeue(job, died=died))
        log.info("job %s: requeued, %s", job.id, "its process died" if died else "the server ends")
        await self._write(lambda: self._clear_if_ended(job))

    def _clear_if_ended(self, job: Job) -> None:
        current = self._jobs.get(job.id)
        if current is not None and current.is_final:
            clear_away(self._artifacts_dir, job)

    def _request_of(self, job: Job) -> dict[str, Any]:
        return {
            **job.request,
            **child_settings(job, self._settings),
            "kind": job.kind,
            "job_id": job.id,
            "artifacts_dir": str(self._artifacts_dir),
            "store": self._settings.store,
            "engine": self._settings.engine,
            "takeovers": job.takeovers,
            "lock_host": self._jobs.host,
        }

    async def _settle_published(self, job: Job, result: Mapping[str, Any]) -> None:
        """Promote a trained version, unless the request leaves that to the client; end the job."""
        if not is_promoted(job):
            await self._finish(job, "succeeded")
            return
        version = f"{result['name']}@{result['version']}"
        if await self._write(lambda: self._jobs.is_cancel_requested(job)):
            await self._finish(job, "cancelled")
            return
        promotion = asyncio.create_task(self._promote(job, version))
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait({promotion, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not promotion.done():
            promotion.cancel()
            await asyncio.gather(promotion, return_exceptions=True)
            await self._requeue(job)
            return
        try:
            promotion.result()
        except _TakenAwayError:
            log.warning(
                "job %s: %s is not promoted, another process has taken over the job",
                job.id,
                version,
            )
        except HeldBackError as held:
            log.info("job %s: %s is %s", job.id, version, held.why)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._tell_held_back, job, str(held.why))
            told = {**result, "not_promoted": held.why.model_dump(mode="json")}
            await self._write(lambda: self._jobs.set_result(job, told))
            await self._finish(job, "succeeded")
        except ServingError as error:  # for example `swap_timeout`
            await self._finish(job, "failed", error.code, f"{version} is published, but: {error}")
        except TokenizerCoreError as error:
            await self._finish(job, "failed", error.code, str(error))
        except Exception:
            log.exception("job %s: %s could not be promoted", job.id, version)
            await self._finish(
                job,
                "failed",
                "promotion_failed",
                f"{version} is published and could not be promoted; the log of the server says "
                f"why. PUT /tokenizers/active tries again",
            )
        else:
            await self._finish(job, "live")

    def _tell_held_back(self, job: Job, why: str) -> None:
        with JobFolder.of(self._artifacts_dir, job.id).log_path.open("a") as file:
            say(f'{why}; to serve it: PUT /tokenizers/active, or "promote": "always"', file)

    async def _promote(self, job: Job, version: str) -> None:
        """Serve `version`, unless another owner has the job (see the top of this file), or it is
        held back."""
        ref = await asyncio.to_thread(self._store.resolve, version)

        def check(present: ArtifactRef | None) -> None:
            if not self._jobs.renew_lease(job):
                raise _TakenAwayError
            check_may_replace(
                job, ref, present, lambda ref: self._live.get(str(ref)).tokenizer.vocab_size
            )

        while True:
            try:
                await self._live.promote(ref, check=check)
                return
            except PointerMovedError:  # moved by another promotion or the job's new owner
                continue
            except JobDatabaseError as error:  # promote only after checking the lease
                if not error.is_away:
                    log.warning("the job database cannot be written (%s); trying again", error)
            await self._sleep(_RETRY_SECONDS)

    async def _finish(
        self, job: Job, state: Any, code: str | None = None, detail: str = ""
    ) -> None:
        if not await self._write(
            lambda: self._jobs.finish(job, state, error_code=code, detail=detail)
        ):
            log.warning("job %s: %s, but another process has taken over the job", job.id, state)
            return
        log.info("job %s: %s%s", job.id, state, f" ({code})" if code else "")

    async def _write(self, write: Callable[[], Written]) -> Written:
        """Repeat a write until the database accepts it.

        A job without a written end would block the queue. If the server shuts down meanwhile, the
        next start finds the owner gone and ends the job or queues it again (`restarts`).
        """
        while True:
            try:
                return await asyncio.to_thread(write)
            except JobDatabaseError as error:
                if self._stop.is_set():
                    raise
                if not error.is_away:
                    log.warning("the job database cannot be written (%s); trying again", error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), _RETRY_SECONDS)

    def _reap(self) -> None:
        """End or requeue the jobs whose server process and child are both gone.

        For an owner on another host only the lease counts: the first runner that finds it ended
        takes the job, and the job's earlier child gets no permission to publish.
        """
        for job in self._jobs.running():
            if job.is_damaged or not is_job_id(job.id):
                self._jobs.fail_damaged(job)  # its owner, if it lives, then ends its child
                continue
            taken = self._take_lost(job)
            if taken is None:
                continue
            self._store.fence()  # if it fails, this process keeps the job and tries again
            when_lost = KINDS[job.kind].when_lost
            detail = f"the server process that ran this job was killed; {when_lost}"
            lost = Outcome("lost", None, "runner_died", detail)
            if next_step(job, lost, self._me) == "requeue":
                if self._jobs.requeue(taken):
                    log.warning("job %s: its server process is gone, requeued", job.id)
                    self._clear_if_ended(job)
            elif self._jobs.finish(taken, "failed", error_code=lost.code, detail=detail):
                log.warning("job %s: its server process is gone, failed", job.id)
                clear_away(self._artifacts_dir, job)

    def _take_lost(self, job: Job) -> Job | None:
        """Take the job over if its owner is gone, and return it; else return None."""
        if not job.is_of_this_host:
            # After an outage of the database, give owners time to renew their leases first.
            if self._jobs.database.answers_for_seconds < 2 * self._renew_seconds:
                return None
            return self._jobs.take_over(job, self._me, if_lease_ended=True)
        if job.owner == self._me:  # taken over before, or the claim's response was lost
            return job
        if not self._is_abandoned(job):
            return None
        return self._jobs.take_over(job, self._me, if_lease_ended=False)

    def _is_abandoned(self, job: Job) -> bool:
        """Whether owner and child of a job on this host are gone; kills an orphaned child."""
        if job.owner is not None and job.owner.is_alive():
            return False
        if job.child is not None and job.child.is_alive():
            signal_group(job.child.pid, signal.SIGKILL)
        return self._lock.is_free()  # if not, the child is ending: check again later

    def _forget_old(self) -> None:
        now = time.monotonic()
        if now < self._forget_at:
            return
        self._forget_at = now + _FORGET_SECONDS
        for job_id in self._jobs.forget_old():
            if is_job_id(job_id):
                JobFolder.of(self._artifacts_dir, job_id).remove()


class _TakenAwayError(Exception):
    """Another owner has the job."""
