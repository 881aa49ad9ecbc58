"""The one JSON reader, for request bodies and for files: UTF-8, and nothing ambiguous.

Python's reader keeps the last of two equal keys (in a vocabulary, one token with two ids), accepts
NaN, UTF-16 and lone surrogates, and holds the interpreter lock until it ends. This one refuses all
of these, and can parse a large body in windows, so that other threads run in between. jiter and
msgspec hold the lock too; jiter reads 1e400 as infinity, msgspec accepts duplicate
keys. The native engine reads request bodies faster
(`native/src/json/values.rs`): it accepts a part of what this module accepts, with the same values.
What a model wrote, such as the arguments of a tool call, is read as the server that is imitated
reads it (`chat.messages`, `chat.outputs`).
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from json import JSONDecodeError
from json.scanner import make_scanner
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from tokenizer_core.errors import FormatError
from tokenizer_core.splitting.possessive import compile_possessive

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_SHORT_BYTES: Final = 1 << 14
"""What is shorter is first tried in one call: 1 us less for a request of 100 bytes."""

_MOST_OF_STRING_AT_ONCE: Final = 1 << 22
"""Characters of a string that the C parser may read per step: 3 ms. Cutting a string costs five
times as much as reading it."""

MAX_FILE_VALUES: Final = 1 << 22
"""The commas and opening brackets that a file may have outside its strings, about the number of its
values: 40 million empty lists take 3 GB and 20 seconds. A tokenizer with a million tokens and as
many merges has fewer."""

_COUNTED_BYTES: Final = 1 << 20

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SCALARS: Final = re.compile(r'[^\[\]{}"]*')
# Complete units of a string: the end of a window never splits an escape.
_STRING_UNITS: Final = compile_possessive(
    r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
)
_HIGH_SURROGATE_AT_END: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")

_NESTED: Final = "is nested too deep"
_LONG_NUMBER: Final = "holds a number of more than 4,300 digits"


class StrictJsonError(Exception):
    """A text is not strict JSON. The message continues a sentence that begins with its name."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        key: str | None = None,
        byte_offset: int | None = None,
        pointer: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        """One of malformed_json, invalid_utf8, byte_order_mark, duplicate_key, not_a_number,
        number_too_long, nested_too_deep, lone_surrogate."""
        self.key = key
        """The repeated key."""
        self.byte_offset = byte_offset
        """The first byte that is not UTF-8."""
        self.pointer = pointer
        """JSON pointer of the string with a lone surrogate."""


def parse_strict_json(data: bytes, what: str) -> object:
    """Parse the JSON of a file; errors refer to it as `what`.

    Raises:
        FormatError: for every reason that `read_json` names, and for too many values.

    Example:
        >>> parse_strict_json(b'{"a": 1, "a": 2}', "the vocabulary")
        Traceback (most recent call last):
        ...
        tokenizer_core.errors.FormatError: the vocabulary gives the key 'a' twice
    """
    check_number_of_values(data, what)
    try:
        value: object = read_json(data)
    except StrictJsonError as error:
        if error.key is not None:
            raise FormatError(f"{what} gives the key {error.key!r:.60} twice") from None
        raise FormatError(f"{what} {error}") from None
    return value


def typed(value: Any, kind: type[_T]) -> _T:
    """Return `value` if its type is exactly `kind`, else raise TypeError: JSON's true is no id."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is no {kind.__name__}")
    return value


def parse_record(kind: Any, value: Any) -> Any:
    """The value of a type in what JSON gave for it: a dataclass, a tuple of any length, a mapping,
    one of these or None, or a simple type; bytes are ASCII. A class with `from_fields` reads its
    own fields. Raises KeyError, TypeError, ValueError, AttributeError: a field is missing, unknown
    or of another type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        # A vocabulary may have thousands of added tokens.
        read = getattr(arguments[0], "from_fields", None) or partial(parse_record, arguments[0])
        return tuple(map(read, typed(value, list)))
    if origin in (dict, Mapping):
        return {name: parse_record(arguments[1], each) for name, each in typed(value, dict).items()}
    if type(None) in arguments:
        return None if value is None else parse_record(arguments[0], value)
    if origin is Literal or kind is Any:  # the reader looks at the value
        return value if kind is Any else typed(value, str)
    if kind is bytes:
        return typed(value, str).encode("ascii")
    if hasattr(kind, "from_fields"):
        return kind.from_fields(value)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return typed(value, kind)
    types, fields = types_of(kind), typed(value, dict)
    if others := sorted(fields.keys() - types.keys()):
        raise TypeError(f"{kind.__name__} has no field {others[0]!r:.60}")
    return kind(**{name: parse_record(of, fields[name]) for name, of in types.items()})


