"""`tokenizer serve` at a Unix socket: one and several processes, clients, health, its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import publish_bytes, serve, wait_until_gone
from tests.profiles import first_and_slow
from tokenizer_client import AsyncClient, Client, ProblemError

TEXT = "low lower lowest"


@pytest.fixture
def folder():
    """A folder with a short path, as sockets need."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextlib.contextmanager
def serving(folder, **settings):
    artifacts = folder / "artifacts"
    if not artifacts.exists():
        publish_bytes(artifacts, "starter")
    with serve(artifacts, host=f"unix:{folder}/a.sock", **settings) as server:
        yield server


def check_health(server):
    """The exit status of the container's check."""
    return subprocess.run(
        [sys.executable, REPOSITORY / "deploy" / "healthcheck.py"],
        env={"TOKENIZER_HOST": server.url, "TOKENIZER_PORT": "8000"},
        stderr=subprocess.DEVNULL,
        timeout=60,
    ).returncode


@pytest.mark.parametrize("workers", first_and_slow([1, 2]))
def test_both_clients_are_served_at_a_socket(folder, workers):
    async def ask(url):
        async with AsyncClient(url) as client:
            streamed = [id_ async for ids in client.encode_stream(["low ", TEXT]) for id_ in ids]
            return await client.encode(TEXT), streamed

    with serving(folder, workers=workers) as killed:
        with Client(killed.url) as client:
            ids = client.encode(TEXT)
            assert client.decode(ids) == TEXT
            streamed = [id_ for ids in client.encode_stream(["low ", TEXT]) for id_ in ids]
            assert asyncio.run(ask(killed.url)) == (ids, streamed)
            with pytest.raises(ProblemError, match="401"):
                client.jobs.list()
        with killed.client() as http:  # with the admin key, and any Host
            assert http.get("/train", headers={"Host": "any.example"}).status_code == 200
        with pytest.raises(AssertionError, match="another program listens there"):
            serving(folder).__enter__()
        pids = [process.pid for process in killed.processes()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        killed.process.wait(60)
        wait_until_gone(pids)
        assert (folder / "a.sock").is_socket()  # left over, and replaced by the next
        with serving(folder, workers=workers) as server:
            assert check_health(server) == 0
            with Client(server.url) as client:
                assert client.encode(TEXT) == ids
            server.terminate()
            assert not (folder / "a.sock").exists()
            assert check_health(server) != 0


SUPERVISE = """
import ctypes, os, sys
from tokenizer_service.cli import main
from tokenizer_service.commands import serving

def startup():
    async def app(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no start"})

    return app

def silent():
    os.write(1, b"it starts\\n")  # in one piece, as the other process writes the same
    while True:
        ctypes.PyDLL(None).sleep(10_000)  # with the GIL, so that nothing answers

def configure(settings):
    config = of_service(settings)
    config.app = f"supervise:{sys.argv[1]}"
    return config

if __name__ == "__main__":
    of_service, serving._configure = serving._configure, configure
    serving._HEALTH_CHECK_SECONDS, serving._KILL_SECONDS = 10_000, 1
    sys.exit(main(["serve", "--port", "0", "--workers", "2", "--artifacts-dir", "artifacts"]))
"""


@contextlib.contextmanager
def supervise(folder, app):
    """`tokenizer serve` with two processes that cannot serve; an answer may take hours."""
    (folder / "supervise.py").write_text(SUPERVISE)
    (folder / "artifacts").mkdir()
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


def test_processes_that_cannot_start_end_the_service_with_an_error(folder):
    with supervise(folder, "startup") as supervisor:
        output, _ = supervisor.communicate(timeout=120)
    assert "no start" in output
    assert output.endswith("the service could not start; the lines above say why\n")
    assert supervisor.returncode == 1


def test_a_signal_does_not_wait_for_silent_processes(folder):
    with supervise(folder, "silent") as supervisor:
        while supervisor.stdout.readline() != "it starts\n":
            assert supervisor.poll() is None
        supervisor.terminate()
        output, _ = supervisor.communicate(timeout=120)
    assert "did not end in time; it is killed" in output
    assert supervisor.returncode == 0
