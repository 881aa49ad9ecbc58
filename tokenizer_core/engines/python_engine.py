"""The Python engine: exact byte-level BPE without the compiled module.

`pretokenize` splits a text. Each pre-token is looked up in an LRU cache and, on a miss, merged by
`_bpe`: the pair of the lowest rank first, the leftmost of equals. For a short pre-token `_bpe`
scans a list; for a long one it uses a heap, so a megabyte of one letter costs O(n log n). A very
long one is merged in windows, so that memory hardly grows with it.

One algorithm serves both kinds of tokenizer because of how it writes symbols:
- kind `ranks`: a symbol is its bytes, and the key of a pair is their concatenation;
- kind `merges`: a symbol is the character `chr(id)`, and the key of a pair is the two-character
  string. Ids are below 2^20, and every number below that is a character.
Either way, `left + right` is the key, and one dict maps it to the rank.
"""

from __future__ import annotations

import re
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from operator import add
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.engines.base import BaseEngine, join_tokens, list_ids
from tokenizer_core.engines.protocol import CacheStatistics, is_array
from tokenizer_core.spec.alphabet import is_utf8
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.spec import MissingBytes, TokenizerSpec

CACHE_ENTRIES: Final = 1 << 16
MAX_CACHED_CHARS: Final = 64
"""Longer pre-tokens are not cached. Together with the number of entries, this bounds the cache:
160 MB if every entry is 64 four-byte characters that stay single tokens, 15 to 20 MB on real text
(measured)."""

HEAP_FROM_SYMBOLS: Final = 160
"""Pre-tokens of more symbols than this are merged with a heap. The scan costs n^2 at the speed of
`min` over a list, the heap n log n at the speed of Python; they cost the same between 120 and
200."""

WINDOW_BYTES: Final = 1 << 16
"""Longer pre-tokens are merged in windows of this size, because merging takes a hundred bytes of
memory for each byte."""

_OVERLAP: Final = 16
_NO_RANK: Final = 1 << 30


class PythonEngine(BaseEngine):
    """Encodes and decodes for one spec; see `protocol.Engine`. Safe to share between threads."""

    name = "python"

    def __init__(self, spec: TokenizerSpec) -> None:
        super().__init__(spec)
        self._vocab = dict(spec.vocab)
        # A plain function over tables, not a method: a cache that references the engine would keep
        # a retired tokenizer alive after a swap.
        self._bpe = _make_bpe(spec)
        self._cached_bpe = lru_cache(maxsize=CACHE_ENTRIES)(self._bpe)

    def decode(
        self, ids: Iterable[int] | NDArray[np.integer], errors: str | None = "replace"
    ) -> Any:
        # `tolist` makes Python ints, for which dict lookups are faster than for NumPy's.
        listed = list_ids(ids.tolist() if is_array(ids) else ids)
        data = join_tokens(self._vocab, listed)
        return data if errors is None else data.decode("utf-8", errors)

    def cache_statistics(self) -> CacheStatistics:
        info = self._cached_bpe.cache_info()
        return CacheStatistics(info.hits, info.misses, info.currsize, CACHE_ENTRIES)

    def _tokens_of(self, pre_tokens: Sequence[str]) -> Iterable[tuple[int, ...]]:
        check_stop()
        # Two passes in C, one over the lengths and one over the cache: a check of each pre-token in
        # Python would cost more than all other work.
        if max(map(len, pre_tokens), default=0) <= MAX_CACHED_CHARS:
            return map(self._cached_bpe, pre_tokens)
        return (
            self._cached_bpe(p) if len(p) <= MAX_CACHED_CHARS else self._bpe(p) for p in pre_tokens
        )


