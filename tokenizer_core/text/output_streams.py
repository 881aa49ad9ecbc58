"""The parts of a message of ids that arrive in parts, with a state between two of them.

A state has ids and numbers and no text: the ids whose text is not given out yet, and how much of it
is. Where the ids are cut changes nothing, except that a state holds at most `MAX_HELD_IDS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tokenizer_core.chat.outputs import OutputParser
from tokenizer_core.errors import OutputStateError, OutputTooLongError
from tokenizer_core.text.decode_streams import StreamingDecoder

if TYPE_CHECKING:
    from tokenizer_core.chat.outputs import Call, Mode, OutputFormat, Part
    from tokenizer_core.tokenizer import Tokenizer

MAX_HELD_IDS: Final = 8192
"""A state holds at most this many ids: those of an unfinished call, for example."""

_PROMPT_END: Final = 64
"""How many ids at the end of a prompt are read for the mark of reasoning and white space."""


class StopStrings(NamedTuple):
    """The strings one of which may have ended an output.

    - `n_free`: in the text of this many first ids none ends the output (`min_tokens`); None: it is
      not known, and the one in the text of the last id counts, else the last one.
    - `is_kept`: whether the string stays in the text.
    """

    strings: Sequence[str]
    n_free: int | None = None
    is_kept: bool = False

    def cut(self, text: str, n_before: int) -> str:
        """`text` up to the first of the first string that is in it, and ends after `n_before`
        characters."""
        for string in self.strings:
            at = text.find(string, max(0, n_before - len(string) + 1))
            if at < 0 and self.n_free is None:
                at = text.rfind(string)
            if at >= 0:
                return text[: at + len(string) * self.is_kept]
        return text


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
    tokenizer: Tokenizer, form: OutputFormat | None, prompt: Sequence[int]
) -> OutputState:
    """The state of an output after a prompt (or the end of it). It begins with reasoning if the
    prompt ends with the first mark of it, and white space. Raises UnknownTokenIdError: an id is not
    in the vocabulary."""
    text = tokenizer.engine.decode(list(prompt[-_PROMPT_END:]), "replace").rstrip()
    opens = form is not None and form.reasoning_marks and text.endswith(form.reasoning_marks[0])
    return OutputState("reasoning" if opens else "start", is_first=not len(prompt))


def continue_output(
    tokenizer: Tokenizer,
    form: OutputFormat | None,
    state: OutputState,
    ids: Sequence[int],
    *,
    is_last: bool,
    stop: StopStrings | None = None,
    with_calls: bool = True,
) -> tuple[list[Part | Call], OutputState]:
    """The parts that are complete with `ids`, and the state after them. At the end of an output
    its text is cut at the string of `stop` that ended it.

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
    n_first = len(ids) - 1 if stop is None or stop.n_free is None else stop.n_free
    before = known[state.n_given :] + decoder.feed(ids[: max(0, n_first)])
    text = before + decoder.feed(ids[max(0, n_first) :]) + (decoder.flush() if is_last else "")
    if is_last and stop is not None:
        text = stop.cut(text, len(before))
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


def _last_border(
    tokenizer: Tokenizer, ids: list[int], n_chars: int, *, is_first: bool
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
