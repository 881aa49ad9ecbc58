"""BaseEngine: everything an engine does beyond merging pre-tokens.

It cuts out added tokens, normalizes, splits, joins results and renders JSON. Every engine inherits
it; a faster engine overrides the methods that it speeds up.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from itertools import chain
from operator import index
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.engines.protocol import ARRAY, LIST, LISTS, EncodedDocuments
from tokenizer_core.errors import UnknownTokenIdError
from tokenizer_core.specials.parts import normalized_parts
from tokenizer_core.splitting.pretokenize import split_in_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import BodyEncoder, EngineStreams, Row, Wanted
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.specials.parts import Part

_NO_IDS: Final = (str, bytes, bytearray, Mapping, set, frozenset)
_JSON_WINDOW: Final = 1 << 15
"""Ids rendered at a time: one `json.dumps` of a million ids holds the GIL for 80 ms."""


def json_of_ids_in_python(ids: NDArray[np.uint32]) -> bytes:
    """Ids of shape (n_tokens,) as a JSON array without white space."""
    starts = range(0, len(ids), _JSON_WINDOW)
    windows = (ids[start : start + _JSON_WINDOW].tolist() for start in starts)
    joined = ",".join(json.dumps(window, separators=(",", ":"))[1:-1] for window in windows)
    return f"[{joined}]".encode()


class BaseEngine(ABC):
    """`protocol.Engine` based on `_tokens_of`: Python searches the added tokens, normalizes and
    splits, with one thread."""

    has_threads = False

    def __init__(
        self,
        spec: TokenizerSpec,
        json_of_ids: Callable[[NDArray[np.uint32]], bytes] = json_of_ids_in_python,
    ) -> None:
        self._spec = spec
        self._added = spec.added_ids
        self._json_of_ids = json_of_ids
        self.normalize: Callable[..., str] = spec.normalizer.normalize

    def encode(
        self, text: str, matcher: SpecialTokenMatcher | None = None, wanted: Wanted[Any] = LIST
    ) -> Any:
        try:
            return self.encoder(matcher, wanted)(text)
        except TypeError:  # a check before would cost more than a short text
            require_text(text)
            raise

    def encoder(
        self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Any]
    ) -> Callable[[str], Any]:
        if not (wanted.prefix_ids or wanted.suffix_ids):
            return self._inner_encoder(matcher, wanted)
        array = ARRAY._replace(num_threads=wanted.num_threads)
        return partial(self._encode_between, self._inner_encoder(matcher, array), wanted)

    def body_encoder(
        self, matcher_of: Callable[[bytes], SpecialTokenMatcher | None]
    ) -> BodyEncoder:
        return lambda around, body: None

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

    def token_sizes(self) -> NDArray[np.uint32]:
        import numpy as np

        vocab, sizes = self._spec.vocab, np.zeros(self._spec.largest_id + 1, dtype=np.uint32)
        sizes[list(vocab)] = list(map(len, vocab.values()))
        return sizes

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

    def _inner_encoder(
        self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Any]
    ) -> Callable[[str], Any]:
        """As `encoder`, without ids around the text."""
        return partial(self._encode, matcher, wanted)

    def _encode_between(
        self, encode: Callable[[str], NDArray[np.uint32]], wanted: Wanted[Any], text: str
    ) -> Any:
        import numpy as np

        around = [np.array(part, np.uint32) for part in (wanted.prefix_ids, wanted.suffix_ids)]
        return self._as_wanted(np.concatenate([around[0], encode(text), around[1]]), wanted)

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
            return list(chain.from_iterable(chain.from_iterable(windows)))
        import numpy as np

        parts = [np.fromiter(chain.from_iterable(window), np.uint32) for window in windows]
        return self._as_wanted(np.concatenate([np.empty(0, np.uint32), *parts]), wanted)

    def _as_wanted(self, ids: NDArray[np.uint32], wanted: Wanted[Any]) -> Any:
        if wanted.kind == "json":
            return self._json_of_ids(ids), len(ids)
        if wanted.kind == "count":
            return len(ids)
        return ids.tolist() if wanted.kind == "list" else ids

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


def join_tokens(vocab: Mapping[int, bytes], ids: list[int]) -> bytes:
    """The bytes of `ids` joined.

    Raises:
        UnknownTokenIdError: an id is not in `vocab`.
        TypeError: an element is not an integer. The first wrong element decides.
    """
    if not {int}.issuperset(map(type, ids)):
        ids = plain_ints(vocab, ids)
    try:
        return b"".join(map(vocab.__getitem__, ids))
    except KeyError:
        first = next(i for i, id_ in enumerate(ids) if id_ not in vocab)
        raise UnknownTokenIdError(first, ids[first], max(vocab)) from None


def sizes_of_ids(
    spec: TokenizerSpec, sizes: NDArray[np.uint32], ids: NDArray[np.uint32], first_index: int = 0
) -> NDArray[np.uint32]:
    """The length in bytes of each id, the first of which is at `first_index`, from `token_sizes`.

    Raises:
        UnknownTokenIdError: an id is not in the vocabulary.
    """
    import numpy as np

    is_inside = ids < len(sizes)
    found: NDArray[np.uint32] = sizes[np.where(is_inside, ids, 0)] * is_inside
    if not found.all():
        unknown = np.flatnonzero((found == 0) & ~np.isin(ids, spec.empty_ids))
        if len(unknown):
            index = int(unknown[0])
            raise UnknownTokenIdError(first_index + index, int(ids[index]), spec.largest_id)
    return found


@contextlib.contextmanager
def naming_ids(owner: str) -> Iterator[None]:
    """Say whose ids they are in the errors of `join_tokens`."""
    try:
        yield
    except UnknownTokenIdError as error:
        raise UnknownTokenIdError(error.index, error.token_id, error.largest_id, owner) from None
    except TypeError as error:
        raise TypeError(f"{owner}: {error}") from None


def plain_ints(vocab: Mapping[int, bytes], ids: list[int]) -> list[int]:
    """Plain ints of integers of any type, as NumPy's; a bool is no integer here. Raises as
    `join_tokens`."""
    plain: list[int] = []
    for i, id_ in enumerate(ids):
        try:
            if isinstance(id_, bool):
                raise TypeError
            plain.append(index(id_))
        except TypeError:
            join_tokens(vocab, plain)  # raises for an unknown id before this element
            kind = type(id_).__name__
            remedy = "; several texts are for the methods with _batch" if kind == "list" else ""
            raise TypeError(
                f"ids[{i}] = {id_!r:.40} is a {kind}; ids must be integers{remedy}"
            ) from None
    return plain


def list_ids(ids: Any, owner: str = "ids") -> list[int]:
    """The ids as a list; raise TypeError, which names their owner, for what has none, and for a
    text, bytes and a dict, whose elements are something else, and a set, which has no order."""
    if not hasattr(ids, "__iter__") or isinstance(ids, _NO_IDS):
        remedy = ""
        if isinstance(ids, str):
            remedy = "; convert each of its words with int"
        elif isinstance(ids, bytes | bytearray):
            remedy = "; np.frombuffer reads the ids in it"
        raise TypeError(
            f"{owner} must be a list or an array of integers, not {type(ids).__name__}{remedy}"
        )
    return list(ids)


def require_text(text: object) -> None:
    """Raise TypeError unless `text` is a str."""
    if not isinstance(text, str):
        remedy = ""
        if isinstance(text, bytes | bytearray | memoryview):
            remedy = "; decode it first"
        elif hasattr(text, "__iter__"):
            remedy = "; encode_batch takes a list of texts"
        raise TypeError(f"text must be a str, not {type(text).__name__}{remedy}")


def checked_number(number: int | None, name: str) -> int | None:
    """`number`, if it is None or at least 1; else raise TypeError or ValueError, which names it."""
    if number is None:
        return None
    try:
        is_positive = index(number) > 0
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(number).__name__}") from None
    if not is_positive:
        raise ValueError(f"{name} must be at least 1, not {number}")
    return number


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
