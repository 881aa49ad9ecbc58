"""Strict JSON: parses request bodies and refuses ambiguous ones.

Python's parser accepts duplicate keys, NaN, UTF-16 and lone surrogates, and holds the interpreter
lock until it ends. This parser accepts only UTF-8 and parses a large body in windows; other threads
run between windows (10 million ids in one window: 0.7 s).
"""

from __future__ import annotations

import codecs
import json
import math
import re
from json import JSONDecodeError
from json.scanner import make_scanner
from typing import TYPE_CHECKING, Any, Final, NoReturn

from app.http.problem import Problem
from tokenizer_core.engines import decode_json_string

if TYPE_CHECKING:
    from tokenizer_core.engines import EngineChoice

WINDOW_CHARS: Final = 1 << 18
"""Characters parsed per step: about 5 ms of ids."""

MAX_DEPTH: Final = 1000
"""Deeper nesting is a 400. Nesting within this limit but deeper than the schema is a 422."""

MAX_VALUES: Final = 1 << 20
"""Strings, arrays and objects in one body: 16 times the largest batch. A body with more is refused
with 413 before it is parsed: 64 MB of empty strings took 3.3 GB of memory."""

_MOST_OF_STRING_AT_ONCE: Final = 1 << 22
"""Characters of a string that the C parser may read per step: 3 ms. Cutting a string costs five
times as much as reading it."""

_MAX_DEPTH_OF_LARGE: Final = 8
_FIRST_STRING: Final = re.compile(rb'\s*+\{\s*+"([a-z_]{1,40})"\s*+:\s*+(?=")')
_MAX_SCALAR_CHARS: Final = 1 << 13
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SCALARS: Final = re.compile(r'[^\[\]{}"]*')
# Complete units of a string: the end of a window never splits an escape.
_STRING_UNITS: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_HIGH_SURROGATE_AT_END: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
# An unterminated string extends to the end of the body, so that the search stays linear.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def parse_strict_json(
    body: bytes, engine: EngineChoice | None = None, *, window_chars: int = WINDOW_CHARS
) -> Any:
    """Parse a JSON document. The native engine, if given, decodes a long first string.

    Raises:
        Problem: 400 for invalid JSON (not UTF-8, a byte order mark, duplicate keys, nesting over
            MAX_DEPTH); 422 for JSON that no schema accepts (NaN, Infinity, numbers over 4,300
            digits, lone surrogates).

    Example:
        >>> parse_strict_json(b'{"text": "a", "ids": [1, 2]}')
        {'text': 'a', 'ids': [1, 2]}
    """
    if len(body) <= 2 * MAX_DEPTH and body[:1] == b"{":  # too short to exceed MAX_DEPTH
        try:
            text = body.decode()
            value, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            pass  # the rest of this function reports the error
        else:
            if end == len(text) and "\\u" not in text:
                return value
    elif engine is not None and engine.name == "native" and len(body) <= _MOST_OF_STRING_AT_ONCE:
        shortened = _cut_first_string(body)
        if shortened is not None:
            key, string, rest = shortened
            try:
                value = parse_strict_json(rest)
            except Problem:
                pass  # the rest of this function reports it, with positions in the whole body
            else:
                value[key] = string
                return value
    _check_structure(body)
    text = _decode(body, 4 * window_chars)
    try:
        if len(text) <= window_chars:
            value = _DECODER.decode(text)
        else:
            value = _WindowedParser(text, window_chars).parse()
    except JSONDecodeError as error:
        raise Problem(
            400,
            "malformed_json",
            f"The body is not JSON: {error.msg} at character {error.pos} "
            f"(line {error.lineno}, column {error.colno}).",
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # int() refuses more than 4,300 digits
        raise Problem(
            422, "number_too_long", "A number in the body has more digits than any field takes."
        ) from None
    # Search for `\u` only where that is fast; a single backslash is fast to find in any text.
    if "\\" in text and (len(text) > window_chars or "\\u" in text):
        _refuse_lone_surrogates(value)
    return value


def _cut_first_string(body: bytes) -> tuple[str, str, bytes] | None:
    """Return the key and string value of an object's first member, and `body` with that string
    emptied. None if the body begins differently, or if the string is invalid or very long."""
    begin = _FIRST_STRING.match(body)
    if begin is None:
        return None
    found = decode_json_string(body, begin.end())
    if found is None:
        return None
    string, end = found
    return begin[1].decode(), string, body[: begin.end()] + b'""' + body[end:]


def _decode(body: bytes, window_bytes: int) -> str:
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise Problem(
            400, "byte_order_mark", "The body begins with a byte order mark; send plain UTF-8 JSON."
        )
    if len(body) <= window_bytes:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(error.start) from None
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = ""
    # Append in a `for` loop instead of joining: a join copies everything in one step, while CPython
    # extends a string with one reference in place (3.11: not in a `while` loop, 60 times slower).
    for start in range(0, len(body), window_bytes):
        n_held = len(decoder.getstate()[0])
        is_last = start + window_bytes >= len(body)
        try:
            text += decoder.decode(body[start : start + window_bytes], is_last)
        except UnicodeDecodeError as error:
            offset = start - n_held + error.start
            raise _not_utf8(offset) from None
    return text


def _not_utf8(offset: int) -> Problem:
    return Problem(
        400,
        "invalid_utf8",
        f"The body is not UTF-8: invalid bytes at offset {offset}.",
        byte_offset=offset,
    )


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise Problem(400, "duplicate_key", "An object in the body has the same key twice.")
    return built


def _refuse_constant(name: str) -> NoReturn:
    raise Problem(422, "not_a_number", f"{name.lstrip('-')} is not JSON and no field takes it.")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise Problem(422, "not_a_number", "A number in the body is larger than any field takes.")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_constant=_refuse_constant, parse_float=_parse_float
)
_scan: Final = make_scanner(_DECODER)  # type: ignore[arg-type]  # the stub expects its own class


