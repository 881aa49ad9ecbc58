"""The interface between the tokenizer and the engine that computes its ids.

An engine takes a text and the added tokens to search for, normalizes the parts between them, and
gives what is wanted of the ids; or it takes ids and returns text. The layers above implement the
special-token policy and streaming, which are the same for every engine. All engines give identical
results; only their speed differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeGuard,
    TypeVar,
    overload,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.specials.matcher import SpecialTokenMatcher

    Row = list[int] | NDArray[np.integer]

Result = TypeVar("Result")


BodyEncoder = Callable[[tuple[bytes, bytes, bytes] | None, bytes], tuple[bytes, int, int] | None]
"""Takes three parts of a response, and a JSON body whose first member is `text`. Returns the
response, the number of ids, and the size of the text in bytes of UTF-8; None for a body that it
does not read. The ids stand between the first two parts, and their number before the third. With
None in place of the parts, the response is the ids as words of four bytes, little-endian."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Use of an engine's pre-token cache, which holds at most `maximum` entries."""

    hits: int
    misses: int
    entries: int
    maximum: int


class EncodedDocuments(NamedTuple):
    """The ids of several documents, joined.

    - `ids`: shape (n_tokens,).
    - `offsets`: shape (n_documents + 1,): document `i` is `ids[offsets[i]:offsets[i + 1]]`.
    - `n_bytes`: the size of each text in UTF-8, shape (n_documents,).
    """

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    n_bytes: NDArray[np.uint64]


class EngineStreams(Protocol):
    """The streams of a `decode_streams.DecodeStreams`, which describes the methods and checks what
    they get. A call that raises ValueError has changed nothing."""

    def open(
        self, number: int, stop: list[str], include_stop: bool, skip_special: bool, after: list[int]
    ) -> None:
        """Open a stream after these ids."""
        ...

    def append(self, numbers: list[int], ids: list[int] | list[list[int]]) -> list[str]:
        """The new text of each stream. The ValueError has the position of a stream that does not
        take its ids."""
        ...

    def finish(self, numbers: list[int]) -> list[str]:
        """The remaining text of each stream."""
        ...

    def stopped(self) -> list[tuple[int, str]]:
        """The open streams that a stop string ended, and that string."""
        ...

    def close(self, number: int) -> None:
        """Forget a stream."""
        ...


def is_array(ids: object) -> TypeGuard[NDArray[Any]]:
    """Whether `ids` is an array. There is none before something has imported numpy."""
    if type(ids) is list:
        return False
    np = sys.modules.get("numpy")
    return np is not None and isinstance(ids, np.ndarray)


class PackedModel(Protocol):
    """The entries and merges of a `tokenizer.json`, without an object for each; see
    `_native.pyi`."""

    def __len__(self) -> int: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __getitem__(self, key: str, /) -> int: ...

    def entries(self) -> dict[str, int]:
        """text -> id, in the order of the file."""
        ...

    def sides(self) -> list[str]:
        """The left and right sides of all merges, in turn."""
        ...

    def build(
        self, plain: list[str], *, by_characters: bool = False
    ) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]], bytes] | None:
        """The vocabulary, the merges and their ids, as `TokenizerSpec` has them; None if the file
        must be examined."""
        ...


class Wanted(NamedTuple, Generic[Result]):
    """What `Engine.encode` makes of the ids of a text, or `Engine.encode_batch` of many.

    - `list`: a list of ints; of many texts a list of lists.
    - `array`: uint32 of shape (n_tokens,), by up to `num_threads` threads; of many texts all ids,
      and offsets of shape (n_texts + 1,), uint64: those of text `i` are `ids[offsets[i]:offsets[i +
      1]]`.
    - `json`: a JSON array without white space, and the number of ids.
    - `count`: their number. Counting may stop once it exceeds `limit`.
    - `documents`: of many texts in UTF-8, `EncodedDocuments`, by one thread; their ids are uint16
      with `as_uint16`.

    `prefix_ids` and `suffix_ids` are put around the ids of one text, and around those of each
    document, which has at most one before and one after.
    """

    kind: Literal["list", "array", "json", "count", "documents"]
    num_threads: int | None = None
    limit: int | None = None
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    as_uint16: bool = False


