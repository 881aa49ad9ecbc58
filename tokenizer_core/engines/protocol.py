"""The seam between the tokenizer and what computes its ids.

An engine does whole calls: normalized texts and the special tokens to look for in, ids out; ids
in, bytes out. What is around them (the policy of special tokens, normalizing, streaming) is the
same for every engine and lives above; where a text is to be normalized an engine says. Every engine
gives identical results; only speed differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.normalize import NfcChange
    from tokenizer_core.special_tokens import SpecialTokenMatcher


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """How an engine's pre-token cache has done; `maximum` entries bound it."""

    hits: int
    misses: int
    entries: int
    maximum: int


class EncodedDocuments(NamedTuple):
    """The ids of several documents, one after the other.

    - `ids`: shape (n_tokens,).
    - `offsets`: shape (n_documents + 1,): document `i` is `ids[offsets[i]:offsets[i + 1]]`.
    - `n_bytes`: the size of each text in UTF-8, shape (n_documents,).
    """

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    n_bytes: NDArray[np.uint64]


class Engine(Protocol):
    """Encodes and decodes for one TokenizerSpec. Immutable from outside and thread-safe."""

    name: str
    has_threads: bool
    """Whether `num_threads` means anything."""

    def encode(self, text: str, matcher: SpecialTokenMatcher | None = None) -> list[int]:
        """Ids of `text`, which is normalized. Each of the added tokens that `matcher` finds in it
        is its own id; without a matcher all is plain text.

        Raises:
            UnicodeEncodeError: `text` holds a lone surrogate.
        """
        ...

    def encode_to_numpy(
        self,
        text: str,
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
        changes: Sequence[NfcChange] = (),
    ) -> NDArray[np.uint32]:
        """As `encode`, as an array of shape (n_tokens,), uint32. `changes` of the text come first,
        as `nfc_changes` gives them: an engine may do without the text that they make."""
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
        """The ids as the text of a JSON array without white space, and their number: for a
        response, which needs neither an array nor a Python int. Both include prefix and suffix;
        `changes` as in `encode_to_numpy`."""
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
        affixes: tuple[int | None, int | None] = (None, None),
        matcher: SpecialTokenMatcher | None = None,
        *,
        as_uint16: bool = False,
    ) -> EncodedDocuments:
        """As `encode_batch_to_numpy` by one thread, of texts as UTF-8, with the id of `affixes`
        before and after each. Ids are uint16 with `as_uint16`.

        Raises:
            UnicodeDecodeError: a text is not UTF-8.
            ValueError: an id does not fit uint16.
        """
        ...

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]:
        """Ids of pre-tokens that are already split, one after the other."""
        ...

    def count(
        self, text: str, limit: int | None = None, matcher: SpecialTokenMatcher | None = None
    ) -> int:
        """The number of ids of `text`; may stop counting once it is over `limit`."""
        ...

    def nfc_changes(self, text: str) -> list[NfcChange]:
        """What `normalize_nfc` changes in `text`, in order; nothing where it is in NFC.

        Raises:
            UnicodeEncodeError: the text holds a lone surrogate, if the engine looks for one.
        """
        ...

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> bytes:
        """The bytes of `ids`, joined; an array has shape (n_tokens,).

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
        """
        ...

    def decode(self, ids: Iterable[int] | NDArray[np.integer], errors: str = "replace") -> str:
        """The text of `ids`; bytes that are not UTF-8 as `errors` says, in the words of
        `bytes.decode`.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
            UnicodeDecodeError: with `errors="strict"`.
        """
        ...

    def json_of_ids(self, ids: NDArray[np.uint32]) -> bytes:
        """The text of a JSON array, without white space, of ids of shape (n_tokens,): for an
        answer over the network, which needs no Python int of any id."""
        ...

    def cache_statistics(self) -> CacheStatistics:
        """Hits, misses and size of the pre-token cache since the engine was made."""
        ...
