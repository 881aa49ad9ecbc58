"""Find, open and identify corpus files in stores, through fsspec.

fsspec is imported only for an address. Messages name only the kind of a store's error, because its
text may hold the address with its password or signature.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any, Final

from tokenizer_core.documents.corpus_addresses import (
    WEB,
    CorpusAddress,
    check_no_table,
    parse_address,
)
from tokenizer_core.errors import CorpusError, missing_extra

REQUEST_BYTES: Final = 1 << 21
"""Bytes per request to a store. A web server's response takes ten times as much memory: the parts,
the joined parts, and the copies of fsspec's cache (8 MiB took 70 MB)."""

_TIMEOUT_SECONDS: Final = 60

# The fields of a store's file information that show a change; `_identity` compares small letters.
_VERSION_FIELDS: Final = {
    *("etag", "lastmodified", "modified", "modify", "mtime", "modificationtime", "lastwritetime"),
    *("updated", "created", "generation", "versionid", "md5", "md5hash", "contentmd5", "digest"),
    *("checksum", "sha", "blobid"),
}

Identity = tuple[int, str]


class StoreReadError(CorpusError):
    """A store did not respond, or sent other data than requested; a retry may succeed."""


class RemoteFile(io.RawIOBase):
    """A file in a store, open for reading; use `open_remote_file` to make one. The first read opens
    it. Raises CorpusError: by any method, if the store fails; the message names the address and the
    byte."""

    def __init__(self, address: CorpusAddress, store: Any, path: str) -> None:
        self._address, self._store, self._path = address, store, path
        self._opened: Any = None
        self._offset = 0

    def _file(self) -> Any:
        if self._opened is None:
            self._opened = self._store.open(self._path, "rb", block_size=REQUEST_BYTES)
        return self._opened

    def identity(self) -> Identity:
        """The current size in bytes and version of the file, from a new request."""
        try:
            self._store.invalidate_cache(self._path)
            return _identity(self._address, self._store.info(self._path))
        except Exception as error:
            raise _not_opened(self._address, error) from None

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; none at the end."""
        try:
            data: bytes = self._file().read(size)
        except Exception as error:
            raise self._failed(error) from None
        self._offset += len(data)
        return data

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, in one request; fewer if the file ends before."""
        self._offset = start
        try:
            data: bytes = self._store.cat_file(self._path, start=start, end=end)
        except Exception as error:
            raise self._failed(error) from None
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset, if the store can."""
        try:
            self._offset = int(self._file().seek(offset, whence))
        except Exception as error:
            raise self._failed(error) from None
        return self._offset

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._offset

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true; `seek` raises if the store cannot."""
        return True

    def fileno(self) -> int:
        """Not supported. Raises CorpusError: always; code that needs a local file cannot use this
        one."""
        raise CorpusError(
            f"the corpus file {self._address.shown!r} is not on the disk, and this reads from the "
            f"disk only; copy it there first"
        )

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            with contextlib.suppress(Exception):
                self._opened.close()
        super().close()

    def _failed(self, error: Exception) -> StoreReadError:
        return StoreReadError(
            f"the corpus file {self._address.shown!r} cannot be read at byte {self._offset} "
            f"({_reason(error)}); try again, or copy it to the disk first"
        )


def open_remote_file(address: CorpusAddress, *, redirects: bool) -> RemoteFile:
    """The file at an address; with `redirects` a web server may redirect to another one. Raises
    CorpusError: the store is unknown or unusable, or a package for it is not installed."""
    return RemoteFile(address, *_open_store(address, redirects=redirects))


def remote_file_size(address: CorpusAddress, *, redirects: bool) -> int:
    """The size in bytes, from a cached listing if there is one. Raises CorpusError: the file does
    not exist, or as for `open_remote_file`."""
    store, path = _open_store(address, redirects=redirects)
    try:
        return _identity(address, store.info(path))[0]
    except Exception as error:
        raise _not_opened(address, error) from None


def find_remote_files(address: CorpusAddress, *, redirects: bool) -> list[str]:
    """The addresses that match an address or a pattern, in no order.

    As on the disk, an existing file with `*`, `?` or `[` in its name names itself, and a pattern
    does not match names that begin with a dot. Raises CorpusError: nothing matches, a folder
    matches, or as for `open_remote_file`."""
    if not _has_magic(address):
        remote_file_size(address, redirects=redirects)
        return [address.text]
    store, path = _open_store(address, redirects=redirects)
    try:
        store.invalidate_cache(path)
        if address.scheme not in WEB and store.isfile(path):
            return [address.text]
        matches: dict[str, dict[str, Any]] = store.glob(path, detail=True)
    except Exception as error:
        raise _not_opened(address, error) from None
    pattern_names = path.split("/")
    found = []
    for match, info in matches.items():
        if any(name[:1] == "." and name not in pattern_names for name in match.split("/")):
            continue
        found.append(_address_of(match, address, path))
        _check_file(found[-1], info)
    if not found:
        raise CorpusError(
            f"no file matches the pattern {address.shown!r}; check the folder and the ending"
        )
    if address.scheme not in WEB:
        _check_no_table(store, path, matches)
    return [one.text for one in found]


