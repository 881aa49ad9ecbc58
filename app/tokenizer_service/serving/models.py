"""ModelNames: the tokenizer for the `model` of a request, which is a name, an alias or a version.

Clients of other servers can only name a model. The registry says which version that is; this module
keeps the answer for the interval at which processes poll the pointer, so that most requests need
no thread. A new alias is known at once, a removed one and a promotion of a name that is not active
within that interval.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    ModelNotFoundError,
)
from tokenizer_core.registry import ArtifactRef, Artifacts
from tokenizer_core.registry.versions import ACTIVE
from tokenizer_service.serving.errors import NoTokenizerError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer
from tokenizer_service.serving.live_tokenizers import LiveTokenizers

_MOST_KEPT: Final = 4096


class ModelNames:
    """Finds the tokenizers of `live` by the names that clients give models."""

    def __init__(self, store: Artifacts, live: LiveTokenizers) -> None:
        self._store, self._live = store, live
        self._kept: dict[str, tuple[float, ArtifactRef]] = {}
        self._asking = threading.Lock()

    def find(self, model: str) -> LiveTokenizer | None:
        """As `get`, but only from memory: None if the registry must be asked."""
        if model == ACTIVE:
            return self._live.require_active()
        active = self._live.active
        if active is not None and active.ref.name == model:
            return active
        until, ref = self._kept.get(model, (0.0, None))
        if ref is None or time.monotonic() >= until:
            return None
        return self._find_active(model, ref) or self._live.peek(str(ref))

    def get(self, model: str) -> LiveTokenizer:
        """The tokenizer for `model`. Of the name that is active it is what this process serves.

        May ask the registry and load from the disk: call it from a thread.

        Raises:
            ModelNotFoundError: no tokenizer has that name or alias.
            NoTokenizerError: it should be active, and cannot be loaded.
            ArtifactCorruptError, ArtifactStorageError: it cannot be loaded, or the registry does
                not say which version it is.
        """
        found = self.find(model)
        if found is not None:
            return found
        try:
            ref = self._resolve(model)
            return self._find_active(model, ref) or self._live.get(str(ref))
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            failed = self._live.failed
            if failed and failed.startswith(f"{self._store.aliases().get(model, model)}@"):
                raise NoTokenizerError(self._live.reason or "No tokenizer is loaded.") from error
            raise

    def forget(self) -> None:
        """Ask the registry again, because this process has changed the aliases."""
        self._kept.clear()

    def _find_active(self, model: str, ref: ArtifactRef) -> LiveTokenizer | None:
        """The active tokenizer, if it has the name of `ref`, to which the registry resolves
        `model`, and `model` names no version."""
        active = self._live.active  # read once: another name may be promoted at any moment
        is_found = active is not None and active.ref.name == ref.name and model != str(ref)
        return active if is_found else None

    def _resolve(self, model: str) -> ArtifactRef:
        kept = self._kept.get(model)
        if kept is not None and not self._asking.acquire(blocking=False):
            return kept[1]  # while another request asks, which may be slow
        try:
            ref = self._store.resolve_model(model)
        except ModelNotFoundError:
            self._kept.pop(model, None)
            raise
        except (ArtifactCorruptError, ArtifactStorageError):
            # The active tokenizer serves its names also while nobody can say what else is active.
            active = self._live.active
            if kept is not None:
                ref = kept[1]
            elif active is not None and self._store.aliases().get(model) == active.ref.name:
                ref = active.ref
            else:
                raise
        finally:
            if kept is not None:
                self._asking.release()
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[model] = time.monotonic() + self._store.poll_seconds, ref
        return ref
