"""Corpus files in stores, read through fsspec: found, opened, and known again.

The only module that imports fsspec, and only when an address is given. What a store raises is
never shown, as its text may hold the address with its password or signature: the kind of the error
has to do.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
from itertools import takewhile
from typing import Any, Final

from tokenizer_core.documents.corpus_addresses import WEB, CorpusAddress, parse_address
from tokenizer_core.errors import CorpusError

REQUEST_BYTES: Final = 1 << 21
"""How much is asked of a store at once. From a web server it takes ten times as much memory: what
came, its parts joined, and the copies of fsspec's cache (8 MiB took 70 MB)."""

_SILENT_SECONDS: Final = 60

# What stores say of a file by which a change shows, as `_plain` spells it.
_VERSION_FIELDS: Final = {
    *("etag", "lastmodified", "modified", "modify", "mtime", "modificationtime", "lastwritetime"),
    *("updated", "created", "generation", "versionid", "md5", "md5hash", "contentmd5", "digest"),
    *("checksum", "sha", "blobid"),
}

Identity = tuple[int, str]


class StoreReadError(CorpusError):
    """A store did not answer, or not with what was asked for; it may the next time."""


class RemoteFile(io.RawIOBase):
    """A file of a store, for reading; made by `open_remote_file`. Nothing is asked for until then.

    Raises:
        CorpusError: by any method, where the store fails; it names the address, and the byte.
    """

    def __init__(self, address: CorpusAddress, store: Any, path: str) -> None:
        self._address, self._store, self._path = address, store, path
        self._opened: Any = None
        self._place = 0

    def _file(self) -> Any:
        if self._opened is None:
            self._opened = self._store.open(self._path, "rb", block_size=REQUEST_BYTES)
        return self._opened

    def identity(self) -> Identity:
        """The size in bytes, and what the store says of the file's version, asked for now."""
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
        self._place += len(data)
        return data

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, asked for by themselves; fewer where there are fewer."""
        self._place = start
        try:
            data: bytes = self._store.cat_file(self._path, start=start, end=end)
        except Exception as error:
            raise self._failed(error) from None
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a byte, where the store can."""
        try:
            self._place = int(self._file().seek(offset, whence))
        except Exception as error:
            raise self._failed(error) from None
        return self._place

    def tell(self) -> int:
        """The byte that comes next."""
        return self._place

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is, or an error says so."""
        return True

    def fileno(self) -> int:
        """There is none.

        Raises:
            CorpusError: always; what needs a file on the disk cannot work with this one.
        """
        raise CorpusError(
            f"the corpus file {self._address.shown!r} is not on the disk, and this reads from the "
            f"disk only; copy it there first"
        )

    def close(self) -> None:
        """Close the file; nothing can be lost by it."""
        if self._opened is not None:
            with contextlib.suppress(Exception):
                self._opened.close()
        super().close()

    def _failed(self, error: Exception) -> StoreReadError:
        return StoreReadError(
            f"the corpus file {self._address.shown!r} cannot be read at byte {self._place} "
            f"({_reason(error)}); try again, or copy it to the disk first"
        )


def open_remote_file(address: CorpusAddress, *, redirects: bool) -> RemoteFile:
    """The file at an address; with `redirects` a web server may send on to another place.

    Raises:
        CorpusError: the store is not known or cannot be asked, or what it needs is not installed.
    """
    return RemoteFile(address, *_open_store(address, redirects=redirects))


def remote_file_size(address: CorpusAddress, *, redirects: bool) -> int:
    """The size in bytes, from a list that was asked for just before if there is one.

    Raises:
        CorpusError: there is no such file, or as for `open_remote_file`.
    """
    store, path = _open_store(address, redirects=redirects)
    try:
        return _identity(address, store.info(path))[0]
    except Exception as error:
        raise _not_opened(address, error) from None


def find_remote_files(address: CorpusAddress, *, redirects: bool) -> list[str]:
    """The addresses that an address or a pattern stands for, in no order.

    As on the disk, a file that has `*`, `?` or `[` in its name is itself, and a pattern takes no
    names that begin with a dot.

    Raises:
        CorpusError: there is none, or a folder, or as for `open_remote_file`.
    """
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
    return [one.text for one in found]


def _address_of(match: str, pattern: CorpusAddress, path: str) -> CorpusAddress:
    """The address of a match, which a store gives without host and user, as it does `path`."""
    text = pattern.text.rstrip("/")
    same = takewhile(lambda pair: pair[0] == pair[1], zip(reversed(text), reversed(path)))  # noqa: B905
    n_same = len(list(same))
    before, path_before = text[: len(text) - n_same], path[: len(path) - n_same]
    if not match.startswith(path_before):
        before, path_before = f"{pattern.scheme}://", ""
    return parse_address(before + match.removeprefix(path_before))


def _has_magic(address: CorpusAddress) -> bool:
    if address.scheme in WEB:  # where `?` begins a query, and `[` may begin a host
        _, _, path = address.text.split("://", 1)[1].partition("?")[0].partition("/")
        return any(character in path for character in "*[")
    return any(character in address.text for character in "*?[")


def _open_store(address: CorpusAddress, *, redirects: bool) -> tuple[Any, str]:
    """The store, and the path in it. Not fsspec's own way, which would take an address apart into
    a chain of stores."""
    try:
        import fsspec
    except ImportError:
        raise CorpusError(
            f"the corpus file {address.shown!r} cannot be read: reading an address needs the extra "
            f"remote; pip install 'tokenizer-service[remote]'"
        ) from None
    try:
        kind = fsspec.get_filesystem_class(address.scheme)
    except ImportError as error:
        raise CorpusError(
            f"the corpus file {address.shown!r} cannot be read: {address.scheme}:// needs another "
            f"package ({error!s:.120})"
        ) from None
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
    """How web servers are asked: for the bytes as they lie there, and not to the end of time."""
    import aiohttp

    headers = {"Accept-Encoding": "identity", **configured.get("headers", {})}
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=_SILENT_SECONDS, sock_read=_SILENT_SECONDS
    )
    client = {"timeout": timeout, **configured.get("client_kwargs", {})}
    if not redirects:
        client["trace_configs"] = [_redirect_guard()]
    return {"headers": headers, "client_kwargs": client}


@functools.cache  # as stores are the same for the same options
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
            f"the size of the corpus file {address.shown!r} is not told where it lies; copy it to "
            f"the disk first"
        )
    said = ((_plain(field), str(value)) for field, value in info.items())
    known = sorted(pair for pair in said if pair[0] in _VERSION_FIELDS)
    return int(size), json.dumps(known)


def _check_file(address: CorpusAddress, info: dict[str, Any]) -> None:
    if info.get("type") == "directory":
        raise CorpusError(f"the corpus {address.shown!r} is a folder; name the files in it")


def _plain(field: str) -> str:
    return field.lower().replace("_", "").replace("-", "")


def _not_opened(address: CorpusAddress, error: Exception) -> CorpusError:
    told: BaseException | None = error
    while told is not None:
        if isinstance(told, CorpusError):
            return told
        told = told.__cause__
    return StoreReadError(
        f"the corpus file {address.shown!r} cannot be opened ({_reason(error)}); check the "
        f"address, and who may read it"
    )


def _reason(error: BaseException) -> str:
    """The kinds of the errors, the status of an answer; never their text."""
    if isinstance(error, ValueError) and "range" in str(error):
        return "the server gives no part of a file"
    status = getattr(error, "status", None)
    name = type(error).__name__ + (f" {status}" if isinstance(status, int) else "")
    return name if error.__cause__ is None else f"{name}: {_reason(error.__cause__)}"
