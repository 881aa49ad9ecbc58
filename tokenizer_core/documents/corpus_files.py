"""Find, open and read corpus files, on the disk or at an address in a store.

Every reader of a corpus opens its files with `open_corpus_file`. `FileVersion` decides whether a
local file is still the same.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Final

from tokenizer_core.blobs.local_files import open_to_read
from tokenizer_core.documents.corpus_addresses import (
    check_allowed,
    check_no_table,
    is_address,
    parse_address,
)
from tokenizer_core.documents.remote_files import (
    Identity,
    RemoteFile,
    StoreReadError,
    find_remote_files,
    open_remote_file,
    remote_file_size,
)
from tokenizer_core.errors import CorpusChangedError, CorpusError

BLOCK_BYTES: Final = 1 << 18
"""Bytes per read."""


@dataclass(frozen=True, slots=True)
class CorpusSource:
    """One file of a corpus: its path, its size, and the sha256 (hex) of the bytes read."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What the system knows about a local file: another file, or a changed one, differs."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int
    """The time of the last change of text or status, which no program can set."""

    n_links: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """The version in the result of `stat`."""
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_nlink,
        )

    @property
    def identity(self) -> Identity:
        """What `corpus_file_identity` returns."""
        return self.size_bytes, str(self.modified_ns)

    @classmethod
    def at(cls, path: str) -> FileVersion | None:
        """The version of the file at a path now; None if there is none or it cannot be seen."""
        try:
            return cls.of(os.stat(path))  # noqa: PTH116 - a corpus path is a str
        except (OSError, ValueError):
            return None

    def is_same(self, later: FileVersion | None) -> bool:
        """Whether the same file, unchanged, had the version `later` afterwards."""
        if later is None:
            return False
        if replace(self, changed_ns=later.changed_ns, n_links=later.n_links) != later:
            return False
        # A further name (a hard link), or one less (a file that was replaced and is still open),
        # sets `changed_ns` and leaves the text.
        return self.n_links != later.n_links or self.changed_ns == later.changed_ns


@contextlib.contextmanager
def unchanged_files(paths: Iterable[str]) -> Iterator[None]:
    """Check that no local file changes in the block, which reads them. Raises CorpusChangedError:
    after the block, and in place of a ValueError from it: a file was changed, replaced or removed.
    Addresses are not checked; their readers do that."""
    versions = {path: FileVersion.at(path) for path in paths if not is_address(path)}

    def changed() -> CorpusChangedError | None:
        for path, version in versions.items():
            if version is not None and not version.is_same(FileVersion.at(path)):
                return changed_error(path)
        return None

    try:
        yield
    except CorpusChangedError:
        raise
    except ValueError as error:  # a CorpusError or a UnicodeDecodeError may come from the change
        if (found := changed()) is not None:
            raise found from error
        raise
    if (found := changed()) is not None:
        raise found


def changed_error(name: str) -> CorpusChangedError:
    """The error for a file that changed."""
    return CorpusChangedError(
        f"the corpus file {name!r} changed while it was read; read a copy that nobody writes to"
    )


