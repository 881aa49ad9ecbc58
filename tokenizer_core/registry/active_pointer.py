"""`active.json`: which version is served, and which was before it.

One small file, replaced whole, by whoever finds it in the state that was read: each state has a
generation, one more than the state before, so that no two are the same. Whoever reads it must
expect anything in it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tokenizer_core.errors import ArtifactCorruptError, FormatError
from tokenizer_core.registry.artifact_ref import NAME, VERSION, ArtifactRef
from tokenizer_core.strict_json import parse_strict_json

POINTER_NAME: Final = "active.json"
MAX_POINTER_BYTES: Final = 1 << 16
_MAX_GENERATION: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ActivePointer:
    """`active` and `previous` as `name@version`, the digest of the active one, and when.

    `active` and `digest` are None in a pointer that was fenced before anything was promoted.
    """

    active: str | None
    digest: str | None
    previous: str | None
    changed_at: str
    generation: int = 0

    def to_json(self) -> bytes:
        """The text of the file."""
        return (json.dumps(dataclasses.asdict(self), indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> ActivePointer:
        """The pointer that `data` is the text of; one without a generation is from before there
        were any, and has 0.

        Raises:
            ArtifactCorruptError, FormatError: it is not such a text.

        Example:
            >>> ActivePointer.from_json(b"{}")
            Traceback (most recent call last):
            ...
            tokenizer_core.errors.ArtifactCorruptError: the pointer names no version; promote one
        """
        table = parse_strict_json(data, "the pointer")
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(table, dict) or {*table, "generation"} != names:
            raise ArtifactCorruptError("the pointer names no version; promote one")
        pointer = cls(**table)
        if (
            not (_is_ref(pointer.active) or (pointer.active is None and pointer.digest is None))
            or not (pointer.previous is None or _is_ref(pointer.previous))
            or type(pointer.generation) is not int
            or not 0 <= pointer.generation < _MAX_GENERATION
        ):
            raise ArtifactCorruptError("the pointer names no version; promote one")
        return pointer


@dataclass(frozen=True, slots=True)
class PointerState:
    """What `active.json` held when it was read, sound or not; `promote` takes it as `expected`.

    `version` is the store's word for this state, None where there is no pointer; `damage` says why
    what is there cannot be read.
    """

    version: str | None
    data: bytes = b""
    damage: str | None = None

    def pointer(self) -> ActivePointer | None:
        """The pointer; None where there is none.

        Raises:
            ArtifactCorruptError: it is empty, garbage, or no file that can be read.
        """
        if self.version is None:
            return None
        try:
            if self.damage is not None:
                raise ArtifactCorruptError(self.damage)
            return ActivePointer.from_json(self.data)
        except (ArtifactCorruptError, FormatError) as error:
            raise ArtifactCorruptError(f"{POINTER_NAME}: {error}") from error

    def moved_to(self, ref: ArtifactRef, previous: ArtifactRef | None) -> bytes:
        """The text of the pointer to `ref` that comes after this one."""
        return ActivePointer(
            str(ref),
            ref.digest,
            None if previous is None else str(previous),
            _now(),
            self.generation + 1,
        ).to_json()

    def fenced(self, *, after: PointerState | None = None) -> bytes:
        """The text of a pointer that names what this one names, in the next generation: the one
        after this, or after that of `after`."""
        try:
            pointer = self.pointer() or ActivePointer(None, None, None, _now())
        except ArtifactCorruptError:
            return self.data + b"\n"  # as damaged as it was, and not the same
        generation = (after or self).generation + 1
        return dataclasses.replace(pointer, generation=generation).to_json()

    @property
    def generation(self) -> int:
        """That of the pointer; 0 where there is none, or a damaged one."""
        try:
            pointer = self.pointer()
        except ArtifactCorruptError:
            return 0
        return 0 if pointer is None else pointer.generation


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_ref(value: object) -> bool:
    name, _, version = value.partition("@") if isinstance(value, str) else ("", "", "")
    return bool(NAME.fullmatch(name) and VERSION.fullmatch(version))
