"""Live tokenizers: what is served now, and the hot swap.

`active` is one attribute. A request reads it once and keeps what it got: no lock, no mixed answer,
and a retired tokenizer is freed when its last request ends. Every process polls the pointer of the
store, so that all of them swap whoever promoted, on whichever host; `promote` moves the pointer and
returns when all processes of this host answer with the new version, or puts everything back. A
version that fails to load never replaces one that works, and a store that is away takes nothing
away.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from app.serving.errors import DiskError, NoTokenizerError, SwapFailedError, SwapTimeoutError
from app.serving.live_tokenizer import LiveTokenizer, check_round_trip
from app.serving.pinned_tokenizers import PinnedTokenizers
from app.serving.pointer import PointerWatch
from app.serving.promotion_lock import hold_promotion_lock
from app.serving.workers import WorkerStates
from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    PointerMovedError,
    TokenizerCoreError,
)
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.observability.metrics import ServedRow, ServiceMetrics
    from app.serving.workers import WorkerState
    from app.settings import Settings
    from tokenizer_core.registry import ArtifactRef, Artifacts

log = logging.getLogger("app.serving.live_tokenizers")

RETRY_SECONDS: Final = 10.0
SWAP_TIMEOUT_SECONDS: Final = 30.0
ACTIVE: Final = "active"
"""The reserved name of whatever is active."""

_MOST_MOVES: Final = 8


class LiveTokenizers:
    """The active tokenizer of this process, versions that requests pin, and the swap."""

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
        self._run_dir = settings.artifacts_dir / "run"
        self._pointer = PointerWatch(store)
        self._lock_path = self._run_dir / "promotion.lock"
        self._states = states or WorkerStates(self._run_dir / "workers")
        self._swap_timeout_seconds = swap_timeout_seconds
        self._active: LiveTokenizer | None = None
        self._reason: str | None = "The server is starting."
        self._failed: str | None = None
        self._pointer_seen: object = ()
        self._is_store_away = False
        self._retry_at = 0.0
        self._pinned = PinnedTokenizers()
        self._swap_lock = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    # What requests use

    @property
    def active(self) -> LiveTokenizer | None:
        """What answers when a request names none; read it once a request."""
        return self._active

    @property
    def reason(self) -> str | None:
        """Why the service is degraded or without a tokenizer; None when all is well."""
        return self._reason

    def require_active(self) -> LiveTokenizer:
        """The active tokenizer.

        Raises:
            NoTokenizerError: there is none.
        """
        active = self._active
        if active is None:
            raise NoTokenizerError(self._reason or "No tokenizer is loaded.")
        return active

    def peek(self, name: str | None) -> LiveTokenizer | None:
        """`get` without touching the disk: None when that would be needed.

        Raises:
            NoTokenizerError: no name is given and nothing is served.
        """
        if name is None or name == ACTIVE:
            return self.require_active()
        active = self._active
        if active is not None and str(active.ref) == name:
            return active
        return self._pinned.find(name)

    def get(self, name: str | None) -> LiveTokenizer:
        """The tokenizer `name` (its newest version), `name@version`, or with None the active one.

        It may load from the disk: call it from a thread, not from the event loop.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError, NoTokenizerError.
        """
        found = self.peek(name)
        if found is not None or name is None:
            return found or self.require_active()
        ref = self._store.resolve_near(name)
        with self._pinned.loading(str(ref)):
            found = self.peek(str(ref))
            if found is None:
                found = self._load(ref)
                self._pinned.keep(found)
        return found

    def loaded(self) -> list[LiveTokenizer]:
        """All that is in memory for requests: the active one and the pinned."""
        pinned = self._pinned.all()
        active = self._active
        return pinned if active is None or active in pinned else [active, *pinned]

    def served_rows(self) -> Iterator[ServedRow]:
        """Name, version, digest and engine of what each process of this host serves."""
        for state in self._states.read_alive():
            if state.name and state.version and state.digest and state.engine:
                yield state.name, state.version, state.digest, state.engine

    # Life

    async def start(self) -> None:
        """Load what the pointer names, else the default, and follow the pointer from now on.

        It never raises for what is on the disk: a server without a tokenizer runs and says so.
        """
        self._write_state()  # first: a promotion elsewhere waits for this process from here on
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._states.read_alive)  # clears up after killed processes
        await self._follow_pointer()
        self._watcher = asyncio.create_task(self._watch(), name="pointer watcher")

    async def stop(self) -> None:
        """End the watcher and take this process' state file away."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        self._states.remove()

    async def _watch(self) -> None:
        while True:
            # Not all replicas at once.
            await asyncio.sleep(self._store.poll_seconds * random.uniform(0.8, 1.2))
            try:
                await self._follow_pointer()
            except Exception:
                log.exception("following the active pointer failed")

    async def _follow_pointer(self) -> None:
        """Serve what the pointer names now, if it changed or a retry is due."""
        try:
            mark = await self._pointer.read()  # without the lock: a promotion waits for no store
            if mark is None and self._pointer_seen:  # nothing here takes it away
                raise ArtifactStorageError(errno.ENOENT, "the pointer is gone; is it mounted?")
        except (TokenizerCoreError, OSError) as error:
            async with self._swap_lock:
                await asyncio.to_thread(self._do_without_store, error)
            return
        async with self._swap_lock:
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
                if self._active is None:
                    self._start_default()
                else:
                    self._settle(self._active)
                return
            wanted = str(ref)
            if self._active is not None and self._active.ref == ref:
                self._settle(self._active)
                return
            self._adopt(self._load(ref))
        except (TokenizerCoreError, OSError) as error:
            self._fail(wanted, error)

    def _do_without_store(self, error: Exception) -> None:
        """Go on with what is loaded, or with what this host has of the last good version."""
        if not self._is_store_away:
            log.error("the store of tokenizers cannot be read: %s", error)
            self._note_store(is_away=True)
        if self._active is None and time.monotonic() >= self._retry_at:
            self._active = self._load_last_good()
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._write_state()
        serving = self._active
        still = f"still serving {serving.ref}" if serving else "and this host has none to serve"
        self._reason = (
            f"The store of tokenizers cannot be read ({_in_short(error)}); {still}. It is tried "
            f"again all the time."
        )

    def _note_store(self, *, is_away: bool) -> None:
        if self._is_store_away and not is_away:
            log.info("the store of tokenizers can be read again")
        self._is_store_away = is_away
        if self._metrics is not None:
            self._metrics.store_away.set(is_away)

    def _start_default(self) -> None:
        """Nothing was ever promoted: serve what other processes serve, else the default."""
        name = self._settings.default
        peers = (s for s in self._states.read_alive() if s.version and s.name)
        # A process that is started again must not pick a version newer than its siblings'.
        agreed = next((f"{s.name}@{s.version}" for s in peers if s.name == name), name)
        try:
            self._adopt(self._load(self._store.resolve(agreed)))
        except (TokenizerCoreError, OSError) as error:
            log.warning("the default tokenizer %r cannot be served: %s", name, error)
            self._reason = (
                f"No tokenizer is served: the default {name!r} cannot be loaded and none was "
                f"promoted. Import or train one, and promote it (PUT /tokenizers/active), or set "
                f"TOKENIZER_DEFAULT to one that GET /tokenizers lists."
            )
            self._write_state()
            self._retry_at = time.monotonic() + RETRY_SECONDS

    def _adopt(self, loaded: LiveTokenizer) -> None:
        previous = self._active
        self._active = loaded
        self._pinned.drop(loaded)
        if previous is None:
            log.info("serving %s", loaded.ref)
        elif previous.ref != loaded.ref:
            self._count_swap("ok")
            log.info("serving %s instead of %s", loaded.ref, previous.ref)
        self._settle(loaded)

    def _settle(self, serving: LiveTokenizer) -> None:
        """All is well: say so to the other processes, and remember it for a bad pointer."""
        self._reason = self._failed = None
        self._write_state()
        try:
            staged = self._run_dir / f"last_good.{self._states.new_state().pid}.new"
            staged.write_text(json.dumps({"tokenizer": str(serving.ref)}), encoding="utf-8")
            staged.replace(self._run_dir / "last_good.json")
        except OSError as error:
            log.warning("the last good version cannot be noted: %s", error)

    def _fail(self, wanted: str, error: Exception) -> None:
        """What the pointer names cannot be served: keep what is, or fall back to the last good."""
        log.error("%s cannot be served: %s", wanted, error)
        self._failed = wanted
        self._count_swap("failed")
        if self._active is None:
            self._active = self._load_last_good()
        kept = self._active
        still = f"still serving {kept.ref}" if kept else "and there is no other to serve"
        self._reason = (
            f"What the active pointer names cannot be loaded ({_in_short(error)}); {still}. "
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
        """What may be served where the pointer cannot be followed, the best first."""
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
        """Make `ref` what every process answers with; what was active before.

        It returns when all serving processes of this host have swapped; those of other hosts follow
        the pointer. `check` is given what is active now and may raise: nobody else's promotion or
        fence, on whichever host, comes between the two. It is called in a thread, and again where
        somebody did.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: it cannot be loaded; nothing changed.
            SwapTimeoutError, SwapFailedError: some process did not follow; everything is back.
            PointerMovedError: others move the pointer again and again; nothing changed.
            PromotionInProgressError: another promotion does not end in time.
            DiskError: the disk is full or fails.
        """
        loaded = await asyncio.to_thread(self.get, str(ref))
        try:
            async with hold_promotion_lock(self._lock_path, self._swap_timeout_seconds):
                return await self._swap_everywhere(loaded, check)
        except OSError as error:
            log.error("the disk does not do what it should: %s", error)
            raise DiskError(error) from error

    async def _swap_everywhere(
        self, loaded: LiveTokenizer, check: Callable[[ArtifactRef | None], None]
    ) -> ArtifactRef | None:
        before = self._active
        async with self._swap_lock:
            await asyncio.to_thread(self._move_pointer, loaded.ref, check)
            await asyncio.to_thread(self._adopt, loaded)
        try:
            await self._wait_for_all(loaded)
        except BaseException as error:
            if isinstance(error, SwapTimeoutError):
                self._count_swap("timeout")
            if before is not None:
                await asyncio.shield(self._restore(before, loaded))
            raise
        return None if before is None else before.ref

    def _move_pointer(self, ref: ArtifactRef, check: Callable[[ArtifactRef | None], None]) -> None:
        for tries_left in reversed(range(_MOST_MOVES)):
            state = self._store.pointer_state()
            # What is served, where the pointer is damaged or was never written.
            present = None if self._active is None else self._active.ref
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                present = self._store.named_by(state) or present
            check(present)
            try:
                self._store.promote(ref, expected=state)
                return
            except PointerMovedError:
                if not tries_left:
                    raise

    async def _restore(self, before: LiveTokenizer, loaded: LiveTokenizer) -> None:
        async with self._swap_lock:
            if await asyncio.to_thread(self._move_back, before.ref, loaded.ref):
                await asyncio.to_thread(self._adopt, before)

    def _move_back(self, before: ArtifactRef, ref: ArtifactRef) -> bool:
        """False where somebody else has promoted meanwhile, which stays."""
        state = self._store.pointer_state()
        with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError, PointerMovedError):
            if self._store.named_by(state) == ref:
                self._store.promote(before, expected=state)
                return True
        self._pointer_seen = ()
        return False

    async def _wait_for_all(self, loaded: LiveTokenizer) -> None:
        ref = loaded.ref
        deadline = time.monotonic() + self._swap_timeout_seconds
        while self._active is loaded:  # else another host's promotion has come after this one
            states = await asyncio.to_thread(self._states.read_alive)
            waiting = [state for state in states if state.digest != ref.digest]
            if not waiting:
                return
            failed = next((s for s in waiting if s.failed == str(ref)), None)
            if failed is not None:
                raise SwapFailedError(failed.reason or "no reason given")
            if time.monotonic() >= deadline:
                raise SwapTimeoutError(self._swap_timeout_seconds, len(waiting))
            await asyncio.sleep(0.03)

    # Loading

    def _load(self, ref: ArtifactRef) -> LiveTokenizer:
        """Read, verify (hashes, fingerprint), build and try a version."""
        spec = self._store.open(ref)
        tokenizer = Tokenizer.from_spec(spec, engine=self._settings.engine)
        check_round_trip(tokenizer)
        return LiveTokenizer.of(ref, tokenizer)

    def _write_state(self) -> None:
        active = self._active
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
            # A read-only artifacts folder serves, but cannot be promoted on.
            log.warning("the state of this process cannot be written: %s", error)

    def _count_swap(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.swaps.labels(result).inc()
            if result == "ok":
                self._metrics.last_swap.set_to_current_time()


def _in_short(error: Exception) -> str:
    """An error's kind for clients: its text may hold paths, and goes to the log."""
    return getattr(error, "code", type(error).__name__)
