"""Render a chat template in the calling process, if nothing in it can need more than a budget.

A template is admitted by its syntax tree (`admission.py`). Its code is that of `template.py`, with
each operation behind a check (`checked_code.py`, `checked_operations.py`), and takes what it costs
from the budget. So time and memory have a bound that no conversation can move.

Other types, an error of the template, and an empty budget raise `ElsewhereError`; then a child
process renders the conversation from its beginning. A result here is the same as that of the child:
the text, and the origin of each character.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, cast

from tokenizer_core.chat.admission import is_admitted
from tokenizer_core.chat.checked_code import CheckedContext, CheckedEnvironment, add_checks
from tokenizer_core.chat.checked_operations import Budget, ElsewhereError, join_printed, take_plain
from tokenizer_core.chat.template import (
    ChatTemplate,
    cut_after_final_message,
    make_environment,
    parse,
)
from tokenizer_core.chat.traced_text import Runs, runs_of, with_runs

if TYPE_CHECKING:
    from jinja2 import nodes

MOST_UNITS: Final = 1 << 24
"""The budget of one conversation."""

_BYTES_PER_UNIT: Final = 8
_UNITS_PER_SECOND: Final = 1 << 25
"""What a unit needs at most: so a conversation takes at most 0.5 s and 134 MB."""

_LEAST_UNITS: Final = 1 << 20
"""What a template may take for a conversation of any size."""

_UNITS_PER_UNIT: Final = 64
"""What it may take besides, for each unit of the conversation."""

_MOST_CHARS: Final = 1 << 16
"""Of the source."""

_MOST_KEPT: Final = 64
"""Compiled templates."""


def units_within(seconds: float, n_bytes: int) -> int:
    """The budget that needs at most this time and memory."""
    return min(MOST_UNITS, n_bytes // _BYTES_PER_UNIT, int(seconds * _UNITS_PER_SECOND))


_admitted: dict[str, InProcessTemplate | None] = {}
_lock = threading.Lock()


def admit(source: str, *, only_known: bool = False) -> InProcessTemplate | None:
    """The template, if it can be rendered here; `only_known`: without compiling it, which may take
    a second."""
    if source not in _admitted and not only_known:
        template = _compile(source)
        with _lock:
            _admitted[source] = template
            if len(_admitted) > _MOST_KEPT:
                del _admitted[next(iter(_admitted))]
    return _admitted.get(source)


def _compile(source: str) -> InProcessTemplate | None:
    if len(source) > _MOST_CHARS:
        return None
    try:
        tree = parse(source)
        return InProcessTemplate(source, tree) if is_admitted(tree) else None
    except Exception:  # the child process raises it again, with its message
        return None


class InProcessTemplate(ChatTemplate):
    """A template that is rendered in this process."""

    def __init__(self, source: str, tree: nodes.Template) -> None:
        self._source = source
        self._compiled = make_environment(CheckedEnvironment).from_string(add_checks(tree))

    def render_within(self, request: dict[str, Any], budget: Budget) -> tuple[str, Runs]:
        """As `ChatTemplate.render`; the text is a plain `str`. Raises ElsewhereError: only the
        child process can say what the result is."""
        units = budget.left
        try:
            given = ("messages", "tools", "documents", "variables", "kwargs")
            take_plain(budget, [request[name] for name in given])
            # A template that never ends costs a small conversation little time.
            taken = units - budget.left
            budget.left = min(budget.left, _LEAST_UNITS + _UNITS_PER_UNIT * taken)
            _, final, variables = self._prepare(request)
            context = cast("CheckedContext", self._compiled.new_context(variables))
            context.budget = budget
            text, runs = join_printed(budget, self._compiled.root_render_func(context))
            if final is not None:
                cut = cut_after_final_message(with_runs(text, runs), final)
                text, runs = str.__str__(cut), runs_of(cut)
        except Exception as error:
            raise ElsewhereError from error
        return text, runs
