"""JSON read strictly: UTF-8, no duplicate keys, no NaN, and every failure a FormatError.

Python's reader silently keeps the last of two equal keys; in a vocabulary, a repeated key is one
token with two ids.
"""

from __future__ import annotations

import json
from typing import NoReturn

from tokenizer_core.errors import FormatError


def parse_strict_json(data: bytes, what: str) -> object:
    """Parse the JSON text `data`; errors refer to it as `what`.

    Raises:
        FormatError: not UTF-8, a byte order mark, not JSON, a key given twice, NaN or an
            infinity, a number with thousands of digits, nesting deeper than the reader's limit.

    Example:
        >>> parse_strict_json(b'{"a": 1, "a": 2}', "the vocabulary")
        Traceback (most recent call last):
        ...
        tokenizer_core.errors.FormatError: the vocabulary gives the key 'a' twice
    """

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise FormatError(f"{what} gives the key {twice!r:.60} twice")
        return found

    def constant(name: str) -> NoReturn:
        raise FormatError(f"{what} holds {name}, which is not JSON")

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{what} is not UTF-8: byte {error.start} is wrong") from None
    try:
        value: object = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except FormatError:
        raise
    except RecursionError:
        raise FormatError(f"{what} is nested too deeply to be a tokenizer file") from None
    except ValueError as error:
        raise FormatError(f"{what} is not JSON: {error!s:.120}") from None
    return value
