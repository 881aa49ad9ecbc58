"""Jobs without a child process: objects that a test controls, and threads."""

import asyncio
import itertools
import json
import os
import threading
from contextlib import asynccontextmanager, redirect_stderr

import pytest

from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.jobs.process import JobLock
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.jobs.worker import child
from tokenizer_service.jobs.worker.context import EventPipe
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.serving.live_tokenizers import LiveTokenizers
from tokenizer_service.serving.workers import ProcessIdentity
from tokenizer_service.settings import Settings

SECONDS = 30.0
"""Each wait of these tests fails after this long."""

_pids = itertools.count(1 << 30)  # more than the system allows a process


class FakeProcess:
    """A `JobProcess` without a process, whose behaviour the test sets."""

    def __init__(self, request):
        self.request = request
        self.identity = ProcessIdentity(next(_pids), 0.5)
        self.allowed = asyncio.Event()
        self.n_resident = 1 << 20
        self.grace_seconds = None
        self._events = asyncio.Queue()
        self._code = asyncio.get_running_loop().create_future()

    # What the attempt calls

    async def events(self):
        while (event := await self._events.get()) is not None:
            yield event

    async def let_publish(self):
        self.allowed.set()

    def resident_bytes(self):
        return self.n_resident

    def processor_times(self):
        return 0, 0

    async def wait(self):
        return await asyncio.shield(self._code)

    async def end(self, grace_seconds):
        self.grace_seconds = grace_seconds
        self.exit(-15)

    # What the test calls

    @property
    def has_ended(self):
        return self._code.done()

    def report(self, phase, done, total, **counters):
        fields = {"phase": phase, "done": done, "total": total, "counters": counters}
        self._events.put_nowait({"event": "progress", **fields})

    def ready(self):
        self._events.put_nowait({"event": "ready"})

    def publish(self, **result):
        self._events.put_nowait({"event": "published", "result": result})
        self.exit(0)

    def exit(self, code):
        if not self._code.done():
            self._code.set_result(code)
            self._events.put_nowait(None)


class Permission(threading.Event):
    is_refused = False

    def refuse(self):
        self.is_refused = True
        self.set()

    def wait(self, timeout=None):
        super().wait(timeout)
        if self.is_refused:
            raise SystemExit("the server refuses the publication")
        return True


class ThreadProcess(FakeProcess):
    """Does the job in a thread of this process; a real child imports the packages first."""

    def __init__(self, job_folder, log):
        super().__init__(json.loads((job_folder / "request.json").read_bytes()))
        self._loop = asyncio.get_running_loop()
        self._permission = Permission()
        descriptor = os.dup(log.fileno())
        work = threading.Thread(target=self._work, args=(job_folder, descriptor), daemon=True)
        work.start()

    def _work(self, job_folder, log):
        put = self._events.put_nowait

        class Events(EventPipe):
            def __init__(self):
                self._next_progress, self._phase = 0.0, ""

            def send(_, event, **fields):  # noqa: N805
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

    async def let_publish(self):
        self._permission.set()

    async def end(self, grace_seconds):
        if not self._permission.is_set():
            self._permission.refuse()
        await self.wait()


async def start_in_thread(job_folder, scratch, log):
    return ThreadProcess(job_folder, log)


def publish_starter(artifacts_dir):
    spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    return ArtifactStore(artifacts_dir).publish(spec, name="starter")


def error_of(job):
    return job.state, job.error and job.error["code"]


class FakeRunner:
    """A runner on its own artifacts folder; `started` has the children it started."""

    def __init__(self, artifacts_dir, **settings):
        self.settings = Settings(artifacts_dir=artifacts_dir, **{"engine": "python", **settings})
        self.jobs = JobStore.open(artifacts_dir)
        self.store = ArtifactStore(artifacts_dir)
        self.live = LiveTokenizers(self.settings, self.store, ServiceMetrics())
        self.started = asyncio.Queue()
        self.runner = JobRunner(
            self.settings,
            self.store,
            self.live,
            self.jobs,
            poll_seconds=0.01,
            start_process=self._start,
        )
        self._numbers = itertools.count()

    async def _start(self, job_folder, scratch, log):
        process = FakeProcess(json.loads((job_folder / "request.json").read_bytes()))
        self.started.put_nowait(process)
        return process

    def add(self, *, kind="train", **fields):
        """Queue a job; `fields` are the fields of its request that matter to the test."""
        job_id = f"20261121T041500Z-{next(self._numbers):012x}"
        limits = {"seconds": None, "memory_bytes": None} | fields.pop("limits", {})
        names = {"name": "n", "token_files_id": "n", "promote": "auto", "workers": 1}
        request = {**names, **fields, "limits": limits}
        options = {"request_digest": job_id, "idempotency_key": None, "queue_limit": 99}
        self.jobs.add(job_id, request, kind=kind, **options)
        self.runner.wake()
        return job_id

    async def next_child(self):
        return await asyncio.wait_for(self.started.get(), SECONDS)

    async def until(self, job_id, wanted):
        async with asyncio.timeout(SECONDS):
            while not wanted(job := self.jobs.get(job_id)):  # noqa: ASYNC110 - SQLite sends no events
                await asyncio.sleep(0.005)
        return job

    async def wait(self, job_id):
        return await self.until(job_id, lambda job: job.is_final)

    def publish(self, name="n"):
        spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [], [f"<|{name}|>"])
        return self.store.publish(spec, name=name)

    async def succeed(self, child):
        """The calls of a child that meets no obstacle."""
        child.ready()
        await asyncio.wait_for(child.allowed.wait(), SECONDS)
        ref = self.publish(child.request["name"])
        child.publish(name=ref.name, version=ref.version, digest=ref.digest, vocab_size=1)
        return ref


@asynccontextmanager
async def running(fake):
    """The running runner and the tokenizers it promotes on; the block's end stops both."""
    await fake.live.start()
    await fake.runner.start()
    try:
        yield fake
    finally:
        await fake.runner.stop()
        await fake.live.stop()
