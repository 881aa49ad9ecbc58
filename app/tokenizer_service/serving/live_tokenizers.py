"""The tokenizers of this process: the active one, versions that requests pin, and the pointer.

`active` is one attribute. A request reads it once and keeps the reference. So requests need no
lock, a response never mixes two versions, and the last request frees a retired tokenizer. Every
process polls the pointer of the registry, so that all processes swap after a promotion by any
process of any host. A version that fails to load never replaces one that works, and serving
continues while the registry is unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import random
import threading
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import replacing
from tokenizer_core.errors import (
    ArtifactStorageError,
    TokenizerCoreError,
)
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.serving.errors import NoTokenizerError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer, check_round_trip
from tokenizer_service.serving.pointer import PointerWatch
from tokenizer_service.serving.swap import Swap
from tokenizer_service.serving.workers import WorkerStates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenizer_core.registry import ArtifactRef, Artifacts
    from tokenizer_service.observability.metrics import ServedRow, ServiceMetrics
    from tokenizer_service.serving.workers import WorkerState
    from tokenizer_service.settings import Settings

log = logging.getLogger("tokenizer_service.serving.live_tokenizers")

RETRY_SECONDS: Final = 10.0
SWAP_TIMEOUT_SECONDS: Final = 30.0
ACTIVE: Final = "active"
"""The reserved name of the active tokenizer."""

PINNED_VERSIONS: Final = 4


class LiveTokenizers:
    """The active tokenizer of this process, and the versions that requests pin."""

    def __init__(
        self,
        settings: Settings,
        store: Artifacts,
        metrics: ServiceMetrics | None = None,
        *,
        swap_timeout_seconds: float = SWAP_TIMEOUT_SECONDS,
        states: WorkerStates | None = None,
    ) -> None:
        self._settings, self._store, self._metrics = settings, store, metrics
        self.changing = asyncio.Lock()
        """Lock of the task that changes `active`."""
        self._run_dir = settings.artifacts_dir / "run"
        self._pointer = PointerWatch(store)
        self._states = states or WorkerStates(self._run_dir / "workers")
        lock_path = self._run_dir / "promotion.lock"
        self._swap = Swap(self, store, self._states, lock_path, swap_timeout_seconds)
        self.active: LiveTokenizer | None = None
        """The tokenizer for requests that name none; read it once per request."""
        self._reason: str | None = "The server is starting."
        self._failed: str | None = None
        self._pointer_seen: object = ()
        self._is_store_away = False
        self._retry_at = 0.0
        self._pinned = PinnedTokenizers()
        self._published: list[str] | None = []  # None: this process no longer serves
        self._publishing = threading.Lock()
        self._watcher: asyncio.Task[None] | None = None

    # Used by requests

    @property
    def reason(self) -> str | None:
        """Why the service is degraded or serves nothing; None when it is healthy."""
        return self._reason

    def require_active(self) -> LiveTokenizer:
        """The active tokenizer.

        Raises:
            NoTokenizerError: nothing is served.
        """
        active = self.active
        if active is None:
            raise NoTokenizerError(self._reason or "No tokenizer is loaded.")
        return active

    def peek(self, name: str | None) -> LiveTokenizer | None:
        """As `get`, but only from memory: None if the version must be loaded from the disk.

        Raises:
            NoTokenizerError: no name is given and nothing is served.
        """
        if name is None or name == ACTIVE:
            return self.require_active()
        active = self.active
        if active is not None and str(active.ref) == name:
            return active
        return self._pinned.find(name)

    def get(self, name: str | None) -> LiveTokenizer:
        """The tokenizer `name@version`, the newest version of `name`, or for None the active one.

        May load from the disk: call it from a thread, not from the event loop.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError, NoTokenizerError.
        """
        found = self.peek(name)
        if found is not None or name is None:
            return found or self.require_active()
        ref = self._store.resolve_near(name)
        try:
            with self._pinned.loading(str(ref)):
                found = self.peek(str(ref))
                if found is None:
                    self._publish_pinned()  # before, so that no other process removes it meanwhile
                    found = self._load(ref)
                    self._pinned.keep(found)
        finally:
            self._publish_pinned()
        return found

    def loaded(self) -> list[LiveTokenizer]:
        """The tokenizers in memory: the active one and the pinned ones."""
        pinned = self._pinned.all()
        active = self.active
        return pinned if active is None or active in pinned else [active, *pinned]

    def pinned_on_host(self) -> set[str]:
        """`name@version` of what the processes of this host hold for requests, or load for them."""
        return self._states.read_pinned()

    def served_rows(self) -> Iterator[ServedRow]:
        """Name, version, digest and engine of the tokenizer of each process on this host."""
        for state in self._states.read_alive():
            if state.name and state.version and state.digest and state.engine:
                yield state.name, state.version, state.digest, state.engine

    # Start, stop, following the pointer

    async def start(self) -> None:
        """Load the version that the pointer names, or the default, and start to follow the pointer.

        Never raises for an error of the disk: a server without a tokenizer runs and reports that.
        """
        self._states.remove()  # those of a killed process that had the same number
        self._write_state()  # from now on, promotions by other processes wait for this one
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._states.read_alive)  # removes files of dead processes
        await self._follow_pointer()
        self._watcher = asyncio.create_task(self._watch(), name="pointer watcher")

    async def stop(self) -> None:
        """End the watcher and remove the state file of this process."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        with self._publishing:
            self._published = None
            self._states.remove()

    async def _watch(self) -> None:
        while True:
            # The jitter keeps replicas from polling at the same moment.
            await asyncio.sleep(self._store.poll_seconds * random.uniform(0.8, 1.2))
            try:
                await self._follow_pointer()
            except Exception:
                log.exception("following the active pointer failed")

    async def _follow_pointer(self) -> None:
        """Serve the version that the pointer names now, if it changed or a retry is due."""
        try:
            mark = await self._pointer.read()  # outside the lock, because it may be slow
            if mark is None and self._pointer_seen:  # the service never removes it
                raise ArtifactStorageError(
                    errno.ENOENT, "the pointer is missing; is the volume mounted?"
                )
        except (TokenizerCoreError, OSError) as error:
            async with self.changing:
                await asyncio.to_thread(self._continue_without_store, error)
            return
        async with self.changing:
            is_due = self._retry_at and time.monotonic() >= self._retry_at
            if mark == self._pointer_seen and not is_due and not self._is_store_away:
                return
            self._pointer_seen, self._retry_at = mark, 0.0
            await asyncio.to_thread(self._follow, has_pointer=mark is not None)
            self._note_store(is_away=False)

    def _follow(self, *, has_pointer: bool) -> None:
        wanted = "the active pointer"
        try:
            ref = self._store.active() if has_pointer else None
            if ref is None:
                if self.active is None:
                    self._load_default()
                else:
                    self._note_success(self.active)
                return
            wanted = str(ref)
            if self.active is not None and self.active.ref == ref:
                self._note_success(self.active)
                return
            self.adopt(self._load(ref))
        except (TokenizerCoreError, OSError) as error:
            self._note_failure(wanted, error)

    def _continue_without_store(self, error: Exception) -> None:
        """Keep serving the loaded tokenizer, or load the last good version from this host."""
        if not self._is_store_away:
            log.error("the store of tokenizers cannot be read: %s", error)
            self._note_store(is_away=True)
        if self.active is None and time.monotonic() >= self._retry_at:
            self.active = self._load_last_good()
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._write_state()
        serving = self.active
        still = (
            f"still serving {serving.ref}" if serving else "and this host has no tokenizer to serve"
        )
        self._reason = (
            f"The store of tokenizers cannot be read ({_code_of(error)}); {still}. The service "
            "keeps trying."
        )

    def _note_store(self, *, is_away: bool) -> None:
        if self._is_store_away and not is_away:
            log.info("the store of tokenizers can be read again")
        self._is_store_away = is_away
        if self._metrics is not None:
            self._metrics.store_away.set(is_away)

    def _load_default(self) -> None:
        """Before any promotion: serve the version that other processes serve, or the default."""
        name = self._settings.default
        peers = (s for s in self._states.read_alive() if s.version and s.name)
        # A restarted process must not serve a newer version than its siblings.
        agreed = next((f"{s.name}@{s.version}" for s in peers if s.name == name), name)
        try:
            self.adopt(self._load(self._store.resolve(agreed)))
        except (TokenizerCoreError, OSError) as error:
            log.warning("TOKENIZER_DEFAULT: %r cannot be served: %s", name, error)
            self._reason = (
                f"No tokenizer is served: the default {name!r} cannot be loaded and none was "
                f"promoted. Import or train one, and promote it (PUT /tokenizers/active), or set "
                f"TOKENIZER_DEFAULT to one that GET /tokenizers lists."
            )
            self._write_state()
            self._retry_at = time.monotonic() + RETRY_SECONDS

    def _note_success(self, serving: LiveTokenizer) -> None:
        """Publish the new state to the other processes, and record the last good version."""
        self._reason = self._failed = None
        self._write_state()
        try:
            new = self._run_dir / f"last_good.{self._states.new_state().pid}.new"
            with replacing(self._run_dir / "last_good.json", staged=new) as staged:
                staged.write_text(json.dumps({"tokenizer": str(serving.ref)}), encoding="utf-8")
        except OSError as error:
            log.warning("the last good version cannot be noted: %s", error)

    def _note_failure(self, wanted: str, error: Exception) -> None:
        """Record that the pointer's version failed; without an active one, load the last good."""
        log.error("%s cannot be served: %s", wanted, error)
        self._failed = wanted
        self.count_swap("failed")
        if self.active is None:
            self.active = self._load_last_good()
        kept = self.active
        still = f"still serving {kept.ref}" if kept else "and there is no other tokenizer to serve"
        self._reason = (
            f"What the active pointer names cannot be loaded ({_code_of(error)}); {still}. "
            f"Promote a version that GET /tokenizers lists."
        )
        self._write_state()
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def _load_last_good(self) -> LiveTokenizer | None:
        for find in self._candidates():
            with contextlib.suppress(TokenizerCoreError, OSError):
                return self._load(find())
        return None

    def _candidates(self) -> Iterator[Callable[[], ArtifactRef]]:
        """The versions to try if the pointer's version cannot be loaded, best first."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = (self._run_dir / "last_good.json").read_text(encoding="utf-8")
            last_good = str(json.loads(text)["tokenizer"])
            yield partial(self._store.resolve_near, last_good)
        yield partial(self._store.resolve_near, self._settings.default)
        with contextlib.suppress(TokenizerCoreError, OSError):
            newest_first = sorted(self._store.list(), key=lambda ref: ref.version, reverse=True)
            for ref in newest_first:
                yield partial(lambda ref: ref, ref)

    # The swap

    async def promote(
        self,
        ref: ArtifactRef,
        *,
        check: Callable[[ArtifactRef | None], None] = lambda present: None,
    ) -> ArtifactRef | None:
        """Serve `ref` in every process of this host; returns the version that was active before.

        Processes of other hosts follow the pointer later. A thread calls `check` with the active
        version, and `check` may raise. If another promotion or fence, on any host, comes between
        that call and the move of the pointer, `check` is called again.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: it cannot be loaded; nothing changed.
            SwapTimeoutError, SwapFailedError: a process did not swap; all returned to the previous
                version.
            PointerMovedError: others keep moving the pointer; nothing changed.
            PromotionInProgressError: another promotion does not end in time.
            DiskError: the disk is full or fails.
        """
        loaded = await asyncio.to_thread(self.get, str(ref))
        return await self._swap.promote(loaded, check)

    def adopt(self, loaded: LiveTokenizer) -> None:
        """Serve `loaded` from now on; blocks. The caller holds `changing`."""
        previous = self.active
        # First, or a probe would see this tokenizer with the trouble of the one before.
        self._reason = self._failed = None
        self.active = loaded
        self._pinned.drop(loaded)
        self._publish_pinned()
        if previous is None:
            log.info("serving %s", loaded.ref)
        elif previous.ref != loaded.ref:
            self.count_swap("ok")
            log.info("serving %s instead of %s", loaded.ref, previous.ref)
        self._note_success(loaded)

    def follow_pointer_again(self) -> None:
        """Treat the pointer as changed at the next poll."""
        self._pointer_seen = ()

    def count_swap(self, result: str) -> None:
        """Count a swap of this process: `ok`, `failed` or `timeout`."""
        if self._metrics is not None:
            self._metrics.swaps.labels(result).inc()
            if result == "ok":
                self._metrics.last_swap.set_to_current_time()

    # Loading

    def _load(self, ref: ArtifactRef) -> LiveTokenizer:
        """Read a version, verify its hashes and fingerprint, build the tokenizer and test it."""
        spec = self._store.open(ref)
        tokenizer = Tokenizer.from_spec(spec, engine=self._settings.engine)
        check_round_trip(tokenizer)
        return LiveTokenizer.of(ref, tokenizer)

    def _write_state(self) -> None:
        active = self.active
        state: WorkerState = self._states.new_state(
            name=active.ref.name if active else None,
            version=active.ref.version if active else None,
            digest=active.ref.digest if active else None,
            engine=active.tokenizer.engine_name if active else None,
            failed=self._failed,
            reason=self._reason if self._failed else None,
        )
        try:
            self._states.write(state)
        except OSError as error:
            # With a read-only artifacts folder the process serves, but cannot promote.
            log.warning("the state of this process cannot be written: %s", error)

    def _publish_pinned(self) -> None:
        with self._publishing:
            versions = self._pinned.names()
            if self._published is None or versions == self._published:
                return
            try:
                self._states.write_pinned(versions)
                self._published = versions
            except OSError as error:
                log.warning("the versions in use by this process cannot be written: %s", error)


class PinnedTokenizers:
    """The `PINNED_VERSIONS` versions that requests named most recently. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, LiveTokenizer] = OrderedDict()
        self._lock = threading.Lock()
        self._load_locks: dict[str, threading.Lock] = {}

    def find(self, name: str) -> LiveTokenizer | None:
        """The version `name@version`, or None if it is not kept; counts as a use."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def all(self) -> list[LiveTokenizer]:
        """All versions that are kept."""
        with self._lock:
            return list(self._kept.values())

    def names(self) -> list[str]:
        """`name@version` of all that are kept or being loaded, sorted."""
        with self._lock:
            return sorted({*self._kept, *self._load_locks})

    def keep(self, loaded: LiveTokenizer) -> None:
        """Keep a version, and drop the least recently used one if there are too many."""
        with self._lock:
            self._kept[str(loaded.ref)] = loaded
            while len(self._kept) > PINNED_VERSIONS:
                self._kept.popitem(last=False)

    def drop(self, loaded: LiveTokenizer) -> None:
        """Drop a version, if it is kept."""
        with self._lock:
            self._kept.pop(str(loaded.ref), None)

    @contextlib.contextmanager
    def loading(self, name: str) -> Iterator[None]:
        """Hold a lock while loading `name`, so that two requests load a version only once."""
        with self._lock:
            lock = self._load_locks.setdefault(name, threading.Lock())
        try:
            with lock:
                yield
        finally:
            with self._lock:
                self._load_locks.pop(name, None)


def _code_of(error: Exception) -> str:
    """The code of an error, for clients. Its text may contain paths and goes only to the log."""
    return getattr(error, "code", type(error).__name__)
