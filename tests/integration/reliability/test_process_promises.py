"""Processes that are killed, asked to end, overloaded, or under load for long, over real sockets:
P2 to P5, P9, P10, P13, P17, P20, and no process remains."""

import contextlib
import http.client
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from tests.integration.reliability.soak import MAX_MORE, leaks
from tests.integration.server_process import (
    publish_bytes,
    serve,
    slow_corpus,
    wait_until,
    wait_until_gone,
)
from tests.integration.swap_load import SECOND_FIRST_ID
from tests.reliability.socket_client import LONG_WORK, connect, exchange, head, post
from tests.tokenizer_service.routes.exchanges import wait_for_job
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.jobs.queue import JobStore

CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
GONE_SECONDS = 8.0
"""The promise is two seconds on an idle machine; this is less than GRACEFUL_SECONDS, after which
some would end in any case."""
SMALL = {"documents": ["aa bb"], "vocab_size": 258, "name": "next"}
SLOW = {"input_paths": ["slow.txt"], "name": "slow"}
SIZES = {"python": (350_000, 4_000), "native": (8_000_000, 60_000)}
"""Bytes and vocabulary of a training that takes a second or more, at the trainer's low priority."""


class Artifacts:
    """A folder of artifacts whose servers train `slow.txt`, and the jobs in its database."""

    def __init__(self, root, engine):
        self.folder = root / "artifacts"
        publish_bytes(self.folder, "starter")
        n_bytes, vocab_size = SIZES[engine]
        slow_corpus(root / "corpora", n_bytes)
        self.request = {**SLOW, "vocab_size": vocab_size}
        self.settings = {"corpus_roots": str(root / "corpora"), "engine": engine}

    def serve(self, **options):
        return serve(self.folder, **self.settings, **options)

    def job(self, job_id):
        return JobStore.open(self.folder).get(job_id)

    def start_slow_job(self, server):
        """The job, the pid of the serving process that runs it, and that of its trainer."""
        with server.client() as client:
            job_id = client.post("/train", json=self.request).raise_for_status().json()["id"]
        wait_until(
            lambda: self.job(job_id).child and self.job(job_id).phase in ("count", "learn"),
            seconds=240,  # the trainer starts at a low priority
        )
        job = self.job(job_id)
        return job_id, job.owner.pid, job.child.pid

    def check_database(self):
        with sqlite3.connect(self.folder / "jobs.sqlite3") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.fixture
def artifacts(tmp_path):
    return Artifacts(tmp_path, "python")


def outcome(server, job_id):
    """The state of a job at its end, and the code of its error."""
    with server.client() as client:
        job = wait_for_job(client, job_id)
    return job["state"], (job["error"] or {}).get("code")


def train_small(server):
    with server.client() as client:
        job_id = client.post("/train", json=SMALL).raise_for_status().json()["id"]
    return outcome(server, job_id)


class SteadyClient(threading.Thread):
    """Sends one request after another on one connection, and on a new one after a failure."""

    def __init__(self, server, stop):
        super().__init__(daemon=True)
        self.server, self.stop_event = server, stop
        self.statuses = Counter()
        self.failures = []

    def run(self):
        while not self.stop_event.is_set():
            try:
                with self.server.client() as client:
                    while not self.stop_event.is_set():
                        answer = client.post("/encode", json={"text": "a b c"})
                        self.statuses[answer.status_code] += 1
            except httpx.TransportError as error:
                self.failures.append(repr(error))


@pytest.mark.promise(10)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_while_training_requeues_and_the_next_start_finishes(artifacts, workers):
    with artifacts.serve(workers=workers) as server:
        job_id, _, trainer = artifacts.start_slow_job(server)
        pids = [process.pid for process in server.processes()]
        assert trainer in pids
        # The server does not wait for the trainer as it does for a request.
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS
        wait_until_gone(pids, seconds=10)
    assert artifacts.job(job_id).state == "queued"
    with artifacts.serve(workers=workers) as server:
        assert outcome(server, job_id) == ("live", None)
    done = artifacts.job(job_id)
    assert done.deaths == 0
    # A process that has not got the signal yet may start the job that its neighbour put back.
    assert 2 <= done.attempt <= 1 + workers


