"""`aliases.json`, next to the pointer: further names of tokenizers, for clients that name a model.

An alias belongs to the name of a tokenizer. The file is one JSON object of alias and name, replaced
whole by compare-and-set, like the pointer.
"""

from __future__ import annotations

import errno
import json
import re
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactNameError,
    ArtifactStorageError,
    FormatError,
)
from tokenizer_core.registry.versions import ACTIVE, NAME, VERSION
from tokenizer_core.strict_json import parse_strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizer_core.registry.pointer import StoredState

ALIASES_NAME: Final = "aliases.json"
MAX_ALIASES: Final = 1000
MAX_ALIASES_BYTES: Final = 1 << 19
"""More than `MAX_ALIASES` of the longest aliases and names take."""

_ALIAS: Final = re.compile(r"[\x20-\x7e]{1,200}")


def checked_alias(alias: str) -> str:
    """`alias`, if it is valid; else raise ArtifactNameError.

    Example:
        >>> checked_alias("Qwen/Qwen3-8B")
        'Qwen/Qwen3-8B'
    """
    if (
        not _ALIAS.fullmatch(alias)
        or alias == ACTIVE
        or VERSION.fullmatch(alias.rpartition("@")[2])
    ):
        raise ArtifactNameError(
            "an alias has 1 to 200 printable ASCII characters, is not 'active' and names no version"
        )
    return alias


def parse_aliases(state: StoredState) -> dict[str, str]:
    """Alias -> name of its tokenizer, in a state of the file; empty if the file does not exist.

    Raises:
        ArtifactStorageError: the file is damaged. Nobody guesses which tokenizer an alias meant.
    """
    if state.tag is None:
        return {}
    try:
        if state.damage is not None:
            raise ArtifactCorruptError(state.damage)
        table = parse_strict_json(state.data, "the file")
        if not isinstance(table, dict):
            raise ArtifactCorruptError("the file is no JSON object")
        for alias, name in table.items():
            checked_alias(alias)
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise ArtifactCorruptError("an alias belongs to no name")
    except (ArtifactCorruptError, ArtifactNameError, FormatError) as error:
        raise ArtifactStorageError(
            errno.EIO, f"{ALIASES_NAME}: {error}; remove the file, and add the aliases again"
        ) from error
    return table


def render_aliases(aliases: Mapping[str, str]) -> bytes:
    """The content of the file."""
    return (json.dumps(aliases, indent=1, sort_keys=True) + "\n").encode()
