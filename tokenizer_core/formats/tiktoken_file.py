"""`.tiktoken` files: one token per line (base64, a space, its rank); and ranks turned into merges.

The format has no split pattern and no special tokens, so the caller passes both. Two neighbours
whose joined bytes have a rank may merge, lowest rank first, leftmost on ties; a pre-token that has
a rank becomes one token. Other formats need a list of pairs instead.

One pair per token is enough, for any rank file. Take a token T and a moment when two neighbours
spell T. No merge has crossed T's edges until then, because a crossed edge disappears. Merges
outside T change nothing inside. Merges inside T happened in the order (rank, position), as when T
is encoded alone. The inside of T is therefore a state of encoding T alone, which passes through at
most one state of two parts. Therefore the last merge of T alone is the only pair that makes T in
any text. If the merges of T alone do not make T, no merge does: only a whole pre-token becomes T.

Any other pair in a list of merges therefore never finds its two parts adjacent. Its position in the
list does not matter, and it changes nothing. Llama 3's `tokenizer.json` has 152,991 such pairs.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import check_size, read_whole_file
from tokenizer_core.engines.native_calls import left_sizes, read_rank_lines
from tokenizer_core.errors import FormatError, counted
from tokenizer_core.spec.checks import MAX_TOKEN_ID

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tokenizer_core.spec import TokenizerSpec

    Merge = tuple[bytes, bytes]

MAX_FILE_BYTES: Final = 64 << 20
"""The size cap; o200k has 3.6 MB."""

_EMPTY: Final = b"="
"""How Whisper writes its empty token; tiktoken cannot read a line without a first field."""


def load_tiktoken_ranks(path: str | os.PathLike[str]) -> dict[bytes, int]:
    """Read a `.tiktoken` file: token bytes -> rank, which is also the id. Raises FormatError: the
    file is malformed; names the line number."""
    return parse_tiktoken_ranks(read_whole_file(path, max_bytes=MAX_FILE_BYTES))


def parse_tiktoken_ranks(data: bytes) -> dict[bytes, int]:
    """Parse a `.tiktoken` file: token bytes -> rank; raises as `load_tiktoken_ranks`."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise FormatError("the .tiktoken file begins with a byte order mark; remove it")
    if data.count(b"\n") > 2 * (MAX_TOKEN_ID + 1):
        raise FormatError(
            f"the .tiktoken file has more than {2 * (MAX_TOKEN_ID + 1)} lines; there are "
            f"{MAX_TOKEN_ID + 1} ids, and each token takes one line"
        )
    if data.count(b" ") > MAX_TOKEN_ID + 1:
        raise FormatError(
            f"the .tiktoken file has more than {MAX_TOKEN_ID + 1} tokens; there are no more ids"
        )
    return read_rank_lines(data) or _parse_line_by_line(data)


