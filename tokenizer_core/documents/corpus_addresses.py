"""Addresses of corpus files in stores, `s3://bucket/some.txt`: their parts, and which are allowed.

This module decides what is requested from the network, and keeps passwords and signatures out of
messages. Allowed roots are compared with the beginning of an address, so an address must have one
meaning: no `..`, no chain of stores, no address of a local file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
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
_TABLES: Final = {
    "_delta_log": "Delta Lake", ".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CorpusAddress:
    """A normalized address.

    `text` is for requests and includes secrets; `shown` is for messages.
    """

    scheme: str
    text: str

    @property
    def shown(self) -> str:
        """The address without user, password, signature and version, for people and manifests."""
        authority, rest = _split(self.scheme, self.text)
        user, _, host = authority.rpartition("@")
        if ":" in user or self.scheme in WEB:
            authority = host
        before, _, query = rest.partition("?")
        # In most stores `?` is also a pattern for any character.
        if self.scheme in WEB:
            rest = before.partition("#")[0]
        elif "=" in query:
            rest = before
        return f"{self.scheme}://{authority}{rest}"


def is_address(path: str) -> bool:
    """Whether a path is the address of a store (or a chain of them), not a local path.

    Example:
        >>> is_address("s3://bucket/some.txt"), is_address("data/some.txt")
        (True, False)
    """
    return bool(_SCHEME.match(path) or _CHAIN.match(path))


def parse_address(path: str) -> CorpusAddress:
    """The normalized address. Raises CorpusError: it is a chain of stores or a local path, has `.`,
    `..` or control characters in it, or its host is malformed."""
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
    """User and host, and everything after them, with its separator."""
    after = address.split("://", 1)[1]
    end = re.search(r"[/?#]" if scheme in WEB else "/", after)
    index = end.start() if end else len(after)
    return after[:index], after[index:]


def check_allowed(path: str, allowed_roots: Iterable[str | os.PathLike[str]] | None) -> None:
    """Check that a path or an address is one of the roots or below one; None allows any.

    A root is an address or a folder. Both are normalized for the comparison; symbolic links of a
    path are followed. A user who can change links below a root can still point them outside later.
    Raises CorpusError: it is not below a root, or cannot be normalized."""
    if allowed_roots is None:
        return
    shown = parse_address(path).shown if is_address(path) else path
    normalized = _normalized(path)
    for root in allowed_roots:
        prefix = _normalized(os.fspath(root))
        prefix = prefix if prefix.endswith("/") else prefix + "/"
        if f"{normalized}/".startswith(prefix):
            return
    raise CorpusError(
        f"the corpus {shown!r} is not below an allowed root; name one that is, or allow its folder"
    )


def _normalized(path: str) -> str:
    return parse_address(path).text if is_address(path) else os.path.realpath(path)


def check_no_table(found: Iterable[str], exists: Callable[[str, str], object]) -> None:
    """Check that the paths that a pattern found are not Parquet files of a table. Its folder also
    holds the deleted rows, and the changed ones as they were: only the log of the table says which
    files and rows count. `exists` says whether a folder has a path, which may have `*` in its last
    name. Raises CorpusError: a folder of theirs, or one above, has the log of a table."""
    files = (PurePosixPath(path) for path in found if path.lower().endswith(".parquet"))
    for folder in sorted({str(above) for file in files for above in file.parents}):
        for log, kind in _TABLES.items():
            if exists(folder, log):
                raise CorpusError(
                    f"the folder {folder!r} is a table of {kind}, whose files also hold rows that "
                    f"were deleted or replaced; write its rows to JSON lines or Parquet elsewhere, "
                    f"or name its files one by one"
                )
