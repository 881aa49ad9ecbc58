"""The task in each server process that runs jobs, one at a time over all processes of a host.

It claims the oldest queued job, has it run (`training_run`), and when a version came out of it
makes that the one being served. It stands alone because this is the only place that moves a job
from one state to the next. When its server is told to end, a running job goes back into the queue
and starts again at the next start. When a server process is killed, the others (or the next start)
end its orphaned child; a job that can go on from what is there is queued again, as where the child
alone died, any other has failed: it may be what took all memory. Servers of other hosts queue a job
again when its lease has ended.

An owner that was only paused, or cut off, wakes late. The database refuses all it writes, by the
attempt. What it does to the active pointer is fenced in storage, by the order of things:

    it promotes:    1 read the pointer's state   2 lease still held?   3 move it, if still at 1
    another takes   a the job is mine            b fence: move the pointer on, naming what it names
    its job over:                                c queue the job again, or end it

Where 2 came before a, so did 1: either 3 comes before b, as if the job had been taken just after,
or it finds the pointer moved. Where 2 comes after a, the database says no. So nothing that was not
promoted when b is done will be, by an owner from before; and only then is the job begun again, or
said to have failed. The lease asked for before the state is read, or the fence set before the job
is taken, would each leave a gap for the paused one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from app.jobs.attempt import Outcome, TrainingRun
from app.jobs.database import JobDatabaseError
from app.jobs.folder import JobFolder
from app.jobs.job import Job
from app.jobs.kinds import clear_away, job_kinds
from app.jobs.lock import TrainerLock
from app.jobs.queue import JobStore
from app.jobs.version_retention import VersionRetention
from app.jobs.work import WORK_OF_KIND
from app.serving.errors import ServingError
from app.serving.process_marks import ProcessMark, signal_group
from tokenizer_core.errors import PointerMovedError, TokenizerCoreError

if TYPE_CHECKING:
    from app.serving.live_tokenizers import LiveTokenizers
    from app.settings import Settings
    from tokenizer_core.registry import ArtifactRef, Artifacts

log = logging.getLogger("app.jobs")

Written = TypeVar("Written")

POLL_SECONDS: Final = 0.5
"""How often a process looks for work another one was given, and for dead owners."""

RENEWALS: Final = 12
"""How often the lease of a running job is renewed before it would end; many tries fit in it."""

MAX_DEATHS: Final = 3
"""How often a job may lose its process, or its server, and be begun again before it has failed:
what takes all memory must not be begun for ever."""

_RETRY_SECONDS: Final = 1.0
_FORGET_SECONDS: Final = 3600.0


class JobRunner:
    """Runs the jobs of one artifacts folder from within a server process.

    `start` and `stop` belong to the lifespan of the app; `wake` says that a job was added.
    """

    def __init__(
        self,
        settings: Settings,
        store: Artifacts,
        live: LiveTokenizers,
        jobs: JobStore,
        *,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._settings, self._store, self._live, self._jobs = settings, store, live, jobs
        self._artifacts_dir = settings.artifacts_dir.absolute()
        self._lock = TrainerLock(self._artifacts_dir, jobs.host)
        self._kinds = job_kinds(settings, VersionRetention(settings, store, live, jobs))
        self._poll_seconds = poll_seconds
        self._renew_seconds = jobs.lease_seconds / RENEWALS
        self._me = ProcessMark.of_this_process()
        self._stop = asyncio.Event()
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._forget_at = 0.0

    async def start(self) -> None:
        """Begin to look for jobs."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._work(), name="job-runner")

    async def stop(self) -> None:
        """End the running child, put its job back into the queue, and return after that."""
        self._stop.set()
        self._woken.set()
        if self._task is not None:
            await self._task
            self._task = None

    def wake(self) -> None:
        """Look for jobs now; may be called from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs waking
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _work(self) -> None:
        while not self._stop.is_set():
            self._woken.clear()
            try:
                await asyncio.to_thread(self._forget_old)
                await asyncio.to_thread(self._reap)
                job = await asyncio.to_thread(self._jobs.claim_next, self._me)
                if job is not None:
                    await self._run_guarded(job)
                    continue
            except JobDatabaseError as error:
                if not error.is_away:  # which has been said, and may last
                    log.warning("the jobs cannot be looked at: %s; trying again", error)
                await self._sleep(_RETRY_SECONDS)
                continue
            except Exception:  # a runner that ends would leave every later job queued for ever
                log.exception("the job runner met an error and goes on")
                await self._sleep(_RETRY_SECONDS)
                continue
            await self._sleep(self._poll_seconds)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)

    async def _run_guarded(self, job: Job) -> None:
        lease = asyncio.create_task(self._keep_lease(job), name="job lease")
        try:
            await self._run(job)
        except JobDatabaseError:  # the server ends and the end could not be written
            raise
        except Exception:
            log.exception("job %s met a defect", job.id)
            detail = "an internal error; the log of the server has it under this job"
            await asyncio.to_thread(clear_away, self._artifacts_dir, job)
            await self._finish(job, "failed", "internal_error", detail)
        finally:
            lease.cancel()
            await asyncio.gather(lease, return_exceptions=True)

    async def _keep_lease(self, job: Job) -> None:
        """Renew the lease until cancelled, or until the job is another's.

        Who lost it is told by `TrainingRun`, which looks more often.
        """
        seconds, held = self._renew_seconds, True
        while held:
            await asyncio.sleep(seconds)
            try:
                held = await asyncio.to_thread(self._jobs.renew_lease, job)
                seconds = self._renew_seconds
            except JobDatabaseError as error:  # full, busy or away: there are more tries
                log.warning("job %s: its lease cannot be renewed: %s", job.id, error)
                seconds = min(self._renew_seconds, _RETRY_SECONDS)

    async def _run(self, job: Job) -> None:
        folder = JobFolder.of(self._artifacts_dir, job.id)
        log.info("job %s: attempt %d begins", job.id, job.attempt)
        if job.result is not None:
            # Published by an earlier attempt whose server ended before all was through.
            outcome = Outcome("published", job.result)
        else:
            run = TrainingRun(
                job,
                folder,
                self._jobs,
                self._stop,
                memory_bytes=self._settings.train_memory_bytes,
            )
            outcome = await run.run(self._request_of(job))
        if outcome.kind == "stopped" or (outcome.kind == "died" and _may_go_on(job)):
            await self._requeue(job, died=outcome.kind == "died")
            return
        if not await self._write(lambda: self._jobs.renew_lease(job)):
            # What is there may be the next attempt's by now, of a server of another host.
            log.warning("job %s: %s, but the job was taken away meanwhile", job.id, outcome.kind)
            await self._write(lambda: self._clear_if_ended(job))
            return
        # Before the end is written, so that nobody reads of an ended job whose inputs still stand.
        await asyncio.to_thread(clear_away, self._artifacts_dir, job)
        if outcome.kind == "published" and outcome.result is not None:
            result = outcome.result
            await self._write(lambda: self._jobs.set_result(job, result))
            await self._settle_published(job, result)
        elif outcome.kind == "cancelled":
            await self._finish(job, "cancelled")
        else:
            await self._finish(job, "failed", outcome.code, outcome.detail)
        current = await self._write(lambda: self._jobs.get(job.id))
        if current is not None and current.state in ("live", "succeeded"):
            await asyncio.to_thread(self._kinds[job.kind].after_success, job)

    async def _requeue(self, job: Job, *, died: bool = False) -> None:
        """Put it back; one that was cancelled meanwhile has ended with that."""
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
            **self._kinds[job.kind].child_settings(job),
            "kind": job.kind,
            "job_id": job.id,
            "artifacts_dir": str(self._artifacts_dir),
            "store": self._settings.store,
            "engine": self._settings.engine,
            "takeovers": job.takeovers,
            "lock_host": self._jobs.host,
        }

    async def _settle_published(self, job: Job, result: Mapping[str, Any]) -> None:
        """Promote what was published, if it is a version that is to be served now."""
        if not self._kinds[job.kind].is_promoted(job):
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
                "job %s: %s is not promoted, the job was taken away meanwhile", job.id, version
            )
        except ServingError as error:  # for one, `swap_timeout`
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

    async def _promote(self, job: Job, version: str) -> None:
        """Serve `version`, unless the job is another's by then: see the top of this file."""
        ref = await asyncio.to_thread(self._store.resolve, version)

        def check(present: ArtifactRef | None) -> None:
            del present  # whatever it is
            if not self._jobs.renew_lease(job):
                raise _TakenAwayError

        while True:
            try:
                await self._live.promote(ref, check=check)
                return
            except PointerMovedError:  # by somebody's promotions, or by who has the job now
                continue
            except JobDatabaseError as error:  # whether it is held must be known first
                if not error.is_away:
                    log.warning("the job database cannot be written (%s); trying again", error)
            await self._sleep(_RETRY_SECONDS)

    async def _finish(
        self, job: Job, state: Any, code: str | None = None, detail: str = ""
    ) -> None:
        if not await self._write(
            lambda: self._jobs.finish(job, state, error_code=code, detail=detail)
        ):
            log.warning("job %s: %s, but the job was taken away meanwhile", job.id, state)
            return
        log.info("job %s: %s%s", job.id, state, f" ({code})" if code else "")

    async def _write(self, write: Callable[[], Written]) -> Written:
        """Do a write that must happen, again and again while the disk refuses it.

        A job whose end cannot be written would block the queue. When the server ends meanwhile,
        the next start finds the owner gone and fails the job.
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
        """Fail the jobs whose server process is gone, once their child is gone as well, or queue
        those again that can be begun again.

        Of another host's only the lease can be judged: whoever finds it ended takes the job, and
        its child, should it wake, is not let publish.
        """
        for job in self._jobs.running():
            taken = self._take_lost(job)
            if taken is None:
                continue
            self._store.fence()  # until it has, the job stays this process' and is met here again
            if _may_begin_again(job, self._me):  # one that was to be cancelled is cancelled by this
                if self._jobs.requeue(taken):
                    log.warning("job %s: its server process is gone, requeued", job.id)
                    self._clear_if_ended(job)
                continue
            when_lost = WORK_OF_KIND[job.kind].when_lost
            detail = f"the server process that ran this job was killed; {when_lost}"
            if self._jobs.finish(taken, "failed", error_code="runner_died", detail=detail):
                log.warning("job %s: its server process is gone, failed", job.id)
                clear_away(self._artifacts_dir, job)

    def _take_lost(self, job: Job) -> Job | None:
        """The job, now this process', when whoever had it is gone; None where nobody is."""
        if not job.is_of_this_host:
            # A database that was away for all has kept everybody from renewing: they come first.
            if self._jobs.database.answers_for_seconds < 2 * self._renew_seconds:
                return None
            return self._jobs.take_over(job, self._me, if_lease_ended=True)
        if job.owner == self._me:  # taken and not settled, or claimed and the answer was lost
            return job
        if not self._is_abandoned(job):
            return None
        return self._jobs.take_over(job, self._me, if_lease_ended=False)

    def _is_abandoned(self, job: Job) -> bool:
        """Whether owner and child of a job of this host are gone; ends an ownerless child."""
        if job.owner is not None and job.owner.is_alive():
            return False
        if job.child is not None and job.child.is_alive():
            signal_group(job.child.pid, signal.SIGKILL)
        return self._lock.is_free()  # otherwise it is ending; the next look finds it gone

    def _forget_old(self) -> None:
        now = time.monotonic()
        if now < self._forget_at:
            return
        self._forget_at = now + _FORGET_SECONDS
        for job_id in self._jobs.forget_old():
            JobFolder.of(self._artifacts_dir, job_id).remove()


class _TakenAwayError(Exception):
    """The job is no longer this attempt's."""


def _may_go_on(job: Job) -> bool:
    """Whether a job that lost its process is begun again, from what is there."""
    return WORK_OF_KIND[job.kind].resumes and job.deaths < MAX_DEATHS


def _may_begin_again(job: Job, me: ProcessMark) -> bool:
    """Whether a job that lost its server is. Where nothing says that the job itself ended it, on
    a host that cannot be looked at, one that cannot go on is begun anew: only time is lost."""
    is_unknown = job.owner == me or not job.is_of_this_host
    return _may_go_on(job) or (is_unknown and job.deaths < MAX_DEATHS)
