"""Request bodies as JSON: the limits of what is parsed, and the status of each error.

The native engine parses, and `tokenizer_core.strict_json` what that leaves, in windows if a body is
large. Other requests run while either reads.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tokenizer_core.engines import EngineChoice, read_json_natively
from tokenizer_core.strict_json import StrictJsonError, read_json
from tokenizer_service.access.errors import TooManyContainersError, TooManyValuesError
from tokenizer_service.http.problem import Problem

WINDOW_CHARS: Final = 1 << 18
"""Characters parsed per step: about 5 ms of ids."""

MAX_DEPTH: Final = 1000
"""Deeper nesting is a 400. Nesting within this limit but deeper than the schema is a 422."""

MAX_VALUES: Final = 1 << 20
"""Strings, arrays and objects in one body: 16 times the largest batch. A body with more is refused
with 413 before it is parsed: 64 MB of empty strings took 3.3 GB of memory."""

MAX_CONTAINERS: Final = 1 << 18
"""Arrays and objects among them: four times the largest batch. Each costs 4 us in windows: 6 MB of
small arrays, which no route takes, took 4 s."""

_SHORT_BYTES: Final = 2 * MAX_DEPTH
"""A shorter body is not worth a call of the native engine."""

# An unterminated string extends to the end of the body, so that the search stays linear.
# `re` in every Python: a repetition fails only at the end of the body, where nothing is lost, and
# `regex` takes 40 bytes of memory for each escape.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def parse_body_json(
    body: bytes, engine: EngineChoice | None = None, *, window_chars: int = WINDOW_CHARS
) -> Any:
    """Parse the JSON of a body, in the native engine if that is given.

    The native one takes a tenth to a half of the time. It accepts a part of what `read_json`
    accepts; the rest, and every error, is left to that.

    Raises:
        Problem: 400 for invalid JSON (not UTF-8, a byte order mark, duplicate keys, nesting over
            MAX_DEPTH); 422 for JSON that no schema accepts (NaN, Infinity, numbers over 4,300
            digits, lone surrogates, deep nesting).
        TooManyValuesError, TooManyContainersError: more than MAX_VALUES or MAX_CONTAINERS.
    """
    if engine is not None and engine.name == "native" and len(body) > _SHORT_BYTES:
        found = read_json_natively(body, most_values=MAX_VALUES, most_containers=MAX_CONTAINERS)
        if found is not None:
            return found[0]
    if len(body) > MAX_DEPTH:
        _check_structure(body)
    try:
        return read_json(body, window_chars=window_chars)
    except StrictJsonError as error:
        raise _problem(error) from None


def _problem(error: StrictJsonError) -> Problem:
    if error.code == "nested_too_deep":
        return Problem(
            422, "invalid_request", "The body is nested deeper than any field of this route."
        )
    return Problem(
        422 if error.code in ("not_a_number", "number_too_long", "lone_surrogate") else 400,
        error.code,
        f"The body {error}.",
        byte_offset=error.byte_offset,
        errors=None if error.pointer is None else [(error.pointer, "holds a lone surrogate")],
    )


def _check_structure(body: bytes) -> None:
    """Refuse nesting over MAX_DEPTH, and more than MAX_VALUES or MAX_CONTAINERS.

    Two fast counts accept almost all bodies. In a valid document, no backslash precedes the opening
    quote of a string.
    """
    n_containers = body.count(b"[") + body.count(b"{")
    n_strings = body.count(b'"') - body.count(b'\\"')
    if n_containers <= MAX_DEPTH and n_strings <= MAX_VALUES:
        return
    n_values = n_containers = depth = 0
    for match in _STRUCTURE.finditer(body):
        first = body[match.start()]
        if first in b"]}":
            depth -= 1
            continue
        n_values += 1
        if first != ord('"'):
            n_containers += 1
            depth += 1
        if depth > MAX_DEPTH:
            raise Problem(
                400,
                "nested_too_deep",
                "The body is nested too deep.",
                limit=MAX_DEPTH,
                actual=depth,
            )
        if n_containers > MAX_CONTAINERS:
            raise TooManyContainersError(MAX_CONTAINERS)
        if n_values > MAX_VALUES:
            raise TooManyValuesError(MAX_VALUES)
