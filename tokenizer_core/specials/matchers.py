"""Makes matchers of added tokens, which are cached: compiling hundreds of strings takes
milliseconds."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tokenizer_core.specials.flags import FlaggedTokenMatcher
from tokenizer_core.specials.matcher import SpecialTokenMatcher

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tokenizer_core.spec import AddedToken, TokenizerSpec


@lru_cache(maxsize=64)
def matcher_of_strings(contents: frozenset[str]) -> SpecialTokenMatcher:
    """The matcher of a set of strings."""
    return SpecialTokenMatcher(contents)


def matcher_of_tokens(tokens: Iterable[AddedToken]) -> SpecialTokenMatcher:
    """The matcher of these tokens with their flags."""
    distinct = frozenset(tokens)
    if any(token.flags for token in distinct):
        return _flagged_matcher_of(distinct)
    return matcher_of_strings(frozenset(token.content for token in distinct))


def matcher_of_spec(spec: TokenizerSpec, contents: Collection[str]) -> SpecialTokenMatcher:
    """The matcher of the added tokens of `spec` with these contents. If the normalizer has steps,
    it finds only the contents as they are: `search_for` searches instead."""
    if spec.has_flags and not spec.normalizer.steps:
        return matcher_of_tokens(t for t in spec.added_tokens if t.content in contents)
    return matcher_of_strings(frozenset(contents))


@lru_cache(maxsize=64)
def matcher_of_rest(spec: TokenizerSpec, *controls: frozenset[str]) -> SpecialTokenMatcher:
    """The matcher of the added tokens of `spec` that are in none of `controls`."""
    return matcher_of_spec(spec, frozenset(spec.added_ids).difference(*controls))


_flagged_matcher_of = lru_cache(maxsize=64)(FlaggedTokenMatcher)