def _check_no_table(store: Any, pattern: str, matches: Iterable[str]) -> None:
    """As `check_no_table`, but no request leaves the folder of the pattern: those above it may not
    be allowed."""
    top = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]

    def exists(folder: str, log: str) -> bool:
        if not f"{folder}/".startswith(f"{top}/"):
            return False
        try:
            return bool(store.glob(f"{folder}/{log}"))
        except Exception:  # a store that lists nothing there
            return False

    check_no_table(matches, exists)


def _address_of(match: str, pattern: CorpusAddress, path: str) -> CorpusAddress:
    """The address of a match, which the store returns like `path`, without host and user."""
    text = pattern.text.rstrip("/")
    same = takewhile(lambda pair: pair[0] == pair[1], zip(reversed(text), reversed(path)))  # noqa: B905
    n_same = len(list(same))
    before, path_before = text[: len(text) - n_same], path[: len(path) - n_same]
    if not match.startswith(path_before):
        before, path_before = f"{pattern.scheme}://", ""
    return parse_address(before + match.removeprefix(path_before))


def _has_magic(address: CorpusAddress) -> bool:
    if address.scheme in WEB:  # `?` begins a query there, and `[` may begin a host
        _, _, path = address.text.split("://", 1)[1].partition("?")[0].partition("/")
        return any(character in path for character in "*[")
    return any(character in address.text for character in "*?[")


def _open_store(address: CorpusAddress, *, redirects: bool) -> tuple[Any, str]:
    """The store, and the path in it. fsspec's own function would split an address into a chain of
    stores."""
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(address.scheme)
    except ImportError as error:
        what = f"the corpus file {address.shown!r} cannot be read: {address.scheme}://"
        if address.scheme == "s3" or error.name == "fsspec":
            extra = "s3" if address.scheme == "s3" else "remote"
            raise missing_extra(CorpusError, what, extra) from None
        refusal = CorpusError(f"{what} needs another package ({error!s:.120})")
        refusal.needs_package = True
        raise refusal from None
    except ValueError:
        raise CorpusError(
            f"no kind of store is known as {address.scheme}://; check the address, or install the "
            f"package for fsspec that has it"
        ) from None
    try:
        options: dict[str, Any] = {}
        if address.scheme in WEB:
            options = _web_options(fsspec.config.conf.get(address.scheme, {}), redirects=redirects)
        store = kind(**kind._get_kwargs_from_urls(address.text), **options)
        return store, kind._strip_protocol(address.text)
    except Exception as error:
        raise _not_opened(address, error) from None


def _web_options(configured: dict[str, Any], *, redirects: bool) -> dict[str, Any]:
    """Options for web servers: request the stored bytes, with timeouts."""
    import aiohttp

    headers = {"Accept-Encoding": "identity", **configured.get("headers", {})}
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=_TIMEOUT_SECONDS, sock_read=_TIMEOUT_SECONDS
    )
    client = {"timeout": timeout, **configured.get("client_kwargs", {})}
    if not redirects:
        client["trace_configs"] = [_redirect_guard()]
    return {"headers": headers, "client_kwargs": client}


@functools.cache  # fsspec reuses a store for equal options
def _redirect_guard() -> Any:
    import aiohttp

    guard = aiohttp.TraceConfig()
    guard.on_request_redirect.append(_refuse_redirect)
    return guard


async def _refuse_redirect(*_: object) -> None:
    raise CorpusError(
        "a web server sends on to another address, which may be no allowed one; name that address "
        "itself"
    )


def _identity(address: CorpusAddress, info: dict[str, Any]) -> Identity:
    _check_file(address, info)
    size = info.get("size")
    if size is None:
        raise CorpusError(
            f"the size of the corpus file {address.shown!r} is unknown to its server; copy it to "
            f"the disk first"
        )
    said = ((re.sub("[-_]", "", field.lower()), str(value)) for field, value in info.items())
    known = sorted(pair for pair in said if pair[0] in _VERSION_FIELDS)
    return int(size), json.dumps(known)


def _check_file(address: CorpusAddress, info: dict[str, Any]) -> None:
    if info.get("type") == "directory":
        raise CorpusError(f"the corpus {address.shown!r} is a folder; name the files in it")


def _not_opened(address: CorpusAddress, error: Exception) -> CorpusError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CorpusError):
            return cause
        cause = cause.__cause__
    return StoreReadError(
        f"the corpus file {address.shown!r} cannot be opened ({_reason(error)}); check the "
        f"address, and who may read it"
    )


def _reason(error: BaseException) -> str:
    """The kinds of the errors and the status of a response; never their text."""
    if isinstance(error, ValueError) and "range" in str(error):
        return "the server gives no part of a file"
    status = getattr(error, "status", None)
    name = type(error).__name__ + (f" {status}" if isinstance(status, int) else "")
    return name if error.__cause__ is None else f"{name}: {_reason(error.__cause__)}"
