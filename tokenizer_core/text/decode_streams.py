"""Ids to text as they arrive: one stream, or many in one call.

A stream gives out text that no later id can change, so that its parts join to `decode` of all ids.
It holds back an incomplete character and, in a vocabulary with byte fallback, a run of byte ids:
the run is text if all of it is UTF-8, and one U+FFFD for each byte otherwise.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from operator import index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.engines.base import list_ids, naming_ids
from tokenizer_core.spec import spec_of
from tokenizer_core.specials.matcher import SpecialTokenMatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokenizer_core.tokenizer import Tokenizer

    Ids = Iterable[int] | NDArray[np.integer]

MAX_RUN_BYTES: Final = 1 << 20
"""A stream of `DecodeStreams` holds at most this many bytes of a run of byte ids (1 Mi)."""

MAX_STOP_BYTES: Final = 1 << 16
"""The stop strings of a stream have at most this many bytes of UTF-8 together (64 Ki)."""


class StreamingDecoder:
    """Decodes ids that arrive in pieces; buffers incomplete characters.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> stream = StreamingDecoder(Tokenizer({i: bytes([i]) for i in range(256)}, []))
        >>> stream.feed([0xC3]), stream.feed([0xA9]), stream.flush()
        ('', 'é', '')
    """

    def __init__(
        self, tokenizer: Tokenizer, *, errors: str = "replace", is_first: bool = True
    ) -> None:
        """`is_first`: whether no text is before that of the ids."""
        spec = spec_of(tokenizer)
        self._engine = tokenizer.engine
        self._vocab = spec.vocab
        self._errors = errors
        self._strips = spec.normalizer.strips_space and is_first
        # Hugging Face's byte fallback: of a run of bytes that is no text, each becomes U+FFFD.
        is_by_run = errors == "replace"
        self._byte_ids = frozenset(spec.alphabet.byte_ids if is_by_run else ())
        self._pending = bytearray()  # of an incomplete character, or of a run
        self._n_checked = 0  # bytes of the run that are whole characters
        self._is_broken = False  # the run is no text; its bytes are given as they come

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held back."""
        return len(self._pending)

    @property
    def is_between(self) -> bool:
        """Whether the text of the next id does not depend on those before it."""
        return not (self._pending or self._is_broken or self._strips)

    def feed(self, ids: Iterable[int]) -> str:
        """Return the text that `ids` complete.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
            UnicodeDecodeError: the bytes are not UTF-8 and errors is `strict`.
        """
        if self._byte_ids:
            return self._stripped(self._decode_by_run(list_ids(ids)))
        self._pending += self._engine.decode(ids, None)
        text, n_settled = _decode_settled(self._pending, self._errors)
        del self._pending[:n_settled]
        return self._stripped(text)

    def flush(self) -> str:
        """Return the remaining text; `errors="replace"` gives U+FFFD for a partial character."""
        if self._byte_ids:
            return self._stripped(self._end_run())
        pending, self._pending = self._pending, bytearray()
        return self._stripped(pending.decode(errors=self._errors))

    def _forget_characters(self) -> None:
        """Do not give out the whole characters of the run so far: their text is known."""
        if self._n_checked:
            del self._pending[: self._n_checked]
            self._n_checked, self._strips = 0, False

    def _stripped(self, text: str) -> str:
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text

    def _decode_by_run(self, ids: list[int]) -> str:
        data = self._engine.decode(ids, None)
        is_in_run = self._pending or self._is_broken
        if ids and not is_in_run and ids[-1] not in self._byte_ids:
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass
        parts: list[str] = []
        for id_ in ids:
            if id_ not in self._byte_ids:
                parts += [self._end_run(), self._vocab[id_].decode()]
            elif self._is_broken:
                parts.append("\ufffd")
            else:
                self._pending += self._vocab[id_]
        try:
            self._n_checked += _decode_settled(self._pending[self._n_checked :], "strict")[1]
        except UnicodeDecodeError:
            parts.append(self._end_run())
            self._is_broken = True
        return "".join(parts)

    def _end_run(self) -> str:
        n_bytes = len(self._pending)
        self._n_checked, self._is_broken = 0, False
        try:
            return self._pending.decode()
        except UnicodeDecodeError:
            return "\ufffd" * n_bytes
        finally:
            self._pending.clear()


def _decode_settled(data: bytearray, errors: str) -> tuple[str, int]:
    """The text of all bytes but those of an incomplete character, and their number."""
    text, n_settled = codecs.utf_8_decode(data, errors, False)
    held = data[n_settled:]
    # Python holds back what begins a surrogate, which only one error handler reads.
    if len(held) == 2 and held[0] == 0xED and held[1] >= 0xA0 and errors != "surrogatepass":
        return codecs.utf_8_decode(data, errors, True)
    return text, n_settled


class BytesDecoder:
    """The bytes of ids that arrive in pieces; joined they are `Tokenizer.decode_bytes` of all."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._engine = tokenizer.engine
        self._strips = tokenizer.spec.normalizer.strips_space

    def feed(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`; raises UnknownTokenIdError."""
        data = self._engine.decode(ids, None)
        if self._strips and data:
            self._strips = False
            return data.removeprefix(b" ")
        return data


