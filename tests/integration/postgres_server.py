"""A real PostgreSQL server in a temporary folder, on a free port of 127.0.0.1, for the tests.

It refuses to run as root, so it runs as another user if the tests do. Without an installed server,
the tests that use it skip by name.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.integration.server_process import free_port

USER, PASSWORD = "tokenizer", "not-to-be-seen"
START_SECONDS = 60.0

# The newest that Debian has; on other systems the one on the path.
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_PATH = os.pathsep.join([os.environ.get("PATH", ""), *map(str, _FOLDERS)])
_INITDB = shutil.which("initdb", path=_PATH)
_SETTINGS = {
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "8MB",
}


class PostgresServer:
    """One server; `address` is that of its database of that name, which `make` creates."""

    def __init__(self, folder):
        self._folder, self._user = folder, _unprivileged_user()
        self.port = free_port()
        self._process = None
        password = folder / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            for path in (folder, password):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = ["--no-sync", "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", "-U", USER]
        initdb = self._run("initdb", "-D", f"{folder}/data", *options, f"--pwfile={password}")
        initdb.communicate()

    def address(self, database="postgres"):
        """The value of TOKENIZER_JOBS_DATABASE."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def make(self, database):
        """Create a database; return its address."""
        self.execute(f"CREATE DATABASE {database}")
        return self.address(database)

    def execute(self, statement, *values, database="postgres"):
        """Run a statement as the owner of the server; return its rows."""
        import psycopg

        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def start(self):
        """Start it, and wait until it accepts connections."""
        settings = {**_SETTINGS, "port": self.port, "listen_addresses": "127.0.0.1"}
        options = [f"-c{name}={value}" for name, value in settings.items()]
        self._process = self._run("postgres", "-D", f"{self._folder}/data", *options)
        deadline = time.monotonic() + START_SECONDS
        ready = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready).returncode != 0:
            log = (self._folder / "log").read_text()
            assert time.monotonic() < deadline, log
            assert self._process.poll() is None, log
            time.sleep(0.02)

    def stop(self, number=signal.SIGINT):
        """Stop it: SIGINT breaks all connections, SIGQUIT acts like a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    @contextlib.contextmanager
    def frozen(self):
        """Inside the block it is silent and closes nothing, as if the network were cut."""
        assert self._process is not None
        import psutil

        server = psutil.Process(self._process.pid)
        stopped = [server, *server.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def _run(self, program, *arguments):
        command = [_program(program), *arguments]
        if self._user is not None:
            ids = [f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}"]
            command = ["setpriv", *ids, "--clear-groups", *command]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )


@contextlib.contextmanager
def run_postgres():
    """A server for the block; skips if none is installed."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    if _INITDB is None:
        pytest.skip("no PostgreSQL server here; install Debian's postgresql")
    # Not below pytest's own folder, which only this user may read.
    with tempfile.TemporaryDirectory(prefix="tokenizer-postgres-", dir="/tmp") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def _program(name):
    assert _INITDB is not None
    return str(Path(_INITDB).resolve().with_name(name))


def _unprivileged_user():
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None