@pytest.mark.promise(2, 17)
@pytest.mark.parametrize("engine", ["native"], indirect=True)  # the others train in Python
def test_kill_9_of_trainer_and_server_fails_their_jobs_only(tmp_path, engine):
    artifacts = Artifacts(tmp_path, engine)
    with artifacts.serve() as server, server.client() as client:
        job_id, _, trainer = artifacts.start_slow_job(server)
        os.kill(trainer, signal.SIGKILL)
        for _ in range(50):
            assert client.post("/encode", json={"text": "a"}).status_code == 200
        assert outcome(server, job_id) == ("failed", "trainer_killed")

        job_id, _, trainer = artifacts.start_slow_job(server)
        pids = [process.pid for process in psutil.Process(trainer).children(recursive=True)]
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until_gone([trainer, *pids], seconds=GONE_SECONDS)
    artifacts.check_database()
    with artifacts.serve() as server:
        assert outcome(server, job_id) == ("failed", "runner_died")
        assert train_small(server) == ("live", None)


@pytest.mark.promise(3, 5, 17)
def test_a_killed_worker_loses_its_requests_and_a_killed_supervisor_ends_all(artifacts):
    stop = threading.Event()
    with artifacts.serve(workers=2) as server:
        job_id, owner, trainer = artifacts.start_slow_job(server)
        clients = [SteadyClient(server, stop) for _ in range(6)]
        for client in clients:
            client.start()
        wait_until(lambda: all(client.statuses[200] >= 5 for client in clients))
        held = psutil.Process(owner).net_connections("tcp")
        in_hand = sum(connection.status == psutil.CONN_ESTABLISHED for connection in held)
        os.kill(owner, signal.SIGKILL)
        before = [client.statuses[200] for client in clients]
        wait_until_gone([trainer], seconds=GONE_SECONDS)
        # All continue, with the remaining worker and the new one, which both take jobs.
        wait_until(
            lambda: all(c.statuses[200] >= n + 20 for c, n in zip(clients, before, strict=True)),
            seconds=120,
        )
        server.wait_until_ready(workers=3)
        stop.set()
        for client in clients:
            client.join(60)
        failures = [failure for client in clients for failure in client.failures]
        assert set().union(*(client.statuses for client in clients)) == {200}
        assert len(failures) <= in_hand, failures
        assert max(len(client.failures) for client in clients) <= 1
        assert outcome(server, job_id) == ("failed", "runner_died")
        assert train_small(server) == ("live", None)

        _, _, trainer = artifacts.start_slow_job(server)
        pids = [process.pid for process in server.processes()]
        assert trainer in pids
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until_gone(pids, seconds=GONE_SECONDS)
    artifacts.check_database()


def test_sighup_replaces_each_worker_and_loses_no_request(artifacts):
    """Also where clients keep their connections."""
    answers = Counter()
    with artifacts.serve(workers=2) as server, contextlib.ExitStack() as left:
        kept = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(4)]
        for connection in kept:
            left.callback(connection.close)
        before = set(server.serving_pids())
        os.kill(server.process.pid, signal.SIGHUP)
        while len(server.serving_pids()) < 4 or any(map(psutil.pid_exists, before)):
            answers[server.encode_on_new_connection("a b c").status_code] += 1
            for connection in kept:  # it closes itself when a response says so
                connection.request("GET", "/vocab/97")
                with connection.getresponse() as response:
                    response.read()
                    answers[response.status] += 1
        assert set(answers) == {200}
        # They share the memory of the supervisor, as the first ones did.
        names = {tuple(each.cmdline()) for each in server.processes()}
        assert len(names) == 1
        assert train_small(server) == ("live", None)


