"""POST /tokenizers/{name}: files that become a version, and what is refused. The child runs in a
thread here; `tests/integration` has a real one, with its limits."""

import base64
import errno
import json
import os

import pytest

from tests.tokenizer_service.conftest import ADMIN_KEY, CORPUS, SPECIALS, settings_for
from tests.tokenizer_service.jobs.fake_process import start_in_thread
from tests.tokenizer_service.routes.exchanges import problem
from tokenizer_client.wire import form_of
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.vocabulary_import import VocabularyImports
from tokenizer_service.jobs.worker import vocabulary

RANKS = b"".join(b"%b %d\n" % (base64.b64encode(bytes([byte])), byte) for byte in range(256))


@pytest.fixture
def client(shared_client, shared_store, monkeypatch):
    monkeypatch.setattr(vocabulary, "limit_process", lambda memory_bytes: None)
    imports = VocabularyImports(settings_for(shared_store), start_in_thread)
    object.__setattr__(shared_client.app.services, "imports", imports)
    return shared_client


def send(client, name, files, **query):
    kind, body = form_of(files)
    headers = {"X-API-Key": ADMIN_KEY, "Content-Type": kind}
    return client.post(f"/tokenizers/{name}", content=body, headers=headers, params=query)


def test_a_file_becomes_a_version_that_is_not_promoted(client, starter, shared_store):
    path = f"/tokenizers/starter/{starter.version}/tokenizer.json"
    answer = send(client, "mine", {"any-name": client.get(path).content})
    assert answer.status_code == 201, answer.text
    imported = answer.json()
    assert (imported["name"], imported["digest"]) == ("mine", starter.digest)
    assert answer.headers["location"] == "/tokenizers/mine"
    ids = [client.post("/encode", json={"text": CORPUS, "tokenizer": name}).json()["tokens"]
           for name in ("starter", "mine")]  # fmt: skip
    assert ids[0] == ids[1]
    assert client.get("/tokenizers/active").json()["name"] == "starter"
    assert client.get("/tokenizers/mine").json()["tokenizers"][0]["manifest"]["command"] == (
        "POST /tokenizers/mine"
    )
    assert not list((shared_store.root / "run").glob("import-*"))


def test_a_rank_file_needs_its_pattern_and_special_tokens(client):
    for query in ({}, {"pattern": "gpt2"}, {"special": "<|end|>=256"}):
        found = problem(send(client, "ranks", {"r.tiktoken": RANKS}, **query), 422, "invalid_file")
        assert "special=TOKEN=ID" in found["detail"], query
    special = ["<|end|>=256", "a=b=300"]
    assert send(client, "kimi", {"r": RANKS}, pattern="kimi_k2", no_special=True).status_code == 201
    answer = send(client, "ranks", {"r.tiktoken": RANKS}, pattern="cl100k_base", special=special)
    assert answer.json()["vocab_size"] == 258
    asked = {"text": "a=b<|end|>", "tokenizer": "ranks"}
    assert client.post("/encode", json=asked).json()["tokens"] == [300, 256]
    answer = send(client, "plain", {"r": RANKS}, pattern="gpt2", no_special=True)
    assert answer.json()["vocab_size"] == 256


def test_files_of_a_folder_are_read_together(client, starter):
    path = f"/tokenizers/starter/{starter.version}/"
    pair = {name: client.get(path + name).content for name in ("vocab.json", "merges.txt")}
    (warning,) = send(client, "pair", pair).json()["warnings"]
    assert "<|endoftext|>" in warning
    special = [f"{token}={256 + index}" for index, token in enumerate(SPECIALS)]
    imported = send(client, "pair", pair, special=special).json()
    assert (imported["digest"], imported["warnings"]) == (starter.digest, [])
    folder = {
        "tokenizer.json": client.get(path + "tokenizer.json").content,
        "tokenizer_config.json": json.dumps({"eos_token": "<|endoftext|>"}).encode(),
        "chat_template.jinja": b"{{ messages[0].content }}",
    }
    assert send(client, "folder", folder).status_code == 201
    asked = {"messages": [{"role": "user", "content": "the fox"}], "tokenizer": "folder"}
    answer = client.post("/chat/encode", json={**asked, "return": ["text"]})
    assert answer.json()["text"] == "the fox"


