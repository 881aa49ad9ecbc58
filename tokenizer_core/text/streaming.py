"""Exact incremental encoding: the same ids for every cut of the text.

The encoder returns a token only when no later input can change it. Three things can change it: an
incomplete special token, a mark that joins under NFC (or any other text that a normalizer may
change together with later text), and a split pattern that looks ahead. Each stage decides how much
of its input is settled; the rest is buffered:

    added tokens     `specials.flags.MatchStream`
    normalizer       `Normalizer.find_cut`
    split pattern    `splitting.pretokenize.split_settled`
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.engines.base import require_text
from tokenizer_core.errors import PreTokenTooLongError
from tokenizer_core.spec import spec_of
from tokenizer_core.specials.flags import MatchStream
from tokenizer_core.specials.matchers import matcher_of_spec, matcher_of_strings
from tokenizer_core.specials.parts import search_for
from tokenizer_core.specials.policy import (
    Allowed,
    Disallowed,
    forbid_matches,
    resolve_policy,
)
from tokenizer_core.splitting.pretokenize import WINDOW_CHARS, find_last_safe_cut, split_settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokenizer_core.specials.parts import Part
    from tokenizer_core.tokenizer import Tokenizer

MAX_PENDING_CHARS: Final = 1 << 24
"""A stream holds back at most this many characters (16 Mi), so no pre-token may be longer."""

LONG_CHARS: Final = 1 << 10
"""From this length on, the engine gets all text before the last safe cut in one call; the native
engine then takes a tenth of the time for news. In shorter text, the search for the cut takes longer
than it saves."""


class _Source:
    """Original text, in blocks that were normalized by themselves, whose normalized text was not
    yet returned."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._align = tokenizer.spec.normalizer.align
        self._normalize = tokenizer.engine.normalize
        # Each block: its source, the length of its normalized text, and how it was normalized.
        self._blocks: deque[tuple[str, int, dict[str, bool]]] = deque()
        self._n_given = 0  # normalized characters of the first block that were returned
        self._given_bytes = 0  # of the source of the first block, 0 if not known
        self._n_held = 0  # normalized characters that were not

    @property
    def held_bytes(self) -> int:
        """UTF-8 bytes of the source that were not yet returned."""
        if self._n_given and not self._given_bytes:
            source, _, options = self._blocks[0]
            self._given_bytes = self._align(source, **options).source_of(self._n_given)
        held = sum(len(source.encode()) for source, _, _ in self._blocks)
        return held - self._given_bytes

    def normalize(self, source: str, **options: bool) -> str:
        """Add a block, and return its normalized text."""
        text = self._normalize(source, **options)
        self._blocks.append((source, len(text), options))
        self._n_held += len(text)
        return text

    def keep(self, n_held: int) -> None:
        """Record that all normalized text but these last characters was returned."""
        if n_held < self._n_held:
            self._n_given += self._n_held - n_held
            self._n_held, self._given_bytes = n_held, 0
        while self._blocks and self._n_given >= self._blocks[0][1]:
            self._n_given -= self._blocks.popleft()[1]


