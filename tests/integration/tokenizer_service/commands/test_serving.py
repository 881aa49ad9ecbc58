"""`tokenizer serve` at a Unix socket: one and several processes, clients, health, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import (
    Server,
    publish_bytes,
    serve,
    wait_until_gone,
)
from tests.profiles import first_and_slow
from tokenizer_client import AsyncClient, Client, ProblemError

TEXT = "low lower lowest"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextlib.contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[Server]:
    artifacts = folder / "artifacts"
    if not artifacts.exists():
        publish_bytes(artifacts, "starter")
    with serve(artifacts, host=f"unix:{folder}/a.sock", **settings) as server:
        yield server


def check_health(server: Server) -> int:
    """The exit status of the container's check."""
    return subprocess.run(
        [sys.executable, REPOSITORY / "deploy" / "healthcheck.py"],
        env={"TOKENIZER_HOST": server.url, "TOKENIZER_PORT": "8000"},
        stderr=subprocess.DEVNULL,
        timeout=60,
    ).returncode


@pytest.mark.parametrize("workers", first_and_slow([1, 2]))
def test_both_clients_are_served_and_the_socket_is_removed_at_the_end(
    folder: Path, workers: int
) -> None:
    async def ask(url: str) -> tuple[list[int], list[int]]:
        async with AsyncClient(url) as client:
            streamed = [id_ async for ids in client.encode_stream(["low ", TEXT]) for id_ in ids]
            return await client.encode(TEXT), streamed

    with serving(folder, workers=workers) as server:
        with Client(server.url) as client:
            ids = client.encode(TEXT)
            assert client.decode(ids) == TEXT
            streamed = [id_ for ids in client.encode_stream(["low ", TEXT]) for id_ in ids]
            assert asyncio.run(ask(server.url)) == (ids, streamed)
            with pytest.raises(ProblemError, match="401"):
                client.jobs.list()
        with server.client() as http:  # with the admin key, and any Host
            assert http.get("/train", headers={"Host": "any.example"}).status_code == 200
        assert check_health(server) == 0
        assert (folder / "a.sock").is_socket()
        server.terminate()
        assert not (folder / "a.sock").exists()
        assert check_health(server) != 0


def test_a_killed_service_is_replaced_and_a_running_one_is_not(folder: Path) -> None:
    with serving(folder) as killed:
        pids = [process.pid for process in killed.processes()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        killed.process.wait(60)
        wait_until_gone(pids)
        assert (folder / "a.sock").is_socket()
        with serving(folder) as server:
            with pytest.raises(AssertionError, match="another program listens there"):
                serving(folder).__enter__()
            with Client(server.url) as client:
                assert client.decode(client.encode(TEXT)) == TEXT


FAILING_APPS = """
import ctypes
def startup():
    async def app(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no start"})

    return app

def silent():
    print("it starts", flush=True)
    while True:
        ctypes.PyDLL(None).sleep(10_000)  # with the GIL, so that nothing answers

"""
SUPERVISE = """
import sys
from tokenizer_service.cli import main
from tokenizer_service.commands import serving

def configure(settings):
    config = of_service(settings)
    config.app = f"failing_apps:{sys.argv[1]}"
    return config

if __name__ == "__main__":
    of_service, serving._configure = serving._configure, configure
    serving._HEALTH_CHECK_SECONDS, serving._KILL_SECONDS = 10_000, 1
    sys.exit(main(["serve", "--port", "0", "--workers", "2", "--artifacts-dir", "artifacts"]))
"""


@contextlib.contextmanager
def supervise(folder: Path, app: str) -> Iterator[subprocess.Popen[str]]:
    """`tokenizer serve` with two processes that cannot serve; an answer may take hours."""
    (folder / "failing_apps.py").write_text(FAILING_APPS)
    (folder / "supervise.py").write_text(SUPERVISE)
    supervisor = subprocess.Popen(
        [sys.executable, "supervise.py", app],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{REPOSITORY}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield supervisor
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.communicate(timeout=60)


def test_processes_that_cannot_start_end_the_service_with_an_error(folder: Path) -> None:
    with supervise(folder, "startup") as supervisor:
        output, _ = supervisor.communicate(timeout=120)
    assert "no start" in output
    assert output.splitlines()[-1] == (
        "tokenizer serve: the service could not start; the lines above say why"
    )
    assert supervisor.returncode == 1


def test_a_signal_does_not_wait_for_silent_processes(folder: Path) -> None:
    with supervise(folder, "silent") as supervisor:
        assert supervisor.stdout is not None
        for line in supervisor.stdout:
            if line == "it starts\n":
                break
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert "did not end in time; it is killed" in output
    assert supervisor.returncode == 0
