"""Types of the compiled module; its crate is `native/`, and `engines/` uses it.

A lone surrogate in a text raises UnicodeEncodeError, as `str.encode` does. Calls on more than two
kilobytes release the GIL. No call but `count_ids` changes its arguments.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "KERNEL",
    "STUB",
    "UNICODE_TABLES",
    "CompiledTokenizer",
    "NativeAutomaton",
    "NativeDecodeStreams",
    "NativeEncoder",
    "NativeModel",
    "NativeNormalizer",
    "NativeSpecials",
    "NativeTextRules",
    "PretokenCounter",
    "StopFlag",
    "UncountableChunkError",
    "UnknownIdError",
    "UnusableFileError",
    "WordCounts",
    "compile_tokenizer",
    "count_ids",
    "join_segments",
    "json_of_ids",
    "left_sizes",
    "look_at",
    "nfc_runs",
    "read_json",
    "read_model",
    "read_ranks",
    "read_tekken",
    "release_buffers",
    "split",
    "split_bytes",
]

KERNEL: Final[str]
"""The instructions encoding uses: `avx512`, `avx2`, `neon` or `portable`. The environment variable
TOKENIZER_KERNEL names a lesser one, for tests; the ids are the same with each."""

STUB: Final[str]
"""This file at the time of compiling: a module with another text serves other callers."""

UNICODE_TABLES: Final[str]
"""The `regex` release whose classes were compiled in, as `patterns.UNICODE_TABLES` names it."""

_StepTables = (
    tuple[
        Literal["form"],
        list[tuple[str, str]],
        list[tuple[str, int]],
        list[tuple[tuple[str, str], str]],
    ]
    | tuple[Literal["map"], list[tuple[str, str]]]
    | tuple[Literal["strip"], bool, bool]
    | tuple[Literal["prepend"], str]
    | tuple[Literal["replace"], str | NativeAutomaton, str]
)
"""A step of a normalizer: the tables of a normal form (decompositions, combining classes,
compositions), what becomes of single characters, or what the step is named after. A `replace` by an
automaton replaces its pre-tokens."""

@final
class CompiledTokenizer:
    """The tables of an encoder, read from a file that `compile_tokenizer` made."""

    def __new__(cls, descriptor: int, key: bytes) -> CompiledTokenizer:
        """Copies the file, or maps a memfd that is sealed against writing, shrinking and growing.
        What happens to the file later changes nothing. On Windows `descriptor` is the handle of the
        file. Checks in linear time that no content leads out of the tables.

        Raises UnusableFileError for another key or other sources of the engine, and for damage.
        """

    @property
    def encoder(self) -> NativeEncoder: ...
    @property
    def is_shared(self) -> bool:
        """Whether the memory is that of a memfd, which other processes may map too."""

    def extra(self, name: str) -> bytes:
        """A copy of what the caller added under this name. Raises KeyError."""

@final
class NativeAutomaton:
    """A split pattern as `regex_dialects.SplitAutomaton` describes it."""

    def __new__(
        cls,
        firsts: list[int],
        numbers: list[int] | bytes,
        steps: list[tuple[list[int], str, bool, bool]],
        cuts: list[bool],
        rules: str | None = None,
    ) -> NativeAutomaton:
        """`steps`: moves by rows, behavior, invert, whether unmatched text is dropped. `cuts`: by
        rows. `rules`: the name of a published pattern of which blocks are split by rules.

        Raises ValueError for tables that do not fit each other, and for unknown rules.
        """

@final
class NativeEncoder:
    def __new__(
        cls,
        vocab: dict[int, bytes],
        token_to_id: dict[bytes, int],
        merges: bytes | None,
        take_whole: bool,
        pattern: str | NativeAutomaton | None,
        by_characters: bool = False,
        missing: tuple[bytes, int | None, bool, bytes] | None = None,
        word_ends: list[int] | None = None,
    ) -> NativeEncoder:
        """`merges` are the ids of both sides and of the product of each merge, in turn, as words of
        four bytes; None makes a tokenizer of kind `ranks`. `take_whole` takes a pre-token that is
        in `token_to_id` whole; without a `pattern` only pre-tokens can be encoded. With
        `by_characters`, merging starts from the characters that are tokens, and from the bytes of
        others. `missing` has the fields of `spec.MissingBytes`, `word_ends` the id that each of
        the 256 bytes starts as at the end of a pre-token.

        Raises ValueError for a vocabulary no TokenizerSpec lets through, or an unknown pattern.
        """

    # Texts come last, so that `functools.partial` may fix what precedes them.
    def encode(self, specials: NativeSpecials | None, text: str) -> list[int]: ...
    def encode_to_numpy(
        self,
        specials: NativeSpecials | None,
        num_threads: int | None,
        text: str,
    ) -> NDArray[np.uint32]:
        """Shape (n_tokens,). Short texts, of some 250 kB, use one thread, and so does
        `num_threads` of None or less than 1."""

    def encode_to_json(self, specials: NativeSpecials | None, text: str) -> tuple[bytes, int]:
        """The ids as the text of a JSON array without white space, and their number. One thread."""

    def encode_body(
        self,
        specials_of: dict[bytes, NativeSpecials | None],
        around: tuple[bytes, bytes, bytes] | None,
        body: bytes,
    ) -> tuple[bytes, int, int] | None:
        """The response to a JSON body that begins with the member `text`, the number of ids, and
        the size of the text in bytes of UTF-8. One thread.

        The response has a JSON array of the ids after the first part of `around`, and their number
        after the second; without `around`, it has the ids as little-endian words of four bytes.

        `specials_of[options]` has the tokens to find, where `options` is the body with an empty
        text; if that is None, and for any other body, the result is None.
        """

    def encode_batch(
        self, specials: NativeSpecials | None, num_threads: int, texts: list[str]
    ) -> list[list[int]]: ...
    def encode_batch_to_numpy(
        self, specials: NativeSpecials | None, num_threads: int, texts: list[str]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """All ids, shape (n_tokens,), and where those of each text begin and the last end, shape
        (n_texts + 1,)."""

    def encode_documents(
        self,
        specials: NativeSpecials | None,
        affixes: tuple[int | None, int | None],
        as_uint16: bool,
        texts: list[bytes],
    ) -> tuple[NDArray[np.uint16] | NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64]]:
        """As `encode_batch_to_numpy` by one thread, of UTF-8, with the ids of `affixes` before and
        after each text; and the number of bytes of each, shape (n_texts,).

        Raises:
            UnicodeDecodeError: a text is not UTF-8.
            ValueError: an id does not fit uint16, with `as_uint16`.
        """

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]: ...
    def count(self, specials: NativeSpecials | None, limit: int | None, text: str) -> int:
        """Stops once it is over `limit`."""

    def decode(self, ids: list[int] | NDArray[np.uint32], as_text: bool) -> bytes | str:
        """The bytes; a str if `as_text` and they are ASCII, or are many and UTF-8. An array has
        shape (n_tokens,) and is contiguous.

        Raises:
            UnknownIdError: an element is no id with a token.
        """

    def decode_batch(
        self,
        batch: list[list[int] | NDArray[np.integer]],
        rules: NativeTextRules,
        skip_special: bool,
        num_threads: int,
    ) -> list[str] | None:
        """The text of each row, with U+FFFD for bytes that are not UTF-8. None unless each is a
        list of ints or an array of uint32 or int64, and all are ids."""

    def first_drifts(
        self,
        batch: list[list[int] | NDArray[np.integer]],
        rules: NativeTextRules,
        specials: NativeSpecials | None,
        is_nfc: bool,
        num_threads: int,
    ) -> NDArray[np.int64] | None:
        """The first index of each row where encoding its text differs, -1 if there is none, shape
        (n_rows,). With `is_nfc` -2 for a text that NFC may change. None as for `decode_batch`."""

    def vocab(self) -> dict[int, bytes]:
        """The tokens by id, without ids whose token is empty."""

    def token_sizes(self) -> NDArray[np.uint32]:
        """The bytes of each id, 0 for one without a token, shape (n_ids,)."""

    def cache_statistics(self) -> tuple[int, int, int, int]:
        """Hits, misses, entries, and the most entries the cache can hold."""

@final
class NativeDecodeStreams:
    """Streams of ids, as `engines.protocol.EngineStreams`. Calls hold the GIL."""

    def __new__(cls, encoder: NativeEncoder, rules: NativeTextRules) -> NativeDecodeStreams: ...
    def open(
        self, number: int, stop: list[str], include_stop: bool, skip_special: bool, after: list[int]
    ) -> None:
        """Raises ValueError for unknown ids, an empty stop string, and too many bytes of them."""

    def append(self, numbers: list[int], ids: list[int] | list[list[int]]) -> list[str]:
        """Raises ValueError, and changes nothing, unless all elements are ints and lists of ints,
        and each stream takes its ids; `args[0]` is the position of the first that does not."""

    def finish(self, numbers: list[int]) -> list[str]: ...
    def stopped(self) -> list[tuple[int, str]]: ...
    def close(self, number: int) -> None: ...

@final
class NativeTextRules:
    """What decoding to text does with each id."""

    def __new__(
        cls,
        encoder: NativeEncoder,
        byte_ids: list[int],
        special_ids: list[int],
        empty_ids: list[int],
        strips_space: bool,
    ) -> NativeTextRules:
        """`byte_ids`: the bytes of a vocabulary with byte fallback; `empty_ids`: the ids whose
        tokens have no bytes; `strips_space`: a space at the beginning of a text is left out."""

@final
class NativeNormalizer:
    """Runs the steps of a normalizer, as `normalizers.steps.Steps` defines them."""

    def __new__(cls, steps: list[_StepTables]) -> NativeNormalizer:
        """Raises ValueError for a step that no NormalizerStep has."""

    def normalize(self, text: str, *, begins_part: bool = True) -> str:
        """The normalized text; `text` itself if nothing changes. With `begins_part=False`, `text`
        continues one."""

@final
class NativeSpecials:
    """Strings that are one id each, found leftmost, then longest; and what happens to the text
    between them."""

    def __new__(
        cls,
        ids: dict[str, int],
        normalizer: str = "none",
        passes: list[list[tuple[str, bool, bool, bool]]] | None = None,
        words: list[tuple[int, int]] = ...,
    ) -> NativeSpecials:
        """`normalizer`: one of `normalizers.spaces.Spaces`, which each part between them gets;
        `none` and `nfc` do nothing. `passes`: the same strings with their flags (`lstrip`,
        `rstrip`, `single_word`), found as by `special_tokens.FlaggedTokenMatcher`, for which
        `words` has the first and last code point of each range of characters of words.

        Raises ValueError for an empty string and for another normalizer.
        """
    def with_trusted(
        self, others: NativeSpecials, runs: Sequence[tuple[int, int]]
    ) -> NativeSpecials:
        """These, and `others` only within `runs` of the one text that they are for: in order, start
        and end in characters.

        Raises ValueError for runs that are not in order.
        """

class UnusableFileError(ValueError):
    """The message says why a compiled file cannot be used."""

class UnknownIdError(ValueError):
    """`args[0]` is the index of an element that is no id with a token, or not exactly an int."""

class UncountableChunkError(ValueError):
    """`args[0]` is the number of the first chunk that is not UTF-8 or could not be read to its
    end."""

@final
class StopFlag:
    """Ends calls of other threads that look at it; see `engines.stoppable`."""

    def __new__(cls) -> StopFlag: ...
    def set(self) -> None: ...
    def is_set(self) -> bool: ...

def look_at(flag: StopFlag | None) -> StopFlag | None:
    """From now on calls on this thread that encode or count raise CancelledError soon after
    `flag` is set. Returns the flag before."""

def compile_tokenizer(encoder: NativeEncoder, key: bytes, extras: dict[str, bytes]) -> bytes:
    """The content of a compiled file. `key`: 32 bytes that name what the encoder was built from."""

def count_ids(ids: NDArray[np.uint16] | NDArray[np.uint32], counts: NDArray[np.uint64]) -> None:
    """Add to `counts`, shape (n,), how often each id occurs in `ids`, shape (n_tokens,); holds the
    GIL.

    Raises:
        ValueError: an id is `n` or more.
    """

def read_json(document: bytes, most_values: int, most_containers: int) -> tuple[object] | None:
    """The value of a document of strict JSON, alone in a tuple. None if it is invalid, has more
    than `most_values` strings, keys, arrays and objects, or `most_containers` arrays and objects,
    is nested in more than 8 of them, or has integers of more than 18 digits, or floats that are
    long or overflow. Other threads run meanwhile."""

def join_segments(
    segments: list[tuple[str, bool]],
) -> tuple[str, list[tuple[int, int]]] | None:
    """As `special_tokens.join_segments`; None unless each segment is a tuple of a `str` and a
    `bool`."""

def json_of_ids(ids: NDArray[np.uint32]) -> bytes:
    """The text of a JSON array, without white space, of ids of shape (n_tokens,)."""

def nfc_runs(text: str, max_runs: int) -> list[tuple[int, int]] | None:
    """First positions and ends of the runs of characters that NFC may change, alone or with those
    before them; None if there are more than `max_runs`.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """

@final
class NativeModel:
    """The entries and merges of a `tokenizer.json`, without an object for each.

    Entries are distinct, and so are their ids, below 2^20; merges have sides and products that are
    entries.
    """

    def __len__(self) -> int: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __getitem__(self, key: str, /) -> int: ...
    def entries(self) -> dict[str, int]:
        """text -> id, in the order of the file."""

    def sides(self) -> list[str]:
        """The left and right sides of all merges, in turn."""

    def build(
        self, plain: list[str], *, by_characters: bool = False
    ) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]], bytes] | None:
        """The vocabulary, the merges, and the ids of both sides and of the product of each merge,
        in turn, as words of four bytes. Entries are read in GPT-2's byte alphabet, those in `plain`
        as text. With `by_characters`, others are text too, with U+2581 for a space, or a byte such
        as `<0x41>`.

        None if an entry is neither, or may stand for two tokens, or the other way around, or if a
        merge has one that text never gives.
        """

def left_sizes(tokens: list[bytes]) -> list[int] | None:
    """How many bytes the left side of the merge has that makes each token, 0 if none does. The
    tokens, all different, are in the order of their ranks. None if one of the 256 bytes is no
    token, or with more tokens than there are ids."""

def read_model(document: bytes) -> tuple[bytes, NativeModel] | None:
    """A `tokenizer.json` with an empty `vocab` and `merges`, and these. None if they are not as
    described above. If the document is not JSON, the first part is not either."""

def read_ranks(document: bytes) -> dict[bytes, int] | None:
    """The tokens and ranks of a `.tiktoken` file; None if a line must be examined."""

def read_tekken(document: bytes) -> tuple[bytes, list[bytes]] | None:
    """A `tekken.json` with an empty `vocab`, and the tokens of its entries, whose ranks are their
    positions. None if an entry must be examined. If the document is not JSON, the first part is
    not either."""

def release_buffers() -> int:
    """Drop the memory that is kept for the ids of later calls, as a measurement of memory needs.

    Returns its bytes; the engine keeps at most 64 MB.
    """

def split(text: str, pattern: str | NativeAutomaton) -> list[str]:
    """The pre-tokens of a text; raises SplitTooSlowError."""

def split_bytes(text: bytes, separator: bytes) -> list[bytes]:
    """As `text.split(separator)`, for a separator that is not empty; holds the GIL."""

@final
class PretokenCounter:
    """Counts chunks of files in its own threads; one thread uses it."""

    def __new__(
        cls,
        pattern: str | NativeAutomaton,
        special_tokens: list[str],
        num_threads: int,
        ceiling: tuple[int, str] | None,
    ) -> PretokenCounter:
        """`ceiling`: bytes that the tables may take, and the folder for the rest."""

    def submit(self, descriptor: int, start: int, end: int) -> bool:
        """Waits while enough chunks are in progress; False once one has failed. On Windows
        `descriptor` is the handle of the file."""

    def bytes_done(self) -> int: ...
    def finish(self) -> tuple[WordCounts, int, int]:
        """Counts, number of documents, and how often a table was written to the disk.

        Raises:
            UncountableChunkError: a chunk failed.
            SplitTooSlowError: splitting a chunk takes too long.
            OSError: the folder could not be used.
        """

    def close(self) -> None:
        """Ends the threads; no other call may follow."""

@final
class WordCounts:
    """Pre-tokens with their counts, packed."""

    @staticmethod
    def from_dict(counts: dict[str, int]) -> WordCounts: ...
    def to_dict(self) -> dict[str, int]: ...
    def sorted(self) -> WordCounts:
        """The same in the order of the words; itself where it is in that order."""

    def text_bytes(self) -> int:
        """UTF-8 bytes of all pre-tokens, each once."""

    def columns(self, position: int, n_words: int) -> tuple[bytes, bytes, bytes, int]:
        """Up to `n_words` words from `position` on, 0 for the first: characters of each
        (u32), count of each (u64), both little-endian, the text, and the position after them."""

    def __len__(self) -> int: ...
    @property
    def n_pre_tokens(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    def learn(
        self,
        n_merges: int,
        tie_break: str,
        after_merge: Callable[[int], object] | None,
        min_frequency: int,
        max_token_length: int | None,
        first_merges: list[tuple[bytes, bytes]],
    ) -> tuple[list[tuple[bytes, bytes]], bool, list[int]]:
        """Merges, whether no pair was left, and the numbers of tokens; see `learn_merges`."""
