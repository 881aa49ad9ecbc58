"""Compiled tokenizers: what loading computes, in a file, so that the next load does not.

The name of a file is its key, a hash of all that the tokenizer follows from: the bytes of its
source and the modules that read it. A file of another source is therefore never found, and one that
is damaged or was made by another engine is refused when it is opened. A published version has the
file in its folder; a service that finds none there writes it. The second load of any other source
writes it into the cache folder of the user.

A file is used, and written, only where nobody but its user, or root, can write. Whatever keeps it
from being read or written, the tokenizer is loaded from its source, silently. Processes that share
a tokenizer need no file: the first one copies what it loaded into memory that cannot be changed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
import unicodedata
import weakref
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import (
    make_folder,
    read_whole_file,
    replacing,
    write_synced,
)
from tokenizer_core.blobs.local_files import (
    HAS_OPEN_FOLDERS,
    HAS_SEALED_MEMORY,
    is_sealed,
    open_to_read,
    sealed_copy,
    user_cache_folder,
)
from tokenizer_core.blobs.locks import hold_lock
from tokenizer_core.engines import choose_engine, create_engine
from tokenizer_core.engines.native_engine import NativeEngine, open_compiled
from tokenizer_core.errors import EngineUnavailableError, FormatError
from tokenizer_core.spec.stored import parse_spec, render_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokenizer_core.engines import Engine
    from tokenizer_core.spec import Merge, TokenizerSpec

    StrPath = str | os.PathLike[str]

COMPILED_VARIABLE: Final = "TOKENIZER_COMPILED"
"""`off` neither reads nor writes compiled files."""

_OFF: Final = frozenset(("off", "0", "false", "no", "f", "n"))
_ON: Final = frozenset(("", "on", "1", "true", "yes", "t", "y"))
"""The words that the service takes in its settings."""

MAX_CACHE_BYTES: Final = 512 << 20
"""Of the cache folder; the files that were not used for the longest time are removed."""

_MAX_SOURCE_BYTES: Final = 256 << 20
_SOURCE_SUFFIXES: Final = (".json", ".txt", ".model", ".jinja", ".pkl", ".tiktoken")
"""Of all files in a model folder that a tokenizer may follow from; never of weights."""

_SEEN: Final = ".seen"  # after the key: the name of the mark that the first load leaves
_MAX_FILES: Final = 4096
_LOCK_SECONDS: Final = 20.0  # the first process may load from a large source meanwhile
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
    `beside`: where the file of a published version is. `shared`: a folder by which the processes
    of a service on this host share one copy in memory; they also write the file `beside`.

    Raises:
        Exception: as `find_key`, `read` and `create_engine`.
    """
    key = find_key() if is_used(engine) else None
    if key is None:
        spec = read()
        return spec, create_engine(spec, engine)
    folder = _cache_folder()
    cached = None if folder is None else folder / key.hex()
    places = (None if shared is None else beside, cached)
    # One process loads the tokenizer, and the others wait for it.
    with _locked(shared) as shared:
        found = None if shared is None else _find_shared(shared, key)
        for path in (beside, cached):
            if found is None and path is not None:
                found = find(path, key, shared)
        if found is not None:
            return found
        spec = read()
        made = create_engine(spec, engine)
        with contextlib.suppress(OSError, MemoryError):
            path = next((path for path in places if path and _may_keep(path)), None)
            if path is not None and path == cached and not _is_seen(path):
                path = None
            data = _compile(key, spec, made) if path or shared else None
            if data is not None and find_key() == key:
                if shared is not None:
                    with contextlib.suppress(OSError):
                        found = _share(shared, key, data)
                if path is not None:
                    _write(path, data, is_cached=path == cached)
        return found or (spec, made)


