"""Exact incremental encoding and decoding: the same result for every cut of the input.

The encoder returns a token only when no later input can change it. Three things can change it: an
incomplete special token, a mark that joins under NFC, and a split pattern that looks ahead. Each
stage reports how much of its input is settled; the rest is buffered. `encode_iterable` and the
service's streams use this module.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final, Protocol

from tokenizer_core.errors import PreTokenTooLongError
from tokenizer_core.normalize import (
    MetaspaceSource,
    SourceSize,
    normalize_metaspace,
    normalize_nfc,
    settled_length,
    strips_space,
)
from tokenizer_core.patterns import METASPACE
from tokenizer_core.pretokenize import WINDOW_CHARS, find_last_safe_cut, split_settled
from tokenizer_core.special_tokens import (
    Allowed,
    Disallowed,
    forbid,
    matcher_for,
    matcher_of,
    resolve_policy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokenizer_core.engines import Engine
    from tokenizer_core.spec import TokenizerSpec

MAX_PENDING_CHARS: Final = 1 << 24
"""A stream holds back at most this many characters (16 Mi), so no pre-token may be longer."""

LONG_CHARS: Final = 1 << 10
"""From this length on, the engine gets all text before the last safe cut in one call; the native
engine then takes a tenth of the time for news. In shorter text, the search for the cut takes longer
than it saves."""


class EncodesStreams(Protocol):
    """The part of a tokenizer that a stream uses."""

    @property
    def spec(self) -> TokenizerSpec:
        """The spec of the tokenizer."""
        ...

    @property
    def engine(self) -> Engine:
        """The engine that computes the ids."""
        ...

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of these ids."""
        ...


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
        tokenizer: EncodesStreams,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        max_pending_chars: int = MAX_PENDING_CHARS,
    ) -> None:
        """Raises ValueError for a special token that the tokenizer does not have."""
        spec = tokenizer.spec
        allowed, self._forbidden = resolve_policy(
            spec.added_tokens, allowed_special, disallowed_special
        )
        self._engine = tokenizer.engine
        self._pattern = spec.pattern
        self._tokens = matcher_for(spec, allowed).stream()
        self._guard = matcher_of(self._forbidden)
        self._added: Mapping[str, int] = {token.content: token.id for token in spec.added_tokens}
        self._normalizer = spec.normalizer
        self._source: SourceSize | MetaspaceSource | None = None
        if spec.normalizer == "nfc":
            self._source = SourceSize()
        elif spec.normalizer != "none":
            self._source = MetaspaceSource()
        self._n_segments = 0  # parts between special tokens that ended
        self._is_in_segment = False
        self._max_pending_chars = max_pending_chars
        self._waiting: list[str] = []  # pieces not yet examined
        self._waiting_chars = 0
        self._look_at = 0  # characters to buffer before the next examination
        self._unnormalized = ""  # plain text that a later mark may change
        self._unsplit = ""  # normalized text whose pre-tokens are not settled
        self._guarded = ""  # the end of the text so far, where a forbidden token may begin
        self._bytes_fed = 0
        self._is_finished = False

    @property
    def bytes_settled(self) -> int:
        """UTF-8 bytes of the input whose ids the stream has returned."""
        raw = self._tokens.held + self._unnormalized + "".join(self._waiting)
        unsplit = self._source.held_bytes if self._source else len(self._unsplit.encode())
        return self._bytes_fed - len(raw.encode()) - unsplit

    def feed(self, text: str) -> list[int]:
        """Return the ids that `text` settles, after all earlier text.

        Raises:
            SpecialTokenForbiddenError: a forbidden special token is complete.
            PreTokenTooLongError: a single pre-token is longer than the cap.
            UnicodeEncodeError: the text contains a lone surrogate.
        """
        if self._is_finished:
            raise ValueError("this stream is finished; make another StreamingEncoder")
        self._bytes_fed += len(text.encode())
        self._waiting.append(text)
        self._waiting_chars += len(text)
        ids: list[int] = []
        if self._waiting_chars >= self._look_at:
            self._look(ids)
            # Examine a long pre-token again only when it has grown by half: examining it after
            # every piece would take quadratic time.
            held = self._held_chars()
            self._look_at = held // 2 if held > 256 else 0
        return ids

    def finish(self) -> list[int]:
        """Return the ids of the remaining text, which ends here."""
        ids: list[int] = []
        self._look(ids)
        for plain, token in self._tokens.finish():
            self._feed_plain(plain, ids, is_last=True)
            if token is not None:
                ids.append(self._added[token])
        self._is_finished = True
        return ids

    def _held_chars(self) -> int:
        return len(self._tokens.held) + len(self._unnormalized) + len(self._unsplit)

    def _look(self, ids: list[int]) -> None:
        text = "".join(self._waiting)
        self._waiting, self._waiting_chars = [], 0
        self._check_forbidden(text)
        start = 0
        # Windows bound the memory of a long call. Each window is at least as long as the held text,
        # so the work stays linear.
        while start < len(text):
            end = start + max(WINDOW_CHARS, self._held_chars())
            self._feed_window(text[start:end], ids)
            start = end

    def _feed_window(self, text: str, ids: list[int]) -> None:
        for plain, token in self._tokens.feed(text):
            self._feed_plain(plain, ids, is_last=token is not None)
            if token is not None:
                ids.append(self._added[token])

    def _feed_plain(self, plain: str, ids: list[int], *, is_last: bool) -> None:
        if isinstance(self._source, MetaspaceSource):
            plain = self._feed_metaspace(plain, self._source)
            if is_last:
                self._n_segments += 1
                self._is_in_segment = False
        elif self._source:
            plain = self._unnormalized + plain
            cut = len(plain) if is_last else settled_length(plain)
            self._unnormalized = plain[cut:]
            self._source.add(plain[:cut])
            plain = normalize_nfc(plain[:cut])
        self._unsplit += plain
        if is_last:
            ids += self._engine.encode(self._unsplit)
            self._give_out(len(self._unsplit))
        else:
            self._encode_settled(ids)
        if self._held_chars() > self._max_pending_chars:
            raise PreTokenTooLongError(self._describe_too_long())

    def _feed_metaspace(self, plain: str, source: MetaspaceSource) -> str:
        rule = "metaspace" if self._is_in_segment else self._normalizer
        normalized = normalize_metaspace(rule, plain, is_first=self._n_segments == 0)
        source.add(plain, len(normalized) - len(plain))
        self._is_in_segment |= bool(plain)
        return normalized

    def _encode_settled(self, ids: list[int]) -> None:
        is_long = len(self._unsplit) >= LONG_CHARS
        cut = find_last_safe_cut(self._unsplit, self._pattern) if is_long else None
        if cut is not None:
            ids += self._engine.encode(self._unsplit[:cut])
            self._give_out(cut)
        pre_tokens, consumed = split_settled(self._unsplit, self._pattern)
        ids += self._engine.encode_pre_tokens(pre_tokens)
        self._give_out(consumed)

    def _describe_too_long(self) -> str:
        if not self._pattern.has_cuts:
            return (
                f"with this split pattern nothing is settled before the text ends, and a stream "
                f"holds at most {self._max_pending_chars} characters; encode the text whole"
            )
        if self._pattern != METASPACE and self._pattern.name == METASPACE.name:
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

    def _give_out(self, n_chars: int) -> None:
        if self._source and n_chars:
            self._source.give(self._unsplit[:n_chars])
        self._unsplit = self._unsplit[n_chars:]

    def _check_forbidden(self, text: str) -> None:
        if self._guard:
            seen = self._guarded + text
            forbid(seen, self._forbidden)
            self._guarded = seen[-self._guard.longest :]