@pytest.mark.promise(5)
def test_the_service_ends_with_its_parent(artifacts):
    program = (
        "import subprocess, sys\n"
        "serve = ['-m', 'tokenizer_service.cli', 'serve', '--exit-with-parent']\n"
        "subprocess.run([sys.executable, *serve])"
    )
    command = (sys.executable, "-c", program)
    with (
        contextlib.ExitStack() as left,
        serve(artifacts.folder, workers=2, command=command) as server,
    ):
        pids = [process.pid for process in server.processes()]
        assert len(pids) >= 2
        for pid in pids:
            left.callback(subprocess.run, ["kill", "-9", str(pid)], capture_output=True)
        server.process.kill()
        wait_until_gone(pids, seconds=GONE_SECONDS)


@pytest.mark.promise(4)
@pytest.mark.parametrize(
    ("seed", "n_rounds"), [(0, 1), *(pytest.param(n, 3, marks=pytest.mark.slow) for n in range(4))]
)
def test_kill_9_of_everything_inside_a_swap_restarts_on_old_or_new(artifacts, seed, n_rounds):
    def promote(server, ref):
        with contextlib.suppress(httpx.TransportError), server.client() as client:
            client.put("/tokenizers/active", json={"tokenizer": str(ref)})

    moments = random.Random(seed)
    old = publish_bytes(artifacts.folder, "starter")
    new = publish_bytes(artifacts.folder, "other", first_id=SECOND_FIRST_ID)
    for _ in range(n_rounds):
        with artifacts.serve(workers=2) as server:
            pids = [process.pid for process in server.processes()]
            swap = threading.Thread(target=promote, args=(server, new))
            swap.start()
            time.sleep(moments.choice([0.001, 0.01, 0.1, 0.5]) * moments.random())
            for pid in moments.sample(pids, len(pids)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            swap.join()
            wait_until_gone(pids)
        with artifacts.serve(workers=2) as server:
            versions = set()
            for _ in range(6):
                answer = server.encode_on_new_connection("a")
                version = answer.headers["tokenizer-version"]
                first_id = SECOND_FIRST_ID if version.startswith("other@") else 0
                assert answer.json()["tokens"] == [first_id + ord("a")]
                versions.add(version)
            assert versions in ({str(old)}, {str(new)})
            ready = httpx.get(f"{server.url}/readyz")
            # Not `degraded`, as for a pointer that is neither the old nor the new one.
            assert (ready.status_code, ready.json()["status"]) == (200, "ok")
        old, new = (new, old) if versions == {str(new)} else (old, new)


@pytest.mark.row(37)
def test_a_worker_that_cannot_load_the_active_version_takes_no_requests(artifacts):
    ref = publish_bytes(artifacts.folder, "other", first_id=SECOND_FIRST_ID)
    ArtifactStore(artifacts.folder).promote(ref)
    vocab = artifacts.folder / "tokenizers" / "other" / ref.version / "vocab.pkl"
    sound = vocab.read_bytes()

    def answers(server):
        found = [server.encode_on_new_connection("a") for _ in range(20)]
        return {(each.status_code, each.headers.get("tokenizer-version", "")) for each in found}

    def status(server):
        return str(httpx.get(f"{server.url}/readyz", timeout=30).json().get("status"))

    with artifacts.serve(workers=2) as server:
        # Meanwhile the supervisor sees that both serve; else it would not replace one.
        with server.client() as client:
            job = client.post("/train", json={**SMALL, "promote": "manual"}).json()
            assert wait_for_job(client, job["id"])["state"] == "succeeded"
        vocab.write_bytes(sound[:-1])
        os.kill(server.serving_pids()[1], signal.SIGKILL)
        wait_until(lambda: status(server) == "degraded")
        assert answers(server) == {(200, str(ref))}
        # Nobody serves it any more: the new ones take requests, and say why they serve none.
        os.kill(server.serving_pids()[0], signal.SIGKILL)
        server.wait_until_ready(workers=4)
        wait_until(lambda: status(server) == "503")
        assert answers(server) == {(503, "")}
        with server.client() as client:
            pinned = client.post("/encode", json={"text": "a", "tokenizer": "starter"})
        assert pinned.json()["tokens"] == [ord("a")]
        vocab.write_bytes(sound)
        wait_until(lambda: answers(server) == {(200, str(ref))})
        wait_until(lambda: status(server) == "ok")
        vocab.write_bytes(sound[:-1])
        os.kill(server.serving_pids()[2], signal.SIGKILL)
        wait_until(lambda: status(server) == "degraded")
        assert server.terminate() < GRACEFUL_SECONDS


@pytest.mark.promise(9)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_does_not_wait_forever(artifacts, workers):
    """Silent clients, ones that stop inside headers, a body or a stream, and ones whose work takes
    minutes, several of each."""
    half_body = head("POST /encode HTTP/1.1", JSON, "Content-Length: 1000") + b'{"text": "'
    half_stream = head("POST /encode_stream HTTP/1.1", "Content-Length: 1000") + b"ab cd"
    sent = [b"", b"GET /livez HTTP/1.1\r\nHo", half_body, half_stream, LONG_WORK]
    with artifacts.serve(workers=workers) as server, contextlib.ExitStack() as held:
        pids = [process.pid for process in server.processes()]
        for data in sent * 4:
            held.enter_context(connect(server.port)).sendall(data)
        server.wait_for_in_flight(3 * 4)
        server.terminate()
        wait_until_gone(pids)


@pytest.mark.promise(13)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_overload_gives_every_request_200_or_503(artifacts, workers):
    """Far more bodies at once than a process holds in memory, and small requests between them."""
    large = post("/encode", {"text": "some words " * 80_000}, CLOSE)
    small = post("/encode", {"text": "a b"}, CLOSE)
    n_clients = 48
    at_once = threading.Barrier(n_clients)
    limits = {"max_body_bytes": str(1 << 20), "request_memory_bytes": str(4 << 20)}
    with (
        contextlib.ExitStack() as held,
        serve(artifacts.folder, workers=workers, threads="1", **limits) as server,
    ):

        def ask(number):
            at_once.wait(60)
            request = small if number % 6 == 0 else large
            return [exchange(server.port, request) for _ in range(4)]

        # Incomplete bodies: one fewer than a process has memory for.
        for _ in range(3):
            held.enter_context(connect(server.port)).sendall(large[:-1])
        with ThreadPoolExecutor(n_clients) as threads:
            answers = [answer for list_ in threads.map(ask, range(n_clients)) for answer in list_]
        assert all(answer.end == "closed" for answer in answers)
        statuses = Counter(answer.status for answer in answers)
        assert set(statuses) <= {200, 503}, statuses
        assert statuses[200]
        assert statuses[503] or workers > 1
        for answer in answers:
            assert len(answer.body) == int(answer.headers["content-length"])
            if answer.status == 503:
                assert answer.problem()["code"] == "overloaded"
                assert int(answer.headers["retry-after"]) >= 1
        held.close()
        # The overload ends with its cause.
        assert exchange(server.port, large).status == 200


@pytest.mark.promise(20)
def test_only_steady_growth_is_a_leak():
    for name, allowed in MAX_MORE.items():
        for added, n_leaks in (
            ([min(at, 9) * 100 * allowed for at in range(30)], 0),
            ([(at not in (12, 22)) * 100 * allowed for at in range(30)], 0),
            ([at * (allowed // 10 + 1) for at in range(30)], 1),
        ):
            held = [{**dict.fromkeys(MAX_MORE, 0), name: more} for more in added]
            assert len(leaks(held, MAX_MORE)) == n_leaks
