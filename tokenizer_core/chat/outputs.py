"""What a model wrote as the parts of a message: reasoning, text and tool calls.

A parser is named, never guessed from the text. Reasoning is what stands between its two marks at
the beginning of the output; the prompt may have written the first of them. A call is what stands
between its marks and is whole and valid; anything else stays text, with its marks. White space
after a call, up to the next one or the end, belongs to the call.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tokenizer_core.errors import OutputStateError

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["start", "reasoning", "content", "after_call", "finished"]
"""What may follow: anything; reasoning; text or a call; the same, after a call; nothing."""


Kind = Literal["reasoning", "content"]


class Call(NamedTuple):
    """A tool call; `arguments` is a JSON object as the model wrote it."""

    name: str
    arguments: str


class Part(NamedTuple):
    """Text of a message, in order."""

    kind: Kind
    text: str


class OutputFormat(NamedTuple):
    """How a model writes calls and reasoning: the marks around them, and `parse`, which gives the
    calls of the text between two marks, or none if it is not made of calls alone."""

    call_marks: tuple[str, str]
    parse: Callable[[str], list[Call]]
    reasoning_marks: tuple[str, str] | None = None

    @property
    def marks(self) -> frozenset[str]:
        """All marks, which a parser needs though they may be special tokens."""
        return frozenset((*self.call_marks, *(self.reasoning_marks or ()), *_INNER_MARKS))


_INNER_MARKS: Final = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
_CALL_BEGIN, _SEPARATOR, _CALL_END = _INNER_MARKS
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_refuse_constant, object_pairs_hook=list
)


def _as_object(text: str) -> dict[str, tuple[Any, str]] | None:
    """The members of a JSON object: their values, and their text; None if it is none, or has a key
    twice. Raises ValueError: it is no JSON."""
    members: dict[str, tuple[Any, str]] = {}
    at = _skip(text, 0)
    mark = "{"
    while text[at : at + 1] == mark:
        at = _skip(text, at + 1)
        if mark == "{" and text[at : at + 1] == "}":
            break
        if text[at : at + 1] != '"':
            return None
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":" or key in members:
            return None
        start = _skip(text, at + 1)
        value, at = _DECODER.raw_decode(text, start)
        members[key] = value, text[start:at]
        at, mark = _skip(text, at), ","
    return members if text[at : at + 1] == "}" and _skip(text, at + 1) == len(text) else None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _call_of(name: str, arguments: str) -> list[Call]:
    """The call, if it is one."""
    if not name.strip() or not name.isprintable():
        return []
    return [Call(name, arguments)] if _as_object(arguments) is not None else []


def _parse_hermes(text: str) -> list[Call]:
    members = _as_object(text)
    if members is None or members.keys() != {"name", "arguments"}:
        return []
    name, source = members["name"]
    return _call_of(name, members["arguments"][1]) if source.startswith('"') else []


def _parse_deepseek(text: str, read: Callable[[str], tuple[str, str]]) -> list[Call]:
    calls: list[Call] = []
    first, *rest = text.split(_CALL_BEGIN)
    for one in rest:
        inside, mark, after = one.partition(_CALL_END)
        found = _call_of(*read(inside)) if mark and not after.strip() else []
        if not found:
            return []
        calls += found
    return [] if first.strip() else calls


def _read_fenced(text: str) -> tuple[str, str]:
    kind, _, rest = text.strip().partition(_SEPARATOR)
    name, _, arguments = rest.partition("\n```json\n")
    is_fenced = kind == "function" and arguments.endswith("\n```")
    return name, arguments.removesuffix("\n```").strip() if is_fenced else ""


def _read_bare(text: str) -> tuple[str, str]:
    name, _, arguments = text.strip().partition(_SEPARATOR)
    return name, arguments.strip()


_THINK: Final = ("<think>", "</think>")
_HERMES: Final = ("<tool_call>", "</tool_call>")
_DEEPSEEK: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
FORMATS: Final[dict[str, OutputFormat]] = {
    "hermes": OutputFormat(_HERMES, _parse_hermes),
    "qwen3": OutputFormat(_HERMES, _parse_hermes, _THINK),
    "deepseek_v3": OutputFormat(_DEEPSEEK, partial(_parse_deepseek, read=_read_fenced), _THINK),
    "deepseek_v31": OutputFormat(_DEEPSEEK, partial(_parse_deepseek, read=_read_bare), _THINK),
}
"""The parsers by name; `deepseek_v3` is that of R1 too."""


class OutputParser:
    """Reads the text of one output, in parts.

    Example:
        >>> parser = OutputParser(FORMATS["qwen3"])
        >>> parser.feed('<think>so</think>Hi <tool_call>{"name": "f", "arguments": {}}')
        [Part(kind='reasoning', text='so'), Part(kind='content', text='Hi ')]
        >>> parser.feed("</tool_call>"), parser.finish()
        ([Call(name='f', arguments='{}')], [])
    """

    def __init__(
        self, form: OutputFormat | None, mode: Mode = "start", *, with_calls: bool = True
    ) -> None:
        self.mode: Mode = mode
        """What may follow the text that was given out."""
        self._reasoning = form.reasoning_marks if form else None
        self._calls = form.call_marks if form and with_calls else None
        self._parse = form.parse if form else None
        self._text = ""
        self._at = 0

    @property
    def n_held(self) -> int:
        """The number of characters at the end of the text that are not given out yet."""
        return len(self._text) - self._at

    def feed(self, text: str) -> list[Part | Call]:
        """The parts that are complete with this text."""
        self._text, self._at = self._text[self._at :] + text, 0
        parts: list[Part | Call] = []
        while self._advance(parts):
            pass
        return parts

    def finish(self) -> list[Part | Call]:
        """What is left at the end."""
        rest = self._text[self._at :]
        is_markup = self.mode == "after_call" and not rest.strip()
        kind: Kind = "reasoning" if self.mode == "reasoning" else "content"
        self._at, self.mode = len(self._text), "finished"
        return [Part(kind, rest)] if rest and not is_markup else []

    def _advance(self, parts: list[Part | Call]) -> bool:
        """Read one part; False if more text must come first."""
        if self.mode == "start":
            mark = self._reasoning[0] if self._reasoning else ""
            if mark and self._text.startswith(mark, self._at):
                self._at += len(mark)
                self.mode = "reasoning"
                return True
            if mark and mark.startswith(self._text[self._at : self._at + len(mark)]):
                return False
            self.mode = "content"
        if self.mode == "reasoning":
            return self._read_reasoning(parts)
        if self.mode == "finished":
            raise OutputStateError("the output is finished; begin another one without a state")
        return self._read_content(parts)

    def _read_reasoning(self, parts: list[Part | Call]) -> bool:
        mark = self._reasoning[1] if self._reasoning else ""
        end = self._text.find(mark, self._at) if mark else -1
        if end < 0:
            self._give(parts, "reasoning", len(self._text) - _begun(self._text, self._at, mark))
            return False
        self._give(parts, "reasoning", end)
        self._at += len(mark)
        self.mode = "content"
        return True

    def _read_content(self, parts: list[Part | Call]) -> bool:
        text = self._text
        if self._calls is None:
            self._give(parts, "content", len(text))
            return False
        first, last = self._calls
        begin = text.find(first, self._at)
        end = begin if begin >= 0 else len(text) - _begun(text, self._at, first)
        if self.mode != "after_call" or text[self._at : end].strip():
            self._give(parts, "content", end)
            self.mode = "content"
        if begin < 0:
            return False
        close = text.find(last, begin + len(first))
        if close < 0:
            return False
        inside, after = text[begin + len(first) : close], close + len(last)
        calls: list[Call] = []
        with suppress(ValueError, RecursionError):
            calls = self._parse(inside) if self._parse else []
        if calls:
            parts += calls
            self._at, self.mode = after, "after_call"
        else:
            self._give(parts, "content", after)
            self.mode = "content"
        return True

    def _give(self, parts: list[Part | Call], kind: Kind, end: int) -> None:
        if end > self._at:
            parts.append(Part(kind, self._text[self._at : end]))
            self._at = end


def _begun(text: str, start: int, mark: str) -> int:
    """The length of the longest end of the text from `start` that begins a mark."""
    most = min(len(mark) - 1, len(text) - start)
    return next((n for n in range(most, 0, -1) if text.endswith(mark[:n])), 0)