class CorpusFileBytes:
    """The bytes of an open corpus file, counted, and hashed if asked.

    `size_bytes` is the size when the file was opened, `position_bytes` how much of it is read,
    `first_byte` where `blocks` begins, and `n_blank_lines` how many lines had no document so far.
    `name` is for messages, without the secrets of an address.
    """

    def __init__(self, name: str, file: IO[bytes] | RemoteFile, *, hash_source: bool) -> None:
        self.name, self.file, self._path = name, file, name
        self.identity: Identity
        if isinstance(file, RemoteFile):
            self.identity = file.identity()
        else:
            self._version = _version(file)
            self.identity = self._version.identity
        self.size_bytes = self.identity[0]
        self.position_bytes = 0
        self.n_blank_lines = 0
        self.first_byte, self._stop = 0, self.size_bytes
        self._digest = hashlib.sha256() if hash_source else None
        self.sha256: str | None = None

    def enter(self, start: int, stop: int) -> None:
        """Make `blocks` begin at byte `start` and end before `stop`. Raises CorpusError: the store
        cannot read from there."""
        self.file.seek(start)
        self.position_bytes, self.first_byte, self._stop = start, start, stop

    @property
    def part_name(self) -> str:
        """The name, and where `blocks` begins, for messages that count bytes from there."""
        return f"{self.name} from byte {self.first_byte}" if self.first_byte else self.name

    def count_lines(self, offset: int | None = None) -> int:
        """How many lines begin before a byte, by default before the first of `blocks`; reads the
        file up to there. After this, call `enter` before `blocks`. Raises CorpusError: the file
        cannot be read."""
        stop = (self.first_byte if offset is None else offset) - 1  # its line begins later
        at, n_lines = 0, int(stop >= 0)
        while at < stop and (block := self.read_at(at, min(BLOCK_BYTES, stop - at))):
            n_lines += block.count(b"\n")
            at += len(block)
        return n_lines

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from an offset on, none at the end. After this, call `enter` before
        `blocks`. Raises CorpusError: the file cannot be read."""
        self.file.seek(offset)
        return self._read(size)

    def blocks(self) -> Iterator[bytes]:
        """All bytes in order, in blocks; advances `position_bytes`.

        Raises:
            CorpusError: the file cannot be read.
            CorpusChangedError: it has grown.
        """
        while block := self._read(self._block_bytes()):
            self.position_bytes += len(block)
            # A file that grows faster than we read it would never end.
            if self.position_bytes > self.size_bytes:
                raise changed_error(self.name)
            if self._digest is not None:
                self._digest.update(block)
            yield block

    def hash_apart(self) -> None:
        """Hash the file, if requested, in a separate pass: for formats not read front to back."""
        if self._digest is not None:
            self.position_bytes = 0
            self.file.seek(0)
            for _ in self.blocks():
                pass
        self.position_bytes = self.size_bytes

    def finish(self) -> None:
        """Compute `sha256`, once everything is read, and check that the file did not change. Raises
        CorpusChangedError: it changed."""
        if self.position_bytes != self._stop or self.is_changed():
            raise changed_error(self.name)
        if self._digest is not None:
            self.sha256 = self._digest.hexdigest()

    def is_changed(self) -> bool:
        """Whether the file was changed, replaced or removed since it was opened. Raises
        CorpusError: its store does not respond."""
        if isinstance(self.file, RemoteFile):
            return self.file.identity() != self.identity
        now = _version(self.file)
        return not (self._version.is_same(now) and now.is_same(FileVersion.at(self._path)))

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Close the file after the block, which reads it to its end, and call `finish`. Raises
        CorpusChangedError: it changed; also in place of another error in its content."""
        with self.file:
            try:
                yield
            except (CorpusChangedError, StoreReadError):
                raise
            except CorpusError as error:
                if self.is_changed():
                    raise changed_error(self.name) from error
                raise
            self.finish()

    def _block_bytes(self) -> int:
        if self._stop == self.size_bytes:
            return BLOCK_BYTES  # so that a read shows whether the file has grown
        return min(BLOCK_BYTES, self._stop - self.position_bytes)

    def _read(self, size: int) -> bytes:
        try:
            return self.file.read(size)
        except OSError as error:
            raise CorpusError(f"the corpus file {self.name!r} cannot be read: {error}") from error


def _version(file: IO[bytes]) -> FileVersion:
    return FileVersion.of(os.fstat(file.fileno()))


def enter_part(source: CorpusFileBytes, ending: bytes, start: int, stop: int) -> None:
    """Make `source` yield only the documents that begin in the bytes `start` to `stop` (excluded).
    `ending` is the bytes after each document of the file: the separator of plain text, or the end
    of a line. So independent parts have each document once, the last one of each as a whole. Raises
    CorpusError: the file cannot be read."""
    begin = find_document(source, ending, start, stop)
    if begin is None:
        source.enter(start, start)
    else:
        end = find_document(source, ending, stop, source.size_bytes)
        source.enter(begin, source.size_bytes if end is None else end)


def find_document(source: CorpusFileBytes, ending: bytes, start: int, stop: int) -> int | None:
    """The first byte from `start` to `stop` (excluded) at which a document certainly begins; None
    if no such byte exists. It does not read beyond it.

    Endings match leftmost and do not overlap. So a document certainly begins after an ending that
    no earlier occurrence overlaps: a reader from the beginning of the file finds the same ending.
    """
    if start <= 0:
        return 0 if stop > 0 else None
    size = len(ending)
    # An occurrence before this offset cannot overlap the first ending that matters.
    offset = max(0, start - 2 * size + 1)
    window, taken_up_to = b"", 0
    while block := source.read_at(offset + len(window), BLOCK_BYTES):
        window += block
        found = window.find(ending)
        while found >= 0:
            begin = offset + found + size
            if begin >= stop:
                return None
            if begin >= start and offset + found >= taken_up_to:
                return begin
            taken_up_to = begin
            found = window.find(ending, found + 1)
        n_kept = min(size - 1, len(window))
        offset += len(window) - n_kept
        window = window[len(window) - n_kept :]
        if offset >= stop:
            return None
    return None


