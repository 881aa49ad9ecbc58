"""Extending a tokenizer: its merges stay, and merges learned from new text follow them.

Encoding applies the merges of the lowest rank first. So it first merges a text as before, and only
then by new merges: these join whole tokens of the tokenizer that is extended, and a text in which
none applies keeps its ids. New ids follow the largest one, also that of added tokens.

Learning starts from the ids that the tokenizer gives each pre-token. A product that is a token
already is never learned. So each new merge makes a new token, which no earlier merge joins, and the
learner's tokens are those that the result encodes to.

A tokenizer of kind `ranks` merges any two neighbours that join to a token. A token that it only
matches as a whole pre-token could then arise from a new token and its neighbour; no new token
begins or ends one of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.formats.tiktoken_file import recover_reachable_merges
from tokenizer_core.spec import Alphabet, TokenizerSpec
from tokenizer_core.specials.matchers import matcher_of_spec
from tokenizer_core.specials.parts import join_parts, normalized_parts
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_core.training.counts import view
from tokenizer_core.training.learn_merges import LearnedMerges, continue_merges, learn_natively
from tokenizer_core.training.pretoken_counts import PretokenCounts

Pieces = Iterable[tuple[bytes, bool]]

_WINDOW_CHARS: Final = 1 << 22
"""A longer document is normalized in parts."""


def normalized_pieces(base: TokenizerSpec, pieces: Pieces) -> Iterator[tuple[bytes, bool]]:
    """Documents in pieces of UTF-8, as `base` normalizes them."""
    matcher = matcher_of_spec(base, frozenset(base.added_ids))
    normalize = Tokenizer.from_spec(base).engine.normalize
    held, is_inside = "", False
    for data, is_last in pieces:
        held += data.decode()
        if is_last or len(held) >= _WINDOW_CHARS:
            find_cut = base.normalizer.find_cut
            cut = len(held) if is_last else find_cut(held, continues=is_inside)
            begins: Any = "inside" if is_inside else "text"
            parts = normalized_parts(base, matcher, held[:cut], normalize, begins=begins)
            yield join_parts(parts).encode(), is_last
            held, is_inside = held[cut:], not is_last and (is_inside or cut > 0)


def check_may_extend(base: TokenizerSpec, counts: PretokenCounts | None = None) -> None:
    """Raise InvalidSpecError unless merges can be added to `base`, and learned from `counts`."""
    missing = base.alphabet.missing
    if missing and missing.ends:
        raise InvalidSpecError(
            "this tokenizer leaves out bytes that separate what is around them, so new merges "
            "could not be learned exactly; train a tokenizer of its own instead"
        )
    if counts is None:
        return
    if counts.pattern != base.pattern or {*counts.special_tokens} != {*base.added_ids}:
        raise InvalidSpecError(
            "these counts have another split pattern or other special tokens than the tokenizer "
            "to extend; count the text with those of the tokenizer, or give the text itself"
        )
    if base.normalizer.name != "none":
        raise InvalidSpecError(
            f"the tokenizer to extend normalizes a text ({base.normalizer.name}), and counts are "
            f"of text as it is; give the text itself"
        )


def learn_more(
    base: TokenizerSpec, counts: PretokenCounts, n_merges: int, engine: str, **options: Any
) -> tuple[LearnedMerges, str]:
    """The merges that extend `base`, learned from its tokens in these pre-tokens, and the engine
    that learned them; with the options of `learn_merges`.

    The native learner starts from bytes and the merges of `base`, and may make any token. So it
    learns where encoding does no more than merging, and unless it makes a token of `base`.
    """
    known = set(base.vocab.values())
    first = _first_merges(base)
    if engine == "native" and first is not None and options["tie_break"] == "lexicographic":
        n_first, after_merge = len(first), options["after_merge"]
        given = {
            "rules": replace(options["rules"], first_merges=first),
            "after_merge": lambda n_done: after_merge(n_done - n_first),
        }
        learned = learn_natively(counts.counts, n_first + n_merges, **given)
        merges = learned.merges[n_first:]
        if known.isdisjoint(left + right for left, right in merges):
            return replace(learned, merges=merges), engine
    is_ranks = base.kind == "ranks"
    whole = recover_reachable_merges(base.token_to_id)[1] if is_ranks else []

    def may_make(token: bytes) -> bool:
        return token not in known and not any(
            other.startswith(token) or other.endswith(token) for other in whole
        )

    words = _words(base, counts)
    learned = continue_merges(words, base.vocab, n_merges, may_make=may_make, **options)
    return learned, "python"


def _first_merges(base: TokenizerSpec) -> tuple[tuple[bytes, bytes], ...] | None:
    """The merges of bytes that encoding a pre-token consists of, in order. None if it does more, or
    if a merge makes a token again or joins tokens of later merges."""
    merges, does_more = list(base.merges), base.ignore_merges
    if base.kind == "ranks":
        merges, whole = recover_reachable_merges(base.token_to_id)
        does_more = bool(whole)
    if does_more or base.alphabet != Alphabet():
        return None
    made = {bytes([byte]) for byte in range(256)}
    for left, right in merges:
        if left + right in made or not made.issuperset((left, right)):
            return None
        made.add(left + right)
    return tuple(merges)


def _words(base: TokenizerSpec, counts: PretokenCounts) -> Iterator[tuple[str, int]]:
    """The ids of each pre-token as characters, and its occurrences. Ids that no merge joins are
    words of their own."""
    encode = Tokenizer.from_spec(base).engine.encode_pre_tokens
    unk_id = base.alphabet.unk_id
    alone = {id_ for id_ in base.alphabet.byte_ids if id_ >= 0}
    alone.update([] if unk_id is None else [unk_id])
    never = "".join(re.escape(chr(id_)) for id_ in sorted(alone))
    split = re.compile(f"([{never}])" if alone else "(?!)").split
    for pre_token, count in view(counts.counts).entries():
        ids = encode([pre_token])
        yield from ((word, count) for word in split("".join(map(chr, ids))) if word)
