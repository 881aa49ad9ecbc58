"""`tokenizer pull` from a server on the loopback, and `--preset`."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tokenizer_service.run_cli import Cli
from tokenizer_core import presets
from tokenizer_core.presets import Preset
from tokenizer_service.commands import vocabulary_download, vocabulary_files

TINY = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
PRESET = Preset("tiny", "tiny.tiktoken", hashlib.sha256(TINY).hexdigest(), "gpt2", {"<|end|>": 256})


class Mirror:
    """A server that gives one body with one status."""

    def __init__(self) -> None:
        self.status, self.body = 200, TINY
        self.declared: int | None = None
        self.paths: list[str] = []
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.paths.append(self.path)
                self.send_response(mirror.status)
                self.send_header("Content-Length", str(mirror.declared or len(mirror.body)))
                if mirror.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(mirror.body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/files"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror()
    yield mirror
    mirror.server.shutdown()
    mirror.server.server_close()


@pytest.fixture
def cached(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of the only preset, `tiny`, belongs."""
    for module in (presets, vocabulary_download, vocabulary_files):
        monkeypatch.setattr(module, "PRESETS", {"tiny": PRESET})
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", "HTTP_PROXY", "http_proxy",
                 "ALL_PROXY", "all_proxy"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cli.folder / "cache"))
    return cli.folder / "cache" / "tokenizer-service" / "vocabularies" / "tiny.tiktoken"


def pull(cli: Cli, url: str) -> str:
    return cli.run("pull", "tiny", TOKENIZER_VOCABULARIES_URL=url)[0].decode()


def refuse(cli: Cli, url: str, code: int = 1) -> str:
    return cli.fail("pull", "tiny", code=code, TOKENIZER_VOCABULARIES_URL=url)


def test_pull_then_import_then_encode_needs_no_pattern_and_no_special(cli, cached, mirror):
    assert pull(cli, mirror.url) == f"{cached}\n"
    assert mirror.paths == ["/files/tiny.tiktoken"]
    assert cached.read_bytes() == TINY
    cli.run("import", "--preset", "tiny", "--name", "mine")
    assert cli.run("encode", "--tokenizer", "mine", "a<|end|>")[0] == b"97 256\n"


def test_a_file_is_fetched_again_only_if_it_is_damaged(cli, cached, mirror):
    pull(cli, mirror.url)
    assert "already there" in pull(cli, mirror.url)
    assert len(mirror.paths) == 1
    cached.write_bytes(b"damaged")
    pull(cli, f"{mirror.url}/")
    assert mirror.paths == ["/files/tiny.tiktoken"] * 2
    assert cached.read_bytes() == TINY


def test_a_file_above_the_cap_is_refused(cli, cached, mirror, monkeypatch):
    monkeypatch.setattr(vocabulary_download, "_MAX_BYTES", len(TINY) - 1)
    assert "not a vocabulary" in refuse(cli, mirror.url)
    assert not cached.exists()
    monkeypatch.setattr(vocabulary_download, "_MAX_BYTES", len(TINY))
    pull(cli, mirror.url)


def test_another_status_or_a_short_body_is_refused(cli, cached, mirror):
    for status in (404, 302, 500):
        mirror.status = status
        assert f"status {status}" in refuse(cli, mirror.url)
    assert len(mirror.paths) == 3  # a redirect is not followed
    mirror.status, mirror.declared = 200, len(TINY) + 1
    assert "RemoteProtocolError" in refuse(cli, mirror.url)
    mirror.declared, mirror.body = None, TINY + b"\n"
    assert PRESET.sha256 in refuse(cli, mirror.url)
    assert not cached.parent.exists()


def test_a_silent_or_slow_server_times_out(cli, cached, mirror, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
        patch.setattr(vocabulary_download, "_PAUSE_SECONDS", 0.2)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "ReadTimeout" in refuse(cli, url)
    monkeypatch.setattr(vocabulary_download, "_MOST_SECONDS", -1.0)
    assert "try again" in refuse(cli, mirror.url)
    assert not cached.exists()


def test_a_published_file_is_imported_without_options_and_another_is_not(cli, cached):
    file = cli.folder / "named-otherwise"
    file.write_bytes(TINY)
    cli.run("import", "named-otherwise", "--name", "mine")
    assert cli.run("encode", "--tokenizer", "mine", "<|end|>")[0] == b"256\n"
    file.write_bytes(TINY.replace(b" 255\n", b" 300\n"))
    assert "--pattern" in cli.fail("import", "named-otherwise", "--name", "mine", code=2)
    assert "as published" in cli.fail(
        "import", "named-otherwise", "--preset=tiny", "--name", "mine"
    )


def test_wrong_options_and_mirrors_are_refused(cli, cached):
    (cli.folder / "file").write_bytes(TINY)
    named = ("import", "file", "--name", "mine")
    for words, code, said in (
        ((*named, "--preset", "tiny", "--pattern", "gpt2"), 2, "--preset sets"),
        (("import", "file", "file", *named[2:], "--preset", "tiny"), 2, "one file"),
        (("import", "--name", "mine"), 2, "--preset"),
        (("import", "--preset", "tiny", "--name", "mine"), 1, "tokenizer pull tiny"),
        (("pull", "gpt5"), 2, "tiny"),
    ):
        assert said in cli.fail(*words, code=code)
    for url in ("ftp://host/", "mirror.example"):
        assert "must begin with https://" in refuse(cli, url, code=2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "copy the file from another machine" in refuse(cli, f"http://127.0.0.1:{port}")
    cli.run(*named, "--pattern", "cl100k", "--special", "<|x|>=256")
    assert cli.run("encode", "--tokenizer", "mine", "<|x|>")[0] == b"256\n"