def _parse_line_by_line(data: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        encoded, space, digits = line.removesuffix(b"\r").partition(b" ")
        # isdigit on bytes is ASCII only; more than 7 digits exceeds the largest id.
        if not (space and digits.isdigit() and len(digits) <= 7 and int(digits) <= MAX_TOKEN_ID):
            raise FormatError(
                f"line {number} of the .tiktoken file, {line!r:.60}, is not a base64 token, a "
                f"space and a rank in 0..{MAX_TOKEN_ID}"
            )
        try:
            token = b"" if encoded == _EMPTY else base64.b64decode(encoded, validate=True)
        except binascii.Error:
            token = b""
        if not token and encoded != _EMPTY:
            raise FormatError(f"line {number} of the .tiktoken file: {encoded!r:.60} is no base64")
        rank = int(digits)
        if token in ranks or rank in seen:
            which = f"the token {token!r:.60}" if token in ranks else f"the rank {rank}"
            raise FormatError(f"line {number} of the .tiktoken file gives {which} a second time")
        ranks[token] = rank
        seen.add(rank)
    if not ranks:
        raise FormatError("the .tiktoken file is empty")
    return ranks


def recover_merges(ranks: Mapping[bytes, int]) -> list[Merge]:
    """The pairs, in rank order, whose merging gives the same ids as `ranks`.

    Takes about half a second for o200k's 200,000 tokens, and three without the compiled module.
    Raises FormatError: some tokens are made by no merge, so a list of merges cannot reach them; the
    message names the first of them.
    """
    merges, unreached = recover_reachable_merges(ranks)
    if unreached:
        shown = ", ".join(f"{token!r:.40} (rank {ranks[token]})" for token in unreached[:5])
        raise FormatError(
            f"{counted(len(unreached), 'token')} not made by any merge, only matched as whole "
            f"pre-tokens: {shown}; a list of merges cannot say that. Save a tokenizer.json, which "
            f"can (ignore_merges)"
        )
    return merges


def recover_reachable_merges(ranks: Mapping[bytes, int]) -> tuple[list[Merge], list[bytes]]:
    """As `recover_merges`, but returns the tokens that no merge makes instead of raising."""
    tokens = sorted(ranks, key=ranks.__getitem__)
    sizes = left_sizes(tokens) or [_left_size(token, ranks) for token in tokens]
    sized = list(zip(tokens, sizes, strict=True))
    merges = [(token[:size], token[size:]) for token, size in sized if size]
    return merges, [token for token, size in sized if not size and len(token) != 1]


def last_two_parts(token: bytes, ranks: Mapping[bytes, int]) -> Merge | None:
    """The two parts of `token`, encoded alone, before its last merge; None if its merges stop at
    three parts or more."""
    size = _left_size(token, ranks)
    return (token[:size], token[size:]) if size else None


def _left_size(token: bytes, ranks: Mapping[bytes, int]) -> int:
    """The bytes of the first of the two parts; 0 if there are not two. It merges with a heap, so
    that a token of 100 kB takes no minutes."""
    size = len(token)
    following = list(range(1, size + 1))  # end of the part that starts here; 0: no part
    preceding = list(range(-1, size))
    heap = [
        (rank, start, start + 2)
        for start in range(size - 1)
        if (rank := ranks.get(token[start : start + 2])) is not None
    ]
    heapq.heapify(heap)
    n_parts = size
    while heap and n_parts > 2:
        _, start, end = heapq.heappop(heap)
        middle = following[start]
        if not middle or middle >= size or following[middle] != end:
            continue
        following[start], following[middle] = end, 0
        preceding[end] = start
        n_parts -= 1
        before = preceding[start]
        after = following[end] if end < size else 0
        for left, right in ((before, end), (start, after)):
            if left >= 0 and right and (rank := ranks.get(token[left:right])) is not None:
                heapq.heappush(heap, (rank, left, right))
    return following[0] if n_parts == 2 else 0


def check_is_plain(spec: TokenizerSpec, files: str) -> None:
    """Refuse a spec whose ids depend on what `files` of a vocabulary cannot say: a normalizer,
    idle entries, missing bytes, flags of added tokens, a suffix of words."""
    flagged = next((token for token in spec.added_tokens if token.flags), None)
    artifact = ", or publish an artifact"
    found, way_on = "", " instead"
    alphabet = spec.alphabet
    if spec.normalizer.name != "none":
        found = f"that text is normalized ({spec.normalizer.name})"
    elif alphabet.idle_ids:
        token = spec.vocab[alphabet.idle_ids[0]]
        found = f"that no text gives the token of id {alphabet.idle_ids[0]}, {token!r:.60}"
        way_on = artifact
    elif alphabet.missing:
        byte = alphabet.missing.values[0]
        found = f"what becomes of the bytes that the vocabulary lacks (first: 0x{byte:02x})"
        way_on = artifact
    elif flagged is not None:
        found = f"that the added token {flagged.content!r:.60} has the flag {flagged.flags[0]}"
    elif alphabet.word_suffix:
        found = f"that words end with {alphabet.word_suffix.decode()!r:.40}"
    if found:
        raise FormatError(f"{files} cannot say {found}; save a tokenizer.json{way_on}")


def render_tiktoken(spec: TokenizerSpec) -> bytes:
    """The learned tokens of `spec` as a `.tiktoken` file, which has no split pattern, special
    tokens or post-processor. Raises FormatError: the spec has a normalizer, missing bytes, merges
    that ranks do not reproduce, one token with two ids, or a special token that is also a learned
    token; or the file would be too large to be read."""
    check_is_plain(spec, "a .tiktoken file")
    ranks = spec.token_to_id
    for token in spec.added_tokens:
        if token.content.encode() in ranks:
            raise FormatError(
                f"the special token {token.content!r:.60} is a learned token as well, and in a "
                f".tiktoken file it would be that alone; save a tokenizer.json instead"
            )
    added = {token.id for token in spec.added_tokens}
    empty = spec.empty_ids[:1]
    for id_, learned in spec.vocab.items():
        if ranks.get(learned) != id_ and id_ not in added and id_ not in empty:
            raise FormatError(
                f"ids {ranks.get(learned, *empty)} and {id_} stand for the same bytes "
                f"{learned!r:.60}, which a .tiktoken file cannot hold"
            )
    if spec.kind == "merges":
        _check_ranks_reproduce(spec, ranks)
    pairs = sorted(
        (rank, token) for token, rank in [*ranks.items(), *((b"", id_) for id_ in empty)]
    )
    lines = ((base64.b64encode(token) or _EMPTY) + b" %d\n" % rank for rank, token in pairs)
    return check_size(b"".join(lines), MAX_FILE_BYTES, "the .tiktoken file")


def _check_ranks_reproduce(spec: TokenizerSpec, ranks: Mapping[bytes, int]) -> None:
    """Refuse unless the ranks give the same ids as the merges.

    By the argument in the module docstring, ranks are equivalent to the pairs recovered from them
    if whole pre-tokens are looked up first. The merges must therefore be those pairs in that
    order, except for pairs that never apply. If whole pre-tokens are not looked up, each token
    must also result from its own merges.
    """
    recovered, unreached = recover_reachable_merges(ranks)
    applying = set(recovered)
    if unreached and not spec.ignore_merges:
        raise FormatError(
            f"the token {unreached[0]!r:.60} is not made by the merges, but a .tiktoken file would "
            f"match it; save a tokenizer.json instead, or say that it is a special token"
        )
    kept = (merge for merge in spec.merges if merge in applying)
    for index, (merge, other) in enumerate(zip_longest(kept, recovered)):
        if merge != other:
            raise FormatError(
                f"a .tiktoken file cannot hold these merges: number {index} of those that apply is "
                f"{merge!r:.90}, where the order of the ids gives {other!r:.90}; save a "
                f"tokenizer.json instead"
            )
