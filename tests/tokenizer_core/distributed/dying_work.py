"""Workers that die during their tasks; worker processes import these functions by name."""

import os
import signal
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from tokenizer_core.parallel import Executor


class DyingExecutor:
    """An executor whose workers die once before the second task and once after the fifth; a note
    records each death."""

    def __init__(self, executor: Executor, notes: Path) -> None:
        self.shown = executor.shown
        self._executor, self._notes = executor, notes

    def run(
        self,
        function: Callable[[Any, Any], Any],
        tasks: Sequence[Any],
        *,
        state: Any,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[tuple[int, Any], None, None]:
        yield from self._executor.run(
            _die_once,
            list(enumerate(tasks)),
            state=(function, state, self._notes),
            while_waiting=while_waiting,
        )


def _die_once(state: tuple[Any, Any, Path], numbered: tuple[int, Any]) -> Any:
    function, inner, notes = state
    number, task = numbered
    if number == 2:
        _die_unless_noted(notes / "before")
    result = function(inner, task)
    if number == 5:
        _die_unless_noted(notes / "behind")
    return result


def _die_unless_noted(note: Path) -> None:
    if not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
