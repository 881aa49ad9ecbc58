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


def test_the_error_without_a_network_has_the_remedy(cli, cached):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    error = refuse(cli, f"http://127.0.0.1:{port}")
    assert "ConnectError" in error
    assert "copy the file from another machine" in error


def test_a_wrong_mirror_or_preset_is_refused(cli, cached):
    for url in ("ftp://host/", "mirror.example"):
        assert "must begin with https://" in refuse(cli, url, code=2)
    assert "tiny" in cli.fail("pull", "gpt5", code=2)


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


def test_options_of_a_published_file_are_kept(cli, cached):
    (cli.folder / "file").write_bytes(TINY)
    cli.run("import", "file", "--name", "mine", "--pattern", "cl100k", "--special", "<|x|>=256")
    assert cli.run("encode", "--tokenizer", "mine", "<|x|>")[0] == b"256\n"


def test_a_preset_excludes_the_options_that_it_sets(cli, cached):
    (cli.folder / "file").write_bytes(TINY)
    common = ("import", "file", "--preset", "tiny", "--name", "mine")
    assert "--preset sets" in cli.fail(*common, "--pattern", "gpt2", code=2)
    assert "--preset sets" in cli.fail(*common, "--no-special", code=2)
    assert "one file" in cli.fail("import", "file", *common[1:], code=2)


def test_an_import_without_a_file_needs_a_preset_that_was_pulled(trained, cached):
    assert "--preset" in trained.fail("import", "--name", "mine", code=2)
    assert "tokenizer pull tiny" in trained.fail("import", "--preset", "tiny", "--name", "mine")
    convert = ("convert", "worked", "--preset=tiny", "--to=gpt2", "--output=x")
    assert "--preset" in trained.fail(*convert, code=2)
