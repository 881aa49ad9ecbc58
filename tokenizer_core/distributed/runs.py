"""Run: stages of numbered shards, carried out by an executor, gone on from where they were.

What is committed in the run's storage is done; the rest is handed out, and what failed is handed
out again, a few times. Nothing else is remembered, so a run may be interrupted anywhere, and be
carried out twice at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs import Storage, open_storage
from tokenizer_core.distributed.committed_shards import (
    MAX_MANIFEST_BYTES,
    Attempt,
    ShardManifest,
    read_manifest,
    scratch_folder,
)
from tokenizer_core.errors import (
    CorpusError,
    RunConflictError,
    RunError,
    ShardFailedError,
    StorageError,
    TokenizerCoreError,
)
from tokenizer_core.parallel import Executor, TaskFailure, map_ahead

MAX_ATTEMPTS: Final = 3
"""How often a shard is tried; a shard that fails each time would fail for ever."""

MANY_FAILURES: Final = 64
"""So many in a row are not one shard's fault: these are tried again before the others, so that a
run that cannot work stops without having tried all of its shards."""

_RUN: Final = "run.json"
_NUMBER: Final = re.compile(r"/(\d{6,})\.json\Z")
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Stage:
    """Shards of one kind. `work(state, payload, attempt)` does one of them and returns its figures
    (JSON); it is found by name in a module. `payloads`: what differs from shard to shard."""

    name: str
    work: Callable[[Any, Any, Attempt], Mapping[str, Any]]
    payloads: Sequence[Any]
    state: Any = None


@dataclass(frozen=True, slots=True)
class _Task:
    stage: str
    shard: int
    payload: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Work:
    """What every worker is told once. The storage by its address: it is opened there."""

    place: str
    run_id: str
    scratch: Path | None
    stages: Mapping[str, tuple[Callable[[Any, Any, Attempt], Mapping[str, Any]], Any]]


class Run:
    """A run in a storage, which holds no other.

    `identity` (JSON) is all that decides what comes out: inputs, settings, versions.

    Example:
        >>> import tempfile; place = tempfile.mkdtemp()
        >>> run = Run(place, {"inputs": ["a"]})
        >>> Run(place, {"inputs": ["b"]})
        Traceback (most recent call last):
        ...
        tokenizer_core.errors.RunConflictError: ... holds another run (inputs differ); ...
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        identity: Mapping[str, Any],
        *,
        scratch: Path | None = None,
    ) -> None:
        """Open the storage at `place`, a folder that all workers share or an address.

        `scratch`: the folder in which workers keep what they are at; by default the system's.

        Raises:
            RunConflictError: the storage holds a run with another identity.
            StorageError: the storage cannot be used.
        """
        text = os.fspath(place)
        self._place = text if "://" in text else str(Path(text).absolute())
        self._scratch = scratch
        self.storage: Storage = open_storage(self._place)
        rendered = json.dumps(identity, sort_keys=True).encode("ascii")
        # All names begin with it: what a late worker of another run writes is not looked at.
        self.id = hashlib.sha256(rendered).hexdigest()[:16]
        if not self.storage.create(_RUN, rendered):
            _check_same(self.storage, rendered)

    def carry_out(
        self,
        stages: Sequence[Stage],
        executor: Executor,
        *,
        on_commit: Callable[[ShardManifest], object] | None = None,
        while_waiting: Callable[[], object] | None = None,
    ) -> dict[str, list[ShardManifest]]:
        """Do all shards of these stages; the manifests of each, in the order of its shards.

        `on_commit` is called for each shard once, also for those committed before. Raises as
        `commits`.
        """
        done: dict[str, dict[int, ShardManifest]] = {stage.name: {} for stage in stages}
        manifests = self.commits(stages, executor, while_waiting=while_waiting)
        with contextlib.closing(manifests):
            for manifest in manifests:
                done[manifest.stage][manifest.shard] = manifest
                if on_commit is not None:
                    on_commit(manifest)
        return {name: [of[shard] for shard in sorted(of)] for name, of in done.items()}

    def commits(
        self,
        stages: Sequence[Stage],
        executor: Executor,
        *,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[ShardManifest, None, None]:
        """The manifests of all shards of these stages: first those committed before, then the
        others as they are done, side by side, begun in this order. Closing it ends the work.

        Raises:
            ShardFailedError: one failed `MAX_ATTEMPTS` times.
            CorpusError: the input of one is no such thing; trying again would not help.
            WorkerProcessError: the executor has no workers.
            StorageError: the storage cannot be used.
        """
        done = {stage.name: self._found(stage) for stage in stages}
        for manifests in done.values():
            yield from manifests.values()
        waiting = [
            _Task(stage.name, shard, payload)
            for stage in stages
            for shard, payload in enumerate(stage.payloads)
            if shard not in done[stage.name]
        ]
        work = _Work(
            self._place, self.id, self._scratch, {s.name: (s.work, s.state) for s in stages}
        )
        strikes: Counter[tuple[str, int]] = Counter()
        while waiting:
            failed, left, n_in_a_row = [], dict(enumerate(waiting)), 0
            results = executor.run(_attempt, waiting, state=work, while_waiting=while_waiting)
            with contextlib.closing(results):
                for index, result in results:
                    task = left.pop(index)
                    if not isinstance(result, TaskFailure):
                        n_in_a_row = 0
                        yield result
                        continue
                    strikes[task.stage, task.shard] += 1
                    _check_may_be_tried(task, strikes[task.stage, task.shard], result.reason)
                    failed.append(task)
                    n_in_a_row += 1
                    if n_in_a_row >= MANY_FAILURES:
                        break
            waiting = [*failed, *left.values()]

    def committed(self, stage: str, shard: int) -> ShardManifest | None:
        """The manifest of a shard, if it is committed.

        Raises:
            RunError: what is there is no manifest of it.
            StorageError: the storage cannot be read.
        """
        return read_manifest(self.storage, self.id, stage, shard)

    def _found(self, stage: Stage) -> dict[int, ShardManifest]:
        """The shards that are committed, as far as a list knows: workers look again."""
        names = self.storage.names(f"{self.id}/{stage.name}/")
        # Whatever else somebody has put there is no manifest.
        shards = (int(found[1]) for found in map(_NUMBER.search, names) if found)
        look = partial(self.committed, stage.name)
        # A store takes its time for each, and has any number of them asked at once.
        manifests = map_ahead(look, shards, num_threads=_THREADS)
        return {manifest.shard: manifest for manifest in manifests if manifest is not None}

    def remove(self) -> None:
        """Remove all that the storage holds of this run, when nobody needs its result any more.

        Raises:
            StorageError: the storage cannot be used.
        """
        names, attempts = self.storage.names(f"{self.id}/"), f"{self.id}/attempts/"
        # Manifests before their files: what is left of an interrupted end misses none.
        _remove(self.storage, [name for name in names if not name.startswith(attempts)])
        _remove(self.storage, [name for name in names if name.startswith(attempts)])
        self.storage.remove(_RUN)

    def sweep(self, keep: Iterable[ShardManifest]) -> None:
        """Remove the files of all attempts but those of these shards: the run has its result."""
        kept = {file.name for manifest in keep for file in manifest.files.values()}
        with contextlib.suppress(StorageError):  # what stays is only in the way
            _remove(self.storage, set(self.storage.names(f"{self.id}/attempts/")) - kept)


def remove_run(place: str | os.PathLike[str]) -> None:
    """Remove what a storage holds, when nobody needs the run's result any more.

    Raises:
        StorageError: the storage cannot be used.
    """
    storage = open_storage(place)
    _remove(storage, storage.names())


def _remove(storage: Storage, names: Iterable[str]) -> None:
    """Remove these; a store takes its time for each, and has any number of them asked at once."""
    deque(map_ahead(storage.remove, names, num_threads=_THREADS), maxlen=0)


@functools.lru_cache(maxsize=8)
def _storage_at(place: str) -> Storage:
    """Opened once in each worker: a store is asked whether it can be relied on each time."""
    return open_storage(place)


def _attempt(work: _Work, task: _Task) -> ShardManifest | TaskFailure:
    """Do one shard and commit it. This is what a worker does."""
    try:
        storage = _storage_at(work.place)
        committed = read_manifest(storage, work.run_id, task.stage, task.shard)
        if committed is not None:
            return committed
        function, state = work.stages[task.stage]
        with scratch_folder(work.scratch) as scratch:
            attempt = Attempt(storage, work.run_id, task.stage, task.shard, scratch)
            try:
                figures = function(state, task.payload, attempt)
            except BaseException:
                attempt.discard()
                raise
            # Nothing is thrown away where this fails: it may have been done, and its answer lost.
            return attempt.commit(figures)
    except CorpusError:
        raise
    except Exception as error:
        return TaskFailure(_describe(error))


def _describe(error: Exception) -> str:
    """Of an error that is not ours the kind alone: its text may hold an address with a secret."""
    if isinstance(error, TokenizerCoreError):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return type(error).__name__ + (f": {reason}" if reason else "")


def _check_may_be_tried(task: _Task, n_failures: int, reason: str) -> None:
    if n_failures >= MAX_ATTEMPTS:
        raise ShardFailedError(
            f"shard {task.shard} of the stage {task.stage!r} failed {n_failures} times, at last: "
            f"{reason}. Mend that and run it again: what is done is kept"
        )


def _check_same(storage: Storage, rendered: bytes) -> None:
    found = storage.read(_RUN, max_bytes=max(MAX_MANIFEST_BYTES, len(rendered)))
    if found == rendered:
        return
    try:
        before, now = dict(json.loads(found)), dict(json.loads(rendered))
    except (ValueError, TypeError, RecursionError):
        raise RunError(f"{_RUN} in {storage.shown} is damaged; remove what is there") from None
    different = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
    raise RunConflictError(
        f"the storage {storage.shown} holds another run ({', '.join(different)} differ); name "
        f"another place for this one, or remove what is there"
    )