def test_what_cannot_be_imported_is_refused_by_place_and_remedy(client, shared_store):
    rows = [
        ({"tokenizer.json": b"{"}, {}, "invalid_file"),
        ({"tokenizer.json": b'{"model": {"type": "Unigram", "vocab": []}}'}, {}, "invalid_file"),
        ({"tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}, {}, "invalid_file"),
        ({"r": RANKS, "s": RANKS}, {"preset": "gpt2"}, "invalid_file"),
        ({"r": RANKS}, {"preset": "gpt2"}, "invalid_file"),
        ({"../r": RANKS}, {}, "invalid_file"),
    ]
    for files, query, code in rows:
        answer = send(client, "refused", files, **query)
        detail = problem(answer, 422, code)["detail"]
        assert str(shared_store.root) not in detail
        assert "scratch" not in detail
    for query in ({"pattern": "(a+)+"}, {"preset": "x"}, {"ids": "x"}, {"special": ["a=1", "a=2"]}):
        found = problem(send(client, "refused", {"r": RANKS}, **query), 422)
        assert found["errors"][0]["pointer"] == f"/{next(iter(query))}"
    problem(send(client, "refused", {"r": RANKS}, special="a"), 422, "invalid_request")
    problem(send(client, "refused", {"r": RANKS}, promote="true"), 422)
    problem(send(client, "active", {"r": RANKS}), 422, "invalid_tokenizer_name")
    byte_pairs = {"pattern": "gpt2", "no_special": True}
    for name in ("gpt2", "starter"):
        problem(send(client, name, {"r": RANKS}, **byte_pairs), 409, "name_reserved")
    assert not [ref for ref in shared_store.list() if ref.name in ("refused", "gpt2")]
    admin = {"X-API-Key": ADMIN_KEY}
    answer = client.post("/tokenizers/x", json={}, headers=admin)
    assert "curl" in problem(answer, 415, "form_required")["detail"]
    form = "multipart/form-data"
    for kind, body in (
        (form, b"x"),
        (f"{form}; boundary=x", b"x"),
        (f"{form}; boundary=x", b"--x--"),
    ):
        answer = client.post("/tokenizers/x", content=body, headers={**admin, "Content-Type": kind})
        problem(answer, 422, "invalid_file")
    found = problem(send(client, "x", {"r": bytes(1 << 25)}), 413, "body_too_large")
    assert found["limit"] == 1 << 25


def test_one_import_runs_at_a_time(client):
    imports = client.app.services.imports
    client.portal.call(imports._lock.acquire)
    try:
        answer = send(client, "second", {"r": RANKS}, pattern="gpt2", no_special=True)
        problem(answer, 409, "import_running")
    finally:
        client.portal.call(imports._lock.release)


def test_folders_of_servers_that_were_killed_are_removed(client, shared_store):
    left, removed = (shared_store.root / "run" / f"import-{name}" for name in ("left", "removed"))
    left.mkdir()
    os.utime(left, (0, 0))
    removed.symlink_to("nothing")  # listed, then removed by another process
    answer = send(client, "third", {"r": RANKS}, pattern="gpt2", no_special=True)
    removed.unlink()
    assert (answer.status_code, left.exists()) == (201, False)


def test_a_failing_disk_is_no_defect(client, shared_store, monkeypatch, caplog):
    def fail(*arguments):
        raise OSError(errno.EIO, "broken", "/a/path")

    for where, name in ((JobFolder, "write_request"), (client.app.services.imports, "_start")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fail)
            answer = send(client, "fourth", {"r": RANKS}, pattern="gpt2", no_special=True)
        assert "/a/path" not in problem(answer, 503, "storage_failed")["detail"]
        assert "/a/path" in caplog.text
        caplog.clear()
    assert not list((shared_store.root / "run").glob("import-*"))


def test_a_form_keeps_every_byte():
    content = bytes(range(256)) + b"\r\n--x\r\n\n\r--"
    kind, body = form_of({"a": content, "b.c": b""})
    assert vocabulary.read_form(b"preamble\r\n" + body, kind) == {"a": content, "b.c": b""}
