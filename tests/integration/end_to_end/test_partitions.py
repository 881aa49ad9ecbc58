"""Two replicas, a PostgreSQL server and a bucket, each on a host, and links between them are cut.

    one, two    replicas; they share a folder of artifacts, as hosts share a file system
    database    the jobs
    bucket      versions and the active pointer

Promises: the replicas keep serving loaded tokenizers, readiness names the missing part, and after
the repair everything recovers without an operator. Needs root and iproute2 (`network_hosts`).
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.end_to_end.test_replicas import own_host
from tests.integration.network_hosts import Host, Network, cannot_have_hosts, make_network
from tests.integration.postgres_server import PASSWORD, USER, PostgresServer, run_postgres
from tests.integration.server_process import ADMIN, Server, serve

pytestmark = [pytest.mark.slow, pytest.mark.promise(15)]

LEASE_SECONDS = 3
NOTICED_SECONDS = 45
BUCKET_PORT = 5000
SECOND_FIRST_ID = 1000
TEXT = "served by what is loaded " * 40
SLOW = {"input_paths": ["slow.txt"], "vocab_size": 6000, "name": "slow"}
S3 = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
PUBLISH = """
import s3fs, sys
from pathlib import Path
s3fs.S3FileSystem().mkdir("tokenizers")
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.registry import open_artifacts
store = open_artifacts("s3://tokenizers/served", Path(sys.argv[1]))
for name, first_id in (("starter", 0), ("other", int(sys.argv[2]))):
    vocab = {first_id + byte: bytes([byte]) for byte in range(256)}
    spec = TokenizerSpec.from_merges(vocab, [], ["<|endoftext|>"])
    print(store.publish(spec, name=name))
