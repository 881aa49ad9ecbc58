"""`tokenizer serve` before it starts any process: what it refuses, and its Unix socket."""

import asyncio
import contextlib
import errno
import json
import os
import re
import socket
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
import uvloop
from uvicorn.supervisors import Multiprocess

from tokenizer_core import compiled
from tokenizer_core.blobs import atomic_files
from tokenizer_core.errors import ArtifactStorageError
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.commands.command_line import CommandError, open_packaged_store
from tokenizer_service.commands.serving import (
    _check_settings,
    _lines_to_try,
    _listening,
    _print_what_to_try,
    accepting,
)
from tokenizer_service.settings import Settings

WRONG_SETTINGS = [
    ({"TOKENIZER_REQUIRE_ADMIN_KEY": "1"}, "TOKENIZER_ADMIN_KEYS is empty; set"),
    ({"TOKENIZER_HOST": "0.0.0.0", "TOKENIZER_ADMIN_KEYS": "secret"}, "fewer than 8 charac"),
    ({"TOKENIZER_ARTIFACTS_DIR": "typo"}, "typo, which TOKENIZER_ARTIFACTS_DIR or an option names"),
    ({"TOKENIZER_STORE": "typo"}, "typo, which TOKENIZER_STORE or an option names, does not exist"),
    ({"TOKENIZER_ARTIFACTS_DIR": "corpus.txt"}, "check TOKENIZER_ARTIFACTS_DIR"),
    ({"PROMETHEUS_MULTIPROC_DIR": "/proc/none"}, "PROMETHEUS_MULTIPROC_DIR names /proc/none,"),
    ({"TOKENIZER_STORE": "gopher://host/x"}, "TOKENIZER_STORE: a storage is a folder or s3://"),
    ({"TOKENIZER_STORE": "s3:/bucket/x"}, "TOKENIZER_STORE: the address s3:/... has one slash"),
]


def must_not_run(*arguments, **options):
    raise AssertionError("the server was started")


def test_wrong_settings_are_one_line(trained, monkeypatch):
    monkeypatch.setattr(uvicorn.Server, "run", must_not_run)
    monkeypatch.setattr(Multiprocess, "run", must_not_run)
    for name in ("TOKENIZER_ADMIN_KEYS", "PROMETHEUS_MULTIPROC_DIR"):
        monkeypatch.setenv(name, "")  # restored at the end: serve sets it
    for number, (environment, reason) in enumerate(WRONG_SETTINGS):
        workers = str(1 + number % 2)
        command = ("serve", "--port", "0", "--workers", workers)
        error = trained.fail(*command, **environment)
        assert reason in error
        _, logged = trained.run(*command, code=1, **environment, TOKENIZER_LOG_FORMAT="json")
        assert json.loads(logged)["message"] == error.removesuffix("\n")
    assert not Path("typo").exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, code in (("--port=99999", 2), ("--prot=1", 2), (f"--port={port}", 1)):
            _, logged = trained.run("serve", words, code=code, TOKENIZER_LOG_FORMAT="json")
            assert json.loads(logged)["level"] == "error"


def test_the_examples_encode_if_there_is_a_tokenizer(tmp_path, capsys, small_spec, monkeypatch):
    settings = Settings(artifacts_dir=tmp_path / "artifacts")

    def routes():
        lines = _lines_to_try(settings, "curl", "http://there", None)
        return re.findall(r"http://there(\S+)", "\n".join(lines))

    assert routes() == ["/tokenizers", "/train", "/train"]
    assert "tokenizer import starter --name starter --promote" in capsys.readouterr().err
    store = ArtifactStore(settings.artifacts_dir)
    store.publish(small_spec, name="mine")
    routes()
    assert "tokenizer promote mine\n" in capsys.readouterr().err
    store.promote(store.publish(small_spec, name=settings.default))
    monkeypatch.setenv("TOKENIZER_COMPILED", "on")
    assert routes()[:3] == ["/encode", "/decode", "/encode_stream"]
    assert capsys.readouterr().err == ""
    files = list(tmp_path.glob("artifacts/tokenizers/*/*/compiled"))
    assert bool(files) == compiled.is_used(), "the serving processes find it"
    (store.root / "active.json").write_text("damaged")  # the log of the processes says it
    assert routes() == ["/tokenizers", "/train", "/train"]
    assert capsys.readouterr().err == ""

    def fail(*_):
        raise ArtifactStorageError(errno.EIO, "away")

    monkeypatch.setattr(ArtifactStore, "active", fail)
    assert routes() == ["/readyz"]
    said = f"the tokenizers in {store.root} cannot be read; the service tries again"
    assert capsys.readouterr().err == f"{said}, and serves when it can: away\n"
    engine = SimpleNamespace(name="python", reason="asked for")
    for host, bound, here in (("0.0.0.0", "0.0.0.0", "127.0.0.1"), ("::", "[::]", "[::1]")):
        listener = SimpleNamespace(getsockname=lambda host=host: (host, 80))
        _print_what_to_try(settings, engine, listener, None)
        shown = f"tokenizer service on http://{bound}:80\npage: http://{here}:80/ for"
        assert capsys.readouterr().out.startswith(shown)


