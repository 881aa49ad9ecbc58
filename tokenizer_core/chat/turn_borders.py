"""Where the turns of the assistant begin and end in a rendered conversation, asked of the template.

Before a turn the template renders the messages in front of it, with `add_generation_prompt` and
without; after the turn, the messages up to it. Only the text after the last message is compared,
because a template may write earlier messages otherwise (Qwen 3 drops their reasoning). Turns with
the same text around them are asked for once, so a long conversation costs a few renderings.

This module runs in the child processes of `renderer.py`, as `template.py` does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tokenizer_core.chat.traced_text import FIRST_MESSAGE, SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer_core.chat.template import ChatTemplate, Rendered

_MOST_RENDERINGS: Final = 32
"""As many times the messages of a conversation may be rendered again. Only a template that writes
something else around every turn (its number) needs more, in more than 32 messages."""


def find_turns(
    template: ChatTemplate, request: dict[str, Any], rendered: Rendered
) -> dict[str, Any]:
    """The fields of `renderer.TurnBorders`, as JSON, of a request that was rendered."""
    chat = _Conversation(template, request, rendered)
    begins = {turn: chat.begin(turn) for turn in chat.turns}
    if chat.turns:
        chat.ask_at_the_end()
    openings = chat.openings([begin for begin in begins.values() if begin])
    for turn, begin in begins.items():
        begins[turn] = begin or chat.begin_as_others(turn, openings)
    prompts = {(t.message - 1, t.before): begin.prompt for t, begin in begins.items() if begin}
    turns = []
    for turn, begin in begins.items():
        ends = chat.ends(turn, prompts.get((turn.message, turn.end)))
        problem = chat.problem(turn, begin, ends[0])
        turns.append([turn.message, problem, *(begin or (-1, -1)), *ends])
    return {"turns": turns, "message_ends": list(chat.message_ends), "prompts": list(chat.prompts)}


class _Turn(NamedTuple):
    """A message of the assistant, from the first to the last character that is from it; where the
    message before it ends in the text, and where the next one begins."""

    message: int
    before: int
    start: int
    end: int
    after: int


class _Begin(NamedTuple):
    """Where the text that asks for a turn begins, and where it ends: there the turn starts."""

    prompt: int
    start: int


class _Conversation:
    def __init__(self, template: ChatTemplate, request: dict[str, Any], rendered: Rendered) -> None:
        self._template, self._request = template, request
        self._messages: list[dict[str, Any]] = request["messages"]
        self._text = _plain_text(rendered)
        self._left = _MOST_RENDERINGS * len(self._messages)
        self._asked: dict[tuple[int, bool], str | None] = {}
        self._heads: dict[int, str | None] = {}
        self._first_of_shape: dict[tuple[object, ...], int] = {}
        self.message_ends: dict[str, None] = {}
        """What follows the last message where nothing is asked for."""
        self.prompts: dict[str, None] = {}
        """What asks for a turn."""
        self._runs: dict[int, list[tuple[int, int]]] = {}
        for index, start, end in _message_runs(rendered):
            self._runs.setdefault(index, []).append((start, end))
        self._starts = sorted(runs[0][0] for runs in self._runs.values())
        ends = sorted(runs[-1][1] for runs in self._runs.values())
        self.turns: list[_Turn] = []
        for index, runs in sorted(self._runs.items()):
            if self._messages[index].get("role") == "assistant":
                start, end = runs[0][0], runs[-1][1]
                n_before = bisect_right(ends, start)
                before = ends[n_before - 1] if n_before else 0
                self.turns.append(_Turn(index, before, start, end, self._after(end)))
        if not request["add_generation_prompt"] and request["continue_final_message"] is False:
            self._keep(len(self._messages), rendered)

    def begin(self, turn: _Turn) -> _Begin | None:
        """Where a turn begins; None if the template does not say it."""
        first = self._first_before(turn)
        prompted, plain = self._ask(first, is_prompted=True), self._ask(first, is_prompted=False)
        if prompted is None or plain is None:
            return None
        base = _common(plain, prompted)
        prompt = prompted[base:] if base == len(plain) else ""
        if prompt.strip():
            self.prompts[prompt] = None
        if len(prompted) > base and self._text.startswith(prompted, turn.before):
            return _Begin(turn.before + base, turn.before + len(prompted))
        begin = self._after_prompt(turn, prompt, plain) if prompt.strip() else None
        if begin is not None:
            return begin
        same = _common(prompted, self._text[turn.before : turn.start])
        # With no message in front, a template may leave out what begins a conversation.
        if turn.before and prompted[base:same].strip():
            return _Begin(turn.before + base, turn.before + same)
        if same == base:
            # Nothing asks for the turn. It begins here if no header precedes plain text.
            head = self._head(first, self._messages[turn.message].get("content"))
            if head is not None and _common(head, plain) == base and not head[base:].strip():
                return _Begin(turn.before + base, turn.before + base)
        return None

    def openings(self, begins: list[_Begin]) -> list[str]:
        """What asks for turns: as it is in front of those that are known, or by itself."""
        known = (self._text[begin.prompt : begin.start] for begin in begins)
        return list(dict.fromkeys([*filter(str.strip, known), *self.prompts]))

    def begin_as_others(self, turn: _Turn, openings: list[str]) -> _Begin | None:
        """Where a turn begins for which the template has no answer: after what asks for others."""
        found = [self._after_prompt(turn, opening, "") for opening in openings]
        return max(filter(None, found), key=lambda begin: begin.start, default=None)

    def _after_prompt(self, turn: _Turn, prompt: str, plain: str) -> _Begin | None:
        gap = self._text[turn.before : turn.start]
        at = gap.rfind(prompt)
        if at >= 0:
            return _Begin(turn.before + at, turn.before + at + len(prompt))
        # Or only its beginning is there, between the end of a message and the text of the next.
        for end in (plain, *self.message_ends):
            rest = gap[len(end) :]
            if gap.startswith(end) and rest.strip() and prompt.startswith(rest):
                return _Begin(turn.before + len(end), turn.start)
        return None

    def problem(self, turn: _Turn, begin: _Begin | None, end: int) -> str | None:
        """Why a turn that ends here is not learned; a `renderer.TurnProblem`."""
        if begin is not None:
            return "interleaved" if self._after(turn.start + 1) < end else None
        first = self._first_before(turn)
        asked = self._ask(first, is_prompted=True), self._ask(first, is_prompted=False)
        return "unanswered" if None in asked else "no_prompt"

    def ask_at_the_end(self) -> None:
        """Ask after the whole conversation, for what ends its last message and asks for a turn."""
        n = len(self._messages)
        prompted, plain = self._ask(n, is_prompted=True), self._ask(n, is_prompted=False)
        if prompted is not None and plain is not None and prompted.startswith(plain):
            prompt = prompted[len(plain) :]
            if prompt.strip():
                self.prompts[prompt] = None

    def ends(self, turn: _Turn, next_prompt: int | None) -> tuple[int, int, int, int, bool]:
        """`text_end`, `own_end`, `whole_end`, `limit` and `is_last` of `renderer.TurnBorders`."""
        if next_prompt is not None:
            return turn.end, next_prompt, next_prompt, next_prompt, False
        behind = self._text[turn.end : turn.after]
        fields = sorted(name for name, value in self._messages[turn.message].items() if value)
        n = 1 + self._first(("after", *fields), behind, turn)
        tail = self._ask(n, is_prompted=False)
        if tail and tail.strip():
            # A later message may repeat text of this one (the name of its call): end before it.
            ends = (end for _, end in reversed(self._runs[turn.message]))
            found = next((end for end in ends if self._text.startswith(tail, end)), turn.end)
            turn = turn._replace(end=found, after=self._after(found))
            behind = self._text[turn.end : turn.after]
        is_last = turn.after == len(self._text)
        own = common = _common(tail or "", behind)
        whole = common if tail is not None and common == len(tail) else 0
        if is_last and tail is not None:
            prompted = self._ask(n, is_prompted=True)
            if prompted is not None:
                own = min(own, _common(tail, prompted))
            if self._request["add_generation_prompt"]:
                behind = behind[:common]
        limit = turn.end + len(behind)
        return turn.end, turn.end + own, turn.end + whole, limit, is_last

    def _after(self, end: int) -> int:
        """Where the next message begins in the text."""
        n_before = bisect_left(self._starts, end)
        return self._starts[n_before] if n_before < len(self._starts) else len(self._text)

    def _first_before(self, turn: _Turn) -> int:
        before = self._messages[turn.message - 1].get("role") if turn.message else None
        return self._first(("before", before), self._text[turn.before : turn.start], turn)

    def _first(self, shape: object, text: str, turn: _Turn) -> int:
        """The first message with this text around it, for which the template is asked."""
        return self._first_of_shape.setdefault((shape, text), turn.message)

    def _ask(self, n: int, *, is_prompted: bool) -> str | None:
        """What follows the last message of the first `n`; None if the template refuses them."""
        if (n, is_prompted) not in self._asked:
            rendered = self._render(self._messages[:n], is_prompted=is_prompted)
            if is_prompted or rendered is None:
                self._asked[n, is_prompted] = rendered and _tail(rendered)[1]
            else:
                self._keep(n, rendered)
        return self._asked[n, is_prompted]

    def _keep(self, n: int, rendered: Rendered) -> None:
        last, tail = _tail(rendered)
        self._asked[n, False] = tail
        if last == n - 1 >= 0:
            self.message_ends[tail] = None

    def _head(self, n: int, content: Any) -> str | None:
        """What the template writes between the first `n` messages and the text of an assistant's
        message, in the shape of `content`; None if the template refuses it."""
        if n not in self._heads:
            plain = [{"type": "text", "text": "x"}] if isinstance(content, list) else "x"
            message = {"role": "assistant", "content": plain}
            rendered = self._render([*self._messages[:n], message], is_prompted=False)
            self._heads[n] = None
            if rendered is not None:
                before = 0
                for index, start, end in _message_runs(rendered):
                    if index == n:
                        self._heads[n] = _plain_text(rendered)[before:start]
                        break
                    before = end
        return self._heads[n]

    def _render(self, messages: list[dict[str, Any]], *, is_prompted: bool) -> Rendered | None:
        self._left -= len(messages)
        if self._left < 0:
            return None
        try:
            return self._template.render(
                {
                    **self._request,
                    "messages": messages,
                    "add_generation_prompt": is_prompted,
                    "continue_final_message": False,
                }
            )
        except MemoryError:
            raise
        except Exception:  # whatever an expression of the template raised
            return None


def _message_runs(rendered: Rendered) -> Iterator[tuple[int, int, int]]:
    """Message, start and end of each run of text that is from a message."""
    start = 0
    for length, origin in rendered[1]:
        index = (origin & SOURCE) - FIRST_MESSAGE
        if index >= 0:
            yield index, start, start + length
        start += length


def _tail(rendered: Rendered) -> tuple[int, str]:
    """The message from which the last text is (-1: none has any), and what follows that text."""
    last, _, end = max(_message_runs(rendered), key=itemgetter(2), default=(-1, 0, 0))
    return last, _plain_text(rendered)[end:]


def _plain_text(rendered: Rendered) -> str:
    return "".join((rendered[0],))  # without origins: to cut it is faster


def _common(one: str, other: str) -> int:
    """The length of what two texts begin with."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(at for at in range(length) if one[at] != other[at])
