"""Where the service listens, and the hosts under which clients may address it.

These are TOKENIZER_HOST and the entries of TOKENIZER_ALLOWED_HOSTS. A page of another site can
point its own name at this machine's loopback address (DNS rebinding). The browser then treats the
service as a part of that site, and the page reads the responses. Its requests still carry that
site's name in their Host header, so the service refuses other names. TOKENIZER_CORS_ORIGINS lists
pages of other sites that may use the read routes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

LOOPBACK: Final = ("localhost", "*.localhost", "127.0.0.0/8", "::1")
"""Entries for a service that only this machine can reach."""

EVERY_HOST: Final = "*"

UNIX: Final = "unix:"
"""How TOKENIZER_HOST begins when it names a Unix socket."""

_NAME: Final = re.compile(r"(?:\*?\.)?[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_])?", re.ASCII)
_LOOKS_LIKE_ADDRESS: Final = re.compile(r"[0-9./]+|.*:.*", re.ASCII)
_MOST_CACHED: Final = 256

_ORIGIN: Final = re.compile(
    r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9][a-z0-9._-]*)(?::[1-9][0-9]{0,4})?", re.ASCII
)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class AllowedHosts:
    """Answers which values of a Host header the entries allow; ports are not compared.

    Each entry is a name, `*.name` (every name below it), `.name` (both), an address, a network, or
    `*` for every host. Names match in either case, with or without a final dot.

    Example:
        >>> hosts = AllowedHosts(["api.example.org", "*.localhost", "10.0.0.0/8"])
        >>> [hosts.allows(host) for host in (b"API.example.org:8000", b"a.localhost", b"10.1.2.3")]
        [True, True, True]
        >>> [hosts.allows(host) for host in (b"example.org", b"localhost", b"[::1]:80")]
        [False, False, False]
    """

    def __init__(self, entries: Iterable[str]) -> None:
        """Parse the entries; raises ValueError for one of another form."""
        self._names: set[str] = set()
        self._suffixes: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self.allows_all = False
        for entry in entries:
            self._add(entry.lower().removesuffix("."))
        self.allows = lru_cache(_MOST_CACHED)(self._matches)
        """Whether the value of a Host header is allowed; each request asks this."""

    @classmethod
    def of(cls, entries: Iterable[str], listens_on: str) -> AllowedHosts:
        """The hosts of these entries; without entries, those that `listens_on` implies.

        On a loopback address these are the loopback names and addresses. Another address is
        reached under names that the service cannot know, so there every host is allowed. So it is
        on a Unix socket, which no browser can reach.
        """
        return cls(entries or (LOOPBACK if is_loopback(listens_on) else (EVERY_HOST,)))

    def _add(self, entry: str) -> None:
        if entry == EVERY_HOST:
            self.allows_all = True
        elif _LOOKS_LIKE_ADDRESS.fullmatch(entry):
            try:
                address = entry[1:-1] if entry[:1] + entry[-1:] == "[]" else entry
                self._networks.append(ipaddress.ip_network(address))
            except ValueError:
                raise ValueError(_FORMS) from None
        elif not _NAME.fullmatch(entry):
            raise ValueError(_FORMS)
        elif entry.startswith("*."):
            self._suffixes.add(entry[1:])
        elif entry.startswith("."):
            self._suffixes.add(entry)
            self._names.add(entry[1:])
        else:
            self._names.add(entry)

    def _matches(self, host: bytes) -> bool:
        if self.allows_all:
            return True
        text = host.decode("latin-1").lower()
        if text.startswith("["):
            name = text[1:].partition("]")[0]
        else:
            name = text.partition(":")[0].removesuffix(".")
        address = _address_of(name)
        if address is not None:
            return any(address in network for network in self._networks)
        return name in self._names or any(
            name.endswith(suffix) and name != suffix for suffix in self._suffixes
        )


_FORMS: Final = (
    "each entry is a name, *.name, .name, an address, a network, or * for every host; leave out "
    "the scheme and the port, and write a name that is not ASCII in its xn-- form"
)


def _address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `name` is, or None; an IPv4 address in IPv6 form is the IPv4 address."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def check_origins(entries: Iterable[str]) -> None:
    """Raise ValueError unless browsers send each entry as an Origin."""
    for entry in entries:
        is_default = entry.endswith(_DEFAULT_PORTS.get(entry.partition(":")[0], "*"))
        if is_default or not _ORIGIN.fullmatch(entry):
            raise ValueError(
                "each entry is an exact origin in lower case, https://host or http://host:port, "
                "without a path, a final slash, a default port or *"
            )


def socket_path(listens_on: str) -> str | None:
    """The path of a Unix socket; None for an address; raises ValueError for a relative one.

    Example:
        >>> socket_path("unix:/run/tokenizer.sock"), socket_path("127.0.0.1")
        ('/run/tokenizer.sock', None)
    """
    if not listens_on.startswith(UNIX):
        return None
    path = listens_on.removeprefix(UNIX)
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError("a Unix socket is unix: and an absolute path, as unix:/run/tokenizer.sock")
    return path


def is_local(listens_on: str) -> bool:
    """Whether only this machine can reach a service that listens there."""
    return listens_on.startswith(UNIX) or is_loopback(listens_on)


def is_loopback(listens_on: str) -> bool:
    """Whether a service that listens on this address is reached by this machine's names only."""
    address = _address_of(listens_on)
    return listens_on.lower() == "localhost" if address is None else address.is_loopback