def _make_bpe(spec: TokenizerSpec) -> Callable[[str], tuple[int, ...]]:
    """Make the function pre-token -> ids for a spec."""
    token_to_id = dict(spec.token_to_id)
    whole: dict[bytes, int] = token_to_id if spec.kind == "ranks" or spec.ignore_merges else {}
    # `Any`: symbols are bytes or str, the same for all tables of a spec (see the module docstring).
    start: tuple[Any, ...]
    rank_of_pair: dict[Any, int]
    product: Mapping[int, Any]
    id_of: Callable[[Any], int]
    if spec.kind == "ranks":
        start = tuple(bytes([byte]) for byte in range(256))
        rank_of_pair = {token: rank for token, rank in token_to_id.items() if len(token) > 1}
        product = {rank: token for token, rank in rank_of_pair.items()}
        id_of = token_to_id.__getitem__
        n_bytes: Callable[[Any], int] = len
    else:
        # Any id serves for missing bytes: text never has them, or `_around_missing` takes them out.
        ids = [token_to_id.get(bytes([byte])) for byte in range(256)]
        unused = next(id_ for id_ in ids if id_ is not None)
        start = tuple(chr(unused if id_ is None else id_) for id_ in ids)
        rank_of_pair, product = _merge_tables(spec.merges, token_to_id)
        id_of = ord
        vocab = dict(spec.vocab)

        def n_bytes(symbol: str) -> int:
            return len(vocab[ord(symbol)])

    # The last byte of a pre-token, with CLIP's suffix.
    last = tuple(map(chr, spec.word_end_ids()))

    # SentencePiece's vocabularies merge characters; a window may begin or end within one.
    characters = {
        token.decode(): chr(id_)
        for token, id_ in (token_to_id.items() if spec.alphabet.has_characters else ())
        if len(token) <= 4 and is_utf8(token) and len(token.decode()) == 1
    }

    def _symbols_of(character: str) -> tuple[Any, ...]:
        if character in characters:
            return (characters[character],)
        return tuple(start[byte] for byte in character.encode("utf-8", "surrogateescape"))

    def _merge(data: bytes, is_end: bool = True) -> list[Any]:
        if characters:
            text = data.decode("utf-8", "surrogateescape")
            symbols = list(chain.from_iterable(map(_symbols_of, text)))
        else:
            symbols = [start[byte] for byte in data]
            if last and is_end:
                symbols[-1] = last[data[-1]]
        if len(symbols) > HEAP_FROM_SYMBOLS:
            return _merge_by_heap(symbols, rank_of_pair, product)
        _merge_by_scan(symbols, rank_of_pair, product)
        return symbols

    def _merge_to_ids(data: bytes) -> tuple[int, ...]:
        if len(data) <= WINDOW_BYTES:
            return tuple(map(id_of, _merge(data)))
        return tuple(map(id_of, _merge_in_windows(data, WINDOW_BYTES, _merge, n_bytes)))

    missing = spec.alphabet.missing
    merge_to_ids = _around_missing(missing, _merge_to_ids) if missing else _merge_to_ids

    def _bpe(pre_token: str) -> tuple[int, ...]:
        data = pre_token.encode()
        if data in whole:
            return (whole[data],)
        return merge_to_ids(data)

    return _bpe


def _around_missing(
    missing: MissingBytes, merge: Callable[[bytes], tuple[int, ...]]
) -> Callable[[bytes], tuple[int, ...]]:
    """The function that merges a pre-token with missing bytes; `merge` merges one without them."""
    lost, unk_id = bytes(missing.values), missing.unk_id
    if unk_id is None and not missing.ends:
        return lambda data: merge(data.translate(None, lost))
    if unk_id is None:
        cut = re.compile(b"(?<=[%b])[%b]+" % (re.escape(bytes(missing.ends)), re.escape(lost)))

        def _merge_what_is_left(data: bytes) -> tuple[int, ...]:
            parts = (merge(part.translate(None, lost)) for part in cut.split(data))
            return tuple(chain.from_iterable(parts))

        return _merge_what_is_left
    # The unknown token never merges, so that the parts around it are merged separately.
    run = re.compile(b"[%b]%b" % (re.escape(lost), b"+" if missing.is_fused else b""))

    def _merge_parts(data: bytes) -> tuple[int, ...]:
        ids: list[int] = []
        end = 0
        for found in run.finditer(data):
            ids += (*merge(data[end : found.start()]), unk_id)
            end = found.end()
        return (*ids, *merge(data[end:]))

    return _merge_parts


