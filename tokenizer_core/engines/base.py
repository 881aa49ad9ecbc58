"""BaseEngine: everything an engine does beyond merging pre-tokens.

It cuts out added tokens, normalizes, splits, joins results and renders JSON. Every engine inherits
it; a faster engine overrides the methods that it speeds up.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.engines.protocol import ARRAY, LIST, LISTS, EncodedDocuments
from tokenizer_core.specials.parts import normalized_parts
from tokenizer_core.splitting.pretokenize import split_in_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import EngineStreams, Row, Wanted
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.specials.parts import Part

_JSON_WINDOW: Final = 1 << 15
"""Ids rendered at a time: one `json.dumps` of a million ids holds the GIL for 80 ms."""


class BaseEngine(ABC):
    """`protocol.Engine` based on `_tokens_of`: Python searches the added tokens, normalizes and
    splits, with one thread."""

    has_threads = False

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._added = spec.added_ids
        self.normalize: Callable[..., str] = spec.normalizer.normalize

    def encode(
        self, text: str, matcher: SpecialTokenMatcher | None = None, wanted: Wanted[Any] = LIST
    ) -> Any:
        return self.encoder(matcher, wanted)(text)

    def encoder(
        self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Any]
    ) -> Callable[[str], Any]:
        return partial(self._encode, matcher, wanted)

    def encode_batch(
        self,
        texts: Sequence[Any],
        matcher: SpecialTokenMatcher | None = None,
        wanted: Wanted[Any] = LISTS,
    ) -> Any:
        import numpy as np

        if wanted.kind == "list":
            return [self.encode(text, matcher) for text in texts]
        each = ARRAY._replace(prefix_ids=wanted.prefix_ids, suffix_ids=wanted.suffix_ids)
        decoded = map(bytes.decode, texts) if wanted.kind == "documents" else texts
        ids, offsets = join_with_offsets([self.encode(text, matcher, each) for text in decoded])
        if wanted.kind == "array":
            return ids, offsets
        if wanted.as_uint16:
            if len(ids) and ids.max() > np.iinfo(np.uint16).max:
                raise ValueError("an id does not fit two bytes; leave out as_uint16")
            ids = ids.astype(np.uint16)
        return EncodedDocuments(ids, offsets, np.array(list(map(len, texts)), dtype=np.uint64))

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]:
        return list(chain.from_iterable(self._tokens_of(pre_tokens)))

    def decode_batch(
        self, rows: list[Row], num_threads: int | None = None, *, skip_special: bool = False
    ) -> list[str] | None:
        del rows, num_threads, skip_special
        return None

    def first_drifts(
        self, rows: list[Row], matcher: SpecialTokenMatcher, num_threads: int | None = None
    ) -> NDArray[np.int64] | None:
        del rows, matcher, num_threads
        return None

    def decode_streams(self) -> EngineStreams | None:
        return None

    @abstractmethod
    def _tokens_of(self, pre_tokens: Sequence[str]) -> Iterable[Sequence[int]]:
        """The ids of each pre-token, or of several together."""

    def _encode(self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Any], text: str) -> Any:
        require_characters(text)
        windows = self._windows(matcher, text)
        if wanted.kind == "count":
            total = 0
            for window in windows:
                total += sum(map(len, window))
                if wanted.limit is not None and total > wanted.limit:
                    break
            return total
        if wanted.kind == "list":
            ids = chain.from_iterable(chain.from_iterable(windows))
            return [*wanted.prefix_ids, *ids, *wanted.suffix_ids]
        import numpy as np

        parts = [np.fromiter(chain.from_iterable(window), np.uint32) for window in windows]
        return as_wanted(np.concatenate([np.empty(0, np.uint32), *parts]), wanted)

    def _windows(
        self, matcher: SpecialTokenMatcher | None, text: str
    ) -> Iterator[Iterable[Sequence[int]]]:
        """The ids of each window of the text, and those of the added tokens."""
        parts: Iterable[Part] = [(text, None)]
        if matcher is not None:
            parts = normalized_parts(self._spec, matcher, text, self.normalize)
        for plain, token in parts:
            if plain:
                yield from map(self._tokens_of, split_in_windows(plain, self._spec.pattern))
            if token is not None:
                yield [(self._added[token],)]


def json_of_ids(ids: NDArray[np.uint32]) -> bytes:
    """Ids of shape (n_tokens,) as a JSON array without white space."""
    starts = range(0, len(ids), _JSON_WINDOW)
    windows = (ids[start : start + _JSON_WINDOW].tolist() for start in starts)
    joined = ",".join(json.dumps(window, separators=(",", ":"))[1:-1] for window in windows)
    return f"[{joined}]".encode()


def as_wanted(
    ids: NDArray[np.uint32],
    wanted: Wanted[Any],
    json_of_ids: Callable[[NDArray[np.uint32]], bytes] = json_of_ids,
) -> Any:
    """What is wanted of these ids of one text."""
    if wanted.kind == "count":
        return len(ids)
    import numpy as np

    if wanted.prefix_ids or wanted.suffix_ids:
        around = [np.array(part, np.uint32) for part in (wanted.prefix_ids, wanted.suffix_ids)]
        ids = np.concatenate([around[0], ids, around[1]])
    if wanted.kind == "json":
        return json_of_ids(ids), len(ids)
    return ids.tolist() if wanted.kind == "list" else ids


def require_text(text: object) -> None:
    """Raise TypeError unless `text` is a str."""
    if not isinstance(text, str):
        remedy = "; decode it first" if isinstance(text, bytes | bytearray | memoryview) else ""
        raise TypeError(f"text must be a str, not {type(text).__name__}{remedy}")


def require_characters(text: str) -> None:
    """Raise TypeError unless `text` is a str, and UnicodeEncodeError for a lone surrogate.

    A part of a text would have it at another position, and what a pattern leaves out is never
    written as UTF-8.
    """
    require_text(text)
    str.encode(text)


def join_with_offsets(
    parts: Sequence[NDArray[np.uint32]],
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Join the parts, shape (n_tokens,), and return their offsets, shape (n_parts + 1,)."""
    import numpy as np

    offsets = np.zeros(len(parts) + 1, dtype=np.uint64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate(parts) if len(parts) else np.empty(0, dtype=np.uint32), offsets
