"""Counts of pre-tokens and merges learned from them, in the compiled module.

Counts stay packed there between counting and learning. Callers first check with `choose_engine`
that the native engine is available.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.blobs.local_files import system_file
from tokenizer_core.engines.native_import import native
from tokenizer_core.engines.native_stages import compiled_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokenizer_core.splitting.patterns import SplitPattern

_MAX_COUNT: Final = (1 << 64) - 1
_BATCH: Final = 1 << 16


class NativeCounts(Mapping[str, int]):
    """Pre-token -> occurrences, stored by the compiled module. Equal to a dict of the same entries.

    Pickling makes a dict.
    """

    def __init__(self, words: native.WordCounts) -> None:
        self._words = words

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> NativeCounts:
        """Pack `counts`; returns them unchanged if they are already packed.

        Raises:
            ValueError: a count is below 1, or does not fit 64 bits.
        """
        if isinstance(counts, NativeCounts):
            return counts
        for pre_token, count in counts.items():
            if count < 1:
                raise ValueError(f"the pre-token {pre_token!r:.60} has the count {count}, below 1")
            if count >= 1 << 64:
                raise ValueError(f"the count of {pre_token!r:.60} does not fit 64 bits")
        table = counts if isinstance(counts, dict) else dict(counts)
        return cls(native.WordCounts.from_dict(table))

    @property
    def n_pre_tokens(self) -> int:
        """Pre-tokens, repetitions included."""
        return self._words.n_pre_tokens

    @property
    def n_bytes(self) -> int:
        """UTF-8 bytes of all pre-tokens, repetitions included."""
        return self._words.n_bytes

    def sorted(self) -> NativeCounts:
        """The same counts, sorted by pre-token. Under a memory ceiling they are already sorted."""
        return NativeCounts(self._words.sorted())

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all pre-tokens, each once."""
        return self._words.text_bytes()

    def columns(self) -> tuple[Iterator[bytes], Iterator[bytes], Iterator[bytes]]:
        """The columns of a file of counts, sorted and in blocks; see `training.counts`."""
        ordered = self.sorted()
        # Each column makes its own pass, so no column is ever completely in memory.
        return (
            (lengths for lengths, _, _ in ordered._blocks()),
            (counts for _, counts, _ in ordered._blocks()),
            (text for _, _, text in ordered._blocks()),
        )

    def _blocks(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        position = 0
        while True:
            lengths, counts, text, position = self._words.columns(position, _BATCH)
            if not lengths:
                return
            yield lengths, counts, text

    def entries(self) -> Iterator[tuple[str, int]]:
        """Iterate over the entries, without making a dict."""
        for lengths, counts, joined in self._blocks():
            text, start = joined.decode(), 0
            sizes = struct.iter_unpack("<I", lengths)
            for (size,), (count,) in zip(sizes, struct.iter_unpack("<Q", counts), strict=True):
                yield text[start : start + size], count
                start += size

    def learn(
        self,
        n_merges: int,
        tie_break: str,
        after_merge: Callable[[int], object] | None,
        *,
        min_frequency: int = 1,
        max_token_length: int | None = None,
        first_merges: Sequence[tuple[bytes, bytes]] = (),
    ) -> tuple[list[tuple[bytes, bytes]], bool, list[int]]:
        """`(merges, whether no pair was left, tokens after each merge)`; see `learn_merges`.

        `after_merge` is called several times a second and after the last merge.
        """
        return self._words.learn(
            n_merges,
            tie_break,
            after_merge,
            # No count can be larger: the sum of all symbols fits 64 bits.
            min(min_frequency, _MAX_COUNT),
            None if max_token_length is None else min(max_token_length, _MAX_COUNT),
            list(first_merges),
        )

    def __getitem__(self, pre_token: str) -> int:
        return self._dict[pre_token]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._words)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._dict,)

    @cached_property
    def _dict(self) -> dict[str, int]:
        return self._words.to_dict()


class ChunkFailedError(Exception):
    """The first chunk that could not be counted; `number` is the index of its `submit` call."""

    def __init__(self, number: int) -> None:
        super().__init__(f"chunk {number} could not be counted")
        self.number = number


class NativeCounter:
    """Counts chunks of open files in threads; a context manager that stops the threads.

    Special tokens are cut out first: the leftmost match, the longest of equals. Chunks must be
    UTF-8.
    """

    def __init__(
        self,
        pattern: SplitPattern,
        special_tokens: Sequence[str],
        num_threads: int,
        ceiling: tuple[int, str] | None = None,
    ) -> None:
        """`ceiling`: limit in bytes of all tables together, and the folder for further counts.

        Raises ValueError for a pattern without a scanner and without an automaton.
        """
        compiled = compiled_pattern(pattern)
        if compiled is None:
            raise ValueError("the native engine cannot split by this pattern")
        self._counter = native.PretokenCounter(compiled, list(special_tokens), num_threads, ceiling)

    def __enter__(self) -> NativeCounter:
        return self

    def __exit__(self, *_: object) -> None:
        self._counter.close()

    def submit(self, descriptor: int, start: int, end: int) -> bool:
        """Queue the bytes from `start` to `end` of an open file, which may be closed afterwards.

        Blocks while enough chunks are queued. Returns False once a chunk has failed and no more are
        needed.
        """
        return self._counter.submit(system_file(descriptor), start, end)

    def bytes_done(self) -> int:
        """The number of bytes in the chunks counted so far."""
        return self._counter.bytes_done()

    def finish(self) -> tuple[NativeCounts, int, int]:
        """The counts of all chunks, the number of documents (stretches of text between special
        tokens, each counted in the chunk where it begins), and how often a table was written to
        disk.

        Raises:
            ChunkFailedError: a chunk is not UTF-8 or could not be read to its end.
            OSError: the folder of the ceiling is full or unusable.
        """
        try:
            words, n_documents, n_spills = self._counter.finish()
        except native.UncountableChunkError as error:
            raise ChunkFailedError(error.args[0]) from None
        return NativeCounts(words), n_documents, n_spills
