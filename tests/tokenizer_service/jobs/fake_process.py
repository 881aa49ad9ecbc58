"""Jobs without a child process: objects that a test controls, and threads."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, redirect_stderr
from pathlib import Path
from typing import IO, Any

import pytest

from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.jobs.process import JobLock
from tokenizer_service.jobs.queue import Job, JobStore
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.jobs.worker import child
from tokenizer_service.jobs.worker.context import EventPipe
from tokenizer_service.serving.live_tokenizers import LiveTokenizers
from tokenizer_service.serving.workers import ProcessIdentity
from tokenizer_service.settings import Settings

SECONDS = 30.0
"""Each wait of these tests fails after this long."""

_pids = itertools.count(1 << 30)  # more than the system allows a process


class FakeProcess:
    """A `ChildProcess` whose behaviour the test sets."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request
        self.identity = ProcessIdentity(next(_pids), 0.5)
        self.allowed = asyncio.Event()
        self.n_resident = 1 << 20
        self.grace_seconds: float | None = None
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # What the attempt calls

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        while (event := await self._events.get()) is not None:
            yield event

    async def let_publish(self) -> None:
        self.allowed.set()

    def resident_bytes(self) -> int:
        return self.n_resident

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    async def end(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.exit(-15)

    # What the test calls

    @property
    def has_ended(self) -> bool:
        return self._code.done()

    def report(self, phase: str, done: int, total: int, **counters: int) -> None:
        fields = {"phase": phase, "done": done, "total": total, "counters": counters}
        self._events.put_nowait({"event": "progress", **fields})

    def ready(self) -> None:
        self._events.put_nowait({"event": "ready"})

    def publish(self, **result: Any) -> None:
        self._events.put_nowait({"event": "published", "result": result})
        self.exit(0)

    def exit(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)
            self._events.put_nowait(None)


class Permission(threading.Event):
    """Permission to publish, given or refused."""

    is_refused = False

    def refuse(self) -> None:
        self.is_refused = True
        self.set()

    def wait(self, timeout: float | None = None) -> bool:
        super().wait(timeout)
        if self.is_refused:
            raise SystemExit("the server refuses the publication")
        return True


class ThreadProcess(FakeProcess):
    """Does the job in a thread of this process; a real child imports the packages first."""

    def __init__(self, job_folder: Path, log: IO[bytes]) -> None:
        super().__init__(json.loads((job_folder / "request.json").read_bytes()))
        self._loop = asyncio.get_running_loop()
        self._permission = Permission()
        descriptor = os.dup(log.fileno())
        work = threading.Thread(target=self._work, args=(job_folder, descriptor), daemon=True)
        work.start()

    def _work(self, job_folder: Path, log: int) -> None:
        put = self._events.put_nowait

        class Events(EventPipe):
            def __init__(self) -> None:
                self._next_progress, self._phase = 0.0, ""

            def send(_, event: str, **fields: Any) -> None:  # noqa: N805
                self._loop.call_soon_threadsafe(put, {"event": event, **fields})

        with (
            os.fdopen(log, "w", buffering=1, errors="backslashreplace") as file,
            redirect_stderr(file),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(child, "EventPipe", Events)
            patch.setattr(child, "_watch_standard_input", lambda: self._permission)
            patch.setattr(child, "_raise_open_files_limit", lambda: None)
            patch.setattr(JobLock, "acquire", lambda *_, **__: True)
            code = child.main([str(job_folder)])
        self._loop.call_soon_threadsafe(self.exit, code)

    async def let_publish(self) -> None:
        self._permission.set()

    async def end(self, grace_seconds: float) -> None:
        if not self._permission.is_set():
            self._permission.refuse()
        await self.wait()


async def start_in_thread(job_folder: Path, scratch: Path, log: IO[bytes]) -> ThreadProcess:
    return ThreadProcess(job_folder, log)


def publish_starter(artifacts_dir: Path) -> ArtifactRef:
    spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    return ArtifactStore(artifacts_dir).publish(spec, name="starter")


def error_of(job: Job) -> tuple[str, str | None]:
    return job.state, job.error and job.error["code"]


class FakeRunner:
    """A runner on its own artifacts folder; `started` has the children it started."""

    def __init__(self, artifacts_dir: Path, **settings: Any) -> None:
        self.settings = Settings(artifacts_dir=artifacts_dir, **{"engine": "python", **settings})
        self.jobs = JobStore.open(artifacts_dir)
        self.store = ArtifactStore(artifacts_dir)
        self.live = LiveTokenizers(self.settings, self.store)
        self.started: asyncio.Queue[FakeProcess] = asyncio.Queue()
        self.runner = JobRunner(
            self.settings,
            self.store,
            self.live,
            self.jobs,
            poll_seconds=0.01,
            start_process=self._start,
        )
        self._numbers = itertools.count()

    async def _start(self, job_folder: Path, scratch: Path, log: IO[bytes]) -> FakeProcess:
        process = FakeProcess(json.loads((job_folder / "request.json").read_bytes()))
        self.started.put_nowait(process)
        return process

    def add(self, *, kind: Any = "train", **fields: Any) -> str:
        """Queue a job; `fields` are the fields of its request that matter to the test."""
        job_id = f"20261121T041500Z-{next(self._numbers):012x}"
        limits = {"seconds": None, "memory_bytes": None} | fields.pop("limits", {})
        names = {"name": "n", "token_files_id": "n", "promote": "auto", "workers": 1}
        request = {**names, **fields, "limits": limits}
        options: Any = {"request_digest": job_id, "idempotency_key": None, "queue_limit": 99}
        self.jobs.add(job_id, request, kind=kind, **options)
        self.runner.wake()
        return job_id

    async def next_child(self) -> FakeProcess:
        return await asyncio.wait_for(self.started.get(), SECONDS)

    def job(self, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        assert job is not None
        return job

    async def until(self, job_id: str, wanted: Callable[[Job], bool]) -> Job:
        async with asyncio.timeout(SECONDS):
            while not wanted(job := self.job(job_id)):  # noqa: ASYNC110 - SQLite sends no events
                await asyncio.sleep(0.005)
        return job

    async def wait(self, job_id: str) -> Job:
        return await self.until(job_id, lambda job: job.is_final)

    def publish(self, name: str = "n") -> ArtifactRef:
        spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [], [f"<|{name}|>"])
        return self.store.publish(spec, name=name)

    async def succeed(self, child: FakeProcess) -> ArtifactRef:
        """The calls of a child that meets no obstacle."""
        child.ready()
        await asyncio.wait_for(child.allowed.wait(), SECONDS)
        ref = self.publish(child.request["name"])
        child.publish(name=ref.name, version=ref.version, digest=ref.digest, vocab_size=1)
        return ref


@asynccontextmanager
async def running(fake: FakeRunner) -> AsyncIterator[FakeRunner]:
    """The running runner and the tokenizers it promotes on; the block's end stops both."""
    await fake.live.start()
    await fake.runner.start()
    try:
        yield fake
    finally:
        await fake.runner.stop()
        await fake.live.stop()


def run(
    artifacts_dir: Path, test: Callable[[FakeRunner], Awaitable[None]], **settings: Any
) -> None:
    """Run `test` with a runner on `artifacts_dir`, where a tokenizer `starter` is published."""
    publish_starter(artifacts_dir)

    async def main() -> None:
        fake = FakeRunner(artifacts_dir, **settings)
        async with asyncio.timeout(2 * SECONDS), running(fake):
            await test(fake)

    asyncio.run(main())
