"""A real `tokenizer serve` process, started as a user starts it.

It does not import pytest, so that the benchmarks can use it as well.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import TokenizerSpec

ADMIN_KEY = "end-to-end-key"
ADMIN = {"X-API-Key": ADMIN_KEY}
PATIENCE_SECONDS = 60.0
"""For conditions that hold at once on an idle machine."""
START_SECONDS = 90.0


class Server:
    """One running server. `lines` has its output, standard error included."""

    host = "127.0.0.1"

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self):
        return "\n".join(self.lines)

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    @property
    def socket_path(self):
        """The Unix socket it listens at, if it does."""
        return self.url.removeprefix("unix:") if self.url.startswith("unix:") else None

    def wait_until_ready(self, *, workers):
        """Wait for the printed address, until every serving process has started, and until the
        port accepts: uvicorn listens a moment after it says that the startup is complete."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            match = re.search(r'tokenizer service on ([^\s"]+:/[^\s"]+)["\n]', self.output)
            started = self.output.count("Application startup complete")
            if match and started >= workers:
                self.url = match[1]
                if self.socket_path is not None:
                    return  # a socket listens before the address is printed
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection((urlsplit(self.url).hostname, self.port)).close()
                    return
            time.sleep(0.02)
        raise AssertionError(f"the server did not start:\n{self.output}")

    def client(self, **options):
        url = self.url
        if self.socket_path is not None:
            url = "http://localhost"
            options["transport"] = httpx.HTTPTransport(uds=self.socket_path)
        return httpx.Client(base_url=url, headers=ADMIN, timeout=30, **options)

    def metric(self, name):
        """The sum of the samples whose lines begin with `name`."""
        lines = httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def wait_for_in_flight(self, wanted):
        """Wait until this many requests are in progress besides the one that asks."""
        wait_until(lambda: self.metric("tokenizer_inflight ") - 1 == wanted)

    def resident_bytes(self):
        return psutil.Process(self.process.pid).memory_info().rss

    def encode_on_new_connection(self, text):
        """With several workers each connection may reach another of them."""
        return httpx.post(f"{self.url}/encode", json={"text": text}, timeout=30)

    def processes(self):
        """The server and all its descendants."""
        leader = psutil.Process(self.process.pid)
        return [leader, *leader.children(recursive=True)]

    def serving_pids(self):
        return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", self.output)]

    def terminate(self, *, seconds=60):
        """SIGTERM; returns how long the server took to end. Fails if it takes longer than
        `seconds`."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        self._reader.join(5)
        return time.monotonic() - started


@contextlib.contextmanager
def serve(
    artifacts_dir,
    *,
    workers=1,
    arguments=(),
    command=(sys.executable, "-m", "tokenizer_service.cli", "serve"),
    **settings,
):
    """A server on a free port; the block's end stops it in any case."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
    Path(artifacts_dir).mkdir(parents=True, exist_ok=True)
    environment |= {
        "TOKENIZER_ARTIFACTS_DIR": str(artifacts_dir),
        "TOKENIZER_ADMIN_KEYS": ADMIN_KEY,
        "TOKENIZER_WORKERS": str(workers),
        "TOKENIZER_PORT": "0",
        "PYTHONUNBUFFERED": "1",
        **{f"TOKENIZER_{name.upper()}": value for name, value in settings.items()},
    }
    process = subprocess.Popen(
        [*command, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    server = Server(process)
    try:
        server.wait_until_ready(workers=workers)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port():
    """A port that nothing listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def publish_bytes(artifacts_dir, name, *, first_id=0):
    """Publish a tokenizer of single bytes whose ids begin at `first_id`."""
    vocab = {first_id + byte: bytes([byte]) for byte in range(256)}
    spec = TokenizerSpec.from_merges(vocab, [], ["<|endoftext|>"])
    return ArtifactStore(artifacts_dir).publish(spec, name=name)


def slow_corpus(folder, n_bytes):
    """Make the folder with `slow.txt`: words of random letters, whose training takes a while."""
    letters = bytes(ord(" ") if byte % 10 == 0 else ord("a") + byte % 26 for byte in range(256))
    folder.mkdir()
    (folder / "slow.txt").write_bytes(random.Random(2).randbytes(n_bytes).translate(letters))


def wait_until(condition, *, seconds=PATIENCE_SECONDS):
    """Fail unless the condition holds within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


def wait_until_gone(pids, *, seconds=PATIENCE_SECONDS):
    """Fail unless all these processes end within `seconds`."""
    wait_until(lambda: not any(map(_is_running, pids)), seconds=seconds)


def _is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
