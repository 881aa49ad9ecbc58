"""The interface between the tokenizer and the engine that computes its ids.

An engine takes a normalized text and the special tokens to search for, and returns ids; or it takes
ids and returns bytes. The layers above implement the special-token policy, normalization and
streaming, which are the same for every engine. All engines give identical results; only their speed
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.normalizers.nfc import NfcChange
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.specials.trust import Segment

    Row = list[int] | NDArray[np.integer]


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
    ) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]], NDArray[np.uint32]] | None:
        """The vocabulary, the merges and their ids; None if the file must be examined."""
        ...


class CallsOfMatcher(NamedTuple):
    """`Engine.encode` and `Engine.encode_to_numpy` for one matcher, which take `compiled` in its
    place: a short text notices each further call."""

    encode: Callable[[str, Any], list[int]]
    encode_to_numpy: Callable[[str, int | None, Any], NDArray[np.uint32]]
    compiled: object


class Engine(Protocol):
    """Encodes and decodes for one TokenizerSpec. Thread-safe."""

    name: str
    has_threads: bool
    """Whether the engine uses `num_threads`."""
    normalizes_spaces: bool
    """Whether a call with a matcher runs the normalizer of the spec between the added tokens, if it
    is one that puts and reads spaces (`normalizers.spaces`). Without a matcher, every
    engine takes the text as normalized."""

    def encode(self, text: str, matcher: SpecialTokenMatcher | None = None) -> list[int]:
        """Ids of a normalized text. Each added token that `matcher` finds becomes its own id;
        without a matcher the whole text is plain.

        Raises:
            UnicodeEncodeError: `text` contains a lone surrogate.
        """
        ...

    def encode_to_numpy(
        self,
        text: str,
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
        changes: Sequence[NfcChange] = (),
    ) -> NDArray[np.uint32]:
        """As `encode`, as uint32 of shape (n_tokens,), of the text with `changes` applied.
        `nfc_changes` computes them; an engine need not build the changed text."""
        ...

    def calls_of(self, matcher: SpecialTokenMatcher) -> CallsOfMatcher:
        """The two methods above for many texts with this matcher."""
        ...

    def encode_to_json(
        self,
        text: str,
        matcher: SpecialTokenMatcher | None = None,
        changes: Sequence[NfcChange] = (),
        *,
        prefix_ids: Sequence[int] = (),
        suffix_ids: Sequence[int] = (),
    ) -> tuple[bytes, int]:
        """The ids as a JSON array without white space, and their number, including prefix and
        suffix. A response needs neither a NumPy array nor Python ints. `changes` as in
        `encode_to_numpy`."""
        ...

    def encode_batch(
        self,
        texts: Sequence[str],
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
    ) -> list[list[int]]:
        """As `encode`, of each text in order."""
        ...

    def encode_batch_to_numpy(
        self,
        texts: Sequence[str],
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """The ids of all texts, shape (n_tokens,), uint32; and offsets of shape (n_texts + 1,),
        uint64: the ids of text `i` are `ids[offsets[i]:offsets[i + 1]]`."""
        ...

    def encode_documents(
        self,
        texts: Sequence[bytes],
        begin_end_ids: tuple[int | None, int | None] = (None, None),
        matcher: SpecialTokenMatcher | None = None,
        *,
        as_uint16: bool = False,
    ) -> EncodedDocuments:
        """As `encode_batch_to_numpy` with one thread, for texts in UTF-8. The begin id precedes
        each text's ids and the end id follows them, if not None. With `as_uint16` the ids are
        uint16.

        Raises:
            UnicodeDecodeError: a text is not UTF-8.
            ValueError: an id does not fit uint16.
        """
        ...

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]:
        """Ids of pre-tokens, joined."""
        ...

    def count(
        self, text: str, limit: int | None = None, matcher: SpecialTokenMatcher | None = None
    ) -> int:
        """The number of ids of `text`; counting may stop once it exceeds `limit`."""
        ...

    def join_segments(self, segments: Iterable[Segment]) -> tuple[str, list[tuple[int, int]]]:
        """As `trust.join_segments`."""
        ...

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """As `Normalizer.normalize` of the spec."""
        ...

    def nfc_changes(self, text: str) -> list[NfcChange]:
        """The changes that `normalize_nfc` makes in `text`, in order; none if it is in NFC.

        Raises:
            UnicodeEncodeError: the text contains a lone surrogate. Not every engine checks.
        """
        ...

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> bytes:
        """The bytes of `ids`, joined; an array has shape (n_tokens,).

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
        """
        ...

    def decode(self, ids: Iterable[int] | NDArray[np.integer], errors: str = "replace") -> str:
        """The text of `ids`. `errors` is as in `bytes.decode`.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
            UnicodeDecodeError: with `errors="strict"`.
        """
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
        if NFC may change the text; shape (n_rows,). Not for other normalizers and for tokens with
        flags. None as for `decode_batch`."""
        ...

    def decode_streams(self) -> EngineStreams | None:
        """Streams that the engine decodes together; None if it decodes one at a time."""
        ...

    def json_of_ids(self, ids: NDArray[np.uint32]) -> bytes:
        """Ids of shape (n_tokens,) as a JSON array without white space. A response needs no Python
        ints."""
        ...

    def cache_statistics(self) -> CacheStatistics:
        """Hits, misses and size of the pre-token cache since the engine was made."""
        ...