types_of: Final = cache(get_type_hints)


def check_number_of_values(data: bytes, what: str) -> None:
    """Refuse a file with too many values, before anything is made of them."""
    # Most files have fewer even with those in strings, which takes a tenth of the time to count.
    if sum(map(data.count, (b",", b"[", b"{"))) <= MAX_FILE_VALUES:
        return
    if _count_outside_strings(data) > MAX_FILE_VALUES:
        raise FormatError(f"{what} has more than {MAX_FILE_VALUES} values; no tokenizer needs that")


def _count_outside_strings(data: bytes) -> int:
    r"""The commas and opening brackets outside the strings of a JSON document.

    Example:
        >>> _count_outside_strings(br'{"a,": ["\\", "\",["]}')
        3
    """
    import numpy as np

    if b"\\" in data:
        data = data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    n_found, is_inside = 0, 0
    for start in range(0, len(data), _COUNTED_BYTES):
        part = np.frombuffer(data, np.uint8, min(_COUNTED_BYTES, len(data) - start), start)
        # Whether the number of quotes so far is odd; counting them may overflow.
        inside = (np.cumsum(part == ord('"'), dtype=np.uint8) & 1) ^ is_inside
        marks = (part == ord(",")) | (part == ord("[")) | (part == ord("{"))
        n_found += int(np.count_nonzero(marks & (inside == 0)))
        is_inside = int(inside[-1])
    return n_found


def read_json(data: bytes, *, window_chars: int | None = None, is_lenient: bool = False) -> Any:
    """Parse a JSON document, in windows of `window_chars` characters if given.

    Windows keep other threads running, but cost Python code for each object and list.

    With `is_lenient`, and without windows, values may be NaN, infinite, or strings with lone
    surrogates: for records of which few fields are read. The caller checks these.

    Raises:
        StrictJsonError: not UTF-8, a byte order mark, not JSON, duplicate keys, NaN or infinity,
            a number of more than 4,300 digits, nesting deeper than the stack, lone surrogates.

    Example:
        >>> read_json(b'{"text": "a", "ids": [1, 2]}')
        {'text': 'a', 'ids': [1, 2]}
    """
    if data[:1] == b"{" and len(data) <= min(_SHORT_BYTES, window_chars or _SHORT_BYTES):
        try:
            text = data.decode()
            value, end = (_lenient_scan if is_lenient else _scan)(text, 0)
        except (StrictJsonError, ValueError, StopIteration, RecursionError):
            pass  # the rest of this function reports the error
        else:
            if end == len(text) and (is_lenient or "\\u" not in text):
                return value
    text = _decode(data, None if window_chars is None else 4 * window_chars)
    try:
        if window_chars is None or len(text) <= window_chars:
            value = (_LENIENT_DECODER if is_lenient else _DECODER).decode(text)
        else:
            value = _WindowedParser(text, window_chars).parse()
    except JSONDecodeError as error:
        line = f" (line {error.lineno}, column {error.colno})" if error.lineno > 1 else ""
        raise StrictJsonError(
            "malformed_json",
            f"is not JSON: {error.msg.removesuffix(' at')} at character {error.pos}{line}",
        ) from None
    except RecursionError:
        raise StrictJsonError("nested_too_deep", _NESTED) from None
    except ValueError:  # int() refuses more than 4,300 digits
        raise StrictJsonError("number_too_long", _LONG_NUMBER) from None
    if not is_lenient:
        window_chars = window_chars or len(text)
        if _has_surrogate_escape(text, window_chars):
            _refuse_lone_surrogates(value, window_chars)
    return value


