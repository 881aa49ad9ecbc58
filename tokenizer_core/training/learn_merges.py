r"""Counted pre-tokens -> merges: the Python learner, exact and incremental.

How it works. A word (a distinct pre-token) is a `str` whose characters are symbols: code point `i`
below 256 is byte `i`, and `256 + k` is the product of merge `k`. A pair is a `str` of two such
characters. To apply a merge to a word, the learner calls `str.split` and `str.join`. These work
from left to right without overlap, as BPE requires (`aaa` with the pair `aa` gives `aa a`), at the
speed of C, and most words use one byte per symbol.

Each pair has a list of the words that contain it. The lists of byte pairs are built once. A later
pair contains the newest symbol, so the step that makes it knows its complete list. A word may have
lost the pair since then; `split` detects this. Counts change only next to a merge; the learner sums
the changes of each neighbour and applies them once. Counts of existing pairs only fall; the queue
of pairs relies on that.

The tie rule. Each step takes the pair with the highest count. Among equals, `lexicographic` takes
the greatest `(left bytes, right bytes)`, one side after the other, never joined: `("ab", "c")`
against `("a", "bc")` is decided by the left side. `huggingface` takes the smallest pair of ids as
the `tokenizers` library numbers them: single bytes in the order of their characters in the
byte-to-unicode alphabet, then products in the order they were made.

`LearningRules` exclude pairs or end learning; they never change the order of the other pairs. The
merges of a smaller vocabulary are the beginning of those of a larger one.

No product is ever a token already: as long as no merge crosses the ends of a byte sequence, all its
occurrences are merged in the same way, so they all become one token in the same step.

The ordered count buckets used here take a tenth to a quarter less time than a lazy max-heap of all
pairs, and a quarter less memory.

`learn_natively` does the same in the compiled module (ties: `native/src/train/learn/ties.rs`), and
`tokenizer_core/reference.py` does it as a textbook, for the tests.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tokenizer_core.engines.native_training import NativeCounts
from tokenizer_core.formats.gpt2_files import byte_to_unicode

TieBreak: TypeAlias = Literal["lexicographic", "huggingface"]
TIE_BREAKS: Final[tuple[TieBreak, ...]] = ("lexicographic", "huggingface")

_N_BYTES: Final = 256
# Ends every key and sorts above all characters of bytes: if one token is a prefix of another, the
# longer one is the greater and must come first.
_KEY_END: Final = chr(_N_BYTES + 1)


@dataclass(frozen=True, slots=True)
class LearningRules:
    """Rules that limit the merges; the defaults limit nothing.

    - `min_frequency`: learning ends when no remaining pair occurs this often.
    - `max_token_length`: in bytes; pairs that make a longer token are never merged.
    - `first_merges`: applied, in order, before learning. Each side is a byte or an earlier product,
      and each product is new.
    """

    min_frequency: int = 1
    max_token_length: int | None = None
    first_merges: tuple[tuple[bytes, bytes], ...] = ()


NO_RULES: Final = LearningRules()


@dataclass(frozen=True, slots=True)
class LearnedMerges:
    """The merges in order, the given ones first, and the number of tokens after them.

    `no_pair_left`: learning ended because the rules allowed no pair, or, without rules, because
    every pre-token had become one token. `token_counts`: the tokens of all counted pre-tokens,
    repetitions included, after the given merges and after each learned one.
    """

    merges: list[tuple[bytes, bytes]]
    no_pair_left: bool
    token_counts: list[int]

    @property
    def n_tokens(self) -> int:
        """The number of tokens after all merges."""
        return self.token_counts[-1]

    def first(self, n_merges: int) -> LearnedMerges:
        """The result of learning only `n_merges` merges, or the given ones if they are more."""
        n_given = len(self.merges) - len(self.token_counts) + 1
        merges = self.merges[: max(n_merges, n_given)]
        counts = self.token_counts[: len(merges) - n_given + 1]
        return LearnedMerges(merges, len(merges) < n_merges, counts)


def learn_merges(
    counts: Mapping[str, int],
    n_merges: int,
    *,
    tie_break: TieBreak = "lexicographic",
    rules: LearningRules = NO_RULES,
    after_merge: Callable[[int], object] | None = None,
) -> LearnedMerges:
    """Learn the first `n_merges` merges of byte-level BPE, or fewer if no pair is left.

    `n_merges` includes `rules.first_merges`, which are always applied. `counts` maps each pre-token
    to its occurrences and stays unchanged. `after_merge` gets the number of merges so far; an
    exception from it ends the run.

    Raises:
        ValueError: an unknown `tie_break`, a count below 1, or first merges that cannot be applied.

    Example:
        >>> counts = {"low": 1, " low": 1, " lower": 1, " newest": 2, " widest": 3}
        >>> [left + right for left, right in learn_merges(counts, 4).merges]
        [b'st', b'est', b'wi', b'wid']
    """
    check_tie_break(tie_break)
    words = ((_as_word(pre_token), count) for pre_token, count in counts.items())
    token_bytes = {chr(byte): bytes([byte]) for byte in range(_N_BYTES)}
    learner = _Learner(words, token_bytes, _keys_of_bytes(tie_break), tie_break)
    for pair in _as_symbols(rules.first_merges):
        learner.apply(pair)
    return learner.learn(n_merges, rules, after_merge)


def continue_merges(
    words: Iterable[tuple[str, int]],
    vocab: Mapping[int, bytes],
    n_merges: int,
    *,
    may_make: Callable[[bytes], bool],
    tie_break: TieBreak = "lexicographic",
    rules: LearningRules = NO_RULES,
    after_merge: Callable[[int], object] | None = None,
) -> LearnedMerges:
    """As `learn_merges`, from words of tokens, characters `chr(id)` of ids of `vocab`, with their
    occurrences. New ids follow the largest one, and `may_make` says whether a product may be a
    token. Ties of `huggingface`: the smallest pair of ids.

    Example:
        >>> vocab = {0: b"l", 1: b"ow", 7: b"er"}
        >>> words = [("".join(map(chr, (0, 1))), 2), ("".join(map(chr, (0, 1, 7))), 1)]
        >>> continue_merges(words, vocab, 9, may_make=lambda token: token != b"lower").merges
        [(b'l', b'ow')]
    """
    check_tie_break(tie_break)
    token_bytes = {chr(id_): token for id_, token in vocab.items()}
    by_bytes = tie_break == "lexicographic"
    keys = {s: _reverse_key(token) if by_bytes else s for s, token in token_bytes.items()}
    learner = _Learner(words, token_bytes, keys, tie_break)
    return learner.learn(n_merges, rules, after_merge, may_make)


def learn_natively(
    counts: Mapping[str, int],
    n_merges: int,
    *,
    tie_break: TieBreak = "lexicographic",
    rules: LearningRules = NO_RULES,
    after_merge: Callable[[int], object] | None = None,
) -> LearnedMerges:
    """As `learn_merges`, but `after_merge` is called several times a second and at the end only.

    Raises:
        ValueError: as `learn_merges`; or the counts do not fit 64 bits.
    """
    check_tie_break(tie_break)
    learned = NativeCounts.of(counts).learn(
        n_merges,
        tie_break,
        after_merge,
        min_frequency=rules.min_frequency,
        max_token_length=rules.max_token_length,
        first_merges=rules.first_merges,
    )
    return LearnedMerges(*learned)


def check_tie_break(tie_break: str) -> None:
    """Raise ValueError unless there is a tie rule of that name."""
    if tie_break not in TIE_BREAKS:
        raise ValueError(f"tie_break must be one of {', '.join(TIE_BREAKS)}, not {tie_break!r:.40}")


class _Learner:
    """The words, the bytes and the keys of all symbols, and the merges so far."""

    def __init__(
        self,
        words: Iterable[tuple[str, int]],
        token_bytes: dict[str, bytes],
        token_keys: dict[str, str],
        tie_break: TieBreak,
    ) -> None:
        self._table = _WordTable(words)
        self._bytes, self._keys, self._tie_break = token_bytes, token_keys, tie_break
        self._queue = _PairQueue(self._table.pair_counts, token_keys)
        self._next_symbol = ord(max(token_bytes)) + 1
        self._merges: list[tuple[bytes, bytes]] = []

    def apply(self, pair: str) -> None:
        """Merge a pair everywhere."""
        left, right = self._bytes[pair[0]], self._bytes[pair[1]]
        symbol = chr(self._next_symbol + len(self._merges))
        self._bytes[symbol] = left + right
        is_by_id = self._tie_break == "huggingface"
        self._keys[symbol] = symbol if is_by_id else _reverse_key(left + right)
        self._merges.append((left, right))
        self._table.merge(pair, symbol, self._queue)

    def learn(
        self,
        n_merges: int,
        rules: LearningRules,
        after_merge: Callable[[int], object] | None,
        may_make: Callable[[bytes], bool] | None = None,
    ) -> LearnedMerges:
        """Merge the best pairs until there are `n_merges` merges."""
        merges, table = self._merges, self._table
        token_counts = [table.n_tokens]
        while len(merges) < n_merges:
            pair = self._queue.pop()
            if pair is None or table.pair_counts[pair] < rules.min_frequency:
                break
            product = self._bytes[pair[0]] + self._bytes[pair[1]]
            is_long = rules.max_token_length is not None and len(product) > rules.max_token_length
            if is_long or (may_make is not None and not may_make(product)):
                table.forget(pair)
                continue
            self.apply(pair)
            token_counts.append(table.n_tokens)
            if after_merge is not None:
                after_merge(len(merges))
        return LearnedMerges(merges, len(merges) < n_merges, token_counts)


class _PairQueue:
    """Returns pairs by falling count, ties by rising key. Shares `pair_counts` with the learner,
    which lowers or deletes counts in it without notice; a deleted pair is never returned.

    There is a list of pairs for each count, opened from the highest count down. A pair stays in its
    list while its count falls; when that list is opened, the pair moves to the list of its current
    count. Only pairs of the open list get keys. The many pairs that never come near the top
    therefore need neither comparisons nor memory for keys.
    """

    def __init__(self, pair_counts: dict[str, int], token_keys: dict[str, str]) -> None:
        self._pair_counts = pair_counts
        self._token_keys = token_keys
        self._buckets: dict[int, list[str]] = {}
        for pair, count in pair_counts.items():
            self._buckets.setdefault(count, []).append(pair)
        self._waiting = [-count for count in self._buckets]
        heapq.heapify(self._waiting)
        self._open_count = 0
        self._open: list[tuple[str, str]] = []

    def add(self, pair: str, count: int) -> None:
        """Add a new pair; its count is at most that of the last popped pair."""
        if count == self._open_count:
            heapq.heappush(self._open, self._keyed(pair))
            return
        bucket = self._buckets.get(count)
        if bucket is None:
            self._buckets[count] = [pair]
            heapq.heappush(self._waiting, -count)
        else:
            bucket.append(pair)

    def pop(self) -> str | None:
        """The pair to merge next, or None if no pair is left."""
        while True:
            while self._open:
                _, pair = heapq.heappop(self._open)
                count = self._pair_counts.get(pair, 0)
                if count == self._open_count:
                    return pair
                if count:
                    self.add(pair, count)
            if not self._waiting:
                return None
            self._open_next()

    def _open_next(self) -> None:
        self._open_count = -heapq.heappop(self._waiting)
        still_there: list[tuple[str, str]] = []
        for pair in self._buckets.pop(self._open_count):
            count = self._pair_counts.get(pair, 0)
            if count == self._open_count:
                still_there.append(self._keyed(pair))
            elif count:
                self.add(pair, count)
        heapq.heapify(still_there)
        self._open = still_there

    def _keyed(self, pair: str) -> tuple[str, str]:
        return self._token_keys[pair[0]] + self._token_keys[pair[1]], pair


def _as_word(pre_token: str) -> str:
    """The bytes of a pre-token as characters. An ASCII pre-token is its own word."""
    return pre_token if pre_token.isascii() else pre_token.encode().decode("latin-1")


def _as_symbols(merges: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Check that each merge is applicable in order; return the merges as pairs of symbols."""
    symbols = {bytes([byte]): chr(byte) for byte in range(_N_BYTES)}
    pairs: list[str] = []
    for left, right in merges:
        if left not in symbols or right not in symbols or left + right in symbols:
            raise ValueError(f"first merge {len(pairs)} is not of two tokens into a new one")
        pairs.append(symbols[left] + symbols[right])
        symbols[left + right] = chr(len(symbols))
    return pairs


