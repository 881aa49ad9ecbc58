"""Live tokenizers: what is served now, and the hot swap.

`active` is one attribute. A request reads it once and keeps what it got: no lock, no mixed answer,
and a retired tokenizer is freed when its last request ends. Every process polls the pointer of the
artifact store, so that all of them swap whoever promoted; `promote` writes the pointer and returns
when all of them answer with the new version, or puts everything back. A version that fails to load
never replaces one that works. May import `settings`, `metrics`, `problems`, `promotion_lock`,
`worker_states` and the core.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from app.live_tokenizer import LiveTokenizer, check_round_trip
from app.problems import Problem, problem_of_disk
from app.promotion_lock import hold_promotion_lock
from app.worker_states import WorkerStates
from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    TokenizerCoreError,
)
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.metrics import ServedRow, ServiceMetrics
    from app.settings import Settings
    from app.worker_states import WorkerState
    from tokenizer_core.store import ArtifactRef, ArtifactStore

log = logging.getLogger("app.live_tokenizers")

POLL_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 10.0
SWAP_TIMEOUT_SECONDS: Final = 30.0
ACTIVE: Final = "active"
"""The reserved name of whatever is active."""

PINNED_VERSIONS: Final = 4
"""Versions besides the active one that stay loaded because requests named them."""


class SwapTimeoutError(Problem):
    """Some process did not swap in time; all are back on what was served before."""

    def __init__(self, seconds: float, waiting: int) -> None:
        super().__init__(
            503,
            "swap_timeout",
            f"{waiting} server processes did not load it within {seconds:g} seconds; all are back "
            f"on what they served before. See the log, then promote again.",
            headers={"Retry-After": "30"},
        )


class SwapFailedError(Problem):
    """A process could not load the new version; all are back on what was served before."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            503, "swap_failed", f"A server process could not load it ({reason}); nothing changed."
        )


class NoTokenizerError(Problem):
    """Nothing is served."""

    def __init__(self, reason: str) -> None:
        super().__init__(503, "no_tokenizer", reason, headers={"Retry-After": "5"})


