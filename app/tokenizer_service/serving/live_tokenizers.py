"""The tokenizers of this process: the active one, versions that requests pin, and the pointer.

`active` is one attribute. A request reads it once and keeps the reference. So requests need no
lock, a response never mixes two versions, and the last request frees a retired tokenizer. Every
process polls the pointer of the registry, so that all processes swap after a promotion by any
process of any host. A version that fails to load never replaces one that works, and serving
continues while the registry is unreachable.

A process without a tokenizer never guesses one: if what the pointer names cannot be loaded, then

another process of the host serves it    serve no active tokenizer, so that no response differs; if
                                         it is of the same server, accept no connections
others serve the version before          serve that too
the pointer itself is damaged            serve the last version that this host served
TOKENIZER_FALLBACK=previous              serve the latest loadable version that was active before
otherwise                                serve no active tokenizer

and try again. Requests that name a version are served in every case.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal
from weakref import WeakValueDictionary

from tokenizer_core import compiled
from tokenizer_core.blobs.atomic_files import replacing
from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    TokenizerCoreError,
)
from tokenizer_core.registry import ArtifactRef, Artifacts, StoredState
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.registry.versions import ACTIVE
from tokenizer_service.observability.metrics import ServedRow, ServiceMetrics
from tokenizer_service.serving.errors import NoTokenizerError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer
from tokenizer_service.serving.pointer_watch import PointerWatch
from tokenizer_service.serving.swap import Swap, is_locked
from tokenizer_service.serving.workers import WorkerState, WorkerStates
from tokenizer_service.settings import Settings

log = logging.getLogger("tokenizer_service.serving.live_tokenizers")

RETRY_SECONDS: Final = 10.0
SWAP_TIMEOUT_SECONDS: Final = 30.0

PINNED_VERSIONS: Final = 4

Source = Literal["promoted", "default", "packaged", "last_good", "previous"]
"""Why a version is active: the pointer names it; nothing was promoted; the same, and nothing names
a folder or a store; it was active when the pointer, its version or the store failed;
TOKENIZER_FALLBACK."""

_Fault = Literal["pointer", "version", "default"]
"""What cannot be loaded: what a damaged pointer names, the version that it names, the default."""

_LOAD_ERRORS: Final = (TokenizerCoreError, OSError, MemoryError)


def shared_folder(settings: Settings) -> Path:
    """The folder by which the processes of this host share tokenizers in memory."""
    return settings.artifacts_dir / "run" / "compiled"


class LiveTokenizers:
    """The active tokenizer of this process, and the versions that requests pin."""

    def __init__(
        self,
        settings: Settings,
        store: Artifacts,
        metrics: ServiceMetrics,
        *,
        swap_timeout_seconds: float = SWAP_TIMEOUT_SECONDS,
    ) -> None:
        self._settings, self._store, self._metrics = settings, store, metrics
        self.changing = asyncio.Lock()
        """Lock of the task that changes `active`."""
        self._run_dir = settings.artifacts_dir / "run"
        self._shared = shared_folder(settings)
        self._pointer = PointerWatch(store)
        self._states = WorkerStates(self._run_dir / "workers")
        self._promotion_lock = self._run_dir / "promotion.lock"
        self._swap = Swap(self, store, self._states, self._promotion_lock, swap_timeout_seconds)
        self.active: LiveTokenizer | None = None
        """The tokenizer for requests that name none; read it once per request."""
        self.source: Source = "default"
        """Why `active` is active."""
        self.previous: ArtifactRef | None = None
        """What a rollback would serve."""
        self._has_started = False
        self._stands_by = False
        self.reason: str | None = "The server is starting."
        """Why the service is degraded or serves nothing; None when it is healthy."""
        self.failed: str | None = None
        """`name@version` of what should be active and cannot be loaded."""
        self._logged: str | None = None
        self._n_failures = 0
        self._has_yielded = False
        self._pointer_seen: object = ()
        self._is_store_away = False
        self._retry_at = 0.0
        self._pinned = PinnedTokenizers()
        self._published: list[str] | None = []  # None: this process no longer serves
        self._publishing = threading.Lock()
        self._watcher: asyncio.Task[None] | None = None

    # Used by requests

    def trouble(self) -> str | None:
        """As `reason`, or else what keeps other processes of this host from serving; blocks."""
        if self.reason is not None:
            return self.reason
        failed = next((peer for peer in self._read_peers() if peer.failed), None)
        return None if failed is None else f"Another process of this host reports: {failed.reason}"

    def shown_for(self, named: ArtifactRef) -> ArtifactRef:
        """What `active` shows to clients while the pointer names `named`, which may be damaged."""
        active = self.active
        return active.ref if active is not None and self.failed == str(named) else named

    def require_active(self) -> LiveTokenizer:
        """The active tokenizer; raises NoTokenizerError."""
        active = self.active
        if active is None:
            raise NoTokenizerError(self.reason or "No tokenizer is loaded.")
        return active

    def peek(self, name: str | None) -> LiveTokenizer | None:
        """As `get`, but only from memory: None if the version must be loaded from the disk."""
        if name is None or name == ACTIVE:
            return self.require_active()
        active = self.active
        if active is not None and str(active.ref) == name:
            return active
        return self._pinned.find(name)

    def get(self, name: str | None) -> LiveTokenizer:
        """The tokenizer `name@version`, the newest version of `name`, which may be an alias, or for
        None the active one.

        May load from the disk: call it from a thread, not from the event loop.
        """
        found = self.peek(name)
        if found is not None or name is None:
            return found or self.require_active()
        ref = self._store.resolve_named(name, near=True)
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
        if self._stands_by:
            await self._stand_by()
        self._has_started = True
        self._watcher = asyncio.create_task(self._watch(), name="pointer watcher")

    async def stop(self) -> None:
        """End the watcher and remove the files of this process."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        with self._publishing:
            self._published = None
            self._states.remove()
        compiled.withdraw(self._shared)

    async def _stand_by(self) -> None:
        """Leave all connections to the processes that serve what this one cannot load: uvicorn
        listens when the app has started."""
        # uvicorn's handler would wait for the start. There is no request that SIGTERM could lose.
        handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while self._stands_by:
            await self._follow_later()
        signal.signal(signal.SIGTERM, handler)

    async def _watch(self) -> None:
        while True:
            await self._follow_later()

    async def _follow_later(self) -> None:
        await asyncio.sleep(self._store.poll_seconds)
        is_quiet = self.failed is None and not self._retry_at and not self._is_store_away
        try:
            await (self._follow_pointer(self._pointer_seen) if is_quiet else self._follow_pointer())
        except Exception:
            log.exception("following the active pointer failed")

    async def _follow_pointer(self, *known: object) -> None:
        """Serve the version that the pointer names now, if it changed or a retry is due. If a mark
        is `known`, waits a second for another one."""
        try:
            mark = await self._pointer.read(*known)  # outside the lock, because it may be slow
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
            if self.failed is not None and not is_due:
                is_due = await asyncio.to_thread(self._have_peers_changed)
            if mark == self._pointer_seen and not is_due and not self._is_store_away:
                return
            self._pointer_seen, self._retry_at = mark, 0.0
            await asyncio.to_thread(self._follow, has_pointer=mark is not None)
            self._note_store(is_away=False)

    def _follow(self, *, has_pointer: bool) -> None:
        wanted, ref = "The active pointer", None
        settings = self._settings
        self._note_previous()
        is_packaged = settings.default == "starter" and not settings.names_tokenizers
        unpromoted: Source = "packaged" if is_packaged else "default"
        source: Source = "promoted"
        fault: _Fault = "pointer"
        try:
            state = self._store.pointer_state() if has_pointer else StoredState(None)
            if (named := state.ref()) is not None:
                wanted, fault = str(named), "version"
                try:
                    ref = self._store.checked_ref(state)
                except ArtifactNotFoundError:
                    if not {*self._read_last_good()[:1]} <= {*state.recorded()}:
                        fault = "pointer"  # no promotion led there from the last good version
                    raise
            elif self._read_last_good()[1:] == ["promoted"]:
                raise ArtifactCorruptError("it is missing")
            elif self.active is not None:
                ref, source = self.active.ref, unpromoted
            else:
                wanted, fault, source = settings.default, "default", unpromoted
                served = [*(peer.served for peer in self._read_peers()), *self._read_last_good()]
                of_name = (ref for ref in served if ref and ref.startswith(f"{wanted}@"))
                ref = self._store.resolve_default(wanted, served=next(of_name, None))
                wanted = str(ref)
                loaded = self._load(ref)
                kept = self._record_default(ref)
                self.adopt(loaded if kept == ref else self._load(kept), source)
                return
            if self.active is not None and self.active.ref == ref:
                self._note_success(self.active, source)
            elif ref is not None:
                self.adopt(self._load(ref), source)
        except _LOAD_ERRORS as error:
            self._note_failure(wanted, fault, error)

    def _continue_without_store(self, error: Exception) -> None:
        """Keep serving the loaded tokenizer, or load what this host serves already or served
        last."""
        if not self._is_store_away:
            log.error("the store of tokenizers cannot be read; the service tries again: %s", error)
            self._note_store(is_away=True)
        if self.active is None and self.failed is None and time.monotonic() >= self._retry_at:
            served = [peer.served for peer in self._read_peers() if peer.served]
            self._load_substitute([*served, *self._read_last_good()[:1]], "last_good")
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._write_state()
        serving = self.active
        self.source = "previous" if self.source == "previous" else "last_good"
        still = (
            f"still serving {serving.ref}" if serving else "and this host has no tokenizer to serve"
        )
        self.reason = (
            f"The store of tokenizers cannot be read ({_code_of(error)}); {still}. The service "
            "keeps trying."
        )

    def _note_store(self, *, is_away: bool) -> None:
        if self._is_store_away and not is_away:
            log.info("the store of tokenizers can be read again")
        self._is_store_away = is_away
        self._metrics.store_away.set(is_away)

    def _record_default(self, ref: ArtifactRef) -> ArtifactRef:
        """What serves as the default: `ref`, or what another host recorded. Warns if nothing can be
        recorded and other hosts may choose another version."""
        if self._settings.default != ref.name:
            return ref  # the setting names the version
        try:
            return self._store.record_default(ref)
        except OSError as error:  # also of the store
            if len(self._store.versions(ref.name)) > 1:
                log.warning(
                    "TOKENIZER_DEFAULT=%s has several versions, and the store cannot record that "
                    "%s serves: %s. Other hosts, and this one after a restart, may serve another. "
                    "Name the version in TOKENIZER_DEFAULT, or promote it.",
                    ref.name,
                    ref,
                    error,
                )
            return ref

    def _note_success(self, serving: LiveTokenizer, source: Source) -> None:
        """Publish the new state to the other processes, and record the last good version."""
        self.source = source
        self.reason = self.failed = self._logged = None
        self._stands_by = self._has_yielded = False
        self._write_state()
        try:
            new = self._run_dir / f"last_good.{self._states.new_state().pid}.new"
            store = self._settings.store
            record = {"tokenizer": str(serving.ref), "source": source, "store": store}
            with replacing(self._run_dir / "last_good.json", staged=new) as staged:
                staged.write_text(json.dumps(record), encoding="utf-8")
        except OSError as error:
            log.warning("the last good version cannot be noted: %s", error)

    def _note_failure(self, wanted: str, fault: _Fault, error: Exception) -> None:
        """Record that `wanted` failed, and serve what the head of this module says."""
        wanted = getattr(error, "version", None) or wanted
        self.failed, self._n_failures = wanted, self._n_failures + 1
        self.count_swap("failed")
        peers = self._read_peers()
        serving = [peer for peer in peers if peer.served == wanted]
        # During a promotion the process that promotes decides: it goes back if this one fails.
        self._has_yielded = bool(serving) and not is_locked(self._promotion_lock)
        servers = {peer.server for peer in serving if peer.server is not None}
        self._stands_by = self._has_yielded and self._states.new_state().server in servers
        if self._has_yielded:
            self.active = None
        elif self.active is not None:
            self.source = "previous" if self.source == "previous" else "last_good"
        elif fault != "default":
            names = [peer.served for peer in peers if peer.served]
            source: Source = "last_good"
            if fault == "pointer":
                names += self._read_last_good()[:1]
            elif self._settings.fallback == "previous":
                source = "previous"
                with contextlib.suppress(*_LOAD_ERRORS):
                    names += self._store.history()
            self._load_substitute(names, source)
        remedies = self._remedies(fault, error)
        line = f"{wanted} cannot be served: {error}"
        if line != self._logged:  # once, and not at every retry
            log.error("%s. Remedy: %s", line.removesuffix("."), remedies)
        self._logged = line
        self.reason = self._explain(wanted, fault, error, remedies)
        self._write_state()
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if self._stands_by and self._has_started:
            log.error("this process ends; the one that takes its place waits until it can load it")
            os.kill(os.getpid(), signal.SIGTERM)

    def _explain(self, wanted: str, fault: _Fault, error: Exception, remedies: str) -> str:
        """What failed, what is served instead, and `remedies`. The text of `error` may contain
        paths, so that it goes only to the log."""
        file = getattr(error, "file", None)
        why = f"{file}: {_code_of(error)}" if file else _code_of(error)
        active = self.active
        if self._has_yielded:
            now = "other processes of this host serve it, and this one serves nothing until it can"
        elif active is None:
            now = "no other tokenizer is served in its place"
        elif self.source == "previous":
            now = f"TOKENIZER_FALLBACK=previous serves {active.ref}, which was active before"
        else:
            now = f"still serving {active.ref}"
        roles = {"pointer": "", "version": ", the active tokenizer,", "default": ", the default,"}
        return (
            f"{wanted}{roles[fault]} cannot be loaded ({why}); {now}. Requests that name a version "
            f"are served, and the service tries again every {RETRY_SECONDS:g} seconds. Remedy: "
            f"{remedies}."
        )

    def _remedies(self, fault: _Fault, error: Exception) -> str:
        lost = getattr(error, "file", None)
        if isinstance(error, OSError) and lost is None:
            return "let this service read the store of tokenizers"
        if fault == "version" and isinstance(error, ArtifactNotFoundError):
            lost = lost or "its folder"
        remedies = [f"restore {lost} from a backup"] if lost else []
        if fault == "default":
            command = "`tokenizer import starter --name starter --promote`"
            remedies.append(f"import one ({command}, with the settings of the service)")
            remedies.append("train one (POST /train)")
            remedies.append("set TOKENIZER_DEFAULT to another")
        remedies.append("promote a version that GET /tokenizers lists (PUT /tokenizers/active)")
        is_refused = self.active is None and not self._has_yielded
        if fault == "version" and is_refused and self._settings.fallback == "none":
            remedies.append("set TOKENIZER_FALLBACK=previous to serve what was active before")
        return ", or ".join(remedies)

    def _load_substitute(self, names: Iterable[str], source: Source) -> None:
        """Serve the first of these versions that loads, if one does."""
        for name in names:
            with contextlib.suppress(*_LOAD_ERRORS):
                self.active, self.source = self._load(self._store.resolve_near(name)), source
                return

    def _read_last_good(self) -> list[str]:
        """The version of this store that this host served last, and its source; empty for none."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads((self._run_dir / "last_good.json").read_text(encoding="utf-8"))
            if record["store"] == self._settings.store:
                return [str(record["tokenizer"]), str(record["source"])]
        return []

    def _read_peers(self) -> list[WorkerState]:
        """The states of the other processes of this host."""
        with contextlib.suppress(OSError):
            own = self._states.new_state().pid
            return [state for state in self._states.read_alive() if state.pid != own]
        return []

    def _have_peers_changed(self) -> bool:
        """Whether others have begun, or stopped, serving what this process cannot load."""
        is_served = any(peer.served == self.failed for peer in self._read_peers())
        return is_served != self._has_yielded

    # The swap

    async def promote(
        self,
        ref: ArtifactRef,
        *,
        check: Callable[[ArtifactRef | None], None] = lambda present: None,
    ) -> None:
        """Serve `ref` in every process of this host; `previous` is then what was served before.

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
        is_requested = self.peek(str(ref)) is not None
        loaded = await asyncio.to_thread(self.get, str(ref))
        try:
            await self._swap.promote(loaded, check)
        except BaseException:
            if not is_requested:  # no request named it, so it may be removed
                self._pinned.drop(loaded)
                await asyncio.to_thread(self._publish_pinned)
            raise
        await asyncio.to_thread(self._note_previous)

    def _note_previous(self) -> None:
        previous = None
        with contextlib.suppress(*_LOAD_ERRORS):
            previous = self._store.served_before(self._settings.default)
        self.previous = previous

    def adopt(self, loaded: LiveTokenizer, source: Source = "promoted") -> None:
        """Serve `loaded` from now on; blocks. The caller holds `changing`."""
        previous = self.active
        # First, or a probe would see this tokenizer with the trouble of the one before.
        self.reason = self.failed = None
        self.active = loaded
        self._pinned.drop(loaded)
        self._publish_pinned()
        if previous is None:
            log.info("serving %s", loaded.ref)
        elif previous.ref != loaded.ref:
            self.count_swap("ok")
            log.info("serving %s instead of %s", loaded.ref, previous.ref)
        self._note_success(loaded, source)

    def follow_pointer_again(self) -> None:
        """Treat the pointer as changed at the next poll."""
        self._pointer_seen = ()

    def count_swap(self, result: str) -> None:
        """Count a swap of this process: `ok`, `failed` or `timeout`."""
        self._metrics.swaps.labels(result).inc()
        if result == "ok":
            self._metrics.last_swap.set_to_current_time()

    # Loading

    def _load(self, ref: ArtifactRef) -> LiveTokenizer:
        """Read a version, verify its hashes and fingerprint, build the tokenizer and test it."""
        tokenizer = self._store.load(ref, engine=self._settings.engine, shared=self._shared)
        check_round_trip(tokenizer)
        return LiveTokenizer.of(ref, tokenizer)

    def _write_state(self) -> None:
        active = self.active
        state: WorkerState = self._states.new_state(
            name=active.ref.name if active else None,
            version=active.ref.version if active else None,
            digest=active.ref.digest if active else None,
            engine=active.tokenizer.engine_name if active else None,
            failed=self.failed,
            n_failures=self._n_failures,
            reason=self.reason if self.failed else None,
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
        self._load_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        """An entry lasts while any request loads that version, or waits to."""

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
        with lock:
            yield


def _code_of(error: Exception) -> str:
    """The code of an error, for clients. Its text may contain paths and goes only to the log."""
    return getattr(error, "code", type(error).__name__)
