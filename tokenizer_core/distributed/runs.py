"""Run: stages of numbered shards, which an executor computes and a later call can continue.

A shard that is committed to the run's storage is done. Workers attempt all others, a few times if
they fail. A run has no other state, so it may be interrupted at any time, and two processes may
carry it out at once.
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

from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.blobs.protocol import Storage
from tokenizer_core.distributed.committed_shards import (
    MAX_MANIFEST_BYTES,
    Attempt,
    ShardManifest,
    read_manifest,
    scratch_folder,
)
from tokenizer_core.documents import corpus_file_names
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
"""Attempts at a shard; a shard that fails this often would fail again."""

MANY_FAILURES: Final = 64
"""After this many failures in a row the failed shards are retried before the others, so that a run
that cannot succeed stops before it has tried all shards."""

_RUN: Final = "run.json"
_NUMBER: Final = re.compile(r"/(\d{6,})\.json\Z")
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Stage:
    """Shards of one kind. `work(state, payload, attempt)` does one of them and returns its figures
    (JSON); workers import it by name. `payloads` has one entry for each shard."""

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
    """Sent to every worker once. Each opens the storage by its address."""

    address: str
    run_id: str
    scratch: Path | None
    stages: Mapping[str, tuple[Callable[[Any, Any, Attempt], Mapping[str, Any]], Any]]


class Run:
    """A run; its storage holds no other run.

    `identity` (JSON) is everything that decides the result: inputs, settings, versions.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        identity: Mapping[str, Any],
        *,
        scratch: Path | None = None,
    ) -> None:
        """Open the storage at `address`, which may be a folder that all workers share.

        `scratch`: the folder for the temporary files of workers; by default the system's.

        Raises:
            RunConflictError: the storage holds a run with another identity.
            StorageError: the storage cannot be used.
        """
        text = os.fspath(address)
        self._address = text if "://" in text else str(Path(text).absolute())
        self._scratch = scratch
        self.storage: Storage = open_storage(self._address)
        rendered = json.dumps(identity, sort_keys=True).encode("ascii")
        # All names start with the id, so files of a late worker of another run are ignored.
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
        """Do all shards of these stages; return the manifests of each stage, in the order of
        shards.

        `on_commit` is called once for each shard, also for those committed before. Raise as
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
        others as workers finish them. Shards start in order and run concurrently. Closing the
        generator ends the work.

        Raises:
            ShardFailedError: a shard failed `MAX_ATTEMPTS` times.
            CorpusError: the input of a shard is wrong, so a retry would not help.
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
            self._address, self.id, self._scratch, {s.name: (s.work, s.state) for s in stages}
        )
        failures: Counter[tuple[str, int]] = Counter()
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
                    failures[task.stage, task.shard] += 1
                    if failures[task.stage, task.shard] >= MAX_ATTEMPTS:
                        raise ShardFailedError(
                            f"shard {task.shard} of the stage {task.stage!r} failed {MAX_ATTEMPTS} "
                            f"times, at last: {result.reason}. Mend that and run it again: what is "
                            f"done is kept"
                        )
                    failed.append(task)
                    n_in_a_row += 1
                    if n_in_a_row >= MANY_FAILURES:
                        break
            waiting = [*failed, *left.values()]

    def committed(self, stage: str, shard: int) -> ShardManifest | None:
        """The manifest of a shard, if it is committed.

        Raises:
            RunError: the manifest is damaged or that of another shard.
            StorageError: the storage cannot be read.
        """
        return read_manifest(self.storage, self.id, stage, shard)

    def _found(self, stage: Stage) -> dict[int, ShardManifest]:
        """The committed shards, by a listing that may be stale: workers check again."""
        names = self.storage.names(f"{self.id}/{stage.name}/")
        # Ignore other names.
        shards = (int(found[1]) for found in map(_NUMBER.search, names) if found)
        look = partial(self.committed, stage.name)
        # Each response of a store is slow, but it handles many requests at once.
        manifests = map_ahead(look, shards, num_threads=_THREADS)
        return {manifest.shard: manifest for manifest in manifests if manifest is not None}

    def remove(self) -> None:
        """Remove everything of this run from the storage. Call it after the result is saved.

        Raises:
            StorageError: the storage cannot be used.
        """
        names, attempts = self.storage.names(f"{self.id}/"), f"{self.id}/attempts/"
        # Remove manifests before their files: an interruption leaves no manifest without files.
        _remove(self.storage, [name for name in names if not name.startswith(attempts)])
        _remove(self.storage, [name for name in names if name.startswith(attempts)])
        self.storage.remove(_RUN)

    def sweep(self, keep: Iterable[ShardManifest]) -> None:
        """Remove the files of all attempts except those of `keep`. Call it when the run is done."""
        kept = {file.name for manifest in keep for file in manifest.files.values()}
        with contextlib.suppress(StorageError):  # leftovers do no harm
            _remove(self.storage, set(self.storage.names(f"{self.id}/attempts/")) - kept)


def _remove(storage: Storage, names: Iterable[str]) -> None:
    """Remove these names, many at once, because each response of a store is slow."""
    deque(map_ahead(storage.remove, names, num_threads=_THREADS), maxlen=0)


# Opened once in each worker, because opening probes the storage.
_storage_at = functools.lru_cache(maxsize=8)(open_storage)


def _attempt(work: _Work, task: _Task) -> ShardManifest | TaskFailure:
    """Do one shard and commit it, in a worker."""
    try:
        storage = _storage_at(work.address)
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
            # If this fails, discard nothing: the commit may have succeeded and its response may be
            # lost.
            return attempt.commit(figures)
    except CorpusError:
        raise
    except Exception as error:
        return TaskFailure(_describe(error))


def _describe(error: Exception) -> str:
    """The message of our own errors; for others only the kind, as their text may hold a secret."""
    if isinstance(error, TokenizerCoreError):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return type(error).__name__ + (f": {reason}" if reason else "")


def _check_same(storage: Storage, rendered: bytes) -> None:
    found = storage.read(_RUN, max_bytes=max(MAX_MANIFEST_BYTES, len(rendered)))
    if found == rendered:
        return
    try:
        before, now = dict(json.loads(found)), dict(json.loads(rendered))
    except (ValueError, TypeError, RecursionError):
        raise RunError(f"{_RUN} in {storage.shown} is damaged; remove what is there") from None
    different = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
    why = f"{', '.join(different)} differ"
    from tokenizer_core.corpus.token_writer import (
        name_differences,
    )  # numpy, which counting needs not

    with contextlib.suppress(KeyError, TypeError, ValueError):  # inputs without a path
        old_paths, paths = ([each["path"] for each in run["inputs"]] for run in (before, now))
        if old_paths != paths:
            why += name_differences(old_paths, paths)
        pairs = list(zip(before["inputs"], now["inputs"], strict=True))
        names = corpus_file_names([old["path"] for old, _ in pairs])
        changed = [name for name, (old, new) in zip(names, pairs, strict=True) if old != new]
        if changed and all(old["path"] == new["path"] for old, new in pairs):
            why = f"its file {changed[0]!r:.80} has changed"
    raise RunConflictError(
        f"the storage {storage.shown} holds another run ({why}); name another place for this one, "
        f"or remove what is there"
    )