class _WordTable:
    """The words with their counts, and the count and words of each pair."""

    def __init__(self, words: Iterable[tuple[str, int]]) -> None:
        self._words: list[str] = []
        self._word_counts: list[int] = []
        self.n_tokens = 0
        """Tokens of all words after the merges so far, repetitions included."""
        self.pair_counts: dict[str, int] = {}
        # Arrays of 4 bytes per entry: lists of ints had the same speed and used twice the memory.
        self._occurrences: dict[str, array[int]] = {}
        self._take_in(words)

    def _take_in(self, words: Iterable[tuple[str, int]]) -> None:
        pair_counts: defaultdict[str, int] = defaultdict(int)
        occurrences: defaultdict[str, array[int]] = defaultdict(_empty_index)
        for word, count in words:
            if count < 1:
                raise ValueError(f"the pre-token {word!r:.60} has the count {count}, below 1")
            self.n_tokens += count * len(word)
            if len(word) < 2:
                continue
            index = len(self._words)
            self._words.append(word)
            self._word_counts.append(count)
            for start in range(len(word) - 1):
                pair = word[start : start + 2]
                pair_counts[pair] += count
                occurrences[pair].append(index)
        self.pair_counts = dict(pair_counts)
        self._occurrences = dict(occurrences)

    def merge(self, pair: str, symbol: str, queue: _PairQueue) -> None:
        """Replace `pair` by `symbol` in all words; adds the new pairs to `queue`."""
        words = self._words
        # Neighbour -> the words where it comes before (after) the pair, once per occurrence.
        before: defaultdict[str, array[int]] = defaultdict(_empty_index)
        after: defaultdict[str, array[int]] = defaultdict(_empty_index)
        touching = _empty_index()
        # The pair of a given merge may occur in no word.
        self.pair_counts.pop(pair, None)
        done = -1
        for index in self._occurrences.pop(pair, ()):
            # The list contains a word once per occurrence, consecutively. Splitting it for each
            # entry would take quadratic time for a pre-token of a megabyte.
            if index == done:
                continue
            done = index
            parts = words[index].split(pair)
            if len(parts) == 1:
                continue
            words[index] = symbol.join(parts)
            self.n_tokens -= self._word_counts[index] * (len(parts) - 1)
            first, last = parts[0], parts[-1]
            if first:
                before[first[-1]].append(index)
            if last:
                after[last[0]].append(index)
            if len(parts) == 2:
                continue
            for part in parts[1:-1]:
                if part:
                    after[part[0]].append(index)
                    before[part[-1]].append(index)
                else:
                    touching.append(index)
        for neighbour, word_indices in before.items():
            self._exchange(neighbour + pair[0], neighbour + symbol, word_indices, queue)
        for neighbour, word_indices in after.items():
            self._exchange(pair[1] + neighbour, symbol + neighbour, word_indices, queue)
        if touching:
            self._exchange(pair[1] + pair[0], symbol + symbol, touching, queue)

    def _exchange(self, old: str, new: str, word_indices: array[int], queue: _PairQueue) -> None:
        """Replace the pair `old` by the pair `new` at each of these occurrences."""
        moved = sum(map(self._word_counts.__getitem__, word_indices))
        count = self.pair_counts.get(old, 0)
        if count > moved:
            self.pair_counts[old] = count - moved
        elif count:  # the count is 0 when `old` is the pair being merged: `aa` in `aaa`
            del self.pair_counts[old]
            del self._occurrences[old]
        self.pair_counts[new] = moved
        self._occurrences[new] = word_indices
        queue.add(new, moved)

    def forget(self, pair: str) -> None:
        """Never merge `pair`."""
        del self.pair_counts[pair]
        del self._occurrences[pair]


def _empty_index() -> array[int]:
    return array("I")


def _keys_of_bytes(tie_break: TieBreak) -> dict[str, str]:
    """Keys of the 256 bytes: of two pairs with the same count, the one with the smaller
    `key(left) + key(right)` is merged first."""
    if tie_break == "lexicographic":
        return {chr(byte): _reverse_key(bytes([byte])) for byte in range(_N_BYTES)}
    alphabet = byte_to_unicode()
    in_order = sorted(alphabet, key=alphabet.__getitem__)
    return {chr(byte): chr(rank) for rank, byte in enumerate(in_order)}


def _reverse_key(token: bytes) -> str:
    """A string that sorts in the reverse order of the bytes. Its end mark keeps a key from being a
    prefix of another, so two joined keys compare one side after the other."""
    return "".join([chr(_N_BYTES - byte) for byte in token]) + _KEY_END
