"""Addresses of corpus files in stores, `s3://bucket/some.txt`: their parts, and which are allowed.

It stands alone because this decides what is asked of the network, and holds what must not be shown:
passwords and signatures. An address is compared as the text it is, by its beginning, so it must
have one meaning: no `..`, no chain of stores, no second spelling of the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from tokenizer_core.errors import CorpusError

WEB: Final = ("http", "https")

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::.*://", re.DOTALL)
_BRACKETED_HOST: Final = re.compile(r"(?<=[/@])\[[0-9A-Fa-f:.]+\]")
_WEB_AUTHORITY: Final = re.compile(
    r"([A-Za-z0-9._~%!$&'()*+,;=:-]*@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII
)
_WEB_PORTS: Final = {"http": ":80", "https": ":443"}
_DISK: Final = ("file", "local", "asynclocal")


@dataclass(frozen=True, slots=True)
class CorpusAddress:
    """An address in its one spelling.

    `text` is what the store is asked for, with all that is secret in it; `shown` is for messages.
    """

    scheme: str
    text: str

    @property
    def shown(self) -> str:
        """Without user, password, signature and version: what people and manifests may see.

        Example:
            >>> parse_address("https://me:secret@host/some.txt?signature=abc").shown
            'https://host/some.txt'
        """
        authority, rest = _split(self.scheme, self.text)
        user, _, host = authority.rpartition("@")
        if ":" in user or self.scheme in WEB:
            authority = host
        before, _, query = rest.partition("?")
        # In most stores `?` also stands for any character in a pattern.
        if self.scheme in WEB:
            rest = before.partition("#")[0]
        elif "=" in query:
            rest = before
        return f"{self.scheme}://{authority}{rest}"


def is_address(path: str) -> bool:
    """Whether a path is an address of a store (or a chain of them), and no path on the disk.

    Example:
        >>> is_address("s3://bucket/some.txt"), is_address("data/some.txt")
        (True, False)
    """
    return bool(_SCHEME.match(path) or _CHAIN.match(path))


def parse_address(path: str) -> CorpusAddress:
    """The address in its one spelling.

    Raises:
        CorpusError: it is a chain of stores, a path on the disk, has `.` or `..` or control
            characters in it, or no host that one can make out.

    Example:
        >>> parse_address("HTTPS://Host:443/Some.txt").text
        'https://host/Some.txt'
    """
    match = _SCHEME.match(path)
    if match is None or "::" in _BRACKETED_HOST.sub("", path):
        raise CorpusError(
            "an address with :: in it is a chain of stores, which hides whether a file changed; "
            "name the file itself, in the store where it lies"
        )
    scheme = match[1].lower()
    if scheme in _DISK:
        raise CorpusError(f"an address with {scheme}:// is on the disk; give the path itself")
    rest = path[match.end() :]
    if any(ord(character) < 0x20 or character == "\x7f" for character in rest):
        raise CorpusError("an address holds a control character; write it percent-encoded")
    if {".", ".."} & set(re.split(r"[/\\]", f"{rest}/{unquote(rest)}")):
        raise CorpusError("an address has . or .. between slashes; write it without")
    if scheme in WEB:
        authority, rest = _split(scheme, path)
        user, at, host = authority.rpartition("@")
        if not _WEB_AUTHORITY.fullmatch(authority):
            raise CorpusError(
                "the host in a web address is malformed; write it as host or host:port, and a user "
                "or password before it percent-encoded"
            )
        rest = user + at + host.lower().removesuffix(_WEB_PORTS[scheme]) + rest
    return CorpusAddress(scheme, f"{scheme}://{rest}")


def _split(scheme: str, address: str) -> tuple[str, str]:
    """What stands for user and host, and all behind it, with what parts them."""
    behind = address.split("://", 1)[1]
    end = re.search(r"[/?#]" if scheme in WEB else "/", behind)
    place = end.start() if end else len(behind)
    return behind[:place], behind[place:]


def check_allowed(path: str, allowed_roots: Iterable[str | os.PathLike[str]] | None) -> None:
    """See that a path or an address is one of the roots or below one; None allows any.

    A root is an address or a folder; both are compared in their one spelling, a path with its
    symbolic links followed. Who may change links below a root may still lead out of it later.

    Raises:
        CorpusError: it is not, or it has no one spelling.

    Example:
        >>> check_allowed("s3://bucket/news/some.txt", ["s3://bucket/news"])
        >>> check_allowed("s3://bucket/newspapers/some.txt", ["s3://bucket/news"])
        Traceback (most recent call last):
        ...
        tokenizer_core.errors.CorpusError: the corpus 's3://bucket/newspapers/some.txt' is not ...
    """
    if allowed_roots is None:
        return
    shown = parse_address(path).shown if is_address(path) else path
    place = _spelling(path)
    for root in allowed_roots:
        above = _spelling(os.fspath(root))
        below = above if above.endswith("/") else above + "/"
        if f"{place}/".startswith(below):
            return
    raise CorpusError(
        f"the corpus {shown!r} is not below an allowed root; name one that is, or allow its folder"
    )


def _spelling(path: str) -> str:
    return parse_address(path).text if is_address(path) else os.path.realpath(path)
