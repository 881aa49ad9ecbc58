"""Compiled tokenizers: what loading computes, in a file, so that the next load does not.

The name of a file is its key, a hash of all that the tokenizer follows from: the bytes of its
source and the modules that read it. A file of another source is therefore never found, and one that
is damaged or was made by another engine is refused when it is opened. The second load of a source
writes the file, into the cache folder of the user; the folder of a published version has its own.

A file is used only if nobody but its user, or root, can have written it. Whatever keeps a file from
being read or written, the tokenizer is loaded from its source, silently.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
import unicodedata
import weakref
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import read_whole_file, replacing, write_synced
from tokenizer_core.blobs.local_files import (
    HAS_OPEN_FOLDERS,
    is_sealed,
    open_to_read,
    sealed_copy,
    user_cache_folder,
)
from tokenizer_core.blobs.locks import hold_lock
from tokenizer_core.engines import choose_engine, create_engine
from tokenizer_core.engines.native_engine import NativeEngine, open_compiled
from tokenizer_core.errors import FormatError
from tokenizer_core.spec.stored import parse_spec, render_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokenizer_core.engines import Engine
    from tokenizer_core.spec import Merge, TokenizerSpec

    StrPath = str | os.PathLike[str]

COMPILED_VARIABLE: Final = "TOKENIZER_COMPILED"
"""`off` neither reads nor writes compiled files."""

MAX_CACHE_BYTES: Final = 512 << 20
"""Of the cache folder; the files that were not used for the longest time are removed."""

_MAX_SOURCE_BYTES: Final = 256 << 20
_SOURCE_SUFFIXES: Final = (".json", ".txt", ".model", ".jinja", ".pkl", ".tiktoken")
"""Of all files in a model folder that a tokenizer may follow from; never of weights."""

_SEEN: Final = ".seen"  # after the key: the name of the mark that the first load leaves
_MAX_FILES: Final = 4096
_LOCK_SECONDS: Final = 5.0
_READERS: Final = frozenset(("engines", "formats", "normalizers", "spec", "specials", "splitting"))
"""The packages that make a tokenizer of its source."""


def load(
    find_key: Callable[[], bytes | None],
    read: Callable[[], TokenizerSpec],
    engine: str = "auto",
    *,
    beside: Path | None = None,
    shared: Path | None = None,
) -> tuple[TokenizerSpec, Engine]:
    """The spec that `read` returns and an engine for it, from a compiled file if there is one.

    `find_key` returns the key of the source as it is now; None for one that is not compiled.
    `beside`: where its publication may have put the file. `shared`: a folder by which processes of
    this host share one copy in memory.

    Raises:
        Exception: as `find_key`, `read` and `create_engine`.
    """
    key = find_key() if is_used(engine) else None
    folder = None if key is None else _cache_folder()
    path = None if key is None or folder is None else folder / key.hex()
    for place in (beside, path):
        found = None if place is None or key is None else find(place, key, shared)
        if found is not None:
            return found
    spec = read()
    made = create_engine(spec, engine)
    if key is not None and path is not None:
        with contextlib.suppress(OSError, MemoryError):
            if _is_seen(path) and find_key() == key:
                keep(path, key, spec, made)
                _trim(path.parent)
                _seen_mark(path).unlink(missing_ok=True)
    return spec, made


def is_used(engine: str = "auto") -> bool:
    """Whether compiled files are used for an engine of this name."""
    is_on = HAS_OPEN_FOLDERS and os.environ.get(COMPILED_VARIABLE) != "off"
    return is_on and choose_engine(engine).name == "native"


def key_of(*parts: bytes) -> bytes:
    """The key of a source of these parts."""
    digest = hashlib.sha256(_HASH_OF_READERS)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def key_of_path(path: StrPath, *, ids: str | None = None) -> bytes | None:
    """The key of a file or a model folder. None if it cannot be read, for a folder whose loading
    may warn, and for a file of which other `ids` than its own are asked, which is refused."""
    try:
        whole = Path(os.path.realpath(path))
        if not whole.is_dir():
            if ids not in (None, "file"):
                return None
            data = read_whole_file(whole, max_bytes=_MAX_SOURCE_BYTES)
            return key_of(b"file", os.fsencode(Path(path).name), data)
        entries = sorted(whole.iterdir())
        names = {entry.name for entry in entries}
        if {"tokenizer.json", "tokenizer.model"} <= names:  # is warned of if the two differ
            return None
        entries += sorted((whole / "additional_chat_templates").glob("*"))
        parts, room = [b"folder", (ids or "").encode()], _MAX_SOURCE_BYTES
        for entry in entries:
            parts.append(os.fsencode(entry.relative_to(whole)))
            if entry.suffix in _SOURCE_SUFFIXES and entry.is_file():
                parts.append(read_whole_file(entry, max_bytes=room))
                room -= len(parts[-1])
        return key_of(*parts)
    except (OSError, FormatError):
        return None


def find(path: Path, key: bytes, shared: Path | None = None) -> tuple[TokenizerSpec, Engine] | None:
    """The tokenizer in the compiled file of this key; None without one that can be used. `shared`
    as for `load`."""
    if shared is not None:
        # One process copies the file, and the others wait for it.
        with contextlib.suppress(OSError), _locked(shared):
            copy = _copy_shared(shared, path, key)
            if copy is not None:
                found = _open(copy, key)
                if found is None:
                    os.close(copy)
                else:
                    _announce(shared, key, copy, found[1])
                return found
    with contextlib.suppress(OSError):
        with _opened(path) as descriptor:
            found = _open(descriptor, key)
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of its last use
        return found
    return None


def _open(descriptor: int, key: bytes) -> tuple[TokenizerSpec, Engine] | None:
    compiled = open_compiled(descriptor, key)
    if compiled is None:
        return None
    encoder, read_section = compiled.encoder, compiled.extra

    # Takes the spec: with it in its closure, both would wait for a collection of garbage.
    def read_tables(spec: TokenizerSpec) -> tuple[Mapping[int, bytes], tuple[Merge, ...]]:
        vocab = encoder.vocab() | dict.fromkeys(spec.empty_ids, b"")
        sides = map(vocab.__getitem__, array("I", read_section("merges")))
        return dict(sorted(vocab.items())), tuple(zip(sides, sides, strict=True))

    spec = parse_spec(read_section("spec"), read_tables)
    return spec, NativeEngine(spec, encoder)


def keep(path: Path, key: bytes, spec: TokenizerSpec, engine: Engine) -> None:
    """Write the compiled file of a spec and its engine, if that can be compiled.

    Raises:
        OSError: it cannot be written; there is the file as before, or none.
    """
    if not isinstance(engine, NativeEngine):
        return
    ids = spec.merge_ids if spec.kind == "merges" else array("I")
    sides = array("I", bytes(8 * (len(ids) // 3)))
    sides[::2], sides[1::2] = ids[::3], ids[1::3]
    data = engine.compile(key, {"spec": render_spec(spec), "merges": sides.tobytes()})
    if data is None:
        return
    with replacing(path) as staged:
        write_synced(staged, data, mode=0o444)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a file that nobody else can have written."""
    descriptor = open_to_read(path)
    try:
        if not _is_protected(path, os.fstat(descriptor)):
            raise PermissionError(errno.EPERM, "another user may have written it", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


def _copy_shared(folder: Path, path: Path, key: bytes) -> int | None:
    """A descriptor of memory that nobody can change, with the content of the compiled file: that
    of another process, or a copy. None where the system has no such memory."""
    for told in folder.glob(f"{key.hex()}.*"):
        with contextlib.suppress(OSError, ValueError):
            with _opened(told) as descriptor:
                number = int(os.read(descriptor, 20))
            copy = os.open(f"/proc/{int(told.suffix[1:])}/fd/{number}", os.O_RDONLY)
            # The process may have ended, and its number and this one may be of others now.
            if is_sealed(copy) and os.fstat(copy).st_uid == os.geteuid():
                return copy
            os.close(copy)
    with _opened(path) as descriptor:
        return sealed_copy(descriptor)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    late = TimeoutError(f"another process keeps {folder.name} locked")
    with hold_lock(folder / ".lock", timeout_seconds=_LOCK_SECONDS, refusal=late):
        yield


def _announce(folder: Path, key: bytes, copy: int, engine: Engine) -> None:
    """Keep the memory open as long as there is the engine, and tell other processes its number."""
    path = folder / f"{key.hex()}.{os.getpid()}"
    weakref.finalize(engine, _withdraw, path, copy, os.getpid())
    with contextlib.suppress(OSError), replacing(path) as staged:
        staged.write_bytes(b"%d" % copy)


def _withdraw(path: Path, copy: int, pid: int) -> None:
    os.close(copy)
    if os.getpid() == pid:  # not in a child of a fork
        with contextlib.suppress(OSError):
            path.unlink()


def _cache_folder() -> Path | None:
    try:
        return user_cache_folder() / "compiled"
    except RuntimeError:  # no home
        return None


def _seen_mark(path: Path) -> Path:
    return path.with_name(path.name + _SEEN)


def _is_seen(path: Path) -> bool:
    """Whether the source of this file was loaded before; leaves the mark that it now was."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        _seen_mark(path).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return True
    return False


def _is_protected(path: Path, status: os.stat_result) -> bool:
    """Whether nobody else can have written this file, or put another one in its place."""
    own, writable = (0, os.geteuid()), stat.S_IWGRP | stat.S_IWOTH
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in own or status.st_mode & writable:
        return False
    for folder in Path(os.path.realpath(path)).parents:
        above = folder.stat()
        is_open = above.st_mode & writable and not above.st_mode & stat.S_ISVTX
        if above.st_uid not in own or is_open:
            return False
    return True


def _trim(folder: Path) -> None:
    """Remove the files that were not used for the longest time, if there are too many."""
    with os.scandir(folder) as found:
        entries = [(entry.stat(), entry.path) for entry in found]
    entries.sort(key=lambda entry: entry[0].st_mtime)
    total, n_files = sum(status.st_size for status, _ in entries), len(entries)
    for status, path in entries:
        if total <= MAX_CACHE_BYTES and n_files <= _MAX_FILES:
            return
        Path(path).unlink(missing_ok=True)
        total, n_files = total - status.st_size, n_files - 1


def _hash_readers() -> bytes:
    package, digest = os.path.dirname(__file__), hashlib.sha256()  # noqa: PTH120 - as for os.walk
    digest.update(f"{sys.version_info[:3]} {unicodedata.unidata_version}".encode())
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(_READERS.intersection(folders) if folder == package else folders)
        for name in sorted(name for name in names if name.endswith(".py")):
            with open(os.path.join(folder, name), "rb", buffering=0) as file:  # noqa: PTH118, PTH123
                digest.update(file.read())
    return digest.digest()


# At import: this process keeps its code even if another version is checked out.
_HASH_OF_READERS: Final = _hash_readers()
"""Of the modules that make a tokenizer of its source, and of the Python that runs them. A version
number would not tell two states of a checkout apart."""