class StreamingDecoder:
    """Decodes ids that arrive in pieces; buffers incomplete characters.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> stream = StreamingDecoder(Tokenizer({i: bytes([i]) for i in range(256)}, []))
        >>> stream.feed([0xC3]), stream.feed([0xA9]), stream.flush()
        ('', 'é', '')
    """

    def __init__(self, tokenizer: EncodesStreams, *, errors: str = "replace") -> None:
        self._engine = tokenizer.engine
        self._vocab = tokenizer.spec.vocab
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._strips = strips_space(tokenizer.spec.normalizer)
        # Hugging Face's byte fallback: of a run of bytes that is no text, each becomes U+FFFD.
        is_by_run = errors == "replace"
        self._byte_ids = frozenset(tokenizer.spec.byte_ids if is_by_run else ())
        self._run = bytearray()

    def feed(self, ids: Iterable[int]) -> str:
        """Return the text that `ids` complete.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
            UnicodeDecodeError: the bytes are not UTF-8 and errors is `strict`.
        """
        if self._byte_ids:
            return self._stripped(self._decode_by_run(list(ids)))
        return self._stripped(self._decoder.decode(self._engine.decode_bytes(ids)))

    def _stripped(self, text: str) -> str:
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text

    def _decode_by_run(self, ids: list[int]) -> str:
        data = self._engine.decode_bytes(ids)
        if ids and not self._run and ids[-1] not in self._byte_ids:
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass
        parts: list[str] = []
        for id_ in ids:
            if id_ in self._byte_ids:
                self._run += self._vocab[id_]
            else:
                parts += [self._end_run(), self._vocab[id_].decode()]
        return "".join(parts)

    def _end_run(self) -> str:
        run = bytes(self._run)
        self._run.clear()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(run)

    def flush(self) -> str:
        """Return the remaining text; `errors="replace"` gives U+FFFD for a partial character."""
        return self._stripped(self._end_run() + self._decoder.decode(b"", final=True))


class BytesDecoder:
    """The bytes of ids that arrive in pieces; joined they are `Tokenizer.decode_bytes` of all."""

    def __init__(self, tokenizer: EncodesStreams) -> None:
        self._engine = tokenizer.engine
        self._strips = strips_space(tokenizer.spec.normalizer)

    def feed(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`; raises UnknownTokenIdError."""
        data = self._engine.decode_bytes(ids)
        if self._strips and data:
            self._strips = False
            return data.removeprefix(b" ")
        return data