class DecodeStreams:
    """Decodes many streams of ids, all of them in one call; for a server that generates text.

    With stop strings a stream holds back what may begin one. The text ends before the stop string
    that ends first; of several that end there, the longest counts. `include_stop` leaves the stop
    string in the text, so that nothing is held back for it. The parts of a stream, and of its
    `finish`, join to `decode` of all its ids, up to the stop string. An instance is not for several
    threads at once.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> streams = DecodeStreams(tokenizer, stop=["END"])
        >>> one, other = streams.open(), streams.open(stop=["!"])
        >>> streams.append([one, other], [list(b"ab E"), list(b"hi! E")])
        ['ab ', 'hi']
        >>> streams.stopped
        {1: '!'}
        >>> streams.close(other)
        >>> streams.append([one], np.array([ord("N")])), streams.finish([one])
        ([''], ['EN'])
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: str | Iterable[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = False,
    ) -> None:
        """The options are those of each stream that `open` gives no others. Raises ValueError: a
        stop string is empty, or they have more than `MAX_STOP_BYTES`."""
        spec = spec_of(tokenizer)
        self._tokenizer = tokenizer
        self._options = _stops_of(stop), include_stop, skip_special_tokens
        self._special_ids = frozenset(spec.special_tokens.values())
        self._n_opened = 0
        self._is_finished: dict[int, bool] = {}  # of each open stream
        self._native = tokenizer.engine.decode_streams()
        self._streams: dict[int, _Stream] = {}  # if the engine has none

    def __len__(self) -> int:
        """The number of open streams."""
        return len(self._is_finished)

    @property
    def stopped(self) -> dict[int, str]:
        """The open streams that a stop string ended, and that string."""
        if self._native is not None:
            return dict(sorted(self._native.stopped()))
        streams = self._streams.items()
        return {number: stream.stopped for number, stream in streams if stream.stopped is not None}

    def open(
        self,
        *,
        stop: str | Iterable[str] | None = None,
        include_stop: bool | None = None,
        skip_special_tokens: bool | None = None,
        after: Ids = (),
    ) -> int:
        """Open a stream and return its number, which no other stream gets.

        `after` are the ids before the stream (the prompt). Their text is not given out, except what
        they leave incomplete. Without them, a space that encoding puts before a text (Llama 2,
        Mistral) is left out at the beginning, as `decode` does. Raises ValueError: as the
        constructor; or an id of `after` is not in the vocabulary.
        """
        stops, includes, skips = self._options
        stops = stops if stop is None else _stops_of(stop)
        includes = includes if include_stop is None else include_stop
        skips = skips if skip_special_tokens is None else skip_special_tokens
        before = self._plain_ids(after, "`after`")
        number = self._n_opened
        if self._native is not None:
            self._native.open(number, list(stops), includes, skips, before)
        else:
            skipped = self._special_ids if skips else frozenset()
            self._streams[number] = _Stream(self._tokenizer, stops, includes, skipped, before)
        self._n_opened += 1
        self._is_finished[number] = False
        return number

    def append(
        self,
        streams: Sequence[int] | NDArray[np.integer],
        ids: Sequence[int | Ids] | NDArray[np.integer],
    ) -> list[str]:
        """Append ids to streams, and return the new text of each, in order.

        `ids` has one element per stream: an id, or the ids, as a sequence or an array. An array of
        shape (n_streams,) has one id for each, and one of shape (n_streams, n_ids) has a row for
        each. A stream that a stop string ended ignores its ids.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary; names the stream, index and id.
            LookupError: no stream of that number is open.
            ValueError: a stream is finished; the lengths differ; a run of byte ids is longer than
                `MAX_RUN_BYTES`.
            TypeError: an id is no integer.
            No stream has changed after an error.
        """
        numbers, batch = _listed(streams, "streams"), _listed(ids, "the ids of streams")
        if self._native is not None:
            try:
                return self._native.append(numbers, batch)
            except ValueError:
                pass  # an error, or elements that the engine does not read
        numbers, plain = self._checked(numbers, batch)
        if self._native is not None:
            try:
                return self._native.append(numbers, plain)
            except ValueError as error:
                raise ValueError(_describe_long_run(numbers[error.args[0]])) from None
        for number, new in zip(numbers, plain, strict=True):
            if not self._streams[number].has_room(new):
                raise ValueError(_describe_long_run(number))
        appended = zip(numbers, plain, strict=True)
        return [self._streams[number].append(new) for number, new in appended]

    def finish(self, streams: Sequence[int] | NDArray[np.integer]) -> list[str]:
        """End streams, and return the remaining text of each: what was held back for a stop string,
        and U+FFFD for an incomplete character. Raises LookupError: no stream of that number is
        open."""
        numbers = list(map(self._open_number, _listed(streams, "streams")))
        self._is_finished.update(dict.fromkeys(numbers, True))
        if self._native is not None:
            return self._native.finish(numbers)
        return [self._streams[number].finish() for number in numbers]

    def close(self, stream: int) -> None:
        """Forget a stream, finished or not. Raises LookupError: no such stream is open."""
        number = self._open_number(stream)
        del self._is_finished[number]
        if self._native is not None:
            self._native.close(number)
        else:
            del self._streams[number]

    def _checked(
        self, numbers: list[int], batch: list[int | Ids]
    ) -> tuple[list[int], list[list[int]]]:
        """The numbers and the ids of each stream, as plain ints; raises for the first stream that
        does not take them."""
        if len(numbers) != len(batch):
            raise ValueError(
                f"there are {len(numbers)} streams and the ids of {len(batch)}; give one element "
                f"of ids for each stream"
            )
        opened = list(map(self._open_number, numbers))
        checked = []
        for number, ids in zip(opened, batch, strict=True):
            if self._is_finished[number]:
                raise ValueError(f"stream {number} is finished; open another")
            several = ids if isinstance(ids, (np.ndarray, Iterable)) else [ids]
            checked.append(self._plain_ids(several, f"stream {number}"))
        return opened, checked

    def _open_number(self, number: object) -> int:
        is_integer = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        if not is_integer or number not in self._is_finished:
            raise LookupError(
                f"no stream {number!r:.40} is open: it was closed, or `open` did not return it"
            )
        return index(number)

    def _plain_ids(self, ids: Ids, where: str) -> list[int]:
        with naming_ids(where):
            listed = _listed(ids, "ids")
            self._tokenizer.engine.decode(listed, None)
        return list(map(index, listed))


class _Stream:
    """One stream, for an engine that has none."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: tuple[str, ...],
        include_stop: bool,
        skipped: frozenset[int],
        after: list[int],
    ) -> None:
        self.stopped: str | None = None
        self._decoder = StreamingDecoder(tokenizer)
        self._byte_ids = frozenset(tokenizer.spec.alphabet.byte_ids)
        self._stops = SpecialTokenMatcher(stops)
        self._includes_stop = include_stop
        self._skipped = skipped
        self._begun = ""  # the end of the text so far, which may begin a stop string
        self._decoder.feed(self._kept(after))
        self._decoder._forget_characters()

    def has_room(self, ids: list[int]) -> bool:
        n_held = self._decoder.pending_bytes
        if n_held + len(ids) <= MAX_RUN_BYTES or self.stopped is not None:
            return True
        for id_ in self._kept(ids):
            n_held = n_held + 1 if id_ in self._byte_ids else 0
            if n_held > MAX_RUN_BYTES:
                return False
        return True

    def append(self, ids: list[int]) -> str:
        return (
            "" if self.stopped is not None else self._searched(self._decoder.feed(self._kept(ids)))
        )

    def finish(self) -> str:
        if self.stopped is not None:
            return ""
        text = self._searched(self._decoder.flush())
        return text if self._includes_stop or self.stopped is not None else text + self._begun

    def _kept(self, ids: list[int]) -> list[int]:
        return [id_ for id_ in ids if id_ not in self._skipped] if self._skipped else ids

    def _searched(self, new: str) -> str:
        """What may be given out with `new`: with `include_stop`, all that was begun is given."""
        text, n_begun = self._begun + new, len(self._begun)
        found = (
            (at + len(stop), -len(stop))
            for stop in self._stops.contents
            if (at := text.find(stop, max(0, n_begun + 1 - len(stop)))) >= 0
        )
        n_given = n_begun if self._includes_stop else 0
        end, minus_length = min(found, default=(0, 0))
        if end:
            start = end + minus_length
            self.stopped = text[start:end]
            return text[n_given : end if self._includes_stop else start]
        start = next(iter(self._stops.doubtful_starts(text)), len(text))
        self._begun = text[start:]
        return text[n_given:] if self._includes_stop else text[:start]