def is_used(engine: str = "auto") -> bool:
    """Whether compiled files are used for an engine of this name.

    Raises:
        EngineUnavailableError: TOKENIZER_COMPILED is neither on nor off, or as `choose_engine`.
        ValueError: as `choose_engine`.
    """
    word = os.environ.get(COMPILED_VARIABLE, "").lower()
    if word not in _OFF | _ON:
        raise EngineUnavailableError(f"{COMPILED_VARIABLE} is {word!a:.40}, and may be on or off")
    can_use = HAS_OPEN_FOLDERS and bool(_HASH_OF_READERS)
    return can_use and word in _ON and choose_engine(engine).name == "native"


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
    as for `load`, which holds its lock."""
    with contextlib.suppress(OSError):
        with _opened(path) as descriptor:
            found = None
            if shared is not None:
                with contextlib.suppress(OSError):
                    found = _share(shared, key, descriptor)
            found = found or _open(descriptor, key)
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
    """Write the compiled file of a spec and its engine, if that can be compiled and would be used.

    Raises:
        OSError: it cannot be written; there is the file as before, or none.
    """
    data = _compile(key, spec, engine) if _may_keep(path) else None
    if data is not None:
        _write(path, data)


def withdraw(shared: Path) -> None:
    """Share no more of this process's memory by the folder `shared`, before the process ends: one
    that ends by `os._exit`, as a worker does, runs no finalizers."""
    with contextlib.suppress(OSError):
        for told in shared.glob(f"*.{_this_process()}") if HAS_SEALED_MEMORY else ():
            told.unlink(missing_ok=True)


def _compile(key: bytes, spec: TokenizerSpec, engine: Engine) -> bytes | None:
    """The content of the compiled file; None if the tokenizer cannot be compiled."""
    if not isinstance(engine, NativeEngine):
        return None
    ids = spec.merge_ids if spec.kind == "merges" else array("I")
    sides = array("I", bytes(8 * (len(ids) // 3)))
    sides[::2], sides[1::2] = ids[::3], ids[1::3]
    return engine.compile(key, {"spec": render_spec(spec), "merges": sides.tobytes()})


def _may_keep(path: Path) -> bool:
    """Whether a file at `path` could be written, and would be used. Makes no folder."""
    try:
        folder = next(folder for folder in path.parents if folder.exists())
        return os.access(folder, os.W_OK) and _is_protected_folder(folder)
    except OSError:
        return False


def _write(path: Path, data: bytes, *, is_cached: bool = False) -> None:
    if is_cached and len(data) > _max_cache_bytes(path.parent):
        return
    for left in path.parent.glob(f".{path.name}.*"):  # of a process that was killed meanwhile
        left.unlink(missing_ok=True)
    with replacing(path) as staged:
        write_synced(staged, data, mode=0o444)
    if is_cached:
        _trim(path.parent)
        _seen_mark(path).unlink(missing_ok=True)


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


@contextlib.contextmanager
def _locked(shared: Path | None) -> Iterator[Path | None]:
    """The folder by which processes share memory, while no other process uses it; None if they
    cannot share any."""
    with contextlib.ExitStack() as held:
        usable = None
        if shared is not None and HAS_SEALED_MEMORY:
            late = TimeoutError(f"another process keeps {shared.name} locked")
            lock = hold_lock(shared / ".lock", timeout_seconds=_LOCK_SECONDS, refusal=late)
            with contextlib.suppress(OSError):
                shared.mkdir(mode=0o700, parents=True, exist_ok=True)
                held.enter_context(lock)
                usable = shared
        yield usable


def _find_shared(folder: Path, key: bytes) -> tuple[TokenizerSpec, Engine] | None:
    """The tokenizer in the memory of another process of this host; None if no process has it.

    The files that name the memory need no protection: only a process of this user can have made
    sealed memory that belongs to this user.
    """
    for told in folder.glob(f"{key.hex()}.{_this_host()}-*"):
        with contextlib.suppress(OSError, ValueError):
            copy = open_to_read(f"/proc/{int(told.name.rpartition('-')[2])}/fd/{int(_first(told))}")
            # The process may have ended, and its number and this one may be of others now.
            if is_sealed(copy) and os.fstat(copy).st_uid == os.geteuid():
                found = _open_shared(folder, key, copy)
                if found is not None:
                    return found
            else:
                os.close(copy)
        with contextlib.suppress(OSError):
            told.unlink()
    return None


def _first(told: Path) -> bytes:
    descriptor = open_to_read(told)
    try:
        return os.read(descriptor, 20)
    finally:
        os.close(descriptor)


def _share(folder: Path, key: bytes, content: int | bytes) -> tuple[TokenizerSpec, Engine] | None:
    """The tokenizer in a copy of `content`, bytes or an open file, which other processes find."""
    return _open_shared(folder, key, sealed_copy(content))


def _open_shared(folder: Path, key: bytes, copy: int) -> tuple[TokenizerSpec, Engine] | None:
    """The tokenizer in sealed memory, which stays open as long as its engine; None if it cannot be
    used. Other processes find it by a file in `folder`."""
    found = None
    try:
        found = _open(copy, key)
    finally:
        if found is None:
            os.close(copy)
    if found is None:
        return None
    path = folder / f"{key.hex()}.{_this_process()}"
    weakref.finalize(found[1], _withdraw, path, copy, os.getpid())
    with contextlib.suppress(OSError), replacing(path) as staged:
        staged.write_bytes(b"%d" % copy)
    return found


def _withdraw(path: Path, copy: int, pid: int) -> None:
    os.close(copy)
    if os.getpid() == pid:  # not in a child of a fork
        with contextlib.suppress(OSError):
            path.unlink()


def _this_process() -> str:
    return f"{_this_host()}-{os.getpid()}"


def _this_host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", os.uname().nodename)[:64]


def _cache_folder() -> Path | None:
    try:
        return user_cache_folder() / "compiled"
    except RuntimeError:  # no home
        return None


def _seen_mark(path: Path) -> Path:
    return path.with_name(path.name + _SEEN)


def _is_seen(path: Path) -> bool:
    """Whether the source of this file was loaded before; leaves the mark that it now was."""
    try:
        make_folder(path.parent, mode=0o700)
        _seen_mark(path).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return True
    except OSError:
        pass  # the file could not be written either
    return False


def _is_protected(path: Path, status: os.stat_result) -> bool:
    """Whether nobody else can have written this file, or put another one in its place."""
    return (
        stat.S_ISREG(status.st_mode)
        and _is_own(path, status)
        and _is_protected_folder(Path(os.path.realpath(path)).parent)
    )


def _is_protected_folder(folder: Path) -> bool:
    """Whether nobody else can put another file in the place of one in this folder."""
    folder = Path(os.path.realpath(folder))
    return all(_is_own(each, each.stat()) for each in (folder, *folder.parents))


def _is_own(path: Path, status: os.stat_result) -> bool:
    """Whether a file or folder is this user's or root's and nobody else can write to it. In a
    folder with the sticky bit, others cannot replace what is not theirs."""
    mode, user = status.st_mode, os.geteuid()
    if status.st_uid not in (0, user):
        return False
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        return True
    if mode & stat.S_IWGRP and not _is_group_of_one(path, status.st_gid, user):
        return False
    return not mode & stat.S_IWOTH


def _is_group_of_one(path: Path, group: int, user: int) -> bool:
    """Whether a group that may write to `path` is the private one of this user: it has the user's
    number, as useradd and Kubernetes' fsGroup make it, and no other member."""
    import grp
    import pwd

    if group != user or not hasattr(os, "listxattr"):
        return False
    if any("acl" in name for name in os.listxattr(path)):  # the bits may be those of other users
        return False
    users = pwd.getpwall()
    others = {each.pw_uid for each in users if each.pw_gid == group} - {user}
    try:
        members = {*grp.getgrgid(group).gr_mem}
    except KeyError:  # it has no name, and so no list of members
        members = set()
    return not others and members <= {each.pw_name for each in users if each.pw_uid == user}


