"""A text as it is encoded: its normalized parts, and the added tokens between them.

Added tokens are cut out of a text first, and each part between them is normalized by itself. With
`steps` in its spec, those that are `normalized` are searched in the normalized parts instead, by
their own normalized content, as Hugging Face does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from tokenizer_core.normalizers.spaces import with_spaces
from tokenizer_core.normalizers.steps import Steps
from tokenizer_core.specials.matcher import Span, SpecialTokenMatcher, TrustedTokenMatcher
from tokenizer_core.specials.matchers import matcher_of_spec, matcher_of_strings, matcher_of_tokens
from tokenizer_core.specials.segments import Trust
from tokenizer_core.splitting.pretokenize import split
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokenizer_core.spec import AddedToken, TokenizerSpec

Part = tuple[str, str | None]
"""Plain text, normalized, and the added token after it."""


def normalized_parts(
    spec: TokenizerSpec,
    matcher: SpecialTokenMatcher,
    text: str,
    normalize: Callable[..., str] | None = None,
    *,
    begins: Literal["text", "part", "inside"] = "text",
) -> Iterator[Part]:
    """The normalized parts of a text, each with the added token after it: those of `matcher` are
    recognised. The last part has none. `normalize`: what runs the steps, by default Python.

    `begins` says where `text` begins: at the beginning of a text, after an added token, or inside a
    part, whose beginning is normalized already.
    """
    search = search_for(spec, matcher)
    normalize = normalize or spec.normalizer.normalize
    for start, end, span in search.parts(text):
        plain = text[start:end]
        is_first, continues = not start and begins == "text", not start and begins == "inside"
        normalized = normalize(plain, is_first=is_first, continues=continues)
        for part, found in search.second_in(plain, start).split(normalized):
            yield part, (span and span.content) if found is None else search.names[found]


def parts_as_encoded(spec: TokenizerSpec, text: str) -> list[Part]:
    """The normalized parts of a text in which no special token is recognised, each with the content
    token after it, as that is spelled in the vocabulary."""
    ids, contents = _content_of(spec.added_token_set)
    return [
        (plain, None if token is None else spec.added_bytes[ids[token]].decode())
        for plain, token in normalized_parts(spec, matcher_of_spec(spec, contents), text)
    ]


@lru_cache(maxsize=8)
def _content_of(added: frozenset[AddedToken]) -> tuple[Mapping[str, int], frozenset[str]]:
    """The ids of the content tokens, and their strings."""
    ids = {token.content: token.id for token in added if not token.special}
    return ids, frozenset(ids)


def join_parts(parts: Iterable[Part]) -> str:
    """The text of parts and the tokens between them."""
    return "".join(plain + (token or "") for plain, token in parts)


def text_as_decoded(
    spec: TokenizerSpec, matcher: SpecialTokenMatcher, text: str, *, with_lost: bool = True
) -> str:
    """The text that the ids of `text` decode to. By default with the text that encoding loses: what
    the split pattern drops (but not with a `word_suffix`), and bytes without a token. Raises
    CancelledError: another thread cancelled the call."""
    parts: list[bytes] = []
    added = {token.content: token for token in spec.added_tokens}
    for plain, token in normalized_parts(spec, matcher, text):
        check_stop()
        data = plain.encode()
        if spec.alphabet.word_suffix:
            suffix = spec.alphabet.word_suffix.decode()
            data = "".join(word + suffix for word in split(plain, spec.pattern)).encode()
        elif spec.loses_text and not with_lost:
            pre_tokens = map(str.encode, split(plain, spec.pattern))
            data = b"".join(map(spec.decoded_pre_token, pre_tokens))
        parts += [data, b"" if token is None else spec.spelling(added[token])]
    joined = b"".join(parts).decode(errors="replace")  # bytes that are lost may break a character
    if spec.normalizer.is_of_characters:
        joined = with_spaces(joined)  # of special tokens
    return joined.removeprefix(" ") if spec.normalizer.strips_space else joined


NO_TOKENS: Final = matcher_of_strings(frozenset())


class TokenSearch:
    """The two searches for added tokens: in the text as given, and, if its normalizer has steps, in
    its normalized parts.

    `names`: the strings of the second search, and the tokens that they stand for. `trusts`: those
    of the text as given.
    """

    def __init__(
        self,
        first: SpecialTokenMatcher,
        second: SpecialTokenMatcher = NO_TOKENS,
        names: Mapping[str, str] = MappingProxyType({}),
        normalizer: Steps | None = None,
        trusts: tuple[Trust, ...] = (),
    ) -> None:
        self.first, self.second, self.names = first, second, names
        self._normalizer, self._trusts = normalizer, trusts

    def trusting(self, *trusts: Trust) -> TokenSearch:
        """The same searches in the one text that `trusts` are for."""
        first = self.first.trusting(*trusts)
        return TokenSearch(first, self.second, self.names, self._normalizer, trusts)

    def parts(self, text: str) -> Iterator[tuple[int, int, Span | None]]:
        """Start and end of each part that is normalized, and the match of the first search after
        it; the last part has none."""
        end = 0
        for span in self.first.spans(text):
            yield span.plain_start, span.start, span
            end = span.end
        yield end, len(text), None

    def second_in(self, plain: str, start: int) -> SpecialTokenMatcher:
        """The second search for a part of the text that begins at `start`."""
        if not self._trusts or not self._normalizer or not self.second:
            return self.second
        trusts = []
        for trust in self._trusts:
            control = frozenset(n for n, content in self.names.items() if content in trust.control)
            runs = trust.within(start, start + len(plain)).runs
            trusts.append(Trust(control, self._normalizer.normalize_runs(plain, runs)))
        return self.second.trusting(*trusts)


def search_for(spec: TokenizerSpec, matcher: SpecialTokenMatcher) -> TokenSearch:
    """How the tokens of `matcher` are searched in a text."""
    if not isinstance(spec.normalizer, Steps):
        return TokenSearch(matcher)
    if isinstance(matcher, TrustedTokenMatcher):
        return search_for(spec, matcher.matcher).trusting(*matcher.trusts)
    return _search_for(spec.normalizer, spec.added_token_set, matcher)


@lru_cache(maxsize=64)
def _search_for(
    normalizer: Steps, added: frozenset[AddedToken], matcher: SpecialTokenMatcher
) -> TokenSearch:
    contents = frozenset(matcher.contents)
    tokens = [token for token in added if token.content in contents]
    later = {normalizer.spell(token.content): token for token in tokens if token.normalized}
    renamed = (replace(token, content=n, normalized=False) for n, token in later.items())
    return TokenSearch(
        matcher_of_tokens(token for token in tokens if not token.normalized),
        matcher_of_tokens(renamed),
        MappingProxyType({normalized: token.content for normalized, token in later.items()}),
        normalizer,
    )
