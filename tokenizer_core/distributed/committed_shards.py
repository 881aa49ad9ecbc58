"""A shard of a run: tried by any number of workers, committed by one.

Each attempt writes under names of its own, `attempts/<stage>/<shard>-<random>/`, so none writes
over another; a manifest that names these files is created, where none is, as
`<stage>/<shard>.json`. Whoever comes second, be it after an hour of standing still, finds it and
throws its own files away. So what is committed never changes, and a manifest's files are there
before it is.

Apart from `runs` because this is all that a worker needs.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs import Storage
from tokenizer_core.blobs.atomic_files import replacing
from tokenizer_core.blobs.locks import locked_folder
from tokenizer_core.errors import FormatError, RunError, StorageError, StorageMissingError
from tokenizer_core.formats.sealed_json import SealedFormat
from tokenizer_core.parallel import map_ahead

MAX_MANIFEST_BYTES: Final = 1 << 24

_SCRATCH: Final = "tokenizer-run-"
_THREADS: Final = 16
_MANIFEST: Final = SealedFormat("run-shard", 1, "a shard of a run", MAX_MANIFEST_BYTES)


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file of a committed shard: its name in the storage, and what must be there."""

    name: str
    size_bytes: int
    sha256: str

    def fetch(self, storage: Storage, path: Path) -> None:
        """Copy it to `path`, whole or not at all, and see that it is what was committed.

        Raises:
            RunError: it is gone, or something else.
            StorageError: the storage cannot be read.
            OSError: `path` cannot be written.
        """
        try:
            with replacing(path) as staged:
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
    """What a shard came to: its files, by the names its work gave them, and figures (JSON)."""

    stage: str
    shard: int
    files: Mapping[str, CommittedFile]
    figures: Mapping[str, Any]

    def render(self) -> bytes:
        """Its bytes in the storage."""
        return _MANIFEST.render(asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> ShardManifest:
        """Back from `render`.

        Raises:
            FormatError: it is none, or was changed: figures that are another's would go unseen.
        """
        fields = _MANIFEST.parse(data)
        files = {str(name): CommittedFile(**file) for name, file in fields["files"].items()}
        return cls(str(fields["stage"]), int(fields["shard"]), files, dict(fields["figures"]))


def manifest_name(run_id: str, stage: str, shard: int) -> str:
    """Where the manifest of a shard is."""
    return f"{run_id}/{stage}/{shard:06d}.json"


def read_manifest(storage: Storage, run_id: str, stage: str, shard: int) -> ShardManifest | None:
    """The manifest of a shard, if it is committed.

    Raises:
        RunError: what is there is no manifest of it.
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
    except FormatError:
        pass
    raise RunError(
        f"{name} in {storage.shown} is damaged; remove the run's storage and run it again"
    )


class Attempt:
    """One try at a shard: a folder for what is made on the way, and files for the storage.

    `scratch` goes when the attempt ends; what a killed process left of one goes when the next
    begins on that machine.
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
        """As `put`, a store being asked for many at once, as it takes its time for each."""
        deque(map_ahead(self._put_named, files.items(), num_threads=_THREADS), maxlen=0)

    def _put_named(self, named: tuple[str, Path]) -> None:
        self.put(*named)

    def commit(self, figures: Mapping[str, Any]) -> ShardManifest:
        """The shard's manifest: with these files, or of who was there first.

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
        # Where an answer was lost and asked for again, one may come second to oneself.
        if found.files != manifest.files:
            self.discard()
        return found

    def discard(self) -> None:
        """Remove what was written; what cannot be removed now is only in the way."""
        for file in self._files.values():
            with contextlib.suppress(StorageError):
                self.storage.remove(file.name)


@contextlib.contextmanager
def scratch_folder(above: Path | None = None) -> Iterator[Path]:
    """A folder for one attempt, locked as long as this process lives; those whose process was
    killed are removed first.

    Raises:
        OSError: the disk is full or cannot be used.
    """
    above = above or Path(tempfile.gettempdir())
    for left in above.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), locked_folder(left, wait=False):
            shutil.rmtree(left, ignore_errors=True)
    # Under another name until it is locked, so that nobody takes it for a dead one's.
    unlocked = Path(tempfile.mkdtemp(prefix=".", dir=above))
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