LIST: Final[Wanted[list[int]]] = Wanted("list")
ARRAY: Final[Wanted[NDArray[np.uint32]]] = Wanted("array")
JSON: Final[Wanted[tuple[bytes, int]]] = Wanted("json")
COUNT: Final[Wanted[int]] = Wanted("count")
LISTS: Final[Wanted[list[list[int]]]] = Wanted("list")
ARRAYS: Final[Wanted[tuple[NDArray[np.uint32], NDArray[np.uint64]]]] = Wanted("array")
DOCUMENTS: Final[Wanted[EncodedDocuments]] = Wanted("documents")


class Engine(Protocol):
    """Encodes and decodes for one TokenizerSpec. Thread-safe."""

    name: str
    has_threads: bool
    """Whether the engine uses `num_threads`."""
    normalize: Callable[..., str]
    """`Normalizer.normalize` of the spec; steps may run in the compiled module."""

    @overload
    def encode(self, text: str, matcher: SpecialTokenMatcher | None = ...) -> list[int]: ...
    @overload
    def encode(
        self, text: str, matcher: SpecialTokenMatcher | None, wanted: Wanted[Result]
    ) -> Result: ...
    def encode(self, text: Any, matcher: Any = None, wanted: Any = LIST) -> Any:
        """The ids of a text, as `wanted`. Each added token that `matcher` finds becomes its own id,
        and the normalizer of the spec runs between them. Without a matcher, the whole text is plain
        and was normalized.

        Raises:
            UnicodeEncodeError: `text` contains a lone surrogate.
        """
        ...

    def encoder(
        self, matcher: SpecialTokenMatcher | None, wanted: Wanted[Result]
    ) -> Callable[[str], Result]:
        """`encode` with this matcher, for many texts: short ones notice each further call."""
        ...

    def encode_batch(
        self,
        texts: Sequence[str] | Sequence[bytes],
        matcher: SpecialTokenMatcher | None,
        wanted: Wanted[Result],
    ) -> Result:
        """As `encode`, of each text in order.

        Raises:
            UnicodeEncodeError: as `encode`.
            UnicodeDecodeError: a document is not UTF-8.
            ValueError: an id does not fit uint16.
        """
        ...

    def body_encoder(
        self, matcher_of: Callable[[bytes], SpecialTokenMatcher | None]
    ) -> BodyEncoder:
        """A function that encodes the text inside a JSON body, without copying it first. It returns
        None if `matcher_of`, given the body with an empty text, returns None, or if this engine
        does not read bodies."""
        ...

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]:
        """Ids of pre-tokens, joined."""
        ...

    @overload
    def decode(self, ids: Iterable[int] | NDArray[np.integer], errors: None) -> bytes: ...
    @overload
    def decode(self, ids: Iterable[int] | NDArray[np.integer], errors: str = ...) -> str: ...
    def decode(self, ids: Any, errors: str | None = "replace") -> Any:
        """The text of `ids`; an array has shape (n_tokens,). `errors` is as in `bytes.decode`; with
        None, the result is the bytes.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
            UnicodeDecodeError: with `errors="strict"`.
        """
        ...

    def token_sizes(self) -> NDArray[np.uint32]:
        """The bytes of each id, 0 for one without a token, shape (largest_id + 1,)."""
        ...

    def decode_batch(
        self, rows: list[Row], num_threads: int | None = None, *, skip_special: bool = False
    ) -> list[str] | None:
        """The text of each row, as `Tokenizer.decode` with `errors="replace"`. None if the engine
        decodes one at a time, or an element is no known id."""
        ...

    def first_drifts(
        self,
        rows: list[Row],
        matcher: SpecialTokenMatcher,
        num_threads: int | None = None,
    ) -> NDArray[np.int64] | None:
        """For each row the first index where encoding its text differs, -1 if there is none, and -2
        if NFC may change the text; shape (n_rows,). None as for `decode_batch`, and if the engine
        does not compare."""
        ...

    def decode_streams(self) -> EngineStreams | None:
        """Streams that the engine decodes together; None if it decodes one at a time."""
        ...

    def cache_statistics(self) -> CacheStatistics:
        """Hits, misses and size of the pre-token cache since the engine was made."""
        ...