def _max_cache_bytes(folder: Path) -> int:
    """What the files of the cache folder may take: half of what is free without them."""
    free = os.statvfs(folder)
    with os.scandir(folder) as found:
        total = sum(entry.stat().st_size for entry in found)
    return min(MAX_CACHE_BYTES, (free.f_bavail * free.f_frsize + total) // 2)


def _trim(folder: Path) -> None:
    """Remove the files that were not used for the longest time, if there are too many."""
    with os.scandir(folder) as found:
        entries = [(entry.stat(), entry.path) for entry in found]
    entries.sort(key=lambda entry: entry[0].st_mtime)
    limit = _max_cache_bytes(folder)
    total, n_files = sum(status.st_size for status, _ in entries), len(entries)
    for status, path in entries:
        if total <= limit and n_files <= _MAX_FILES:
            return
        Path(path).unlink(missing_ok=True)
        total, n_files = total - status.st_size, n_files - 1


def _hash_readers() -> bytes:
    package, digest = os.path.dirname(__file__), hashlib.sha256()  # noqa: PTH120 - as for os.walk
    digest.update(f"{sys.version_info[:3]} {unicodedata.unidata_version}".encode())
    n_read = 0
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(_READERS.intersection(folders) if folder == package else folders)
        for name in sorted(name for name in names if name.endswith(".py")):
            with open(os.path.join(folder, name), "rb", buffering=0) as file:  # noqa: PTH118, PTH123
                digest.update(file.read())
            n_read += 1
    return digest.digest() if n_read else b""


# At import: this process keeps its code even if another version is checked out.
_HASH_OF_READERS: Final = _hash_readers()
"""Of the modules that make a tokenizer of its source, and of the Python that runs them. A version
number would not tell two states of a checkout apart. Empty where the sources are not there, as in
a program of PyInstaller: nothing would tell two releases apart."""
