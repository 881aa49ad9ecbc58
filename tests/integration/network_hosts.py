"""Hosts on one machine: network namespaces with a router between them, whose links can be cut.

    +-- one host --+         +-- another --+
    |  198.18.1.2  |--router-|  198.18.2.2 |

A cut drops packets silently in both directions, as networks do; open connections hang. Tests of
several services only name the hosts, and the links to cut. Needs root and iproute2, and leaves the
machine's own network as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpcore
import httpx

_CLONE_NEWNET: Final = 0x40000000
_TOOL: Final = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def cannot_have_hosts() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    if _TOOL is None:
        return "no network namespaces here: iproute2 is not installed"
    name = f"try-{secrets.token_hex(4)}"
    tried = subprocess.run([_TOOL, "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no network namespaces here: {tried.stderr.strip()}"
    subprocess.run([_TOOL, "netns", "del", name], check=True)
    return ""


class Host:
    """One namespace: the others reach it at `address`."""

    def __init__(self, namespace: str, address: str) -> None:
        self.namespace, self.address = namespace, address

    def command(self, *command: str) -> list[str]:
        """A command line that runs `command` on this host."""
        assert _TOOL is not None
        return [_TOOL, "netns", "exec", self.namespace, *command]

    def client(self, port: int, **options: Any) -> httpx.Client:
        """A client on this host itself, of a server that listens on its loopback address."""
        transport = httpx.HTTPTransport()
        transport._pool = httpcore.ConnectionPool(network_backend=_Backend(self.namespace))
        return httpx.Client(transport=transport, base_url=f"http://127.0.0.1:{port}", **options)


class Network:
    """Hosts and the router between them; `make_network` creates it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tag = secrets.token_hex(3)
        self._router = f"router-{self._tag}"
        self._names = names
        self._hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def lay(self) -> None:
        """Make all hosts and their links."""
        _run("netns", "add", self._router)
        self._in(self._router, "link", "set", "lo", "up")
        for number, name in enumerate(self._names, 1):
            host = Host(f"{name}-{self._tag}", f"198.18.{number}.2")
            self._hosts[name] = host
            gateway = f"198.18.{number}.1"
            _run("netns", "add", host.namespace)
            inner, outer = f"h{number}-{self._tag}", f"r{number}-{self._tag}"
            _run("link", "add", inner, "type", "veth", "peer", "name", outer)
            _run("link", "set", inner, "netns", host.namespace)
            _run("link", "set", outer, "netns", self._router)
            self._in(host.namespace, "link", "set", "lo", "up")
            self._bring_up(host.namespace, inner, host.address)
            self._bring_up(self._router, outer, gateway)
            self._in(host.namespace, "route", "add", "default", "via", gateway)
        forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        subprocess.run(Host(self._router, "").command("sh", "-c", forwarding), check=True)

    def remove(self) -> None:
        """Remove all; processes that still run there lose their network."""
        for name in [self._router, *(host.namespace for host in self._hosts.values())]:
            subprocess.run([_TOOL or "ip", "netns", "del", name], capture_output=True)

    @contextlib.contextmanager
    def cut(self, one: str, other: str) -> Iterator[None]:
        """Inside the block no packet passes between the two."""
        pair = (self._hosts[one].address, self._hosts[other].address)
        rules = [("from", start, "to", end) for start, end in (pair, pair[::-1])]
        for rule in rules:
            self._in(self._router, "rule", "add", *rule, "blackhole")
        try:
            yield
        finally:
            for rule in rules:
                self._in(self._router, "rule", "del", *rule, "blackhole")

    def _bring_up(self, namespace: str, device: str, address: str) -> None:
        self._in(namespace, "address", "add", f"{address}/24", "dev", device)
        self._in(namespace, "link", "set", device, "up")

    def _in(self, namespace: str, *arguments: str) -> None:
        _run("-n", namespace, *arguments)


@contextlib.contextmanager
def make_network(*names: str) -> Iterator[Network]:
    """Hosts of these names, each of which reaches every other."""
    network = Network(names)
    try:
        network.lay()
        yield network
    finally:
        network.remove()


class _Backend(httpcore.NetworkBackend):
    """Connections that start in a namespace: a socket stays in the namespace that created it."""

    def __init__(self, namespace: str) -> None:
        self._path = Path("/run/netns") / namespace
        self._inner = httpcore.SyncBackend()

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        made: list[httpcore.NetworkStream | BaseException] = []

        def connect() -> None:
            try:
                with self._path.open("rb") as namespace:
                    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                made.append(self._inner.connect_tcp(*arguments, **options))
            except BaseException as error:
                made.append(error)

        # A separate thread, whose namespace ends with it.
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        if isinstance(made[0], BaseException):
            raise made[0]
        return made[0]


def _run(*arguments: str) -> None:
    done = subprocess.run([_TOOL or "ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