def _check_structure(body: bytes) -> None:
    """Raise 400 for nesting over MAX_DEPTH and 413 for more than MAX_VALUES values.

    Two fast counts accept almost all bodies. In a valid document, no backslash precedes the opening
    quote of a string.
    """
    n_containers = body.count(b"[") + body.count(b"{")
    n_strings = body.count(b'"') - body.count(b'\\"')
    if n_containers <= MAX_DEPTH and n_strings <= MAX_VALUES:
        return
    n_values = depth = 0
    for match in _STRUCTURE.finditer(body):
        first = body[match.start()]
        if first in b"]}":
            depth -= 1
            continue
        n_values += 1
        depth += first != ord('"')
        if depth > MAX_DEPTH:
            raise Problem(
                400,
                "nested_too_deep",
                "The body is nested too deep.",
                limit=MAX_DEPTH,
                actual=depth,
            )
        if n_values > MAX_VALUES:
            raise Problem(
                413,
                "batch_too_large",
                f"A body holds at most {MAX_VALUES} strings, arrays and objects together; send "
                f"several requests.",
                limit=MAX_VALUES,
            )


def _too_deep() -> Problem:
    return Problem(
        422, "invalid_request", "The body is nested deeper than any field of this route."
    )


def _refuse_lone_surrogates(value: Any) -> None:
    """Walk without recursion. The body was UTF-8, so only escapes can produce a lone surrogate."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, str):
            _check_text(value, pointer)
        elif isinstance(value, dict):
            for key, member in value.items():
                _check_text(key, pointer)
                waiting.append((f"{pointer}/{key}"[:120], member))
        elif isinstance(value, list):
            waiting.extend(
                (f"{pointer}/{index}"[:120], member)
                for index, member in enumerate(value)
                if not isinstance(member, int)
            )


def _check_text(text: str, pointer: str) -> None:
    if text.isascii():
        return
    for start in range(0, len(text), WINDOW_CHARS):
        try:
            text[start : start + WINDOW_CHARS].encode()
        except UnicodeEncodeError as error:
            place = start + error.start
            detail = f"a lone surrogate at character {place}, which no UTF-8 text can hold"
            raise Problem(
                422, "lone_surrogate", f"The body holds {detail}.", errors=[(pointer, detail)]
            ) from None


class _WindowedParser:
    """Parses the large parts of a document by recursive descent; the C parser parses each window.

    Python code runs between windows, so the interpreter can switch threads there.
    """

    def __init__(self, text: str, window_chars: int) -> None:
        self._text = text
        self._window = max(window_chars, 16)

    def parse(self) -> Any:
        value, at = self._value(self._skip_space(0), 0)
        at = self._skip_space(at)
        if at != len(self._text):
            raise JSONDecodeError("Extra data", self._text, at)
        return value

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        first = self._text[at : at + 1]
        if first == '"':
            return self._string(at)
        if first in ("[", "{"):
            if depth >= _MAX_DEPTH_OF_LARGE:
                raise _too_deep()
            return self._array(at, depth) if first == "[" else self._object(at, depth)
        end = min(at + _MAX_SCALAR_CHARS, len(self._text))
        try:
            value, size = _DECODER.raw_decode(self._text[at:end])
        except JSONDecodeError as error:
            raise JSONDecodeError(error.msg, self._text, at + error.pos) from None
        if at + size == end < len(self._text):
            raise ValueError("a number longer than a window")
        return value, at + size

    def _string(self, at: int) -> tuple[str, int]:
        """Parse the string whose opening quote is at `at`; returns it and the next position."""
        if len(self._text) - at <= _MOST_OF_STRING_AT_ONCE:
            value, end = _DECODER.raw_decode(self._text, at)
            return value, end
        value = ""
        start = at + 1
        while True:
            limit = min(start + self._window, len(self._text))
            end = _match_end(_STRING_UNITS, self._text, start, limit)
            piece = self._text[start:end]
            # Keep an escaped surrogate pair in one piece: it is one character.
            if end + 6 > limit and len(piece) > 6 and _HIGH_SURROGATE_AT_END.search(piece):
                end, piece = end - 6, piece[:-6]
            value += _DECODER.decode(f'"{piece}"')  # extended in place, see `_decode`
            if self._text[end : end + 1] == '"':
                return value, end + 1
            if end == start or end == len(self._text):
                raise self._string_error(at, end)
            start = end

    def _string_error(self, at: int, end: int) -> JSONDecodeError:
        character = self._text[end : end + 1]
        if not character:
            return JSONDecodeError("Unterminated string starting at", self._text, at)
        what = "escape" if character == "\\" else "control character"
        return JSONDecodeError(f"Invalid {what}", self._text, end)

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self._skip_space(at + 1)
        if self._text[at : at + 1] == "]":
            return items, at + 1
        while True:
            if self._text[at : at + 1] in ('"', "[", "{"):
                item, at = self._value(at, depth + 1)
                items.append(item)
            else:
                at = self._scalars(at, items)
            at = self._skip_space(at)
            mark = self._text[at : at + 1]
            if mark == "]":
                return items, at + 1
            if mark != ",":
                raise JSONDecodeError("Expecting ',' delimiter", self._text, at)
            at = self._skip_space(at + 1)
            if self._text[at : at + 1] == "]":
                raise JSONDecodeError("Expecting value", self._text, at)

    def _scalars(self, at: int, items: list[Any]) -> int:
        """Append a run of numbers and words; returns the position of the next `,` or `]`."""
        end = _match_end(_SCALARS, self._text, at, min(at + self._window, len(self._text)))
        if self._text[end : end + 1] != "]":
            # Cut at the last comma; the next window contains all of the value after it.
            end = self._text.rfind(",", at, end)
            if end < 0:
                if len(self._text) - at > self._window:
                    raise ValueError("a number longer than a window")
                raise JSONDecodeError("Expecting value", self._text, at)
        if end == at:  # nothing precedes the comma
            raise JSONDecodeError("Expecting value", self._text, at)
        try:
            items += _DECODER.decode(f"[{self._text[at:end]}]")
        except JSONDecodeError as error:
            raise JSONDecodeError(error.msg, self._text, at + error.pos - 1) from None
        return end

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        pairs: list[tuple[str, Any]] = []
        at = self._skip_space(at + 1)
        if self._text[at : at + 1] == "}":
            return {}, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                raise JSONDecodeError(
                    "Expecting property name enclosed in double quotes", self._text, at
                )
            key, at = self._string(at)
            at = self._skip_space(at)
            if self._text[at : at + 1] != ":":
                raise JSONDecodeError("Expecting ':' delimiter", self._text, at)
            value, at = self._value(self._skip_space(at + 1), depth + 1)
            pairs.append((key, value))
            at = self._skip_space(at)
            mark = self._text[at : at + 1]
            if mark == "}":
                return _build_object(pairs), at + 1
            if mark != ",":
                raise JSONDecodeError("Expecting ',' delimiter", self._text, at)
            at = self._skip_space(at + 1)

    def _skip_space(self, at: int) -> int:
        return _match_end(_SPACE, self._text, at, len(self._text))


def _match_end(pattern: re.Pattern[str], text: str, start: int, limit: int) -> int:
    match = pattern.match(text, start, limit)
    return match.end() if match else start
