"""`tokenizer pull owner/name` and `Tokenizer.from_pretrained`, from a mirror on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.tokenizer_core.formats.model_folders import make_folder
from tokenizer_core import Tokenizer
from tokenizer_core.errors import HubError

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Mirror:
    """The routes of the Hub that a download needs, for one model, `owner/name`."""

    def __init__(self, folder: Path) -> None:
        self.paths: list[str] = []
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0].strip("/")
                mirror.paths.append(path)
                api = "api/models/owner/name"
                if path in (f"{api}/revision/main", f"{api}/revision/v1", api):
                    self.answer({"id": "owner/name", "sha": COMMIT, "siblings": []})
                elif path == f"{api}/tree/{COMMIT}":
                    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
                    self.answer([mirror.describe(file, folder) for file in files])
                elif path.startswith(f"owner/name/resolve/{COMMIT}/"):
                    file = path.removeprefix(f"owner/name/resolve/{COMMIT}/")
                    self.send(200, (folder / file).read_bytes())
                else:
                    self.send(404, b"{}", **{"X-Error-Code": "RepoNotFound"})

            do_HEAD = do_GET  # noqa: N815 - the server's name

            def answer(self, value: Any) -> None:
                self.send(200, json.dumps(value).encode())

            def send(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                headers |= {
                    "Content-Length": str(len(body)),
                    "Content-Type": "application/json",
                    "ETag": f'"{hashlib.sha1(body).hexdigest()}"',
                    "X-Repo-Commit": COMMIT,
                }
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def describe(file: Path, folder: Path) -> dict[str, Any]:
        data = file.read_bytes()
        digest = hashlib.sha1(data).hexdigest()
        return {
            "type": "file",
            "path": file.relative_to(folder).as_posix(),
            "size": len(data),
            "oid": digest,
        }


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    folder = make_folder(tmp_path / "model", tokenizer_config=config)
    (folder / "model.safetensors").write_bytes(b"large")
    mirror = Mirror(folder)
    yield mirror
    mirror.server.shutdown()
    mirror.server.server_close()


@pytest.fixture
def run(mirror: Mirror, tmp_path: Path) -> Run:
    """Runs Python with the mirror as the Hub; huggingface_hub reads its variables at import."""

    def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TOKENIZER_"))}
        environment = kept | {
            "HF_ENDPOINT": mirror.url,
            "HF_HOME": str(tmp_path / "hub"),
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": str(REPOSITORY),
        }
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env=environment | variables, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run_python


def test_pull_fetches_the_tokenizer_and_its_chat_templates(mirror, run, tmp_path):
    model = tmp_path / "model"
    (model / "chat_template.jinja").write_text("{{ messages }}")
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")
    done = run("-m", "tokenizer_service.cli", "pull", "owner/name")
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(tmp_path / "hub")
    assert not any("safetensors" in path for path in mirror.paths)
    found = Tokenizer.load(folder)
    assert found.encode("low<pad>") == [257, 260]
    assert dict(found.chat_templates) == {"default": "{{ messages }}", "rag": "{{ documents }}"}
    assert dict(found.template_variables) == {"pad_token": "<pad>"}


LOAD = (
    "from tokenizer_core import Tokenizer; "
    "print(Tokenizer.from_pretrained('owner/name', revision='v1').encode('low<pad>'))"
)


def test_from_pretrained_needs_no_network_after_the_first_call(mirror, run):
    first = run("-c", LOAD)
    assert first.stdout == "[257, 260]\n", first.stderr
    assert any(path.endswith("revision/v1") for path in mirror.paths)
    mirror.paths.clear()
    assert run("-c", LOAD, HF_HUB_OFFLINE="1").stdout == "[257, 260]\n"
    assert mirror.paths == []


def test_an_unknown_model_is_one_line_with_a_remedy(run):
    done = run("-m", "tokenizer_service.cli", "pull", "owner/other")
    assert done.returncode == 1
    assert done.stderr.startswith("tokenizer pull: the tokenizer of owner/other could not be")
    assert done.stderr.count("\n") == 1
    assert "check the name" in done.stderr


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"pip install 'tokenizer-service\[hub\]'"):
        Tokenizer.from_pretrained("owner/name")


def test_wrong_names_are_refused(cli):
    for name in ("a/b/c", "/b"):
        with pytest.raises(HubError, match="must be owner/name"):
            Tokenizer.from_pretrained(name)
    assert "no preset 'nothing'" in cli.fail("pull", "nothing", code=2)
    error = cli.fail("pull", "cl100k_base", "--revision", "v1", code=2)
    assert "--revision belongs to models" in error