class LiveTokenizers:
    """The active tokenizer of this process, versions that requests pin, and the swap."""

    def __init__(
        self,
        settings: Settings,
        store: ArtifactStore,
        metrics: ServiceMetrics | None = None,
        *,
        swap_timeout_seconds: float = SWAP_TIMEOUT_SECONDS,
        states: WorkerStates | None = None,
    ) -> None:
        self._settings, self._store, self._metrics = settings, store, metrics
        self._run_dir = store.root / "run"
        self._pointer_path = store.root / "active.json"
        self._lock_path = self._run_dir / "promotion.lock"
        self._states = states or WorkerStates(self._run_dir / "workers")
        self._swap_timeout_seconds = swap_timeout_seconds
        self._active: LiveTokenizer | None = None
        self._reason: str | None = "The server is starting."
        self._failed: str | None = None
        self._pointer_seen: object = ()
        self._retry_at = 0.0
        self._pinned: OrderedDict[str, LiveTokenizer] = OrderedDict()
        self._pinned_lock = threading.Lock()
        self._load_locks: dict[str, threading.Lock] = {}
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
        with self._pinned_lock:
            found = self._pinned.get(name)
            if found is not None:
                self._pinned.move_to_end(name)
            return found

    def get(self, name: str | None) -> LiveTokenizer:
        """The tokenizer `name` (its newest version), `name@version`, or with None the active one.

        It may load from the disk: call it from a thread, not from the event loop.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError, NoTokenizerError.
        """
        found = self.peek(name)
        if found is not None or name is None:
            return found or self.require_active()
        ref = self._store.resolve(name)
        with self._load_lock(str(ref)):
            found = self.peek(str(ref))
            if found is None:
                found = self._load(ref)
                self._keep_pinned(found)
        return found

    def loaded(self) -> list[LiveTokenizer]:
        """All that is in memory for requests: the active one and the pinned."""
        with self._pinned_lock:
            pinned = list(self._pinned.values())
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
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._follow_pointer()
            except Exception:
                log.exception("following the active pointer failed")

    async def _follow_pointer(self) -> None:
        """Serve what the pointer names now, if it changed or a retry is due."""
        async with self._swap_lock:
            signature = self._pointer_signature()
            is_due = self._retry_at and time.monotonic() >= self._retry_at
            if signature == self._pointer_seen and not is_due:
                return
            self._pointer_seen, self._retry_at = signature, 0.0
            await asyncio.to_thread(self._follow, has_pointer=signature is not None)

    def _pointer_signature(self) -> object:
        try:
            status = self._pointer_path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _follow(self, *, has_pointer: bool) -> None:
        if not has_pointer:
            if self._active is None:
                self._start_default()
            return
        wanted = "the active pointer"
        try:
            ref = self._store.active()
            if ref is None:
                raise ArtifactCorruptError("it names nothing")
            wanted = str(ref)
            if self._active is not None and self._active.ref == ref:
                self._settle(self._active)
                return
            self._adopt(self._load(ref))
        except (TokenizerCoreError, OSError) as error:
            self._fail(wanted, error)

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
        with self._pinned_lock:
            self._pinned.pop(str(loaded.ref), None)
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
        candidates: list[Callable[[], ArtifactRef]] = []
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = (self._run_dir / "last_good.json").read_text(encoding="utf-8")
            last_good = str(json.loads(text)["tokenizer"])
            candidates.append(lambda: self._store.resolve(last_good))
        candidates.append(lambda: self._store.resolve(self._settings.default))
        with contextlib.suppress(TokenizerCoreError, OSError):
            newest_first = sorted(self._store.list(), key=lambda ref: ref.version, reverse=True)
            candidates += [lambda ref=ref: ref for ref in newest_first]  # type: ignore[misc]
        for candidate in candidates:
            with contextlib.suppress(TokenizerCoreError, OSError):
                return self._load(candidate())
        return None

    # The swap

    async def promote(
        self, ref: ArtifactRef, *, check: Callable[[ArtifactRef], None] = lambda present: None
    ) -> ArtifactRef | None:
        """Make `ref` what every process answers with; what was active before.

        It returns when all serving processes of this host have swapped. `check` is given what is
        active now and may raise: nobody else's promotion comes between the two.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: it cannot be loaded; nothing changed.
            SwapTimeoutError, SwapFailedError: some process did not follow; everything is back.
            Problem: 503 or 507, the disk fails or is full.
        """
        loaded = await asyncio.to_thread(self.get, str(ref))
        try:
            async with hold_promotion_lock(self._lock_path, self._swap_timeout_seconds):
                present = await asyncio.to_thread(self._read_present)
                if present is not None:
                    check(present)
                return await self._swap_everywhere(loaded)
        except OSError as error:
            raise problem_of_disk(error) from error

    async def _swap_everywhere(self, loaded: LiveTokenizer) -> ArtifactRef | None:
        before = self._active
        async with self._swap_lock:
            await asyncio.to_thread(self._store.promote, loaded.ref)
            self._pointer_seen = self._pointer_signature()
            await asyncio.to_thread(self._adopt, loaded)
        try:
            await self._wait_for_all(loaded.ref)
        except BaseException as error:
            if isinstance(error, SwapTimeoutError):
                self._count_swap("timeout")
            if before is not None:
                await asyncio.shield(self._restore(before))
            raise
        return None if before is None else before.ref

    def _read_present(self) -> ArtifactRef | None:
        """What is active by the pointer, which this process follows a moment late; by what is
        served where the pointer is damaged or was never written."""
        with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
            named = self._store.active()
            if named is not None:
                return named
        return None if self._active is None else self._active.ref

    async def _restore(self, before: LiveTokenizer) -> None:
        async with self._swap_lock:
            await asyncio.to_thread(self._store.promote, before.ref)
            self._pointer_seen = self._pointer_signature()
            await asyncio.to_thread(self._adopt, before)

    async def _wait_for_all(self, ref: ArtifactRef) -> None:
        deadline = time.monotonic() + self._swap_timeout_seconds
        while True:
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

    @contextlib.contextmanager
    def _load_lock(self, key: str) -> Iterator[None]:
        """Two requests for one version load it once."""
        with self._pinned_lock:
            lock = self._load_locks.setdefault(key, threading.Lock())
        try:
            with lock:
                yield
        finally:
            with self._pinned_lock:
                self._load_locks.pop(key, None)

    def _keep_pinned(self, loaded: LiveTokenizer) -> None:
        with self._pinned_lock:
            self._pinned[str(loaded.ref)] = loaded
            while len(self._pinned) > PINNED_VERSIONS:
                self._pinned.popitem(last=False)

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
