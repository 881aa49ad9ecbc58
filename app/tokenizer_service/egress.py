"""URLs of corpora: which hosts and S3 prefixes the operator allows, and at which addresses.

A client's URL makes this service send a request. One strict expression parses it, not a library
that accepts unusual forms. The connection uses the parsed parts, because two parsers can disagree.
A host name may resolve to any address, so the code that connects checks the address as well.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tokenizer_core.blobs.protocol import BUCKET
from tokenizer_core.documents.corpus_addresses import CorpusAddress, check_allowed, parse_address
from tokenizer_core.errors import CorpusError

MAX_URL_CHARS: Final = 2000

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))"
_URL: Final = re.compile(
    rf"(?P<scheme>https?)://{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<target>[/?][!-~]*)?", re.ASCII
)
_ENTRY: Final = re.compile(
    rf"{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?:=(?P<network>[0-9A-Fa-f:./]+))?", re.ASCII
)

# No character of a pattern, an escape or a query.
_S3_URL: Final = re.compile(rf"s3://{BUCKET}(?:/(?!\.\.?(?:/|$))[\w.@=+,!()~ -]+)*/?")

# IPv6 addresses that translate to any IPv4 address: NAT64, 6to4, Teredo.
_TRANSLATED: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)


class CorpusUrlError(ValueError):
    """A refused URL or list entry; the message gives the reason without repeating the input."""


@dataclass(frozen=True, slots=True)
class ListedHost:
    """One entry of TOKENIZER_CORPUS_URL_HOSTS.

    `port` None means the port of the scheme. `network` None means public addresses only.
    """

    host: str
    port: int | None
    network: Network | None

    @classmethod
    def parse(cls, entry: str) -> ListedHost:
        """Parse `host` or `host:port`, optionally followed by `=address` or `=network`.

        A host that is an address allows that address, public or not.

        Example:
            >>> ListedHost.parse("data.example.org").network is None
            True
            >>> ListedHost.parse("store.internal:9000=10.0.0.0/8").network
            IPv4Network('10.0.0.0/8')
            >>> ListedHost.parse("127.0.0.1:8080").network
            IPv4Network('127.0.0.1/32')
        """
        found = _ENTRY.fullmatch(entry)
        try:
            if found is None:
                raise ValueError
            host = _plain_host(found["host"])
            address = _literal(host)
            network = found["network"]
            if network is None and address is not None:
                network = str(address)
            return cls(
                host=host,
                port=None if found["port"] is None else _port(found["port"]),
                network=None if network is None else ipaddress.ip_network(network),
            )
        except ValueError:
            raise CorpusUrlError(
                "each entry is host, host:port, or one of these with =address or =network"
            ) from None

    def allows(self, address: Address) -> bool:
        """Whether the operator allows a connection to `address`."""
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if self.network is not None:
            return address in self.network
        if any(address in network for network in _TRANSLATED):
            return False
        return address.is_global and not address.is_multicast and not address.is_reserved


@dataclass(frozen=True, slots=True)
class CorpusUrl:
    """An allowed URL: its parts, and the entry of the list that allows it."""

    scheme: str
    host: str
    port: int
    target: str
    listed: ListedHost

    @classmethod
    def parse(cls, url: str, hosts: Iterable[ListedHost]) -> CorpusUrl:
        """Parse `url`.

        Raises:
            CorpusUrlError: not plain http or https, user information, a fragment, characters that
                need escaping, or a host and port that no entry lists.
        """
        found = _URL.fullmatch(url) if len(url) <= MAX_URL_CHARS else None
        target = "" if found is None else found["target"] or "/"
        if found is None or "#" in target:
            raise CorpusUrlError(
                f"it must be http://host/path or https://host/path, percent-escaped, of at most "
                f"{MAX_URL_CHARS} characters, without user, password or fragment"
            )
        try:
            host, scheme = _plain_host(found["host"]), found["scheme"]
            port = _PORTS[scheme] if found["port"] is None else _port(found["port"])
        except ValueError:
            raise CorpusUrlError("the host or the port is none that there can be") from None
        for listed in hosts:
            if host == listed.host and port == (listed.port or _PORTS[scheme]):
                target = target if target.startswith("/") else "/" + target
                return cls(scheme, host, port, target, listed)
        raise CorpusUrlError(
            "its host and port are not listed in TOKENIZER_CORPUS_URL_HOSTS; upload the corpus "
            "with PUT /corpora/{id} instead, or have whoever runs the server list them"
        )

    @property
    def origin(self) -> str:
        """The value of `Host`, without the port if it is the default of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without its query, which may hold a secret signature."""
        return f"{self.scheme}://{self.origin}{self.target.partition('?')[0]}"


def check_s3_prefixes(entries: Iterable[str]) -> None:
    """Raise CorpusUrlError unless each entry is a bucket or a prefix in one."""
    for entry in entries:
        if len(entry) > MAX_URL_CHARS or not _S3_URL.fullmatch(entry):
            raise CorpusUrlError(
                "it must be s3://bucket/name/name, with 3 to 63 characters in the bucket, and "
                "letters, digits, spaces and ._@=+,!()~- in a name, which is neither . nor .."
            )


def parse_corpus_url(
    url: str, hosts: Iterable[ListedHost], s3_prefixes: Iterable[str]
) -> CorpusUrl | CorpusAddress:
    """Parse a web address that `hosts` allows, or an S3 address below a prefix, by whole names;
    raises CorpusUrlError."""
    if not url.startswith("s3://"):
        return CorpusUrl.parse(url, hosts)
    check_s3_prefixes([url])
    try:
        check_allowed(url, s3_prefixes)
    except CorpusError:
        raise CorpusUrlError(
            "no prefix in TOKENIZER_CORPUS_S3_PREFIXES allows it; upload the corpus with PUT "
            "/corpora/{id} instead, or have whoever runs the server list one"
        ) from None
    return parse_address(url)


def _plain_host(text: str) -> str:
    """The host in lower case without brackets, or an address in its canonical form."""
    host = text.strip("[]").lower()
    address = _literal(host)
    if text.startswith("[") and address is None:
        raise ValueError
    return host if address is None else str(address)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise ValueError
    return port