def _stops_of(stop: str | Iterable[str]) -> tuple[str, ...]:
    try:
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        is_text = all(isinstance(string, str) for string in stops)
    except TypeError:
        is_text = False
    if not is_text:
        raise TypeError(f"stop must be a string or a list of strings, not {stop!r:.60}")
    if not all(stops):
        raise ValueError("a stop string is empty, which would end every stream; leave it out")
    n_bytes = sum(len(string.encode()) for string in stops)
    if n_bytes > MAX_STOP_BYTES:
        raise ValueError(
            f"the stop strings have {n_bytes} bytes, more than {MAX_STOP_BYTES}; give shorter ones"
        )
    return stops


def _listed(values: Any, name: str) -> list[Any]:
    if not isinstance(values, np.ndarray):
        return values if type(values) is list else list_ids(values, name)
    if values.size and not (values.ndim and values.dtype.kind in "iu"):
        raise TypeError(
            f"ids and streams are integers, one-dimensional or a row for each stream, not an array "
            f"of {values.dtype} of shape {values.shape}"
        )
    listed: list[Any] = values.tolist()
    return listed


def _describe_long_run(number: int) -> str:
    return (
        f"stream {number} would hold more than {MAX_RUN_BYTES} bytes of a run of byte ids, which "
        f"is text only as a whole; finish the stream"
    )
