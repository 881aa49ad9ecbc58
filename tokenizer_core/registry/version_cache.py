"""VersionCache: what this host has of the versions of a store elsewhere, laid out as in a folder's.

What is here was verified before it was put here, and is verified again whenever it is opened. Any
number of processes use the folder at once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING, Final

from tokenizer_core.registry import folders
from tokenizer_core.registry.artifact_ref import VERSION, checked_name, checked_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

CACHED_VERSIONS: Final = 32
_LEFT_OVER_AFTER_SECONDS: Final = 86400.0


class VersionCache:
    """At most `CACHED_VERSIONS` below `folder`: those that were opened last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizers = folder / "tokenizers"
        self._staging = self._tokenizers / ".staging"

    def has(self, name: str, version: str) -> bool:
        """Whether it is here, sound or damaged; raises ArtifactNameError."""
        return self._path(name, version).is_dir()

    def versions(self, name: str) -> list[str]:
        """The versions of a name that are here, oldest first."""
        cached = self._tokenizers / checked_name(name)
        return sorted(path.name for path in cached.glob("*") if VERSION.fullmatch(path.name))

    @contextlib.contextmanager
    def opened(self, name: str, version: str) -> Iterator[int]:
        """A descriptor of the folder of a version that is here; it has been used now."""
        os.utime(self._path(name, version))
        with folders.open_folder(self._folder, "tokenizers", name, version) as folder:
            yield folder

    @contextlib.contextmanager
    def staged(self, files: Mapping[str, bytes]) -> Iterator[Path]:
        """A folder with `files`, in which a version is made; it is gone afterwards."""
        path = self._staging / secrets.token_hex(8)
        path.mkdir(parents=True)
        try:
            for name, data in files.items():
                (path / name).write_bytes(data)
            yield path
        finally:
            folders.remove_folder(path)

    def put(self, staged: Path, name: str, version: str) -> None:
        """Have what was staged and verified as a version, unless another process was first."""
        path = self._path(name, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            staged.rename(path)

    def drop(self, name: str, version: str) -> None:
        """Have a version no more."""
        folders.remove_folder(self._path(name, version))

    def trim(self, served: Callable[[], str | None]) -> None:
        """Let go of what was not used for longest, but never of `served`, a `name@version`; and of
        what killed processes left a day ago."""
        with contextlib.suppress(OSError):
            limit = time.time() - _LEFT_OVER_AFTER_SECONDS
            for path in self._staging.glob("*"):
                if path.stat().st_mtime < limit:
                    folders.remove_folder(path)
            cached = [p for p in self._tokenizers.glob("*/*") if VERSION.fullmatch(p.name)]
            cached.sort(key=lambda path: path.stat().st_mtime, reverse=True)
            kept = served() if cached[CACHED_VERSIONS:] else None
            for path in cached[CACHED_VERSIONS:]:
                if f"{path.parent.name}@{path.name}" != kept:
                    folders.remove_folder(path)

    def _path(self, name: str, version: str) -> Path:
        return self._tokenizers / checked_name(name) / checked_version(version)
