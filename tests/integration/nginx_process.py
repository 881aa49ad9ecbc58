"""A real nginx process, with the shipped configuration adapted to this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.integration.server_process import free_port

SHIPPED = (REPOSITORY / "deploy" / "nginx.conf").read_text(encoding="utf-8")
# Debian's path, which not every user has on PATH.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
START_SECONDS = 20.0

# nginx creates these folders at start; the package's belong to the system.
_TEMPORARY = "".join(
    f"{kind}_temp_path temporary_{kind}; "
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


class Nginx:
    """One running nginx, for requests to `127.0.0.1:port`, with its files in `folder`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def requests_logged(self) -> list[str]:
        """The lines of the access log; nginx writes each when its request has ended."""
        return (self.folder / "access.log").read_text().splitlines()


def replace_once(text: str, old: str, new: str) -> str:
    """`text` with its only `old` replaced; fails if `old` is missing."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


def take_in(configuration: str) -> str:
    """The configuration with the directives in its comments enabled."""
    names = "listen|ssl_\\w+|location|limit_except|allow|deny|proxy_pass"
    return re.sub(rf"^( +)# ( *(?:(?:{names}) .*[;{{}}]|}}))", r"\1\2", configuration, flags=re.M)


@contextlib.contextmanager
def proxy(
    folder: Path,
    upstream_port: int,
    *,
    configuration: str = SHIPPED,
    changes: Mapping[str, str] | None = None,
) -> Iterator[Nginx]:
    """nginx in front of `upstream_port`, as the user of the tests; the block's end stops it."""
    assert NGINX is not None
    port = free_port()
    for old, new in {
        "listen 80 default_server;": f"listen 127.0.0.1:{port} default_server;",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{upstream_port};",
        "/var/log/nginx/access.log": str(folder / "access.log"),
        "http {\n": f"http {{ {_TEMPORARY}\n",
        **(changes or {}),
    }.items():
        configuration = replace_once(configuration, old, new)
    (folder / "nginx.conf").write_text(configuration)
    # The package sets these; root's workers would run as another user, who has no access here.
    own = "daemon off; pid nginx.pid; error_log stderr;" + " user root;" * (os.geteuid() == 0)
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    tested = subprocess.run([*command, "-g", own, "-t"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    with (folder / "error.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-g", own], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _wait_until_it_listens(process, port, folder)
        yield Nginx(folder, port)
    finally:
        process.terminate()  # the leader ends its workers at once
        process.wait(START_SECONDS)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise AssertionError(f"nginx did not start:\n{(folder / 'error.log').read_text()}")