"""


def wait_until(met: Callable[[], object], *, seconds: float = NOTICED_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@dataclass
class Replica:
    """A service on its own host, which receives the requests there."""

    host: Host
    server: Server

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        with self.host.client(self.server.port, headers=ADMIN, timeout=30) as client:
            return client.request(method, path, **options)

    def health(self) -> dict[str, Any]:
        answer = self.ask("GET", "/readyz")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def is_degraded(self) -> bool:
        return self.health()["status"] == "degraded"

    def is_ok(self) -> bool:
        return self.health()["status"] == "ok"

    def serves(self, version: str) -> bool:
        return self.health()["tokenizer"]["version"] == version

    def state_of(self, job_id: str) -> str:
        answer = self.ask("GET", f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["state"])


@dataclass
class Cluster:
    network: Network
    one: Replica
    two: Replica
    versions: tuple[str, str]
    """Of `starter` and `other`, which have no id in common."""

    def promote(self, replica: Replica, number: int) -> httpx.Response:
        return replica.ask("PUT", "/tokenizers/active", json={"tokenizer": self.versions[number]})

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Continuous requests to both: each response is complete, and matches the tokenizer it
        names."""
        first_ids = {self.versions[0]: 0, self.versions[1]: SECOND_FIRST_ID}
        failures: list[str] = []
        answers: list[float] = []
        stop = threading.Event()

        def encode(replica: Replica) -> None:
            while not stop.is_set():
                started = time.monotonic()
                try:
                    answer = replica.ask("POST", "/encode", json={"text": TEXT})
                except httpx.HTTPError as error:
                    failures.append(repr(error))
                    continue
                answers.append(time.monotonic() - started)
                shift = first_ids.get(answer.headers.get("tokenizer-version", ""))
                wanted = None if shift is None else [shift + byte for byte in TEXT.encode()]
                if answer.status_code != 200 or answer.json()["tokens"] != wanted:
                    failures.append(f"{answer.status_code} {answer.text[:200]}")
                time.sleep(0.02)

        threads = [threading.Thread(target=encode, args=(r,)) for r in (self.one, self.two)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert failures == []
        assert len(answers) > 20
        assert max(answers) < 5  # no process waited for an unreachable one


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if reason := cannot_have_hosts():
        pytest.skip(reason)
    with make_network("one", "two", "database", "bucket") as made:
        yield made


@pytest.fixture(scope="module")
def database(network: Network) -> Iterator[str]:
    """The address of the database."""
    host = network["database"]
    with run_postgres(
        command=host.command(), address=host.address, clients="198.18.0.0/16"
    ) as server:
        assert isinstance(server, PostgresServer)
        yield f"postgresql://{USER}:{PASSWORD}@{host.address}:{server.port}/postgres"


@pytest.fixture(scope="module")
def bucket(network: Network) -> Iterator[dict[str, str]]:
    """The environment in which s3:// is the bucket's host."""
    pytest.importorskip("moto")
    host = network["bucket"]
    program = [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(BUCKET_PORT)]
    process = subprocess.Popen(
        host.command(*program), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with host.client(BUCKET_PORT) as client:
            wait_until(lambda: _answers(client))
        yield {**S3, "AWS_ENDPOINT_URL": f"http://{host.address}:{BUCKET_PORT}"}
    finally:
        process.kill()
        process.wait()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/moto-api/").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def versions(
    network: Network, bucket: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    cache = str(tmp_path_factory.mktemp("cache"))
    command = network["one"].command(sys.executable, "-c", PUBLISH, cache, str(SECOND_FIRST_ID))
    done = subprocess.run(command, env=os.environ | bucket, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    return first, second


@pytest.fixture
def cluster(
    network: Network,
    database: str,
    bucket: dict[str, str],
    versions: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Cluster]:
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    corpora = tmp_path / "corpora"
    corpora.mkdir()
    letters = bytes(ord(" ") if byte % 10 == 0 else ord("a") + byte % 26 for byte in range(256))
    (corpora / "slow.txt").write_bytes(random.Random(2).randbytes(700_000).translate(letters))
    with contextlib.ExitStack() as running:
        replicas = []
        for name in ("one", "two"):
            command = [*own_host(name), sys.executable, "-m", "tokenizer_service.cli", "serve"]
            server = running.enter_context(
                serve(
                    tmp_path / "artifacts",
                    command=network[name].command(*command),
                    is_elsewhere=True,
                    store="s3://tokenizers/served",
                    jobs_database=database,
                    lease_seconds=str(LEASE_SECONDS),
                    corpus_roots=str(corpora),
                    engine="python",
                    log_level="info",
                )
            )
            replicas.append(Replica(network[name], server))
        cluster = Cluster(network, replicas[0], replicas[1], versions)
        assert cluster.promote(cluster.one, 0).status_code == 200
        wait_until(lambda: cluster.two.serves(_version(versions[0])) and cluster.two.is_ok())
        yield cluster
        for replica in replicas:
            assert PASSWORD not in replica.server.output


def _version(name: str) -> str:
    return name.partition("@")[2]


def test_a_replica_cut_off_from_the_bucket_serves_on_and_catches_up(cluster: Cluster) -> None:
    first, second = map(_version, cluster.versions)
    with cluster.load():
        with cluster.network.cut("two", "bucket"):
            wait_until(cluster.two.is_degraded)
            assert cluster.promote(cluster.one, 1).status_code == 200
            assert cluster.one.serves(second)
            refused = cluster.promote(cluster.two, 1)
            assert refused.status_code == 503, refused.text
            assert cluster.two.serves(first)
        wait_until(lambda: cluster.two.serves(second) and cluster.two.is_ok())
    assert cluster.one.is_ok()


def test_a_replica_cut_off_from_the_database_serves_and_follows_promotions(
    cluster: Cluster,
) -> None:
    request = {"documents": ["aa bb"], "vocab_size": 258, "name": "small", "promote": "manual"}
    with cluster.load():
        with cluster.network.cut("one", "database"):
            wait_until(cluster.one.is_degraded)
            refused = cluster.one.ask("POST", "/train", json=request)
            assert refused.status_code == 503, refused.text
            taken = cluster.two.ask("POST", "/train", json=request)
            assert taken.status_code == 202, taken.text
            job_id = taken.json()["id"]
            wait_until(lambda: cluster.two.state_of(job_id) == "succeeded")
            assert cluster.promote(cluster.two, 1).status_code == 200
            wait_until(lambda: cluster.one.serves(_version(cluster.versions[1])))
        wait_until(cluster.one.is_ok)
        assert cluster.one.state_of(job_id) == "succeeded"


def test_a_leaseholder_cut_off_from_the_database_loses_its_job(cluster: Cluster) -> None:
    answer = cluster.one.ask("POST", "/train", json=SLOW)
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["id"]
    begun = f"job {job_id}: attempt 1 begins"
    replicas = {"one": cluster.one, "two": cluster.two}
    wait_until(lambda: any(begun in r.server.output for r in replicas.values()))
    holder = next(name for name, r in replicas.items() if begun in r.server.output)
    late, other = replicas.pop(holder), replicas.popitem()[1]
    with cluster.network.cut(holder, "database"):
        wait_until(lambda: other.state_of(job_id) == "live", seconds=150)
        assert late.is_degraded()
    wait_until(late.is_ok)
    taken_away = f"job {job_id}: cancelled, but another process has taken over the job"
    wait_until(lambda: taken_away in late.server.output)
    job = other.ask("GET", f"/jobs/{job_id}").json()
    assert job["state"] == "live"
    for replica in (late, other):
        wait_until(lambda r=replica: r.serves(job["result"]["version"]))  # type: ignore[misc]