class StreamingEncoder:
    """Encodes a text that arrives in pieces; the joined ids equal the one-shot ids.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
        >>> stream = StreamingEncoder(tokenizer)
        >>> stream.feed("ab <|e"), stream.feed("nd|>c"), stream.finish()
        ([], [97, 98, 32, 256], [99])
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
        max_pending_chars: int = MAX_PENDING_CHARS,
    ) -> None:
        """Raises ValueError for a special token that the tokenizer does not have."""
        spec = spec_of(tokenizer)
        allowed, forbidden = resolve_policy(spec.added_tokens, allowed_special, disallowed_special)
        self._engine = tokenizer.engine
        self._pattern = spec.pattern
        search = search_for(spec, matcher_of_spec(spec, allowed))
        self._tokens, self._names = MatchStream(search.first), search.names
        self._normalized_tokens = MatchStream(search.second)
        self._guard = matcher_of_strings(forbidden)
        self._normalized_guard = search_for(spec, self._guard)
        self._added = spec.added_ids
        self._find_cut = spec.normalizer.find_cut
        self._source = _Source(tokenizer)
        self._is_first = True  # no special token was found
        self._is_in_part = False
        self._max_pending_chars = max_pending_chars
        self._waiting: list[str] = []  # pieces not yet examined
        self._waiting_chars = 0
        self._look_at = 0  # characters to buffer before the next examination
        self._unnormalized = ""  # plain text that a later mark may change
        self._unsplit = ""  # normalized text whose pre-tokens are not settled
        self._guarded = ""  # the end of the text so far, where a forbidden token may begin
        self._guarded_normalized = ""  # the same of the normalized part
        self._bytes_fed = 0
        self._is_finished = False
        around = (spec.prefix_ids, spec.suffix_ids) if add_special_tokens else ((), ())
        self._before, self._after = around  # ids that were not returned yet

    @property
    def bytes_settled(self) -> int:
        """UTF-8 bytes of the input whose ids the stream has returned."""
        raw = self._tokens.held + self._unnormalized + "".join(self._waiting)
        return self._bytes_fed - len(raw.encode()) - self._source.held_bytes

    def feed(self, text: str) -> list[int]:
        """Return the ids that `text` settles, after all earlier text.

        Raises:
            TypeError, UnicodeEncodeError: `text` is no str, or contains a lone surrogate. The
                stream has not changed.
            SpecialTokenForbiddenError: a forbidden special token is complete.
            PreTokenTooLongError: a single pre-token is longer than the cap.
            ValueError: the stream is finished, or one of these two errors ended it.
        """
        require_text(text)
        self._require_open()
        self._bytes_fed += len(text.encode())
        self._waiting.append(text)
        self._waiting_chars += len(text)
        ids, self._before = list(self._before), ()
        if self._waiting_chars >= self._look_at:
            self._look(ids)
            # Examine a long pre-token again only when it has grown by half: examining it after
            # every piece would take quadratic time.
            held = self._held_chars()
            self._look_at = held // 2 if held > 256 else 0
        return ids

    def finish(self) -> list[int]:
        """Return the ids of the remaining text, which ends here. Raises SpecialTokenForbiddenError,
        PreTokenTooLongError, ValueError: as `feed`."""
        self._require_open()
        ids = list(self._before)
        self._look(ids)
        self._is_finished = True
        self._feed_parts(self._tokens.finish(), ids, is_end=True)
        return [*ids, *self._after]

    def _held_chars(self) -> int:
        held = len(self._tokens.held) + len(self._unnormalized)
        return held + len(self._normalized_tokens.held) + len(self._unsplit)

    def _require_open(self) -> None:
        if self._is_finished:
            raise ValueError(
                "this stream is finished, or an error ended it; make another StreamingEncoder"
            )

    def _look(self, ids: list[int]) -> None:
        text = "".join(self._waiting)
        self._waiting, self._waiting_chars = [], 0
        self._is_finished = True  # if this raises: part of the text is lost
        self._check_forbidden(text)
        start = 0
        # Windows bound the memory of a long call. Each window is at least as long as the held text,
        # so the work stays linear.
        while start < len(text):
            end = start + max(WINDOW_CHARS, self._held_chars())
            self._feed_parts(self._tokens.feed(text[start:end]), ids, is_end=False)
            start = end
        self._is_finished = False

    def _feed_parts(self, parts: Iterable[Part], ids: list[int], *, is_end: bool) -> None:
        for plain, token in parts:
            self._feed_plain(plain, ids, is_last=is_end or token is not None)
            if token is not None:
                ids.append(self._added[token])

    def _feed_plain(self, plain: str, ids: list[int], *, is_last: bool) -> None:
        plain = self._unnormalized + plain
        cut = len(plain) if is_last else self._find_cut(plain, continues=self._is_in_part)
        self._unnormalized = plain[cut:]
        text = ""
        if cut:
            continues, self._is_in_part = self._is_in_part, True
            text = self._source.normalize(plain[:cut], is_first=self._is_first, continues=continues)
        self._check_forbidden_normalized(text)
        pairs: list[tuple[str, str | None]] = [(text, None)]
        if self._names:
            pairs = self._normalized_tokens.feed(text)
            pairs += self._normalized_tokens.finish() if is_last else []
        *found, (rest, _) = pairs
        for part, name in found:
            self._feed_normalized(part, ids, is_last=name is not None)
            if name is not None:
                ids.append(self._added[self._names[name]])
        self._feed_normalized(rest, ids, is_last=is_last)
        if is_last:
            self._is_first = self._is_in_part = False
            self._guarded_normalized = ""
        self._source.keep(len(self._normalized_tokens.held) + len(self._unsplit))

    def _feed_normalized(self, text: str, ids: list[int], *, is_last: bool) -> None:
        self._unsplit += text
        if is_last:
            ids += self._engine.encode(self._unsplit)
            self._unsplit = ""
        else:
            self._encode_settled(ids)
        if self._held_chars() > self._max_pending_chars:
            raise PreTokenTooLongError(self._describe_too_long())

    def _encode_settled(self, ids: list[int]) -> None:
        is_long = len(self._unsplit) >= LONG_CHARS
        cut = find_last_safe_cut(self._unsplit, self._pattern) if is_long else None
        if cut is not None:
            ids += self._engine.encode(self._unsplit[:cut])
            self._unsplit = self._unsplit[cut:]
        pre_tokens, consumed = split_settled(self._unsplit, self._pattern)
        ids += self._engine.encode_pre_tokens(pre_tokens)
        self._unsplit = self._unsplit[consumed:]

    def _describe_too_long(self) -> str:
        if len(self._unnormalized) > self._max_pending_chars // 2:
            return (
                f"the normalizer of this tokenizer settles nothing of more than "
                f"{self._max_pending_chars} characters before the text ends; encode the text whole"
            )
        if not self._pattern.has_cuts:
            return (
                f"with this split pattern nothing is settled before the text ends, and a stream "
                f"holds at most {self._max_pending_chars} characters; encode the text whole"
            )
        if self._pattern.joins_words:
            return (
                f"tokens of this vocabulary join words, so that nothing may be settled before the "
                f"text ends, and a stream holds at most {self._max_pending_chars} characters; "
                f"encode the text whole"
            )
        return (
            f"the stream holds a single pre-token longer than {self._max_pending_chars} "
            f"characters, of which nothing can be settled before it ends; break the text with "
            f"white space, or encode it whole"
        )

    def _check_forbidden(self, text: str) -> None:
        if self._guard:
            seen = self._guarded + text
            forbid_matches(self._guard, seen)
            self._guarded = seen[-self._guard.longest :]

    def _check_forbidden_normalized(self, text: str) -> None:
        guard = self._normalized_guard
        if guard.second:
            seen = self._guarded_normalized + text
            forbid_matches(guard.second, seen, guard.names)
            self._guarded_normalized = seen[-guard.second.longest :]


def encode_pieces(
    tokenizer: Tokenizer, pieces: Iterable[tuple[str, bool]], **options: Any
) -> Iterator[list[int]]:
    """Yield the ids of documents that come in pieces, each with whether it is the last of its
    document. The options are those of `Tokenizer.encode` and of StreamingEncoder. Raises Exception:
    as these two."""
    stream = None
    for text, is_last in pieces:
        if stream is None and is_last:
            yield tokenizer.encode(text, **options)
            continue
        stream = stream or StreamingEncoder(tokenizer, **options)
        yield stream.feed(text)
        if is_last:
            yield stream.finish()
            stream = None
