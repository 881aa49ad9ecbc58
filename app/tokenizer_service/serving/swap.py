"""The hot swap: promotes a version in every serving process of this host, or in none.

lock        take the lock file: one promotion at a time on this host
move        move the pointer of the registry, and serve the version in this process
wait        until every other process of this host has followed the pointer
restore     if one fails or takes too long, move the pointer back, unless it moved meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.locks import try_lock
from tokenizer_core.errors import ArtifactCorruptError, ArtifactNotFoundError, PointerMovedError
from tokenizer_core.registry import ArtifactRef, Artifacts
from tokenizer_core.registry.promotion import MAX_MOVES
from tokenizer_service.serving.errors import (
    DiskError,
    PromotionInProgressError,
    SwapFailedError,
    SwapTimeoutError,
)
from tokenizer_service.serving.live_tokenizer import LiveTokenizer
from tokenizer_service.serving.workers import WorkerStates

if TYPE_CHECKING:
    from tokenizer_service.serving.live_tokenizers import LiveTokenizers

log = logging.getLogger("tokenizer_service.serving.swap")

_LOCK_RETRY_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.03


class Swap:
    """Promotes versions; `live` is the state of this process."""

    def __init__(
        self,
        live: LiveTokenizers,
        store: Artifacts,
        states: WorkerStates,
        lock_path: Path,
        timeout_seconds: float,
    ) -> None:
        self._live, self._store, self._states = live, store, states
        self._lock_path, self._timeout_seconds = lock_path, timeout_seconds

    async def promote(
        self, loaded: LiveTokenizer, check: Callable[[ArtifactRef | None], None]
    ) -> None:
        """See `LiveTokenizers.promote`."""
        try:
            async with hold_promotion_lock(self._lock_path, self._timeout_seconds):
                await self._swap_everywhere(loaded, check)
        except OSError as error:
            log.error("the disk does not do what it should: %s", error)
            raise DiskError(error) from error

    async def _swap_everywhere(
        self, loaded: LiveTokenizer, check: Callable[[ArtifactRef | None], None]
    ) -> None:
        live = self._live
        before = live.active
        # One may have failed to load this version before, and its files have been mended since.
        states = await asyncio.to_thread(self._states.read_alive)
        failures = {(s.pid, s.n_failures) for s in states if s.n_failures}
        async with live.changing:
            await asyncio.to_thread(self._move_pointer, loaded.ref, check)
            await asyncio.to_thread(live.adopt, loaded)
        try:
            await self._wait_for_all(loaded, failures)
        except BaseException as error:
            if isinstance(error, SwapTimeoutError):
                live.count_swap("timeout")
            if before is not None:
                await asyncio.shield(self._restore(before, loaded))
            raise

    def _move_pointer(self, ref: ArtifactRef, check: Callable[[ArtifactRef | None], None]) -> None:
        for tries_left in reversed(range(MAX_MOVES)):
            state = self._store.pointer_state()
            # If the pointer is damaged or was never written, use the version of this process.
            active = self._live.active
            present = served = None if active is None else active.ref
            with contextlib.suppress(ArtifactCorruptError):
                present = state.ref() or present
            check(present)
            try:
                self._store.promote(ref, expected=state, served=served)
                return
            except PointerMovedError:
                if not tries_left:
                    raise

    async def _wait_for_all(self, loaded: LiveTokenizer, failures: Set[tuple[int, int]]) -> None:
        ref = loaded.ref
        deadline = time.monotonic() + self._timeout_seconds
        while self._live.active is loaded:  # until another host promotes
            states = await asyncio.to_thread(self._states.read_alive)
            # Not by digest: versions that differ in their chat templates alone have the same one.
            waiting = [s for s in states if (s.name, s.version) != (ref.name, ref.version)]
            if not waiting:
                return
            failing = [s for s in waiting if s.failed == str(ref)]
            failed = next((s for s in failing if (s.pid, s.n_failures) not in failures), None)
            if failed is not None:
                raise SwapFailedError(failed.reason or "no reason given")
            if time.monotonic() >= deadline:
                raise SwapTimeoutError(self._timeout_seconds, len(waiting))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _restore(self, before: LiveTokenizer, loaded: LiveTokenizer) -> None:
        async with self._live.changing:
            if await asyncio.to_thread(self._move_back, before.ref, loaded.ref):
                await asyncio.to_thread(self._live.adopt, before)
            else:
                self._live.follow_pointer_again()

    def _move_back(self, before: ArtifactRef, ref: ArtifactRef) -> bool:
        """Move the pointer back; False if another promotion came after this one, which stays."""
        state = self._store.pointer_state()
        with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError, PointerMovedError):
            if self._store.checked_ref(state) == ref:
                self._store.promote(before, expected=state, forget_current=True)
                return True
        return False


def is_locked(path: Path) -> bool:
    """Whether a promotion of this host is in progress."""
    with contextlib.suppress(OSError), path.open("a") as lock:
        return not try_lock(lock)
    return False


@contextlib.asynccontextmanager
async def hold_promotion_lock(path: Path, timeout_seconds: float) -> AsyncIterator[None]:
    """Hold the lock file `path`; makes its folder. The system drops the lock of a dead process.

    Raises:
        PromotionInProgressError: another promotion does not end in time.
        OSError: the file cannot be opened or locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_seconds
    with path.open("a") as lock:
        while not try_lock(lock):
            if time.monotonic() >= deadline:
                raise PromotionInProgressError
            await asyncio.sleep(_LOCK_RETRY_SECONDS)
        yield
