"""`tokenizer pull` of a preset and of a model on the Hub, from servers on the loopback."""

import base64
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import REPOSITORY
from tests.tokenizer_core.formats.model_folders import make_folder
from tokenizer_core import Tokenizer, presets
from tokenizer_core.errors import HubError
from tokenizer_core.presets import Preset
from tokenizer_service.commands import vocabulary_download, vocabulary_files

TINY = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
PRESET = Preset(
    "tiny", "tiny.tiktoken", hashlib.sha256(TINY).hexdigest(), "gpt2", {"<|end|>": 256}, ()
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextlib.contextmanager
def serving(respond):
    """A server; `respond` turns a path into a status, a body and headers. Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body, headers = respond(self.path.partition("?")[0])
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the server's name

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def mirror():
    mirror = SimpleNamespace(status=200, body=TINY, headers={}, paths=[])

    def respond(path):
        mirror.paths.append(path)
        return mirror.status, mirror.body, mirror.headers

    with serving(respond) as url:
        mirror.url = f"{url}/files"
        yield mirror


@pytest.fixture
def cached(cli, monkeypatch):
    """Where the file of the only preset, `tiny`, belongs."""
    for module in (presets, vocabulary_download, vocabulary_files):
        monkeypatch.setattr(module, "PRESETS", {"tiny": PRESET})
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", "HTTP_PROXY", "http_proxy",
                 "ALL_PROXY", "all_proxy"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cli.folder / "cache"))
    return cli.folder / "cache" / "tokenizer-service" / "vocabularies" / "tiny.tiktoken"


def pull(cli, url):
    return cli.run("pull", "tiny", TOKENIZER_VOCABULARIES_URL=url)[0].decode()


def refuse(cli, url, code=1):
    return cli.fail("pull", "tiny", code=code, TOKENIZER_VOCABULARIES_URL=url)


def test_what_the_package_has_is_not_downloaded(cli):
    path = cli.run("pull", "gpt2")[0].decode().removesuffix("\n")
    cli.run("import", path, "--name", "mine")  # as in $(tokenizer pull gpt2)


def test_a_pulled_file_is_imported_without_options_and_fetched_again_if_damaged(
    cli, cached, mirror
):
    assert pull(cli, mirror.url) == f"{cached}\n"
    assert mirror.paths == ["/files/tiny.tiktoken"]
    assert cached.read_bytes() == TINY
    cli.run("import", "--preset", "tiny", "--name", "mine")
    assert cli.run("encode", "--tokenizer", "mine", "a<|end|>")[0] == b"97 256\n"
    assert pull(cli, mirror.url) == f"{cached}\n"
    assert len(mirror.paths) == 1
    cached.write_bytes(b"damaged")
    pull(cli, f"{mirror.url}/")
    assert mirror.paths == ["/files/tiny.tiktoken"] * 2
    assert cached.read_bytes() == TINY


def test_another_status_or_a_short_or_large_body_is_refused(cli, cached, mirror, monkeypatch):
    mirror.headers = {"Location": "/elsewhere"}
    for mirror.status in (404, 302, 500):
        assert f"status {mirror.status}" in refuse(cli, mirror.url)
    assert len(mirror.paths) == 3  # a redirect is not followed
    mirror.status, mirror.headers = 200, {"Content-Length": str(len(TINY))}
    mirror.body = TINY[:-1]
    assert PRESET.sha256 in refuse(cli, mirror.url)
    mirror.headers, mirror.body = {}, TINY + b"\n"
    assert PRESET.sha256 in refuse(cli, mirror.url)
    mirror.body = TINY
    monkeypatch.setattr(vocabulary_download, "_MAX_BYTES", len(TINY) - 1)
    assert "not a vocabulary" in refuse(cli, mirror.url)
    assert not cached.parent.exists()
    monkeypatch.setattr(vocabulary_download, "_MAX_BYTES", len(TINY))
    pull(cli, mirror.url)


def test_a_closed_silent_or_slow_server_is_refused(cli, cached, mirror, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        patch.setattr(vocabulary_download, "_PAUSE_SECONDS", 0.2)
        assert "TimeoutError" in refuse(cli, url)
    assert "copy the file from another machine" in refuse(cli, url)
    monkeypatch.setattr(vocabulary_download, "_MOST_SECONDS", -1.0)
    assert "try again" in refuse(cli, mirror.url)
    assert not cached.exists()
    for url in ("ftp://host/", "mirror.example"):
        assert "must begin with https://" in refuse(cli, url, code=2)


def test_a_published_file_is_imported_without_options_and_another_is_not(cli, cached):
    file = cli.folder / "file"
    file.write_bytes(TINY)
    named = ("import", "./file", "--name", "mine")
    cli.run(*named)
    assert cli.run("encode", "--tokenizer", "mine", "<|end|>")[0] == b"256\n"
    file.write_bytes(TINY.replace(b" 255\n", b" 300\n"))
    for words, code, said in (
        (named, 2, "--pattern"),
        ((*named, "--preset=tiny"), 1, "as published"),
        ((*named, "--preset", "tiny", "--pattern", "gpt2"), 2, "--preset sets"),
        (("import", "--preset", "tiny", "--ids", "file", *named[2:]), 2, "--preset sets"),
        (("import", "./file", "file", *named[2:], "--preset", "tiny"), 2, "one file"),
        (("import", "--preset", "tiny", "--name", "mine"), 1, "tokenizer pull tiny"),
        (("pull", "gpt5"), 2, "no preset 'gpt5'"),
        (("pull", "tiny", "--revision", "v1"), 2, "--revision belongs to models"),
    ):
        assert said in cli.fail(*words, code=code)
    cli.run(*named, "--pattern", "cl100k", "--special", "<|x|>=256")
    assert cli.run("encode", "--tokenizer", "mine", "<|x|>")[0] == b"256\n"


@pytest.fixture
def hub(tmp_path):
    """The routes of the Hub that a download of one model, `owner/name`, needs.

    `run` runs Python with it: huggingface_hub reads its variables at import.
    """
    pytest.importorskip("huggingface_hub")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    model = make_folder(tmp_path / "model", tokenizer_config=config)
    (model / "model.safetensors").write_bytes(b"large")
    paths, bodies = [], []
    api, resolve = "/api/models/owner/name", f"/owner/name/resolve/{COMMIT}/"

    def describe(file):
        data = file.read_bytes()
        path, digest = file.relative_to(model).as_posix(), hashlib.sha1(data).hexdigest()
        return {"type": "file", "path": path, "size": len(data), "oid": digest}

    def respond(path):
        paths.append(path)
        if bodies:
            return 200, bodies[0], {"X-Repo-Commit": COMMIT, "Content-Type": "application/json"}
        if path.startswith(resolve):
            body = (model / path.removeprefix(resolve)).read_bytes()
        elif path in (api, f"{api}/revision/main", f"{api}/revision/v1"):
            body = json.dumps({"id": "owner/name", "sha": COMMIT, "siblings": []}).encode()
        elif path == f"{api}/tree/{COMMIT}":
            files = [describe(file) for file in sorted(model.rglob("*")) if file.is_file()]
            body = json.dumps(files).encode()
        else:
            return 404, b"{}", {"X-Error-Code": "RepoNotFound"}
        tag = f'"{hashlib.sha1(body).hexdigest()}"'
        return 200, body, {"ETag": tag, "X-Repo-Commit": COMMIT, "Content-Type": "application/json"}

    def run(*arguments, **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TOKENIZER_"))}
        environment = {**kept, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hub"), **variables}
        environment |= {"NO_PROXY": "127.0.0.1", "PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    with serving(respond) as url:
        yield SimpleNamespace(paths=paths, bodies=bodies, run=run, model=model)


def test_pull_fetches_the_tokenizer_and_its_chat_templates(hub, tmp_path):
    (hub.model / "chat_template.jinja").write_text("{{ messages }}")
    (hub.model / "additional_chat_templates").mkdir()
    (hub.model / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")
    pull = ("-m", "tokenizer_service.cli", "pull")
    done = hub.run(*pull, "owner/name")
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(tmp_path / "hub")
    assert not any("safetensors" in path for path in hub.paths)
    found = Tokenizer.load(folder)
    assert found.encode("low<pad>") == [257, 260]
    assert dict(found.chat_templates) == {"default": "{{ messages }}", "rag": "{{ documents }}"}
    assert dict(found.template_variables) == {"pad_token": "<pad>"}
    done = hub.run(*pull, "owner/other")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("tokenizer pull: the tokenizer of owner/other could not be")
    assert "check the name" in done.stderr


def test_from_pretrained_needs_no_network_after_the_first_call(hub):
    load = (
        "from tokenizer_core import Tokenizer; "
        "print(Tokenizer.from_pretrained('owner/name', revision='v1').encode('low<pad>'))"
    )
    first = hub.run("-c", load)
    assert first.stdout == "[257, 260]\n", first.stderr
    assert any(path.endswith("revision/v1") for path in hub.paths)
    hub.paths.clear()
    assert hub.run("-c", load, HF_HUB_OFFLINE="1").stdout == "[257, 260]\n"
    assert hub.paths == []


@pytest.mark.parametrize("body", [b"<html>", b'{"sha": 7, "siblings": "x"}'])
def test_an_answer_that_is_none_of_the_hub_is_an_error_of_the_hub(hub, body):
    hub.model.joinpath("tokenizer.json").unlink()
    hub.bodies.append(body)
    done = hub.run("-m", "tokenizer_service.cli", "pull", "owner/name")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "check the name" in done.stderr


def test_a_wrong_name_or_a_missing_extra_is_an_error_of_the_hub(monkeypatch):
    for name in ("a/b/c", "/b"):
        with pytest.raises(HubError, match="must be owner/name"):
            Tokenizer.from_pretrained(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"pip install 'tokenizer-service\[hub\]'"):
        Tokenizer.from_pretrained("owner/name")
