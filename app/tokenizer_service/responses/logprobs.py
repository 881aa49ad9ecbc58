"""Log probabilities of generated ids with the texts of their tokens, as OpenAI's API returns them.

The text of a token is that of its id alone. An id whose bytes end within a character has none, and
the id that completes it has the text of both, as vLLM gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from tokenizer_client.schemas.derender import MAX_CONTEXT, Logprobs, PositionLogprobs, TokenLogprob
from tokenizer_service.access.errors import DecodedTextTooLargeError
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.responses.json_values import dump, render_windows
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_REPLACED: Final = "\ufffd"
_WINDOW: Final = 1 << 10
_BYTES_OF_JSON: Final = 8
"""Of each byte of a token: itself, escaped perhaps, and a number in the list of bytes."""


class Shown(NamedTuple):
    """Log probabilities as JSON, and where the text of the next token begins."""

    rendered: list[bytes]
    n_chars: int


class LogprobTexts:
    """Renders the log probabilities of one request, at most `most` candidates of a position."""

    def __init__(self, live: LiveTokenizer, most: int | None, max_bytes: int) -> None:
        self._vocab = live.tokenizer.spec.vocab
        self._most = most
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._alone: dict[int, str | None] = {}
        """The texts of ids alone; None for one that ends within a character."""

    def chat(self, given: Logprobs, last: Sequence[int], n_chars: int) -> Shown:
        """As a chat completion has them. `last` are the ids in front."""
        if given.content is None:
            return Shown([b'{"content":null}'], n_chars)

        def described(entry: PositionLogprobs, context: list[int]) -> dict[str, Any]:
            top = [self._described(one, context) for one in entry.top_logprobs[: self._most]]
            return {**self._described(entry, context), "top_logprobs": top}

        windows = (dump(rows) for rows in self._windows(given.content, last, described))
        return Shown([b'{"content":', *render_windows(windows), b"}"], n_chars)

    def completion(self, given: Logprobs, last: Sequence[int], n_chars: int) -> Shown:
        """As a completion has them: lists of the same length."""
        columns: list[list[Any]] = [[], [], [], []]
        offsets, logprobs, tokens, tops = columns

        def described(entry: PositionLogprobs, context: list[int]) -> None:
            nonlocal n_chars
            offsets.append(n_chars)
            logprobs.append(entry.logprob)
            tokens.append(self._text(entry.token_id, context))
            n_chars += len(tokens[-1])
            top = entry.top_logprobs[: self._most]
            found = {self._text(one.token_id, context): one.logprob for one in top}
            tops.append(found if entry.top_logprobs else None)

        for _ in self._windows(given.content or [], last, described):
            pass
        rendered = []
        for name, column in zip(
            (b"text_offset", b"token_logprobs", b"tokens", b"top_logprobs"), columns, strict=True
        ):
            windows = (dump(column[at : at + _WINDOW]) for at in range(0, len(column), _WINDOW))
            rendered += [b',"%b":' % name, *render_windows(windows)]
        return Shown([b"{" + rendered[0][1:], *rendered[1:], b"}"], n_chars)

    def _windows(
        self,
        content: Sequence[PositionLogprobs],
        last: Sequence[int],
        described: Callable[[PositionLogprobs, list[int]], Any],
    ) -> Iterator[list[Any]]:
        context = [*last]
        for start in range(0, len(content), _WINDOW):
            check_not_abandoned()
            window = content[start : start + _WINDOW]
            self._reserve(window)
            rows = []
            for entry in window:
                rows.append(described(entry, context))
                if entry.token_id in self._vocab:
                    context = [*context, entry.token_id][-MAX_CONTEXT:]
            yield rows

    def _reserve(self, window: Sequence[PositionLogprobs]) -> None:
        """Take the memory of the texts of a window."""
        shown = (one for entry in window for one in (entry, *entry.top_logprobs[: self._most]))
        size = sum(len(self._vocab.get(one.token_id, b"")) for one in shown) * _BYTES_OF_JSON
        self._n_bytes += size
        if self._n_bytes > self._max_bytes:
            raise DecodedTextTooLargeError(self._max_bytes, self._n_bytes)
        reserve_memory(size)

    def _described(self, one: TokenLogprob, context: list[int]) -> dict[str, Any]:
        text = self._text(one.token_id, context)
        shown = None if one.token_id not in self._vocab else [*text.encode()]
        return {"token": text, "logprob": one.logprob, "bytes": shown}

    def _text(self, id_: int, context: list[int]) -> str:
        """The text of a token after `context`; empty for an id that is not in the vocabulary."""
        if id_ not in self._vocab:
            return ""
        if id_ not in self._alone:
            self._alone[id_] = _decode(self._vocab[id_])
        text, data = self._alone[id_], self._vocab[id_]
        for before in reversed(context) if text is None else ():
            data = self._vocab[before] + data
            text = _decode(data)
            if text is not None:
                break
        return text or ""


def _decode(data: bytes) -> str | None:
    """The text of bytes; None if it ends within a character."""
    text = data.decode(errors="replace")
    return None if text.endswith(_REPLACED) and not data.endswith(_REPLACED.encode()) else text
