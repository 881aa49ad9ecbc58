"""`active.json`, the pointer: the active version and those before it.

One small file, replaced whole by compare-and-set. Each state has a generation, one more than the
state before, so that no two states are equal. A reader must expect any content in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tokenizer_core.errors import ArtifactCorruptError, FormatError
from tokenizer_core.registry.versions import NAME, VERSION, ArtifactRef
from tokenizer_core.strict_json import parse_record, parse_strict_json

POINTER_NAME: Final = "active.json"
MAX_POINTER_BYTES: Final = 1 << 16
MAX_EARLIER: Final = 8
_MAX_NAMES: Final = 512
"""Of so many names the pointer records the version that was active last; they take 50 kB."""
_MAX_GENERATION: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ActivePointer:
    """`active` and `previous` as `name@version`, the digest of the active one, the time of change.

    `active` and `digest` are None before the first promotion: the pointer was fenced, or its
    history records what serves as the default. `earlier` are the versions that were active before
    `previous`, the latest first: the last `MAX_EARLIER`, and before them the last of each other
    name.
    """

    active: str | None
    digest: str | None
    previous: str | None
    changed_at: str
    generation: int
    earlier: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """The content of the file."""
        return (json.dumps(dataclasses.asdict(self), indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> ActivePointer:
        """The pointer in `data`.

        Raises:
            ArtifactCorruptError, FormatError: the content is not a pointer.
        """
        table = parse_strict_json(data, "the pointer")
        with contextlib.suppress(KeyError, TypeError):
            pointer: ActivePointer = parse_record(cls, table)
            if (
                (_is_ref(pointer.active) or (pointer.active is None and pointer.digest is None))
                and all(map(_is_ref, pointer.history()))
                and 0 <= pointer.generation < _MAX_GENERATION
            ):
                return pointer
        raise ArtifactCorruptError("the pointer names no version")

    def history(self) -> list[str]:
        """`name@version` of the versions that were active before, the latest first."""
        return [*([] if self.previous is None else [self.previous]), *self.earlier]


@dataclass(frozen=True, slots=True)
class StoredState:
    """The content of `active.json` or `aliases.json` at some moment, sound or not; `promote` takes
    it as `expected`.

    `tag` is the store's identifier of this state, None if the file does not exist. `damage` says
    why the file cannot be read. The methods are those of `active.json`.
    """

    tag: str | None
    data: bytes = b""
    damage: str | None = None

    def pointer(self) -> ActivePointer | None:
        """The pointer; None if the file does not exist.

        Raises:
            ArtifactCorruptError: the file is empty, garbage, or cannot be read.
        """
        if self.tag is None:
            return None
        try:
            if self.damage is not None:
                raise ArtifactCorruptError(self.damage)
            return ActivePointer.from_json(self.data)
        except (ArtifactCorruptError, FormatError) as error:
            corrupt = ArtifactCorruptError(f"{POINTER_NAME}: {error}; promote a version")
            corrupt.file = POINTER_NAME
            raise corrupt from error

    def ref(self) -> ArtifactRef | None:
        """The version that the pointer names, even if it is damaged or missing; raise as
        `pointer`."""
        pointer = self.pointer()
        if pointer is None or pointer.active is None:
            return None
        name, _, version = pointer.active.partition("@")
        return ArtifactRef(name, version, str(pointer.digest))

    def recorded(self) -> tuple[str, ...]:
        """`name@version` of the versions that it names as active, now and before, newest first;
        raise as `pointer`."""
        pointer = self.pointer()
        if pointer is None:
            return ()
        return (*([] if pointer.active is None else [pointer.active]), *pointer.history())

    def moved_to(self, ref: ArtifactRef, previous: ArtifactRef | None) -> bytes:
        """The content of the next pointer, which names `ref`, and `previous` as the latest before
        it; None leaves the version that is active now out of the history."""
        history = [] if previous is None else [str(previous)]
        with contextlib.suppress(ArtifactCorruptError):
            pointer = self.pointer()
            history += [] if pointer is None else pointer.history()
        before: list[str] = []
        names = {ref.name}
        for version in dict.fromkeys(history):
            name = version.partition("@")[0]
            is_kept = len(before) <= MAX_EARLIER or (name not in names and len(before) < _MAX_NAMES)
            if is_kept and version != str(ref):
                before.append(version)
            names.add(name)
        previous_one = before[0] if before else None
        earlier = tuple(before[1:])
        return ActivePointer(
            str(ref), ref.digest, previous_one, _now(), self.generation + 1, earlier
        ).to_json()

    def with_default(self, ref: ArtifactRef) -> bytes:
        """The content of the next pointer before the first promotion: no version is active, and
        `ref` is the latest in the history; raise as `pointer`."""
        history = [version for version in self.recorded() if version != str(ref)]
        return ActivePointer(
            None, None, str(ref), _now(), self.generation + 1, tuple(history[:_MAX_NAMES])
        ).to_json()

    def fenced(self, *, after: StoredState | None = None) -> bytes:
        """The content of a pointer to the same version, one generation after this state, or after
        the state `after`."""
        try:
            pointer = self.pointer() or ActivePointer(None, None, None, _now(), 0)
        except ArtifactCorruptError:
            return self.data + b"\n"  # still damaged, but another state
        generation = (after or self).generation + 1
        return dataclasses.replace(pointer, generation=generation).to_json()

    @property
    def generation(self) -> int:
        """The generation of the pointer; 0 if it is missing or damaged."""
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
