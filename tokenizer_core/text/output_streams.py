"""The parts of a message of ids that arrive in parts, with a state between two of them.

A state has ids and numbers and no text: the ids whose text is not given out yet, and how much of it
is. Where the ids are cut changes nothing, except that a state holds at most `MAX_HELD_IDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tokenizer_core.chat.outputs import OutputParser
from tokenizer_core.errors import OutputStateError, OutputTooLongError
from tokenizer_core.text.decode_streams import StreamingDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizer_core.chat.outputs import Call, Mode, OutputFormat, Part
    from tokenizer_core.text.streaming import EncodesStreams

MAX_HELD_IDS: Final = 8192
"""A state holds at most this many ids: those of an unfinished call, for example."""

_PROMPT_END: Final = 64
"""How many ids at the end of a prompt are read for the mark of reasoning and white space."""


@dataclass(frozen=True)
class OutputState:
    """An output between two of its parts.

    - `held`: the ids whose text is not given out, or not all of it.
    - `n_given`: how many characters of their text are given out.
    - `is_first`: whether no text is before theirs, neither of the prompt nor of the output.
    """

    mode: Mode = "start"
    held: tuple[int, ...] = ()
    n_given: int = 0
    is_first: bool = True


def begin_output(
    tokenizer: EncodesStreams, form: OutputFormat | None, prompt: Sequence[int]
) -> OutputState:
    """The state of an output after a prompt (or the end of it). It begins with reasoning if the
    prompt ends with the first mark of it, and white space.

    Raises:
        UnknownTokenIdError: an id is not in the vocabulary.
    """
    text = tokenizer.engine.decode(list(prompt[-_PROMPT_END:]), "replace").rstrip()
    opens = form is not None and form.reasoning_marks and text.endswith(form.reasoning_marks[0])
    return OutputState("reasoning" if opens else "start", is_first=not len(prompt))


def continue_output(
    tokenizer: EncodesStreams,
    form: OutputFormat | None,
    state: OutputState,
    ids: Sequence[int],
    *,
    is_last: bool,
    stop: str | None = None,
    with_calls: bool = True,
) -> tuple[list[Part | Call], OutputState]:
    """The parts that are complete with `ids`, and the state after them. `stop` is the string that
    ended the output; the text ends before it.

    Raises:
        UnknownTokenIdError: an id is not in the vocabulary.
        OutputStateError: the state does not fit itself, or the output is finished.
        OutputTooLongError: the next state would hold more than `MAX_HELD_IDS`.
    """
    if state.mode == "finished":
        raise OutputStateError("the output is finished; the next one begins without a state")
    decoder = StreamingDecoder(tokenizer, is_first=state.is_first)
    known = decoder.feed(state.held)
    if state.n_given > len(known):
        raise OutputStateError("n_given is more than the text of the held ids")
    before = known[state.n_given :] + decoder.feed(ids[:-1])
    text = before + decoder.feed(ids[-1:]) + (decoder.flush() if is_last else "")
    if is_last and stop:
        text = _before_stop(text, stop, len(before))
    parser = OutputParser(form, state.mode, with_calls=with_calls)
    parts = parser.feed(text)
    if is_last:
        return parts + parser.finish(), OutputState("finished", is_first=False)
    every = [*state.held, *ids]
    n_given = state.n_given + len(text) - parser.n_held
    n_ids, start = 0, 0
    if n_given > state.n_given or not state.held:
        n_ids, start = _last_border(tokenizer, every, n_given, is_first=state.is_first)
    if len(every) - n_ids > MAX_HELD_IDS:
        raise OutputTooLongError(
            f"a part of the output has more than {MAX_HELD_IDS} ids before it is complete; read "
            f"the whole output at once"
        )
    is_first = state.is_first and not n_ids
    return parts, OutputState(parser.mode, tuple(every[n_ids:]), n_given - start, is_first)


def _before_stop(text: str, stop: str, n_before: int) -> str:
    """`text` up to the `stop` that ended it: the first in the text of the last id, which begins
    after `n_before` characters, else the last one. One further in front ended nothing: it came
    before `min_tokens`."""
    at = text.find(stop, max(0, n_before - len(stop) + 1))
    at = text.rfind(stop) if at < 0 else at
    return text if at < 0 else text[:at]


def _last_border(
    tokenizer: EncodesStreams, ids: list[int], n_chars: int, *, is_first: bool
) -> tuple[int, int]:
    """After how many ids, and characters of their text, at most `n_chars`, the rest is decoded by
    itself."""
    decoder = StreamingDecoder(tokenizer, is_first=is_first)
    border, end = (0, 0), 0
    for index, id_ in enumerate(ids, start=1):
        end += len(decoder.feed([id_]))
        if end > n_chars:
            break
        if decoder.is_between:
            border = (index, end)
    return border
