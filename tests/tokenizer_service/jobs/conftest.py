"""A whole service in this process; its jobs run in child processes."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.main import create_app
from tokenizer_service.services import Services
from tokenizer_service.settings import Settings

OpenJobs = Callable[..., JobStore]
"""Opens the test's job database again, as another process would; takes a folder's id."""

ADMIN_KEY = "the-admin-key"
READ_KEY = "the-read-key"
Fields = dict[str, Any]


class Service:
    """A running app and the objects it uses."""

    def __init__(self, client: TestClient, settings: Settings, corpus: Path) -> None:
        self.client, self.settings, self.corpus = client, settings, corpus
        address = settings.jobs_database
        self.jobs = JobStore.open(
            settings.artifacts_dir, None if address is None else address.get_secret_value()
        )
        self.store = ArtifactStore(settings.artifacts_dir)

    @property
    def services(self) -> Services:
        return self.client.app.services  # type: ignore[attr-defined, no-any-return]

    def train(self, body: Fields, **headers: str) -> Any:
        return self.client.post("/train", json=body, headers=headers)

    def start(self, **body: Any) -> str:
        answer = self.train({"input_paths": ["small.txt"], "vocab_size": 300, "name": "n"} | body)
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def job(self, job_id: str) -> Fields:
        answer = self.client.get(f"/train/{job_id}")
        assert answer.status_code == 200
        fields: Fields = answer.json()
        return fields

    def wait(self, job_id: str, *states: str, seconds: float = 300) -> Fields:
        """The job, once it is in one of `states` (any final one by default)."""
        wanted = states or ("live", "succeeded", "failed", "cancelled")
        start = time.monotonic()
        while True:
            job = self.job(job_id)
            if job["state"] in wanted:
                return job
            waited = time.monotonic() - start
            assert waited < seconds, job
            # A look takes milliseconds of a processor that the job needs.
            time.sleep(min(max(0.02, waited / 20), 0.25))

    def wait_for_child(self, job_id: str, *, phases: tuple[str, ...] = ("count", "learn")) -> int:
        """The pid of the job's trainer, once it is training."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            job = self.jobs.get(job_id)
            if job is not None and job.child is not None and job.phase in phases:
                return job.child.pid
            time.sleep(0.01)
        raise AssertionError(f"{self.job(job_id)} never began")


@pytest.fixture
def open_jobs(tmp_path: Path) -> OpenJobs:
    """On SQLite; `tests/integration` runs the same tests on PostgreSQL."""
    return lambda: JobStore.open(tmp_path)


def publish_starter(artifacts_dir: Path) -> ArtifactRef:
    spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    return ArtifactStore(artifacts_dir).publish(spec, name="starter")


@pytest.fixture(scope="session")
def slow_text() -> str:
    """A corpus whose merges take seconds to learn: sixty thousand different words."""
    generator = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join(
        "".join(generator.choices(letters, k=generator.randint(5, 14))) for _ in range(60_000)
    )


@pytest.fixture
def corpus(tmp_path: Path, slow_text: str) -> Path:
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "small.txt").write_text("low lower lowest<|endoftext|>new newer newest " * 50)
    (folder / "slow.txt").write_text(slow_text)
    (folder / "empty.txt").write_text("")
    (folder / "latin.txt").write_bytes(b"abc caf\xe9 " * 10)
    return folder


@pytest.fixture
def start_service(tmp_path: Path, corpus: Path) -> Iterator[Callable[..., Service]]:
    """Starts any number of services on this test's artifacts; the test's end stops them."""
    artifacts_dir = tmp_path / "artifacts"
    publish_starter(artifacts_dir)
    with ExitStack() as running:

        def start(**changes: Any) -> Service:
            settings = Settings(
                artifacts_dir=artifacts_dir,
                corpus_roots=(corpus,),
                admin_keys=(ADMIN_KEY,),
                read_keys=(READ_KEY,),
                # Most tests here observe a run in progress; the native engine would finish too
                # soon.
                **{"engine": "python", **changes},
            )
            client = TestClient(
                create_app(settings),
                headers={"X-API-Key": ADMIN_KEY},
                raise_server_exceptions=False,
            )
            running.enter_context(client)
            service = Service(client, settings, corpus)
            running.callback(service.jobs.database.close)
            return service

        yield start


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of a module whose requests are refused: it runs no job."""
    folder = tmp_path_factory.mktemp("service")
    publish_starter(folder / "artifacts")
    corpus = folder / "corpora"
    corpus.mkdir()
    (corpus / "small.txt").write_text("low lower")
    settings = Settings(
        artifacts_dir=folder / "artifacts",
        corpus_roots=(corpus,),
        corpus_url_hosts="127.0.0.1",
        admin_keys=(ADMIN_KEY,),
    )
    headers = {"X-API-Key": ADMIN_KEY}
    with TestClient(create_app(settings), headers=headers) as client:
        service = Service(client, settings, corpus)
        yield service
        service.jobs.database.close()


@pytest.fixture
def service(start_service: Callable[..., Service]) -> Service:
    return start_service()


SLOW_VOCAB_SIZE = 6000
SLOW: Fields = {"input_paths": ["slow.txt"], "vocab_size": SLOW_VOCAB_SIZE, "name": "slow"}
