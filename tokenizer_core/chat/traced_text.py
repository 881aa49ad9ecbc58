"""Text that remembers, for every character, where it came from.

A chat template joins its own literal text with strings of the request. Special tokens may come from
the template only, so the renderer must know the origin of each character of the result.

`TracedText` is a `str` with runs of origins. Operations that move or copy characters keep their
origins. All others (`translate`, a filter that builds a new string) return a plain `str`, as for
every subclass of `str`. A plain `str` has the origin `LOST`, which is not trusted, so a method that
is missing here loses trust and never gives any.
"""

from __future__ import annotations

import re
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""(number of characters, origin) from the first character to the last; neighbours differ."""

LOST: Final = 0
"""From the request, or from an operation that does not keep origins."""
TRUSTED: Final = 1
"""Literal text of the template, or a variable of the tokenizer."""
FIRST_MESSAGE: Final = 2
"""Message `i` of the request has the origin `FIRST_MESSAGE + i`."""
GENERATED: Final = 1 << 30
"""This bit is set between `{% generation %}` and `{% endgeneration %}`."""
CALLED: Final = 1 << 29
"""This bit is set on the tool calls of a message."""
REASONED: Final = 1 << 28
"""This bit is set on the reasoning of a message."""
FIELDS: Final = CALLED | REASONED
"""Both bits: text of several fields. Neither: the content and all other fields."""
SOURCE: Final = REASONED - 1
"""The bits of `LOST`, `TRUSTED` and the number of a message."""

# A template may build a control token from the role (Phi-4-mini writes `<|` role `|>`). These names
# mean the same in every API, so they are trusted; any other role is text of the request.
ROLES: Final = frozenset(
    {"assistant", "developer", "function", "ipython", "system", "tool", "user"}
)
# Names under which clients send the reasoning of a message; templates read the first.
REASONING_FIELDS: Final = ("reasoning_content", "thinking", "reasoning")

# A field of `%`: its key, and how its value is written. `%%` has neither.
PERCENT_FIELD: Final = re.compile(
    r"%%|%(?:\(([^()]*)\))?([-#0 +]*[0-9]*(?:\.[0-9]+)?[acdefgiorsuxEFGX])"
)


class TracedText(str):
    """A string with an origin for each character; `TracedText(text)` has the origin `LOST`.

    Its methods are those of `str`: characters keep their origin, unless a change of case changes
    the length."""

    __slots__ = ("_runs",)
    _runs: Runs

    def __new__(cls, text: object = "") -> TracedText:
        return traced(str(text), LOST)

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented  # Jinja's Markup escapes what it is added to
        return with_runs(str.__add__(self, other), join_runs((self._runs, runs_of(other))))

    def __radd__(self, other: str) -> str:
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return with_runs(str.__add__(other, self), join_runs((runs_of(other), self._runs)))

    def __mul__(self, count: SupportsIndex) -> str:
        text = str.__mul__(self, count)
        if len(self._runs) == 1:
            return traced(text, self._runs[0][1])
        return with_runs(text, join_runs([self._runs] * (len(text) // (len(self) or 1))))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        text = TracedText(str.__mod__(self, values))  # "%s" % value is the value itself
        if any(origin & SOURCE != TRUSTED for _, origin in self._runs):
            return text
        traced_text = self._filled(values)
        return traced_text if traced_text == text else text

    def _filled(self, values: Any) -> str | None:
        """`self % values` with origins, or None where a field is not understood.

        A value keeps its origins where it is written as it is (`%s`).
        """
        unnamed = iter(values if isinstance(values, tuple) else (values,))
        parts: list[str] = []
        at = 0
        for field in PERCENT_FIELD.finditer(self):
            parts.append(self[at : field.start()])
            at = field.end()
            key, form = field.groups()
            if form is None:
                parts.append(self[at - 1])
                continue
            value = next(unnamed) if key is None else values[key]
            parts.append(str(value) if form == "s" else str.__mod__("%" + form, (value,)))
        parts.append(self[at:])
        return None if any("%" in part for part in parts[::2]) else join_traced("", parts)

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, key)
        if len(self._runs) == 1:
            return traced(text, self._runs[0][1])
        if not isinstance(key, slice):
            key = slice(key.__index__() % (len(self) or 1), None)
            return with_runs(text, _cut_runs(self._runs, key.start, key.start + 1))
        start, _, step = key.indices(len(self))
        return self._part(text, start) if step == 1 else text

    def _part(self, text: str, start: int) -> str:
        """`text`, which is in this one at `start`, with its origins."""
        if len(text) == len(self):
            return self
        return with_runs(text, _cut_runs(self._runs, start, start + len(text)))

    def strip(self, chars: str | None = None, /) -> str:
        text = str.lstrip(self, chars)
        return self._part(text.rstrip(chars), len(self) - len(text))

    def lstrip(self, chars: str | None = None, /) -> str:
        text = str.lstrip(self, chars)
        return self._part(text, len(self) - len(text))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._part(str.rstrip(self, chars), 0)

    def removeprefix(self, prefix: str, /) -> str:
        text = str.removeprefix(self, prefix)
        return self._part(text, len(self) - len(text))

    def removesuffix(self, suffix: str, /) -> str:
        return self._part(str.removesuffix(self, suffix), 0)

    def _parts(self, texts: Iterable[str], *, from_end: bool = False) -> list[str]:
        """The texts as parts of this one, given in the order in which they stand here."""
        texts = list(texts)
        parts: list[str] = []
        if from_end:
            end = len(self)
            for text in reversed(texts):
                end = str.rindex(self, text, 0, end)
                parts.append(self._part(text, end))
            return parts[::-1]
        start = 0
        for text in texts:
            start = str.index(self, text, start)
            parts.append(self._part(text, start))
            start += len(text)
        return parts

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        texts = str.split(self, sep, maxsplit)
        if sep is None:
            # Each text begins where the white space after the one before ends.
            return self._parts(texts)
        return self._separated(texts, len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        texts = str.rsplit(self, sep, maxsplit)
        if sep is None:
            return self._parts(texts, from_end=True)
        return self._separated(texts, len(sep))

    def _separated(self, texts: Iterable[str], n_between: int) -> list[str]:
        texts = list(texts)
        return self._at(texts, (len(text) + n_between for text in texts))

    def _at(self, texts: Iterable[str], distances: Iterable[int]) -> list[str]:
        """The texts as parts of this one: the first at its start, the next at the distances."""
        starts = accumulate(distances, initial=0)
        return [self._part(text, at) for text, at in zip(texts, starts, strict=False)]

    def splitlines(self, keepends: bool = False) -> list[str]:
        return self._at(str.splitlines(self, keepends), map(len, str.splitlines(self, True)))

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = self._separated(str.partition(self, sep), 0)
        return before, found, after

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        before, found, after = self._separated(str.rpartition(self, sep), 0)
        return before, found, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        """As `str.replace`; new text has the origins of `new`."""
        if old:
            return join_traced(new, self.split(old, count))
        return str.replace(self, old, new, count)  # between all characters: origins are lost

    def join(self, iterable: Iterable[str], /) -> str:
        return join_traced(self, iterable)

    def _same_length(self, text: str) -> str:
        # Changing case turns a character into one or more, so equal lengths mean one for one.
        if len(self._runs) == 1:
            return traced(text, self._runs[0][1])
        return with_runs(text, self._runs) if len(text) == len(self) else text

    def upper(self) -> str:
        return self._same_length(str.upper(self))

    def lower(self) -> str:
        return self._same_length(str.lower(self))

    def title(self) -> str:
        return self._same_length(str.title(self))

    def capitalize(self) -> str:
        return self._same_length(str.capitalize(self))


class TracedMarkup(Markup):
    """What the filter `safe` makes: it escapes text that is added to it, and keeps origins."""

    __slots__ = ("_runs",)
    _runs: Runs

    def __new__(cls, text: object = "") -> TracedMarkup:
        result = super().__new__(cls, text)
        result._runs = runs_of(text) if isinstance(text, str) else runs_of(str.__str__(result))
        return result

    def __str__(self) -> str:
        return with_runs(str.__str__(self), self._runs)

    def __repr__(self) -> str:
        return f"Markup({str.__repr__(self)})"  # templates print lists of texts

    def __add__(self, other: Any) -> TracedMarkup:
        if not isinstance(other, str):
            return NotImplemented
        return TracedMarkup(join_traced("", (str(self), _escaped(other))))

    def __radd__(self, other: Any) -> TracedMarkup:
        if not isinstance(other, str):
            return NotImplemented
        return TracedMarkup(join_traced("", (_escaped(other), str(self))))


def _escaped(text: str) -> str:
    if isinstance(text, Markup):
        return str(text)
    parts: list[str] = []
    at = 0
    for length, origin in runs_of(text):
        parts.append(traced(str(escape(str.__getitem__(text, slice(at, at + length)))), origin))
        at += length
    return join_traced("", parts)


def traced(text: str, origin: int) -> TracedText:
    """`text` with one origin."""
    return with_runs(text, ((len(text), origin),) if text else ())


def runs_of(text: str) -> Runs:
    """The runs of a text; those of any other `str` are `LOST`."""
    if type(text) is TracedText or type(text) is TracedMarkup:
        return text._runs
    return ((len(text), LOST),) if text else ()


def join_traced(separator: str, texts: Iterable[str]) -> str:
    """`separator.join(texts)` with the origins of all."""
    texts = list(texts)
    joined = str.join(separator, texts)
    between = runs_of(separator)
    all_runs: list[Runs] = []
    for text in texts:
        all_runs.append(runs_of(text))
        all_runs.append(between)
    return with_runs(joined, join_runs(all_runs[:-1]))


def mark_generated(text: str) -> str:
    """`text` with the bit `GENERATED` on every character."""
    return with_runs(text, tuple((length, origin | GENERATED) for length, origin in runs_of(text)))


def trace_value(value: Any, origin: int) -> Any:
    """A copy of plain data (as from JSON) whose strings, also keys of objects, have `origin`."""
    if isinstance(value, str):
        return traced(value, origin)
    if isinstance(value, dict):
        return {trace_value(key, origin): trace_value(item, origin) for key, item in value.items()}
    if isinstance(value, list):
        return [trace_value(item, origin) for item in value]
    if isinstance(value, tuple):
        return tuple(trace_value(item, origin) for item in value)
    return value


def origins_in(value: Any) -> set[int]:
    """The origins of all strings in plain data."""
    if isinstance(value, str):
        return {origin for _, origin in runs_of(value)}
    if isinstance(value, dict):
        return origins_in(list(value.items()))
    if isinstance(value, list | tuple):
        return set().union(*map(origins_in, value))
    return set()


def with_runs(text: str, runs: Runs) -> TracedText:
    """`text` with these runs, which have its length."""
    result = str.__new__(TracedText, text)
    result._runs = runs
    return result


def join_runs(all_runs: Iterable[Runs]) -> Runs:
    """The runs of texts that follow each other."""
    joined: list[tuple[int, int]] = []
    n_chars, last = 0, -1  # of the run that continues
    for length, origin in chain.from_iterable(all_runs):
        if origin == last:
            n_chars += length
            continue
        if n_chars:
            joined.append((n_chars, last))
        n_chars, last = length, origin
    if n_chars:
        joined.append((n_chars, last))
    return tuple(joined)


def _cut_runs(runs: Runs, start: int, end: int) -> Runs:
    cut: list[tuple[int, int]] = []
    at = 0
    for length, origin in runs:
        begin, stop = max(at, start), min(at + length, end)
        if begin < stop:
            cut.append((stop - begin, origin))
        at += length
    return tuple(cut)
