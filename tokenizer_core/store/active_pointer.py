"""`active.json`: which version is served, and which was before it.

One small file, replaced whole. Whoever reads it must expect anything in it; whoever writes it holds
the store's lock. May import `errors` and `formats.strict_json`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Final

from tokenizer_core.errors import ArtifactCorruptError
from tokenizer_core.formats.strict_json import parse_strict_json
from tokenizer_core.store.artifact_ref import NAME, VERSION

POINTER_NAME: Final = "active.json"
MAX_POINTER_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ActivePointer:
    """`active` and `previous` as `name@version`, the digest of the active one, and when."""

    active: str
    digest: str
    previous: str | None
    changed_at: str

    def to_json(self) -> bytes:
        """The text of the file."""
        return (json.dumps(dataclasses.asdict(self), indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> ActivePointer:
        """The pointer that `data` is the text of.

        Raises:
            ArtifactCorruptError, FormatError: it is not such a text.

        Example:
            >>> ActivePointer.from_json(b"{}")
            Traceback (most recent call last):
            ...
            tokenizer_core.errors.ArtifactCorruptError: the pointer names no version; promote one
        """
        table = parse_strict_json(data, "the pointer")
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(table, dict) or set(table) != set(names):
            raise ArtifactCorruptError("the pointer names no version; promote one")
        pointer = cls(**table)
        if not _is_ref(pointer.active) or not (
            pointer.previous is None or _is_ref(pointer.previous)
        ):
            raise ArtifactCorruptError("the pointer names no version; promote one")
        return pointer


def _is_ref(value: object) -> bool:
    name, _, version = value.partition("@") if isinstance(value, str) else ("", "", "")
    return bool(NAME.fullmatch(name) and VERSION.fullmatch(version))
