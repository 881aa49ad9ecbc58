"""Manifests as sealed JSON, which names its format and contains a sha256 over its own fields.

The manifests of artifacts, of token files and of the shards of a run are such. The text must be
exactly the one rendered here, so that every flipped bit is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizer_core.errors import FormatError
from tokenizer_core.strict_json import parse_strict_json


@dataclass(frozen=True, slots=True)
class SealedFormat:
    """One kind of manifest: the word and version in the file, what it describes, its size cap."""

    name: str
    version: int
    described: str
    max_bytes: int

    def render(self, fields: Mapping[str, object]) -> bytes:
        """Render a manifest: its format, `fields`, and the sha256 that seals them. Raises
        FormatError: a value that JSON cannot represent (NaN, bytes, a lone surrogate)."""
        table = {"format": self.name, "format_version": self.version, **fields}
        try:
            return _render({**table, "checksum": _checksum(table)})
        except (TypeError, ValueError) as error:
            raise FormatError(f"the manifest cannot be written as JSON: {error!s:.120}") from None

    def parse(self, data: bytes) -> dict[str, Any]:
        """Parse a manifest; checks and removes its seal. Raises FormatError: the format or version
        is different, or the manifest was changed."""
        if len(data) > self.max_bytes:
            raise FormatError(f"the manifest is larger than {self.max_bytes} bytes")
        table = parse_strict_json(data, "the manifest")
        if not isinstance(table, dict) or table.get("format") != self.name:
            raise FormatError(f"the manifest is not that of {self.described}")
        if table.get("format_version") != self.version:
            raise FormatError(
                f"the manifest has format version {table.get('format_version')!r:.20}; this "
                f"release reads version {self.version}"
            )
        try:
            unchanged = _render(table) == data and table.pop("checksum", None) == _checksum(table)
        except (ValueError, RecursionError):  # never written: a lone surrogate, 1e999
            unchanged = False
        if not unchanged:
            raise FormatError("the manifest was changed or damaged after it was written")
        own = ("format", "format_version")
        return {key: value for key, value in table.items() if key not in own}


def _render(table: Mapping[str, object]) -> bytes:
    return (json.dumps(table, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()


def _checksum(table: Mapping[str, object]) -> str:
    text = json.dumps(
        table, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()
