"""A whole service in this process; its jobs run in threads or in child processes."""

import asyncio
import functools
import random
import time
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from starlette.testclient import TestClient

from tests.tokenizer_service.jobs.fake_process import (
    FakeRunner,
    publish_starter,
    running,
    start_in_thread,
)
from tests.tokenizer_service.routes.exchanges import wait_for_job
from tokenizer_core.registry import ArtifactStore
from tokenizer_service import main
from tokenizer_service.jobs.process import JobProcess
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.settings import Settings

ADMIN_KEY = "the-admin-key"
READ_KEY = "the-read-key"

SLOW = {"input_paths": ["slow.txt"], "vocab_size": 6000, "name": "slow"}
"""A training that the Python engine takes seconds for."""


class Service:
    def __init__(self, client, settings, corpus):
        self.client, self.settings, self.corpus = client, settings, corpus
        address = settings.jobs_database
        self.jobs = JobStore.open(
            settings.artifacts_dir, None if address is None else address.get_secret_value()
        )
        self.store = ArtifactStore(settings.artifacts_dir)

    @property
    def services(self):
        return self.client.app.services

    def train(self, body, **headers):
        return self.client.post("/train", json=body, headers=headers)

    def start(self, **body):
        asked = {"input_paths": ["small.txt"], "vocab_size": 300, "name": "n", "promote": "always"}
        answer = self.train(asked | body)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def put(self, corpus_id, text):
        assert self.client.put(f"/corpora/{corpus_id}", content=text).is_success

    def encode(self, corpus_id="news", /, **body):
        answer = self.client.post(f"/corpora/{corpus_id}/encode", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def job(self, job_id):
        answer = self.client.get(f"/jobs/{job_id}")
        assert answer.status_code == 200
        return answer.json()

    def wait(self, job_id, *states):
        """The job, once it is in one of `states` (any final one by default)."""
        return wait_for_job(self.client, job_id, *states)

    def wait_for_child(self, job_id, *, phases=("count", "learn")):
        """The pid of the job's trainer, once it is training."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            job = self.jobs.get(job_id)
            if job.child is not None and job.phase in phases:
                return job.child.pid
            time.sleep(0.01)
        raise AssertionError(f"{self.job(job_id)} never began")

    def stop_runner(self):
        """From now on jobs stay in the queue."""
        self.client.portal.call(self.services.runner.stop)

    def start_runner(self):
        self.services.runner._stop.clear()
        self.client.portal.call(self.services.runner.start)


CHILD = (
    "import sys; from tokenizer_service.jobs.worker.child import main; sys.exit(main(sys.argv[1:]))"
)


async def start_child(job_folder, scratch, log):
    """A real child that keeps the priority of the tests: a nice one waits on a busy machine."""
    start = asyncio.create_subprocess_exec

    def start_without_main(*command, **options):
        program, safe, *_, folder = command
        return start(program, safe, "-c", CHILD, folder, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", start_without_main)
        return await JobProcess.start(job_folder, scratch, log)


@pytest.fixture
async def fake(tmp_path):
    """A running runner; a tokenizer `starter` is published."""
    publish_starter(tmp_path)
    async with running(FakeRunner(tmp_path)) as fake:
        yield fake


@pytest.fixture
def open_jobs(tmp_path):
    """On SQLite; `tests/integration` runs the same tests on PostgreSQL."""
    return lambda: JobStore.open(tmp_path)


@functools.cache
def slow_text():
    """A corpus whose merges take seconds to learn: sixty thousand different words."""
    generator = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join(
        "".join(generator.choices(letters, k=generator.randint(5, 14))) for _ in range(60_000)
    )


def write_corpora(folder):
    folder.mkdir()
    (folder / "small.txt").write_text("low lower lowest<|endoftext|>new newer newest " * 50)
    (folder / "slow.txt").write_text(slow_text())
    (folder / "empty.txt").write_text("")
    (folder / "latin.txt").write_bytes(b"abc caf\xe9 " * 10)
    return folder


@pytest.fixture
def corpus(tmp_path):
    return write_corpora(tmp_path / "corpora")


@contextmanager
def run_service(artifacts_dir, corpus, *, start_process=start_in_thread, **changes):
    settings = Settings(
        artifacts_dir=artifacts_dir,
        corpus_roots=(corpus,),
        admin_keys=(ADMIN_KEY,),
        read_keys=(READ_KEY,),
        **changes,
    )
    headers = {"X-API-Key": ADMIN_KEY}
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(main, "JobRunner", partial(JobRunner, start_process=start_process))
            app = TestClient(
                main.create_app(settings), headers=headers, raise_server_exceptions=False
            )
            client = running.enter_context(app)
        service = Service(client, settings, corpus)
        running.callback(service.jobs.database.close)
        yield service


@pytest.fixture
def start_service(tmp_path, corpus):
    """Starts any number of services on this test's artifacts; the test's end stops them."""
    publish_starter(tmp_path / "artifacts")
    with ExitStack() as running:
        yield lambda **changes: running.enter_context(
            run_service(tmp_path / "artifacts", corpus, **changes)
        )


@pytest.fixture
def service(start_service):
    return start_service()


@pytest.fixture
def process_service(start_service):
    """Its jobs run in child processes, slowly: tests observe or kill them."""
    return start_service(start_process=start_child, engine="python")


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory):
    """One service for all tests of a module that do not look at the jobs of the others."""
    folder = tmp_path_factory.mktemp("service")
    publish_starter(folder / "artifacts")
    corpus = write_corpora(folder / "corpora")
    with run_service(folder / "artifacts", corpus, corpus_url_hosts="127.0.0.1") as service:
        yield service
