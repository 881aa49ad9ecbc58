"""Promises that one process cannot test: P3, P4, P9, P13, over real sockets."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.server_process import (
    ADMIN,
    Server,
    publish_bytes,
    serve,
    wait_until,
    wait_until_gone,
)
from tests.integration.swap_load import SECOND_FIRST_ID
from tests.reliability.socket_client import LONG_WORK, Answer, connect, exchange, head, post
from tokenizer_core.registry import ArtifactRef

CLOSE = "Connection: close"
JSON = "Content-Type: application/json"


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    publish_bytes(tmp_path / "artifacts", "starter")
    return tmp_path / "artifacts"


class SteadyClient(threading.Thread):
    """Sends one request after another on one connection, and on a new one after a failure."""

    def __init__(self, server: Server, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server, self.stop_event = server, stop
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []

    def run(self) -> None:
        while not self.stop_event.is_set():
            with self.server.client() as client, contextlib.suppress(httpx.TransportError):
                try:
                    while not self.stop_event.is_set():
                        answer = client.post("/encode", json={"text": "a b c"})
                        self.statuses[answer.status_code] += 1
                except httpx.TransportError as error:
                    self.failures.append(repr(error))
                    raise


def held_connections(pid: int) -> int:
    """Connections that this process has accepted."""
    held = psutil.Process(pid).net_connections("tcp")
    return sum(connection.status == psutil.CONN_ESTABLISHED for connection in held)


@pytest.mark.promise(3)
def test_kill_9_of_a_worker_costs_only_what_it_had_in_hand(artifacts: Path) -> None:
    stop = threading.Event()
    with serve(artifacts, workers=2) as server:
        clients = [SteadyClient(server, stop) for _ in range(6)]
        for client in clients:
            client.start()
        wait_until(lambda: all(client.statuses[200] >= 5 for client in clients))
        victim = max(server.serving_pids(), key=held_connections)
        in_hand = held_connections(victim)
        assert in_hand
        os.kill(victim, signal.SIGKILL)
        before = [client.statuses[200] for client in clients]
        # All continue, with the remaining worker and the new one.
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


@pytest.mark.promise(4)
@pytest.mark.parametrize(
    ("seed", "n_rounds"), [(0, 1), *(pytest.param(n, 3, marks=pytest.mark.slow) for n in range(4))]
)
def test_kill_9_of_everything_inside_a_swap_restarts_on_old_or_new(
    artifacts: Path, seed: int, n_rounds: int
) -> None:
    moments = random.Random(seed)
    old = publish_bytes(artifacts, "starter")
    new = publish_bytes(artifacts, "other", first_id=SECOND_FIRST_ID)
    for _ in range(n_rounds):
        with serve(artifacts, workers=2) as server:
            pids = [process.pid for process in server.processes()]
            swap = threading.Thread(target=_try_to_promote, args=(server, new))
            swap.start()
            time.sleep(moments.choice([0.001, 0.01, 0.1, 0.5]) * moments.random())
            for pid in moments.sample(pids, len(pids)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            swap.join()
            wait_until_gone(pids)
        with serve(artifacts, workers=2) as server:
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


def _try_to_promote(server: Server, ref: ArtifactRef) -> None:
    with contextlib.suppress(httpx.TransportError):
        httpx.put(
            f"{server.url}/tokenizers/active",
            json={"tokenizer": str(ref)},
            headers=ADMIN,
            timeout=60,
        )


@pytest.mark.promise(9)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_waits_for_nobody_without_end(artifacts: Path, workers: int) -> None:
    """Silent clients, ones that stop inside headers, a body or a stream, and ones whose work takes
    minutes, several of each."""
    half_body = head("POST /encode HTTP/1.1", JSON, "Content-Length: 1000") + b'{"text": "'
    half_stream = head("POST /encode_stream HTTP/1.1", "Content-Length: 1000") + b"ab cd"
    sent = [b"", b"GET /livez HTTP/1.1\r\nHo", half_body, half_stream, LONG_WORK]
    with serve(artifacts, workers=workers) as server, contextlib.ExitStack() as held:
        pids = [process.pid for process in server.processes()]
        for data in sent * 4:
            held.enter_context(connect(server.port)).sendall(data)
        server.wait_for_in_flight(3 * 4)
        server.terminate()
        wait_until_gone(pids)


@pytest.mark.promise(13)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_overload_is_200_or_503_and_everybody_is_answered(artifacts: Path, workers: int) -> None:
    """Far more bodies at once than a process holds in memory, and small requests between them."""
    large = post("/encode", {"text": "some words " * 80_000}, CLOSE)
    small = post("/encode", {"text": "a b"}, CLOSE)
    n_clients = 48
    at_once = threading.Barrier(n_clients)
    settings = {
        "max_body_bytes": str(1 << 20),
        "request_memory_bytes": str(4 << 20),
        "threads": "1",
    }
    with contextlib.ExitStack() as held, serve(artifacts, workers=workers, **settings) as server:

        def ask(number: int) -> list[Answer]:
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