def test_a_read_only_folder_with_a_job_database_is_served(trained, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    folder = trained.folder / "artifacts"
    with pytest.raises(CommandError, match="cannot be used"):
        _check_settings(Settings(artifacts_dir=folder))
    (folder / "jobs.sqlite3").touch()
    _check_settings(Settings(artifacts_dir=folder))


def test_only_a_folder_that_nothing_names_gets_the_starter(tmp_path, monkeypatch, small_spec):
    monkeypatch.chdir(tmp_path)
    named = tmp_path / "named"
    named.mkdir()
    _check_settings(Settings(artifacts_dir=named, default="nope"))
    assert ArtifactStore(named).names() == []

    def fill(path, data, **options):
        path.write_bytes(data[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_synced", fill)
        with pytest.raises(ArtifactStorageError, match="free some space"):
            _check_settings(Settings())
    assert not [*Path("artifacts", "tokenizers", ".staging").iterdir()]
    starter = open_packaged_store().resolve("starter")
    _check_settings(Settings())
    assert ArtifactStore("artifacts").list() == [starter]
    published = ArtifactStore(tmp_path / "published" / "artifacts")
    published.publish(small_spec, name="mine")
    monkeypatch.chdir(tmp_path / "published")
    _check_settings(Settings())
    assert published.names() == ["mine"]
    with pytest.raises(CommandError, match="TOKENIZER_DEFAULT: there is no tokenizer 'nope'"):
        _check_settings(Settings(default="nope"))
    published.promote(published.resolve("mine"))
    _check_settings(Settings(default="nope"))


@contextlib.contextmanager
def listening(path, mode="660"):
    with _listening(Settings(host=f"unix:{path}", socket_mode=mode)) as listener:
        assert not listener.get_inheritable()
        try:
            yield
        finally:
            listener.close()  # as uvicorn does


def test_a_unix_socket_has_its_permissions_and_replaces_a_left_over_one(tmp_path):
    path = tmp_path / "a.sock"
    for mode in ("660", "0606"):
        with listening(path, mode):
            assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
        assert not path.exists()
    with listening(path):
        path.rename(tmp_path / "old")
        path.write_text("of another program")
    assert path.read_text() == "of another program"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(path))
    with listening(path), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))


def test_the_child_of_a_job_does_not_keep_the_port():
    with _listening(Settings(host="127.0.0.1", port=0)) as listener, listener:
        assert not listener.get_inheritable()


def test_a_port_or_socket_in_use_and_other_files_stay(tmp_path):
    path, file = tmp_path / "a.sock", tmp_path / "b.sock"
    file.write_text("mine")
    with listening(path), socket.create_server(("127.0.0.1", 0)) as taken:
        made = path.stat()
        port = Settings(host="127.0.0.1", port=taken.getsockname()[1])
        for context, reason in (
            (listening(path), "another program listens there; stop it"),
            (listening(file), "the file is no socket; remove it"),
            (listening(tmp_path / "none" / "a.sock"), "choose another path for TOKENIZER_HOST"),
            (listening(tmp_path / ("a" * 200)), "choose another path for TOKENIZER_HOST"),
            (_listening(port), "TOKENIZER_PORT"),
            (_listening(Settings(host="é" * 64)), "another TOKENIZER_PORT or TOKENIZER_HOST"),
        ):
            with pytest.raises(CommandError, match=reason):
                context.__enter__()
        assert os.path.samestat(made, path.stat())
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_a_burst_of_connections_is_accepted_in_a_few_turns_of_the_loop():
    n_clients, accepted = 64, []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport):
            accepted.append(transport)

    async def count_turns(listener):
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Accepted, sock=one) for one in accepting(listener)]
        n_turns = 0
        while len(accepted) < n_clients:
            await asyncio.sleep(0)  # a turn
            n_turns += 1
        for server in servers:
            server.close()
        return n_turns

    with socket.create_server(("127.0.0.1", 0), backlog=n_clients) as listener:
        clients = [socket.create_connection(listener.getsockname()) for _ in range(n_clients)]
        assert uvloop.run(count_turns(listener)) < n_clients / 4
        for client in clients:
            client.close()