def _decode(data: bytes, window_bytes: int | None) -> str:
    if data.startswith(codecs.BOM_UTF8):
        raise StrictJsonError("byte_order_mark", "begins with a byte order mark; remove it")
    if window_bytes is None or len(data) <= window_bytes:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(error.start) from None
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = ""
    # Append in a `for` loop instead of joining: a join copies everything in one step, while CPython
    # extends a string with one reference in place (3.11: not in a `while` loop, 60 times slower).
    for start in range(0, len(data), window_bytes):
        n_held = len(decoder.getstate()[0])
        is_last = start + window_bytes >= len(data)
        try:
            text += decoder.decode(data[start : start + window_bytes], is_last)
        except UnicodeDecodeError as error:
            raise _not_utf8(start - n_held + error.start) from None
    return text


def _not_utf8(offset: int) -> StrictJsonError:
    return StrictJsonError(
        "invalid_utf8", f"is not UTF-8: invalid bytes at offset {offset}", byte_offset=offset
    )


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise StrictJsonError(
                    "duplicate_key", "has the same key twice in one object", key=key
                )
            seen.add(key)
    return built


def _refuse_constant(name: str) -> NoReturn:
    raise StrictJsonError("not_a_number", f"holds {name}, which is not JSON")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise StrictJsonError("not_a_number", "holds a number that is too large")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_constant=_refuse_constant, parse_float=_parse_float
)
_LENIENT_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_object)
# The stub expects its own class.
_scan: Final = make_scanner(_DECODER)  # type: ignore[arg-type]
_lenient_scan: Final = make_scanner(_LENIENT_DECODER)  # type: ignore[arg-type]


def _has_surrogate_escape(text: str, window_chars: int) -> bool:
    for start in range(0, len(text), window_chars):
        if _SURROGATE_ESCAPE.search(text, start, start + window_chars + 3):
            return True
    return False