def open_corpus_file(
    path: str | os.PathLike[str],
    *,
    hash_source: bool = False,
    allowed_roots: Iterable[str | os.PathLike[str]] | None = None,
) -> CorpusFileBytes:
    """The bytes of the regular file at `path`, which may be an address. Raises CorpusError: it does
    not exist, cannot be read, is not a regular file, or is not below one of the `allowed_roots`."""
    name = os.fspath(path)
    check_allowed(name, allowed_roots)
    if is_address(name):
        address = parse_address(name)
        remote = open_remote_file(address, redirects=allowed_roots is None)
        return CorpusFileBytes(address.shown, remote, hash_source=hash_source)
    try:
        descriptor = open_to_read(name)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        file = os.fdopen(descriptor, "rb", buffering=0)
        return CorpusFileBytes(name, file, hash_source=hash_source)
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise CorpusError(
            f"the corpus {name!r} is a folder; name the files in it, or a pattern "
            f"('{name.rstrip('/')}/**/*.jsonl')"
        )
    raise CorpusError(
        f"the corpus {name!r} is not a regular file; write what it gives to a file first"
    )


def corpus_file_size(path: str | os.PathLike[str]) -> int:
    """The size in bytes of the file at a path or an address. Raises CorpusError: it does not exist,
    or its size is unknown."""
    name = os.fspath(path)
    if is_address(name):
        return remote_file_size(parse_address(name), redirects=True)
    return _local_version(name).size_bytes


def corpus_file_identity(path: str | os.PathLike[str]) -> Identity:
    """The size in bytes of the file at a path or an address, and what tells that it has changed:
    the time of its last change, or what the store says now. Raises CorpusError: it does not exist,
    or its size is unknown."""
    name = os.fspath(path)
    if is_address(name):
        # A cached listing has other fields than the answer to a request for the file.
        return open_remote_file(parse_address(name), redirects=True).identity()
    return _local_version(name).identity


def _local_version(name: str) -> FileVersion:
    try:
        return FileVersion.of(os.stat(name))  # noqa: PTH116 - a corpus path is a str
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError | ValueError) -> CorpusError:
    if isinstance(error, FileNotFoundError):
        remedy = "check the path"
        if glob.has_magic(name):
            remedy = "documents.find_corpus_files gives the files of a pattern"
        return CorpusError(f"the corpus file {name!r} does not exist; {remedy}")
    reason = getattr(error, "strerror", None) or error
    return CorpusError(
        f"the corpus file {name!r} cannot be read: {reason}; check the path and who may read it"
    )


def are_sources(paths: Sequence[str | os.PathLike[str]], sources: Sequence[CorpusSource]) -> bool:
    """Whether the files have these names, sizes and hashes, in this order. Reads them if only their
    content can differ.

    Raises:
        CorpusError: a file does not exist, or cannot be read.
        CorpusChangedError: a file changed meanwhile.
    """
    known = [(source.path, source.size_bytes) for source in sources]
    sizes = map(corpus_file_size, paths)
    return known == list(zip(corpus_file_names(paths), sizes, strict=True)) and all(
        _hash(path) == source.sha256 for path, source in zip(paths, sources, strict=True)
    )


def _hash(path: str | os.PathLike[str]) -> str | None:
    source = open_corpus_file(path, hash_source=True)
    with source.reading():
        source.hash_apart()
    return source.sha256


def corpus_file_name(path: str | os.PathLike[str]) -> str:
    """The last part of a path or an address, without secrets. Bytes that are not UTF-8 are escaped,
    because manifests are UTF-8.

    Example:
        >>> corpus_file_name("https://host/news/some.jsonl?signature=abc")
        'some.jsonl'
    """
    return corpus_file_names([path])[0]


