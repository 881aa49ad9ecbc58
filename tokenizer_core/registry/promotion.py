"""PointerMoves: when a version becomes active, and what refuses it.

The pointer moves by compare-and-set, so of two processes that read the same state one moves it; the
other tries again, so the later one wins (in the service: if its `check` accepts the new state). A
fence makes a new state of the same version, which refuses whoever read the one before.

An active version exists: a promotion opens it first, `_move_pointer` refuses a version that was
removed since, and `_refuse_active` keeps the active one from removal. In a folder both happen under
the lock of the pointer. A bucket has no lock: a promotion moves the pointer and then looks for the
manifest, and a removal removes the manifest and then looks at the pointer. The second of the two
sees the change of the first, and undoes its own.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactInUseError,
    ArtifactNotFoundError,
    PointerMovedError,
)
from tokenizer_core.registry.pointer import POINTER_NAME

if TYPE_CHECKING:
    from tokenizer_core.registry.pointer import StoredState
    from tokenizer_core.registry.versions import ArtifactRef
    from tokenizer_core.spec import TokenizerSpec

MAX_MOVES: Final = 8
"""How often to try again when others move the pointer first."""


class PointerMoves(ABC):
    """Base of `Artifacts`: moves the pointer and says which version it names."""

    def promote(
        self,
        ref: ArtifactRef,
        *,
        expected: StoredState | None = None,
        forget_current: bool = False,
        served: ArtifactRef | None = None,
    ) -> ArtifactRef | None:
        """Point `active.json` at `ref`, which must open; return the version that was active before.

        With `expected`, a state from `pointer_state`, promote only if the pointer is still in that
        state: nobody else promoted between the caller's check and this call. With `forget_current`,
        the history omits the version that is active now, because it was never served. `served` is
        what a server serves; the history has it if the pointer names nothing that exists.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: as `open`; the pointer is unchanged.
            ArtifactStorageError: the pointer could not be written; it is unchanged.
            PointerMovedError: the pointer was moved or fenced since `expected` was read; without
                `expected`, other processes moved it repeatedly.
        """
        self.open(ref)
        for _ in range(MAX_MOVES if expected is None else 1):
            state = expected or self.pointer_state()
            current: ArtifactRef | None = None
            # A damaged pointer must not prevent a promotion.
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                current = self.checked_ref(state)
            if current == ref:
                is_done = expected is None or self.pointer_state().tag == expected.tag
            else:
                data = state.moved_to(ref, None if forget_current else current or served)
                is_done = self._move_pointer(data, state, ref)
            if is_done:
                return current
        raise PointerMovedError(
            f"{ref} is not promoted: somebody else moved the pointer meanwhile; see what is active "
            f"now, and promote again"
        )

    def fence(self) -> None:
        """Advance the pointer's generation and keep the version that it names: this refuses every
        promotion that read the pointer before.

        Raises:
            ArtifactStorageError: the pointer could not be written.
        """
        state = self.pointer_state()
        # If this fails, another process moved the pointer, which has the same effect.
        self._move_pointer(state.fenced(), state, None)

    def checked_ref(self, state: StoredState) -> ArtifactRef | None:
        """The version that the pointer names in a state, whose manifest must agree; raise as
        `active`."""
        named = state.ref()
        if named is None:
            return None
        ref = self.resolve(str(named))
        if ref != named:
            corrupt = ArtifactCorruptError(
                f"active.json says another digest than the manifest of {ref}; promote it again"
            )
            corrupt.file = POINTER_NAME
            raise corrupt
        return ref

    def active(self) -> ArtifactRef | None:
        """The version that the pointer names; None before the first promotion.

        Raises:
            ArtifactCorruptError: the pointer is empty or garbage, or names another digest.
            ArtifactNotFoundError: that version does not exist.
        """
        return self.checked_ref(self.pointer_state())

    def previously_active(self) -> ArtifactRef | None:
        """The version that was active before the current one, for a rollback; raise as `active`."""
        history = self.history()
        return self.resolve(history[0]) if history else None

    def served_before(self, default: str) -> ArtifactRef:
        """What was served before the last promotion: the version that was active, or `default`.

        Raises:
            ArtifactCorruptError: as `active`.
            ArtifactNotFoundError: nothing else was served; or that version does not exist.
        """
        if self.pointer_state().ref() is None:
            raise ArtifactNotFoundError("nothing was promoted before; promote a version")
        before = self.previously_active()  # first, because the active version may be damaged
        if before is not None:
            return before
        active = self.active()
        try:
            before = self.resolve(default)
        except ArtifactNotFoundError as error:
            raise ArtifactNotFoundError(
                f"{active} is the first that was promoted, and {error}"
            ) from None
        if before == active:
            raise ArtifactNotFoundError(
                f"{active} is all that was ever served; promote another version"
            )
        return before

    def resolve_default(self, default: str, served: str | None = None) -> ArtifactRef:
        """What `default` serves until a version is promoted: of a name alone the version that
        `record_default` recorded, else `served`, else its newest; raise as `active`."""
        for index, version in enumerate(self.pointer_state().recorded()):
            if version.startswith(f"{default}@"):
                try:
                    return self.resolve(version)
                except ArtifactNotFoundError:
                    if index == 0:  # an earlier default may have been removed, the present one not
                        raise
        return self.resolve(served or default)

    def record_default(self, ref: ArtifactRef) -> ArtifactRef:
        """Record that `ref` serves as the default of its name, so that all hosts and a copy of the
        store serve it after a newer version was published. Return what is recorded: another host
        may have been first. Nothing changes after a promotion.

        Raises:
            ArtifactCorruptError, ArtifactNotFoundError: as `active`.
            ArtifactStorageError, PointerMovedError: as `promote`; nothing is recorded.
        """
        for _ in range(MAX_MOVES):
            state = self.pointer_state()
            if state.ref() is not None:
                return ref
            kept = self.resolve_default(ref.name, str(ref))
            is_done = state.recorded()[:1] == (str(kept),)
            if is_done or self._move_pointer(state.with_default(kept), state, kept):
                return kept
        raise PointerMovedError(f"{ref} is not recorded: others keep moving the pointer")

    def history(self) -> list[str]:
        """`name@version` of what was active before the current version, the latest first; some may
        have been removed.

        Raises:
            ArtifactCorruptError: the pointer is empty or garbage.
        """
        pointer = self.pointer_state().pointer()
        return [] if pointer is None else pointer.history()

    def _refuse_active(self, name: str, version: str) -> None:
        with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
            pointer = self.pointer_state().pointer()
            if pointer is not None and pointer.active == f"{name}@{version}":
                raise ArtifactInUseError(
                    f"{name}@{version} is active; promote another version before removing it"
                )

    # `Artifacts` implements these two, and the stores the others

    @abstractmethod
    def resolve(self, wanted: str) -> ArtifactRef: ...

    @abstractmethod
    def open(self, ref: ArtifactRef) -> TokenizerSpec: ...

    poll_seconds: float
    """The interval at which callers may poll the pointer."""

    @abstractmethod
    def pointer_mark(self) -> object:
        """A cheap value that changes whenever the pointer moves; None without a pointer."""

    @abstractmethod
    def pointer_state(self) -> StoredState:
        """The current state of the pointer; damaged content does not raise."""

    @abstractmethod
    def _move_pointer(self, data: bytes, state: StoredState, ref: ArtifactRef | None) -> bool:
        """Write the pointer if it is still in `state`, and return whether it was. `ref`, the new
        version, must still exist.

        Raises:
            ArtifactNotFoundError: `ref` was removed meanwhile; the pointer is unchanged.
        """
