"""A shard of a run: any number of workers may attempt it, and one commits it.

Each attempt writes its files under a random name, `attempts/<stage>/<shard>-<random>/`, so no
attempt overwrites another. To commit, it creates the manifest `<stage>/<shard>.json`, which names
these files. A second worker, even one that was suspended for an hour, finds that manifest and
discards its own files. So a committed shard never changes, and its files exist before its manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs.atomic_files import is_stream, replacing
from tokenizer_core.blobs.locks import locked_folder
from tokenizer_core.blobs.protocol import Storage
from tokenizer_core.errors import FormatError, RunError, StorageError, StorageMissingError
from tokenizer_core.formats.sealed_json import SealedFormat
from tokenizer_core.parallel import map_ahead
from tokenizer_core.strict_json import parse_record

MAX_MANIFEST_BYTES: Final = 1 << 24

_SCRATCH: Final = "tokenizer-run-"
_THREADS: Final = 16
_MANIFEST: Final = SealedFormat("run-shard", 1, "a shard of a run", MAX_MANIFEST_BYTES)


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file of a committed shard: its name in the storage, its size and hash."""

    name: str
    size_bytes: int
    sha256: str

    def fetch(self, storage: Storage, path: Path) -> None:
        """Copy it to `path`, whole or not at all, and verify its size and hash. A link stays, and a
        device or pipe is written.

        Raises:
            RunError: the file is gone or damaged.
            StorageError: the storage cannot be read.
            OSError: `path` cannot be written.
        """
        if is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                self.fetch(storage, copy := Path(folder, "whole"))
                with copy.open("rb") as file, path.open("wb") as target:
                    shutil.copyfileobj(file, target)
            return
        try:
            with replacing(Path(os.path.realpath(path))) as staged:
                storage.fetch(self.name, staged)
                if staged.stat().st_size != self.size_bytes or _sha256_of(staged) != self.sha256:
                    raise self._damaged(storage, "not what was written")
        except StorageMissingError:
            raise self._damaged(storage, "gone") from None

    def _damaged(self, storage: Storage, what: str) -> RunError:
        return RunError(
            f"{self.name} in {storage.shown} is {what}; remove the run's storage and run it again"
        )


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """The result of a shard: its files, by the names that its work chose, and figures
    (JSON)."""

    stage: str
    shard: int
    files: Mapping[str, CommittedFile]
    figures: Mapping[str, Any]

    def render(self) -> bytes:
        """The content of the manifest file."""
        return _MANIFEST.render(asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> ShardManifest:
        """The manifest that `render` wrote.

        Raises:
            FormatError: the content is not a manifest, or was changed.
            KeyError, TypeError, ValueError, AttributeError: as `parse_record`.
        """
        parsed: ShardManifest = parse_record(cls, _MANIFEST.parse(data))
        return parsed


def manifest_name(run_id: str, stage: str, shard: int) -> str:
    """The name of a shard's manifest in the storage."""
    return f"{run_id}/{stage}/{shard:06d}.json"


def read_manifest(storage: Storage, run_id: str, stage: str, shard: int) -> ShardManifest | None:
    """The manifest of a shard, if it is committed.

    Raises:
        RunError: the manifest is damaged or that of another shard.
        StorageError: the storage cannot be read.
    """
    name = manifest_name(run_id, stage, shard)
    found = storage.read_versioned(name, max_bytes=MAX_MANIFEST_BYTES)
    if found is None:
        return None
    try:
        manifest = ShardManifest.parse(found.data)
        if (manifest.stage, manifest.shard) == (stage, shard):
            return manifest
    except (FormatError, KeyError, TypeError, ValueError, AttributeError):
        pass
    raise RunError(
        f"{name} in {storage.shown} is damaged; remove the run's storage and run it again"
    )


class Attempt:
    """One attempt at a shard: a scratch folder, and files for the storage.

    `scratch` is removed when the attempt ends; the next attempt on the machine removes what a
    killed process left.
    """

    def __init__(self, storage: Storage, run_id: str, stage: str, shard: int, scratch: Path):
        self.storage, self.scratch = storage, scratch
        self._run_id, self._stage, self._shard = run_id, stage, shard
        self._prefix = f"{run_id}/attempts/{stage}/{shard:06d}-{secrets.token_hex(8)}"
        self._files: dict[str, CommittedFile] = {}

    def put(self, name: str, source: bytes | Path) -> None:
        """Write a file of the shard: bytes, or the file at a path.

        Raises:
            StorageError: the storage cannot be written.
        """
        stored = f"{self._prefix}/{name}"
        if isinstance(source, bytes):
            size, digest = len(source), hashlib.sha256(source).hexdigest()
        else:
            size, digest = source.stat().st_size, _sha256_of(source)
        self._files[name] = CommittedFile(stored, size, digest)
        self.storage.put(stored, source)

    def put_all(self, files: Mapping[str, Path]) -> None:
        """As `put`, with several requests at once, because each response is slow."""
        put = map_ahead(lambda named: self.put(*named), files.items(), num_threads=_THREADS)
        deque(put, maxlen=0)

    def commit(self, figures: Mapping[str, Any]) -> ShardManifest:
        """Commit the shard; return its manifest, or that of another attempt which committed it
        first.

        Raises:
            StorageError: the storage cannot be written.
        """
        manifest = ShardManifest(self._stage, self._shard, dict(self._files), dict(figures))
        name = manifest_name(self._run_id, self._stage, self._shard)
        if self.storage.create(name, manifest.render()):
            return manifest
        found = read_manifest(self.storage, self._run_id, self._stage, self._shard)
        if found is None:
            raise RunError(f"{name} was removed while the run was under way; run it again")
        # After a lost response, the existing manifest may be this attempt's own.
        if found.files != manifest.files:
            self.discard()
        return found

    def discard(self) -> None:
        """Remove the files written so far, as far as possible; leftovers do no harm."""
        for file in self._files.values():
            with contextlib.suppress(StorageError):
                self.storage.remove(file.name)


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder for one attempt, locked while it is used. Folders of killed processes are removed
    first.

    Raises:
        OSError: the disk is full or cannot be used.
    """
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), locked_folder(left, wait=False):
            shutil.rmtree(left, ignore_errors=True)
    # Use another name until the folder is locked: other processes remove unlocked folders.
    unlocked = Path(tempfile.mkdtemp(prefix=".", dir=parent))
    folder = unlocked.with_name(f"{_SCRATCH}{unlocked.name[1:]}")
    try:
        with locked_folder(unlocked, wait=False):
            unlocked.rename(folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