def corpus_file_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """As `corpus_file_name`, for the files of a corpus: where several have the same last part, as
    many parts from the end as tell them apart. So manifests name no folder without need.

    Example:
        >>> corpus_file_names(["/data/a/x.txt", "/data/b/x.txt", "/data/b/y.txt"])
        ['a/x.txt', 'b/x.txt', 'y.txt']
    """
    shown = [parse_address(n).shown if is_address(n) else n for n in (os.fspath(p) for p in paths)]
    n_parts = dict.fromkeys(shown, 1)
    while True:
        names = {path: "/".join(path.split("/")[-n:]) for path, n in n_parts.items()}
        n_paths = Counter(names.values())
        unclear = [path for path, name in names.items() if n_paths[name] > 1 and name != path]
        if not unclear:
            return [names[path].encode(errors="backslashreplace").decode() for path in shown]
        for path in unclear:
            n_parts[path] += 1


def find_corpus_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    allowed_roots: Iterable[str | os.PathLike[str]] | None = None,
) -> list[str]:
    """The existing files that paths, addresses and patterns name, sorted, each once.

    An existing path names itself, even if it has `*`, `?` or `[`. Any other path with one of these
    is a pattern: `*` matches within a folder, `**` goes into folders, and neither matches names
    that begin with a dot. A file with several names (links, `./`) is listed under the first one.

    fsspec finds the files at an address, `s3://bucket/news/*.jsonl.gz`. The result has the user or
    signature of the given address, so that it can be opened.

    With `allowed_roots`, folders and addresses, any other file is refused before a request is sent,
    and so are redirects of a web server. Raises CorpusError: no path is given; a path does not
    exist; a pattern matches nothing, or files of a table (Delta Lake, Iceberg, Hudi); a named or
    matched file is a folder, a FIFO or a device, cannot be read, or is not allowed."""
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not named:
        raise CorpusError("no corpus files are named; give at least one path or pattern")
    roots = None if allowed_roots is None else list(allowed_roots)
    found = {name for path in named for name in _matches(os.fspath(path), roots)}
    files: dict[object, str] = {}
    for name in sorted(found):
        check_allowed(name, roots)
        if is_address(name):
            files[name] = name
            continue
        opened = open_corpus_file(name)
        with opened.file as file:
            status = os.fstat(file.fileno())
        files.setdefault((status.st_dev, status.st_ino), name)
    return list(files.values())


def _matches(path: str, roots: list[str | os.PathLike[str]] | None) -> list[str]:
    if is_address(path):
        check_allowed(path, roots)
        return find_remote_files(parse_address(path), redirects=roots is None)
    if "\0" in path or os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    _check_folders_can_be_read(path)
    # Not Path.glob, which matches names that begin with a dot and drops a leading "./".
    matches = glob.glob(path, recursive=True)  # noqa: PTH207
    if not matches:
        raise CorpusError(f"no file matches the pattern {path!r}; check the folder and the ending")
    check_no_table(
        map(os.path.abspath, matches),
        lambda folder, name: glob.glob(f"{glob.escape(folder)}/{name}"),  # noqa: PTH207
    )
    return matches


def _check_folders_can_be_read(pattern: str) -> None:
    """Raise CorpusError for a folder that glob would skip silently."""
    before, any_depth, _ = pattern.partition("**")
    folder, name = os.path.split(before if any_depth else pattern)
    if any_depth:
        for top in glob.glob(folder or "."):  # noqa: PTH207
            for _, folders, _ in os.walk(top, onerror=_refuse_folder):
                folders[:] = [name for name in folders if not name.startswith(".")]
        folder, name = os.path.split(folder)
    while name and glob.has_magic(f"{folder}/{name}"):
        for parent in glob.glob(folder or "."):  # noqa: PTH207
            try:
                if glob.has_magic(name):
                    os.scandir(parent).close()
                else:
                    os.stat(f"{parent}/{name}")  # noqa: PTH116
            except OSError as error:
                error.filename = parent
                _refuse_folder(error)
        folder, name = os.path.split(folder)


def _refuse_folder(error: OSError) -> None:
    """Raise CorpusError unless the path of `error` is no folder, or has no such entry; a link that
    leads to itself has none."""
    is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    if not is_absent and error.errno != errno.ELOOP:
        raise CorpusError(
            f"the folder {error.filename!r} cannot be read: {error.strerror}; check who may read "
            f"it, or name the folders beside it"
        )