def _merge_tables(
    merges: Sequence[tuple[bytes, bytes]], token_to_id: Mapping[bytes, int]
) -> tuple[dict[Any, int], Mapping[int, Any]]:
    rank_of_pair: dict[Any, int] = {}
    product: dict[int, Any] = {}
    for rank, (left, right) in enumerate(merges):
        rank_of_pair[chr(token_to_id[left]) + chr(token_to_id[right])] = rank
        product[rank] = chr(token_to_id[left + right])
    return rank_of_pair, product


def _merge_in_windows(
    data: bytes,
    size: int,
    merge: Callable[[bytes, bool], list[Any]],
    n_bytes: Callable[[Any], int],
) -> list[Any]:
    """As `merge(data, True)`, in windows of `size` bytes; `n_bytes` gives the length of a symbol.
    The second argument of `merge` says whether the data end there.

    A window begins with one of the last symbols before it, and may replace the later ones. It
    is larger, and begins further back, if it would replace that one too. Why this is exact:
    `native/src/merge/windows.rs`.
    """
    symbols: list[Any] = []
    end = 0
    while end < len(data):
        number, start = len(symbols), end
        while number and (start == end or start > end - size // _OVERLAP):
            number -= 1
            start -= n_bytes(symbols[number])
        # Otherwise a symbol is as long as the window.
        if start + size > end:
            check_stop()
            window = merge(data[start : start + size], start + size >= len(data))
            if not number or window[0] == symbols[number]:
                symbols[number:] = window
                end = start + size
                continue
        size *= 2
    return symbols


def _merge_by_scan(
    symbols: list[Any], rank_of_pair: Mapping[Any, int], product: Mapping[int, Any]
) -> None:
    """Merge `symbols` in place, always the pair of the lowest rank, the leftmost of equals."""
    get = rank_of_pair.get
    # ranks[i] is the rank of the pair (symbols[i], symbols[i + 1]).
    ranks = list(map(get, map(add, symbols, symbols[1:]), repeat(_NO_RANK)))
    while ranks:
        lowest = min(ranks)
        if lowest == _NO_RANK:
            return
        i = ranks.index(lowest)
        symbols[i] = product[lowest]
        del symbols[i + 1], ranks[i]
        if i:
            ranks[i - 1] = get(symbols[i - 1] + symbols[i], _NO_RANK)
        if i < len(ranks):
            ranks[i] = get(symbols[i] + symbols[i + 1], _NO_RANK)


def _merge_by_heap(
    symbols: list[Any], rank_of_pair: Mapping[Any, int], product: Mapping[int, Any]
) -> list[Any]:
    """As `_merge_by_scan`, in O(n log n); returns the merged symbols.

    Symbols keep their index; `after` and `before` link the remaining ones. A heap entry is
    `rank << 32 | index`, so the heap orders by rank, then from the left. An entry is stale when
    the pair at its index now has another rank.
    """
    get = rank_of_pair.get
    n = len(symbols)
    after = list(range(1, n + 1))
    before = list(range(-1, n - 1))
    ranks = list(map(get, map(add, symbols, symbols[1:]), repeat(_NO_RANK)))
    ranks.append(_NO_RANK)
    heap = [rank << 32 | index for index, rank in enumerate(ranks) if rank != _NO_RANK]
    heapify(heap)
    while heap:
        entry = heappop(heap)
        rank, index = entry >> 32, entry & 0xFFFFFFFF
        if ranks[index] != rank:
            continue
        gone = after[index]
        symbols[index] = product[rank]
        symbols[gone] = None
        ranks[gone] = _NO_RANK
        follower = after[index] = after[gone]
        if follower < n:
            before[follower] = index
            new_rank = ranks[index] = get(symbols[index] + symbols[follower], _NO_RANK)
            if new_rank != _NO_RANK:
                heappush(heap, new_rank << 32 | index)
        else:
            ranks[index] = _NO_RANK
        previous = before[index]
        if previous >= 0:
            new_rank = ranks[previous] = get(symbols[previous] + symbols[index], _NO_RANK)
            if new_rank != _NO_RANK:
                heappush(heap, new_rank << 32 | previous)
    return [symbol for symbol in symbols if symbol is not None]
