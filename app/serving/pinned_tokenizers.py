"""PinnedTokenizers: versions besides the active one that stay loaded because requests named them.

A few, by last use. Safe to use from several threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.serving.live_tokenizer import LiveTokenizer

PINNED_VERSIONS: Final = 4


class PinnedTokenizers:
    """At most `PINNED_VERSIONS`, by `name@version`."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, LiveTokenizer] = OrderedDict()
        self._lock = threading.Lock()
        self._load_locks: dict[str, threading.Lock] = {}

    def find(self, name: str) -> LiveTokenizer | None:
        """That version, if it is kept; it has been used now."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def all(self) -> list[LiveTokenizer]:
        """All that are kept."""
        with self._lock:
            return list(self._kept.values())

    def keep(self, loaded: LiveTokenizer) -> None:
        """Keep one, and let go of what was not used for longest."""
        with self._lock:
            self._kept[str(loaded.ref)] = loaded
            while len(self._kept) > PINNED_VERSIONS:
                self._kept.popitem(last=False)

    def drop(self, loaded: LiveTokenizer) -> None:
        """Let go of a version, if it is kept."""
        with self._lock:
            self._kept.pop(str(loaded.ref), None)

    @contextlib.contextmanager
    def loading(self, name: str) -> Iterator[None]:
        """Held while `name` is loaded: two requests for one version load it once."""
        with self._lock:
            lock = self._load_locks.setdefault(name, threading.Lock())
        try:
            with lock:
                yield
        finally:
            with self._lock:
                self._load_locks.pop(name, None)
