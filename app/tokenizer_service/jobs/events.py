"""Changes of jobs: one document per job, shared by all streams that follow the job.

`JobWatch` reads all followed jobs together four times a second, however many streams follow them.
The id of an event is a hash of its document, so that any process, after any restart, knows which
event a client saw last.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.errors import TooManyListenersError
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.views import view_of

log = logging.getLogger("tokenizer_service.jobs")

LOOK_SECONDS: Final = 0.25
MAX_LISTENERS: Final = 64
"""Most open streams in each process; each needs a connection and little memory."""

_LONGEST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The document of a job at one moment, as one line of JSON."""

    id: str
    document: bytes
    is_final: bool

    @classmethod
    def of(cls, job: Job, artifacts_dir: Path) -> JobEvent:
        """The event for the job now; reads its log."""
        document = view_of(job, artifacts_dir).model_dump_json().encode()
        return cls(hashlib.sha256(document).hexdigest()[:32], document, job.is_final)

    def render(self) -> bytes:
        """The bytes of the event."""
        return b"id: %b\ndata: %b\n\n" % (self.id.encode(), self.document)


class JobWatch:
    """Reads the jobs that streams follow. Use it only from the event loop."""

    def __init__(self, jobs: JobStore, artifacts_dir: Path) -> None:
        self._jobs, self._artifacts_dir = jobs, artifacts_dir
        self._max_listeners = MAX_LISTENERS
        self._listeners: Counter[str] = Counter()
        self._seen: Mapping[str, JobEvent | None] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def n_listeners(self) -> int:
        """The number of open streams."""
        return self._listeners.total()

    @contextlib.contextmanager
    def listening(self, job_id: str) -> Iterator[None]:
        """Watch the job while the block runs; raises TooManyListenersError."""
        if self.n_listeners >= self._max_listeners:
            raise TooManyListenersError(self._max_listeners)
        self._listeners[job_id] += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="job watch")
        try:
            yield
        finally:
            self._listeners -= Counter([job_id])
            # The next listener of a job may come much later, and a look may fail.
            self._seen = {
                key: self._seen[key] for key in self._listeners.keys() & self._seen.keys()
            }
            if not self._listeners:
                self._task.cancel()
                self._task = None

    async def next_look(self, job_id: str, known: JobEvent) -> JobEvent | None:
        """The job at the next look; `known` after a timeout; None if the job was deleted."""
        looked = self._looked
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                await looked.wait()
        return self._seen.get(job_id, known)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._seen = await asyncio.to_thread(self._read, tuple(self._listeners))
            except (JobDatabaseError, OSError) as error:  # the next look tries again
                if not getattr(error, "is_away", False):  # an outage was logged when it began
                    log.warning("cannot read the jobs: %s", error)
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()

    def _read(self, job_ids: tuple[str, ...]) -> dict[str, JobEvent | None]:
        jobs = {job_id: self._jobs.get(job_id) for job_id in job_ids}
        return {
            job_id: None if job is None else JobEvent.of(job, self._artifacts_dir)
            for job_id, job in jobs.items()
        }
