"""`tokenizer serve`: the HTTP service with the settings of the environment.

The parent process chooses the admin key, binds the socket and prints commands to try; then uvicorn
serves, in this process or in several. A serving process ends with its supervisor. With
`--exit-with-parent` the service ends with the process that started it. The parent process makes the
file of a Unix socket and removes it at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import math
import multiprocessing
import os
import secrets
import shlex
import shutil
import signal
import socket
import stat
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import SIGNALS, Process

from tokenizer_core import compiled
from tokenizer_core.blobs.addresses import is_store_address
from tokenizer_core.blobs.atomic_files import write_whole_file
from tokenizer_core.blobs.bucket import open_object_storage
from tokenizer_core.blobs.locks import locked_folder
from tokenizer_core.engines import EngineChoice, choose_engine
from tokenizer_core.errors import (
    DISK_FULL,
    ArtifactNotFoundError,
    ArtifactStorageError,
    StorageError,
    TokenizerCoreError,
)
from tokenizer_core.registry import ArtifactStore, open_artifacts
from tokenizer_service.access.auth import check_keys
from tokenizer_service.commands.command_line import (
    DEFAULT_TOKENIZER,
    CommandError,
    UsageError,
    add_command,
    check_named_folder,
    open_packaged_store,
    unknown_tokenizer,
)
from tokenizer_service.http.connections import raise_open_files
from tokenizer_service.ingress import UNIX, socket_path
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.observability.logs import configure_logging
from tokenizer_service.settings import Settings, SettingsError, describe, missing_corpus_roots

GRACEFUL_SECONDS: Final = 10
"""Requests in progress get this long to finish after SIGTERM."""

log = logging.getLogger("tokenizer_service.commands.serving")

_KILL_SECONDS: Final = GRACEFUL_SECONDS + 4
"""Processes that did not end by then are killed; docs/operate.md promises 15 s."""

_RETRY_SECONDS: Final = 5.0
"""A process that cannot start is tried again as often, while others serve."""

_PARENT_POLL_SECONDS: Final = 0.25
_SIGNAL_POLL_SECONDS: Final = 0.25
_ORPHAN_GRACE_SECONDS: Final = 1.0  # with the poll: gone within two seconds
_HEALTH_CHECK_SECONDS: Final = 30
_CONNECT_SECONDS: Final = 2.0
_BACKLOG: Final = 2048  # uvicorn's
_N_ACCEPTING: Final = 16
"""How many connections a serving process accepts in a turn of its loop. libuv accepts one of each
socket, and a turn takes 50 ms with 100 busy clients, so that a new one waited for seconds."""

_TRIED_TEXT: Final = "Hello, world!"


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    table = "\n".join(_render_setting(*row) for row in describe())
    parser = add_command(
        subcommands,
        run_serve,
        epilog=(
            "examples:\n"
            "  tokenizer serve\n"
            "  tokenizer serve --port 9000 --workers 4\n"
            "  tokenizer serve --host unix:/run/tokenizer/tokenizer.sock\n"
            "  TOKENIZER_DEFAULT=cl100k TOKENIZER_CORPUS_ROOTS=/data/text tokenizer serve\n\n"
            f"settings, from the environment:\n{table}"
        ),
    )
    parser.add("--host ADDRESS", "overrides TOKENIZER_HOST; unix:/path is a Unix socket")
    parser.add("--port N", "overrides TOKENIZER_PORT; 0 chooses a free port")
    parser.add("--workers N", "overrides TOKENIZER_WORKERS")
    parser.add("--artifacts-dir FOLDER", "overrides TOKENIZER_ARTIFACTS_DIR")
    parser.add("--exit-with-parent", "stop when the parent process ends, even if it is killed")


def _render_setting(name: str, default: str, meaning: str) -> str:
    text = f"{meaning} Default: {default}" if default else meaning
    indent = " " * 6
    lines = textwrap.wrap(
        text, 100, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return "\n".join([f"  {name}", *lines])


def run_serve(arguments: argparse.Namespace) -> None:
    """Serve tokenizers over HTTP. Ctrl-C or SIGTERM ends it."""
    parent = os.getppid()  # before any slow call, during which the parent may end
    options = {}
    for name in ("host", "port", "workers", "artifacts_dir"):
        value = getattr(arguments, name)
        if value is not None:
            # The serving processes read their settings from the environment.
            variable = f"TOKENIZER_{name.upper()}"
            os.environ[variable], options[variable] = str(value), f"--{name.replace('_', '-')}"
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        variable, _, reason = str(error).partition(": ")
        if variable in options:
            raise UsageError(f"{options[variable]}: {reason}") from None
        raise CommandError(str(error)) from None
    config = _configure(settings)
    configure_logging(settings.log_level, settings.log_format)  # the supervisor logs as well
    engine = choose_engine(settings.engine)  # raises if the engine is unavailable
    compiled.is_used(settings.engine)  # raises if its variable has another word
    _check_settings(settings)
    made_key = _make_admin_key(settings)
    if arguments.exit_with_parent:
        _end_with(parent, grace_seconds=GRACEFUL_SECONDS + 2)
    # uvicorn raises a signal again after its graceful end; that must not look like a crash.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    raise_open_files()
    metrics_dir = None
    try:
        metrics_dir = _make_metrics_dir(settings)
        for root in missing_corpus_roots(settings):
            log.warning("TOKENIZER_CORPUS_ROOTS: %s is no folder; no job can read from it", root)
        with _listening(settings) as listener:
            _print_what_to_try(settings, engine, listener, made_key)
            if settings.workers == 1 or _may_fork():
                _import_service()
            if settings.workers > 1:
                supervisor = _Supervisor(config, sockets=accepting(listener))
                supervisor.run()
                has_failed = supervisor.has_failed
            else:
                server = _Server(config)
                server.run(sockets=accepting(listener))
                has_failed = not server.started
            if has_failed:
                raise CommandError("the service could not start; the lines above say why")
    except KeyboardInterrupt:
        pass  # Ctrl-C has ended it gracefully by now
    finally:
        if metrics_dir is not None:
            shutil.rmtree(metrics_dir, ignore_errors=True)


def _check_settings(settings: Settings) -> None:
    """Report what would stop every serving process, before the port is bound and any is started.

    A store that is unreachable is no error here: the processes keep trying.
    """
    try:
        check_keys(settings)
        if is_store_address(store := settings.store or ""):
            open_object_storage(store, probe=False)
    except SettingsError as error:
        raise CommandError(str(error)) from None
    except StorageError as error:
        raise CommandError(f"TOKENIZER_STORE: {error}") from error
    folder = settings.artifacts_dir
    if settings.names_tokenizers:
        check_named_folder(settings.store, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        has_jobs = settings.jobs_database is not None or os.access(folder / DATABASE_NAME, os.F_OK)
        if error.errno in DISK_FULL or has_jobs:
            return  # tokenizers are served from a full or read-only disk too
        raise CommandError(
            f"the artifacts folder {folder} cannot be used ({error.strerror}); check "
            f"TOKENIZER_ARTIFACTS_DIR, and that this user may write there"
        ) from None
    if not settings.names_tokenizers and settings.default == DEFAULT_TOKENIZER:
        _seed_starter(folder)
    if "default" in settings.model_fields_set:
        _check_default(settings)


def _seed_starter(folder: Path) -> None:
    """Copy the starter of the package to a folder that nothing names and that has no tokenizer."""
    store, packaged = ArtifactStore(folder), open_packaged_store()
    if not store.names() and store.pointer_mark() is None:
        store.copy(packaged.resolve(DEFAULT_TOKENIZER), packaged)


def _check_default(settings: Settings) -> None:
    """Refuse a TOKENIZER_DEFAULT that is not among the published tokenizers, if it would serve."""
    store = open_artifacts(settings.store, settings.artifacts_dir)
    try:
        if store.active() is not None or not store.names():
            return
        store.resolve_default(settings.default)
    except ArtifactNotFoundError:
        raise CommandError(
            f"TOKENIZER_DEFAULT: {unknown_tokenizer(store, settings.default)}"
        ) from None
    except (TokenizerCoreError, OSError):
        return  # the serving processes keep trying


class _Server(uvicorn.Server):
    """uvicorn's, but it wakes once a second and for signals, not ten times a second."""

    _signalled: Callable[[], object] | None = None

    async def main_loop(self) -> None:
        """Return when the server shall stop."""
        loop, signalled = asyncio.get_running_loop(), asyncio.Event()
        self._signalled = partial(loop.call_soon_threadsafe, signalled.set)
        while not await self.on_tick(0):  # 0: it also renews the Date
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(signalled.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End. First let connections that were just accepted begin, or they would never be told."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, for a signal."""
        super().handle_exit(sig, frame)
        if self._signalled is not None:
            self._signalled()


class _Fork(Process):
    """A serving process with the modules of its supervisor. A new one needs 2 s to import them."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=self._serve, args=(sockets,))  # type: ignore[assignment]

    def start(self) -> None:
        # A signal waits until the process has its own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _serve(self, sockets: list[socket.socket]) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._server = _Server(self.config)
        self.target(sockets)


def _import_service() -> None:
    """Import the app, for this process or its forks."""
    gc.disable()
    import tokenizer_service.http.protocol
    import tokenizer_service.main  # noqa: F401

    gc.freeze()  # a look for garbage would copy the pages that the processes share
    gc.enable()


def _may_fork() -> bool:
    """Whether this process has one thread, also of libraries: a fork has no other, and would wait
    for what they lock. A client of S3, for one, has threads."""
    try:
        return len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:
        return False  # not Linux


class _Supervisor(Multiprocess):
    """uvicorn's supervisor, which looks at each process in turn and restarts those that ended.

    uvicorn's waits 30 seconds for the answer of a process that has ended meanwhile, or while a
    signal waits for it, and without limit for the end of a process that a long regular expression
    keeps busy. It restarts processes that never served, or ends as if all were well; and it ends
    those that serve if one cannot be replaced. After SIGHUP its processes share no memory.
    (SIGTTIN and SIGTTOU are uvicorn's.)
    """

    has_failed = False
    """Whether the processes cannot start."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self._has_served = False
        self._replaced_at: dict[int, float] = {}

    def init_processes(self) -> None:
        self.processes = [self._start_one() for _ in range(self.processes_num)]

    def _start_one(self) -> Process:
        kind = _Fork if _may_fork() else Process
        process = kind(self.config, self.sockets)
        process.start()
        return process

    def keep_subprocess_alive(self) -> None:
        for index, process in enumerate(self.processes):
            if self.should_exit.is_set() or self._answers(process):
                continue
            process.kill()
            process.join()
            if self.signal_queue:
                return  # which may have ended the process too
            if not self._has_served:
                self.has_failed = True
                self.should_exit.set()
                return
            now = time.monotonic()
            if now < self._replaced_at.get(index, -math.inf) + _RETRY_SECONDS:
                continue
            self._replaced_at[index] = now
            status = process.process.exitcode
            log.warning("process %d ended (%s); another takes its place", process.pid, status)
            self.processes[index] = self._start_one()

    def restart_all(self) -> None:
        """Replace each process by one that serves already."""
        for index, before in enumerate(self.processes):
            if self.signal_queue:
                return  # SIGTERM does not wait; another SIGHUP begins anew
            process = self._start_one()
            if not process.wait_until_ready(_HEALTH_CHECK_SECONDS, self.should_exit):
                process.kill()
                process.join()
                log.error("process %d did not serve in time; %d stays", process.pid, before.pid)
                return
            self.processes[index] = process
            before.terminate()
            _join(before, time.monotonic() + _KILL_SECONDS)

    def join_all(self) -> None:
        deadline = time.monotonic() + _KILL_SECONDS
        for process in self.processes:
            _join(process, deadline)

    def _answers(self, process: Process) -> bool:
        """Whether it answers in time; True without an answer if a signal arrives meanwhile."""
        try:
            process.parent_conn.send(b"ping")
            deadline = time.monotonic() + _HEALTH_CHECK_SECONDS
            while time.monotonic() < deadline and not self.signal_queue:
                ready = wait([process.parent_conn, process.process.sentinel], _SIGNAL_POLL_SECONDS)
                if process.process.sentinel in ready:
                    break
                if ready:
                    self._has_served |= process.parent_conn.recv()
                    return True
            return bool(self.signal_queue)
        except (OSError, EOFError):
            return False


def _join(process: Process, deadline: float) -> None:
    process.process.join(max(0.0, deadline - time.monotonic()))
    if process.process.exitcode is None:
        log.warning("process %d did not end in time; it is killed", process.pid)
        process.process.kill()
        process.process.join()


def create_worker_app() -> FastAPI:
    """The app of one of several serving processes, which ends when its supervisor ends.

    Without this, the workers would serve forever after a SIGKILL of uvicorn's supervisor.
    """
    from tokenizer_service.main import create_app

    supervisor = multiprocessing.parent_process()
    if supervisor is not None and supervisor.pid is not None:
        _end_with(supervisor.pid, grace_seconds=_ORPHAN_GRACE_SECONDS)
    return create_app()


def _make_admin_key(settings: Settings) -> str | None:
    """Generate a key for this run if no key is set; all processes get it in the environment."""
    if settings.admin_keys or settings.require_admin_key:
        return None
    key = secrets.token_urlsafe(24)
    os.environ["TOKENIZER_ADMIN_KEYS"] = key
    return key


def _make_metrics_dir(settings: Settings) -> Path | None:
    """Make an empty folder in which several processes add up their metrics, unless there is one."""
    given = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if given is not None:
        try:
            Path(given).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(
                f"PROMETHEUS_MULTIPROC_DIR names {given}, which cannot be made: {error.strerror}; "
                f"name a folder for the metrics of all processes, or unset the variable"
            ) from None
    if given is not None or settings.workers == 1:
        return None
    try:
        folder = Path(tempfile.mkdtemp(prefix="tokenizer-metrics-"))
    except OSError as error:
        log.warning("each process counts its metrics alone: %s", error)
        return None
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    return folder


def _configure(settings: Settings) -> uvicorn.Config:
    several = settings.workers > 1
    return uvicorn.Config(
        "tokenizer_service.commands.serving:create_worker_app"
        if several
        else "tokenizer_service.main:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        # By name: a process answers the supervisor before it has imported it.
        http="tokenizer_service.http.protocol:GuardedHttpProtocol",
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the service does not use the client's address
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        # After the default of 5 s uvicorn kills a worker that a long regular expression keeps busy.
        timeout_worker_healthcheck=_HEALTH_CHECK_SECONDS,
    )


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Bind the socket; the file of a Unix socket is removed at the end, unless it was replaced."""
    path = socket_path(settings.host)
    if path is None:
        yield _bind(settings)
        return
    listener = _bind_unix(Path(path), int(settings.socket_mode, 8))
    made = os.lstat(path)
    try:
        yield listener
    finally:
        with contextlib.suppress(OSError):
            if os.path.samestat(made, os.lstat(path)):
                Path(path).unlink()


def accepting(listener: socket.socket) -> list[socket.socket]:
    """The listener with copies, so that a serving process accepts many connections in a turn."""
    return [listener, *(listener.dup() for _ in range(_N_ACCEPTING - 1))]


def _bind_unix(path: Path, mode: int) -> socket.socket:
    """Listen at `path`; a file that an ended service has left there is replaced.

    The socket listens before the lock is freed, so that no other service takes it for a leftover.
    A client that connects earlier than a serving process is ready waits.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        with locked_folder(path.parent):
            if _is_left_over(path):
                path.unlink()
            listener.bind(str(path))
            path.chmod(mode)  # nobody can connect yet
            listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or error  # no number: the path is longer than the system allows
        raise CommandError(
            f"cannot listen on {UNIX}{path} ({reason}); choose another path for TOKENIZER_HOST, in "
            f"an existing folder where this user may write"
        ) from error
    except CommandError:
        listener.close()
        raise
    return listener


def _is_left_over(path: Path) -> bool:
    """Whether nobody listens at a socket; False if there is nothing, CommandError if it is used."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(kind):
        raise CommandError(
            f"cannot listen on {UNIX}{path}: the file is no socket; remove it, or choose another "
            f"path for TOKENIZER_HOST"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            pass  # a program listens: it is busy, or allows other users only
    raise CommandError(
        f"cannot listen on {UNIX}{path}: another program listens there; stop it, or choose another "
        f"path for TOKENIZER_HOST"
    )


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except (OSError, TypeError) as error:  # TypeError: Python cannot encode the name
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(
            f"cannot listen on {settings.host}:{settings.port} ({reason}); choose another "
            f"TOKENIZER_PORT or TOKENIZER_HOST, or stop the program that uses it"
        ) from error
    return listener


def _end_with(parent: int, *, grace_seconds: float) -> None:
    """End this process when `parent` is no longer its parent: SIGTERM, then exit.

    Polling the parent's pid works on every system. A death signal from the kernel is Linux only
    and arrives when the parent's *thread* ends.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_seconds)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _print_what_to_try(
    settings: Settings, engine: EngineChoice, listener: socket.socket, made_key: str | None
) -> None:
    path = socket_path(settings.host)
    curl = "curl"
    if path is not None:
        curl, url = f"curl --unix-socket {shlex.quote(path)}", "http://localhost"
        lines = [f"tokenizer service on {UNIX}{path}"]
    else:
        host, port = listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - only to show
        url = f"http://{here}:{port}"
        lines = [
            f"tokenizer service on http://{host}:{port}",
            f"page: {url}/ for the browser, {url}/docs for all routes",
        ]
    if settings.log_format == "json":  # for programs: each line is an object, and none has the key
        log.info(lines[0])
        if made_key is not None:
            log.warning(
                "the admin key of this run is in %s; TOKENIZER_ADMIN_KEYS sets your own",
                _write_key(settings, made_key),
            )
        return
    lines.append(f"engine: {engine.name} ({engine.reason})")
    if made_key is not None:
        lines.append(f"admin key of this run (TOKENIZER_ADMIN_KEYS sets your own): {made_key}")
    to_try = _lines_to_try(settings, curl, url, made_key)
    lines += ["", "try:", *(f"  {line}" for line in to_try), ""]
    print("\n".join(lines), flush=True)


def _write_key(settings: Settings, key: str) -> Path:
    """Write the admin key of this run to a file that only this user can read."""
    path = settings.artifacts_dir / "run" / "admin_key"
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole_file(path, f"{key}\n".encode(), mode=0o600)
    except OSError as error:
        raise CommandError(
            f"the admin key of this run cannot be written to {path} ({error.strerror}); set "
            f"TOKENIZER_ADMIN_KEYS"
        ) from None
    return path


def _lines_to_try(settings: Settings, curl: str, url: str, made_key: str | None) -> list[str]:
    """Commands to copy, for the served tokenizer."""
    try:
        ids = _encode_sample(settings)
    except ArtifactStorageError as error:
        print(
            f"the tokenizers in {settings.store or settings.artifacts_dir} cannot be read; the "
            f"service tries again, and serves when it can: {error}",
            file=sys.stderr,
        )
        return [f"{curl} {url}/readyz"]
    needs_key = bool(settings.read_keys)
    read = curl + (' -H "X-API-Key: $READ_KEY"' if needs_key else "")
    admin = f'{curl} -H "X-API-Key: $ADMIN_KEY"'
    lines = []
    if needs_key:
        lines.append("READ_KEY=...   # one of TOKENIZER_READ_KEYS")
    if ids is not None:
        lines += [
            f"{read} --json {_quote({'text': _TRIED_TEXT})} {url}/encode",
            f"{read} --json {_quote({'tokens': ids})} {url}/decode",
            f"printf 'any text' | {read} -sN -T - -X POST {url}/encode_stream",
        ]
    lines += [
        f"{read} {url}/tokenizers",
        f"ADMIN_KEY={made_key or '...   # one of TOKENIZER_ADMIN_KEYS'}",
    ]
    request = {
        "documents": ["low lower lowest", "new newer"],
        "vocab_size": 270,
        "name": "mine",
        "promote": "always",
    }
    lines.append(f"{admin} --json {_quote(request)} {url}/train")
    lines.append(f"{admin} {url}/train")
    return lines


def _encode_sample(settings: Settings) -> list[int] | None:
    """The ids of the text to try; None if no tokenizer can give them, with a line that says what to
    do if none was promoted. Raises ArtifactStorageError if the store cannot be read."""
    from tokenizer_service.serving.live_tokenizers import shared_folder

    store = open_artifacts(settings.store, settings.artifacts_dir)
    try:
        ref = store.active() or store.resolve_default(settings.default)
        return store.load(ref, shared=shared_folder(settings)).encode(_TRIED_TEXT)
    except ArtifactStorageError:
        raise
    except TokenizerCoreError as error:
        if not isinstance(error, ArtifactNotFoundError) or store.pointer_mark() is not None:
            return None  # it is damaged or lost, and the log of the processes has the remedy
        named = settings.store or settings.artifacts_dir
        variable = "TOKENIZER_STORE" if settings.store else "TOKENIZER_ARTIFACTS_DIR"
        way = "Train one as below, or publish one (the one in this package, a file, or a preset)"
        command = "import starter --name starter --promote"
        if published := store.list():
            way, command = "Promote one that is published", f"promote {published[-1].name}"
        print(
            f"no tokenizer to serve yet: {error}. {way}:\n"
            f"  {variable}={shlex.quote(str(named))} tokenizer {command}",
            file=sys.stderr,
        )
        return None


def _quote(value: dict[str, Any]) -> str:
    return shlex.quote(json.dumps(value))