def _refuse_lone_surrogates(value: Any, window_chars: int) -> None:
    """Walk without recursion. The text was UTF-8, so only escapes can produce a lone surrogate."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, str):
            _check_text(value, pointer, window_chars)
        elif isinstance(value, dict):
            for key, member in value.items():
                if not key.isascii():
                    _check_text(key, pointer, window_chars)
                if _may_hold_surrogate(member):
                    waiting.append((f"{pointer}/{key}"[:120], member))
        elif isinstance(value, list):
            waiting.extend(
                (f"{pointer}/{index}"[:120], member)
                for index, member in enumerate(value)
                if _may_hold_surrogate(member)
            )


def _may_hold_surrogate(value: Any) -> bool:
    """Quick, because it is asked of each of millions of values."""
    return not (value.isascii() if isinstance(value, str) else isinstance(value, int))


def _check_text(text: str, pointer: str, window_chars: int) -> None:
    if text.isascii():
        return
    for start in range(0, len(text), window_chars):
        try:
            text[start : start + window_chars].encode()
        except UnicodeEncodeError as error:
            raise StrictJsonError(
                "lone_surrogate",
                f"holds a lone surrogate at character {start + error.start} of a string; no UTF-8 "
                f"text can hold one",
                pointer=pointer,
            ) from None


class _WindowedParser:
    """Parses the large parts of a document by recursive descent; the C parser parses each window.

    Python code runs between windows, so the interpreter can switch threads there.
    """

    def __init__(self, text: str, window_chars: int) -> None:
        self._text = text
        self._window = max(window_chars, 16)

    def parse(self) -> Any:
        value, at = self._value(self._skip_space(0))
        at = self._skip_space(at)
        if at != len(self._text):
            raise JSONDecodeError("Extra data", self._text, at)
        return value

    def _value(self, at: int) -> tuple[Any, int]:
        match self._text[at : at + 1]:
            case '"':
                return self._string(at)
            case "[":
                return self._array(at)
            case "{":
                return self._object(at)
        return _DECODER.raw_decode(self._text, at)

    def _string(self, at: int) -> tuple[str, int]:
        """Parse the string whose opening quote is at `at`; returns it and the next position."""
        if len(self._text) - at <= _MOST_OF_STRING_AT_ONCE:
            return _DECODER.raw_decode(self._text, at)
        value = ""
        start = at + 1
        while True:
            limit = min(start + self._window, len(self._text))
            end = _match_end(_STRING_UNITS, self._text, start, limit)
            piece = self._text[start:end]
            # Keep an escaped surrogate pair in one piece: it is one character.
            if end + 6 > limit and len(piece) > 6 and _ends_in_high_surrogate(piece):
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

    def _array(self, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []

        def read(at: int) -> int:
            if self._text[at : at + 1] not in ('"', "[", "{"):
                return self._scalars(at, items)
            item, at = self._value(at)
            items.append(item)
            return at

        return items, self._members(at, "]", read)

    def _members(self, at: int, end: str, read: Callable[[int], int]) -> int:
        """Call `read` at each member of the object or list at `at`; returns the next position."""
        at = self._skip_space(at + 1)
        mark = self._text[at : at + 1]
        while mark != end:
            at = self._skip_space(read(at))
            mark = self._text[at : at + 1]
            if mark == ",":
                at = self._skip_space(at + 1)
            elif mark != end:
                raise JSONDecodeError("Expecting ',' delimiter", self._text, at)
        return at + 1

    def _scalars(self, at: int, items: list[Any]) -> int:
        """Append a run of numbers and words; returns the position of the next `,` or `]`."""
        end = _match_end(_SCALARS, self._text, at, min(at + self._window, len(self._text)))
        if self._text[end : end + 1] != "]":
            # Cut at the last comma; the next window contains all of the value after it.
            end = self._text.rfind(",", at, end)
            if end < 0:  # one value, perhaps with much white space after it
                value, end = self._value(at)
                items.append(value)
                return end
        if end == at:  # nothing precedes the comma
            raise JSONDecodeError("Expecting value", self._text, at)
        try:
            items += _DECODER.decode(f"[{self._text[at:end]}]")
        except JSONDecodeError as error:
            raise JSONDecodeError(error.msg, self._text, at + error.pos - 1) from None
        return end

    def _object(self, at: int) -> tuple[dict[str, Any], int]:
        pairs: list[tuple[str, Any]] = []

        def read(at: int) -> int:
            if self._text[at : at + 1] != '"':
                raise JSONDecodeError(
                    "Expecting property name enclosed in double quotes", self._text, at
                )
            key, at = self._string(at)
            at = self._skip_space(at)
            if self._text[at : at + 1] != ":":
                raise JSONDecodeError("Expecting ':' delimiter", self._text, at)
            value, at = self._value(self._skip_space(at + 1))
            pairs.append((key, value))
            return at

        at = self._members(at, "}", read)
        return _build_object(pairs), at

    def _skip_space(self, at: int) -> int:
        return _match_end(_SPACE, self._text, at, len(self._text))


def _ends_in_high_surrogate(piece: str) -> bool:
    r"""Whether the last escape of complete units is the first of a pair. After an odd number of
    backslashes more, its own is the end of an escape, and what follows is text.

    Example:
        >>> [_ends_in_high_surrogate(piece) for piece in (r"a\ud83d", r"a\\ud83d", r"\\\ud83d")]
        [True, False, True]
    """
    if not _HIGH_SURROGATE_AT_END.search(piece, max(0, len(piece) - 6)):
        return False
    before = piece[:-6]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0


def _match_end(pattern: re.Pattern[str], text: str, start: int, limit: int) -> int:
    match = pattern.match(text, start, limit)
    return match.end() if match else start
