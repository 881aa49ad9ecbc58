"""A small tokenizer in a store of its own, an app over it, and a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from tests.app import run_cli
from tests.app.run_cli import Cli
from tokenizer_core import Tokenizer, TokenizerSpec, train_bpe
from tokenizer_core.registry import ArtifactRef, ArtifactStore

ADMIN_KEY = "an-admin-key-for-the-tests"
SPECIALS = ["<|endoftext|>", "<|a|>", "<|a|><|a|>"]
CORPUS = (
    "the quick brown fox jumps over the lazy dog and the other quick foxes. "
    "low low lower newest newest widest widest widest don't we'll 12345 12 1999 "
    "héllo wörld café naïve 中文字符 中文 Привет мир   \n\n  end\r\n\r\n"
) * 3


@pytest.fixture(scope="session")
def small_spec(tmp_path_factory: pytest.TempPathFactory) -> TokenizerSpec:
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    corpus.write_bytes(CORPUS.encode())
    vocab, merges = train_bpe(corpus, 400, SPECIALS, num_workers=1)
    return TokenizerSpec.from_merges(vocab, merges, SPECIALS)


@pytest.fixture(scope="session")
def other_spec() -> TokenizerSpec:
    """Bytes only, with every id moved up by 1000: no id is also one of `small_spec`."""
    vocab = {1000 + byte: bytes([byte]) for byte in range(256)}
    return TokenizerSpec.from_merges(vocab, [], ["<|endoftext|>"])


@pytest.fixture(scope="session")
def small_tokenizer(small_spec: TokenizerSpec) -> Tokenizer:
    return Tokenizer.from_spec(small_spec)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command, in a folder with a corpus and no tokenizer."""
    (tmp_path / "corpus.txt").write_text(run_cli.CORPUS)
    return Cli(tmp_path, monkeypatch)


@pytest.fixture
def trained(cli: Cli) -> Cli:
    """The command, where `worked` has been trained and is served."""
    cli.run("train", "corpus.txt", "--vocab-size", "265", "--name", "worked", "--promote")
    return cli


@pytest.fixture
def store(tmp_path: Path, small_spec: TokenizerSpec) -> ArtifactStore:
    store = ArtifactStore(tmp_path / "artifacts")
    store.publish(small_spec, name="starter")
    return store


@pytest.fixture
def settings(store: ArtifactStore) -> Settings:
    return Settings(artifacts_dir=store.root, admin_keys=(SecretStr(ADMIN_KEY),), threads=2)


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=True) as client:
        yield client


@pytest.fixture
def starter(store: ArtifactStore) -> ArtifactRef:
    return store.resolve("starter")


@pytest.fixture
def make_client(settings: Settings) -> Callable[..., TestClient]:
    """Use the result in a `with`: it starts and ends the app."""

    def make(**changes: object) -> TestClient:
        return TestClient(create_app(settings.model_copy(update=changes)))

    return make


@dataclass
class RunningServer:
    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@contextmanager
def run_server(
    artifacts_dir: Path, *arguments: str, ready: str = "/readyz", **environment: str
) -> Iterator[RunningServer]:
    log = artifacts_dir.parent / f"server-{uuid.uuid4().hex}.log"
    command = [
        *(sys.executable, "-m", "uvicorn", "app.main:create_app", "--factory"),
        *("--host", "127.0.0.1", "--port", "0", "--no-access-log"),
        *("--timeout-graceful-shutdown", "5"),
        *("--http", "app.http.protocol:GuardedHttpProtocol", *arguments),
    ]
    settings = {
        "TOKENIZER_ARTIFACTS_DIR": str(artifacts_dir),
        "TOKENIZER_ADMIN_KEYS": ADMIN_KEY,
        **environment,
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**inherited, **settings}, stdout=output, stderr=output
        )
    server = RunningServer("127.0.0.1", 0, process, log)
    try:
        _wait_until_ready(server, ready)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(server: RunningServer, path: str) -> None:
    """Learn the port that the system chose from the log, which no other process can take then."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.process.poll() is None:
        found = re.search(r"running on http://127\.0\.0\.1:(\d+)", server.log.read_text())
        if found:
            server.port = int(found[1])
            with suppress(httpx.TransportError):
                if httpx.get(server.url + path, timeout=10).status_code == 200:
                    return
        time.sleep(0.05)
    pytest.fail(f"the server did not become ready:\n{server.log.read_text()}")


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, small_spec: TokenizerSpec
) -> Iterator[RunningServer]:
    """One real server, shared by tests that change nothing."""
    root = tmp_path_factory.mktemp("server") / "artifacts"
    ArtifactStore(root).publish(small_spec, name="starter")
    with run_server(root) as running:
        yield running
