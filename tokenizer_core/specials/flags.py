"""Finds added tokens with flags (`lstrip`, `rstrip`, `single_word`, `normalized`), as
`find_matches` of Hugging Face's `tokenizers` does.

- The search goes on at the end of each match, without the white space that the match includes. A
  token that begins with white space may therefore overlap the one before it.
- A `single_word` match next to a word is dropped after the search: it hides every match that
  overlaps it.
- White space between two tokens belongs to the first if that one has `rstrip`.
- The tokens that are `normalized` are searched in each part between the others, as if it were a
  text of its own.

`text.drift.continue_text` and `corpus.document_cuts` follow from these rules. The compiled twin is
`native/src/encode/flagged_tokens.rs`.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from tokenizer_core.spec.added_tokens import AddedToken
from tokenizer_core.specials.matcher import Span, SpecialTokenMatcher, TrustedTokenMatcher
from tokenizer_core.splitting.unicode_sets import WHITE_SPACE, compile_exactly, join, ranges_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import regex

    from tokenizer_core.specials.segments import Trust
    from tokenizer_core.splitting.unicode_sets import Ranges

# `\w` of the engine that `tokenizers` uses here.
_WORD_PROPERTIES: Final = ("Alphabetic", "M", "Nd", "Pc", "Join_Control")
_WHITE_SPACE_RUN: Final = re.compile(f"[{WHITE_SPACE}]*")
_WITHOUT_FLAGS: Final = AddedToken("", 0)


class PassTokens(NamedTuple):
    """The tokens of one pass; `tokens` is empty if none of all tokens has flags."""

    matcher: SpecialTokenMatcher
    tokens: dict[str, AddedToken]
    strips_left: bool

    @classmethod
    def of(cls, tokens: list[AddedToken]) -> PassTokens:
        """Of these tokens."""
        matcher = SpecialTokenMatcher(token.content for token in tokens)
        by_content = {token.content: token for token in tokens}
        return cls(matcher, by_content, any(token.lstrip for token in tokens))


class FlaggedTokenMatcher(SpecialTokenMatcher):
    """Finds added tokens with flags; see the module.

    Example:
        >>> from tokenizer_core.spec import AddedToken
        >>> matcher = FlaggedTokenMatcher([AddedToken("<mask>", 9, lstrip=True)])
        >>> list(matcher.split("a  <mask> b"))
        [('a', '<mask>'), (' b', None)]
    """

    __slots__ = ("passes",)

    has_flags = True

    def __init__(self, tokens: Collection[AddedToken]) -> None:
        super().__init__(token.content for token in tokens)
        passes = ([t for t in tokens if t.normalized is late] for late in (False, True))
        self.passes = [PassTokens.of(chosen) for chosen in passes if chosen]
        """Those of each pass over the text."""

    @property
    def flags_by_pass(self) -> list[list[tuple[str, bool, bool, bool]]]:
        """For each pass, its tokens: content, `lstrip`, `rstrip` and `single_word`."""
        return [
            [(t.content, t.lstrip, t.rstrip, t.single_word) for t in one.tokens.values()]
            for one in self.passes
        ]

    @property
    def word_characters(self) -> Ranges:
        """The characters next to which a `single_word` token does not count; empty if there is no
        such token."""
        tokens = chain.from_iterable(one.tokens.values() for one in self.passes)
        if not any(token.single_word for token in tokens):
            return ()
        return join(map(ranges_of, _WORD_PROPERTIES))

    def trusting(self, *trusts: Trust) -> TrustedTokenMatcher:
        """As in the base class."""
        return _TrustedFlaggedMatcher(self, trusts)

    def spans(self, text: str, trusts: tuple[Trust, ...] = ()) -> Iterator[Span]:
        """As in the base class; those that count with `trusts`."""
        return _spans_of_passes(self.passes, text, trusts) if self.may_match(text) else iter(())


class _TrustedFlaggedMatcher(TrustedTokenMatcher):
    __slots__ = ()

    has_flags = True
    matcher: FlaggedTokenMatcher

    def spans(self, text: str) -> Iterator[Span]:
        """As in the base class."""
        return self.matcher.spans(text, self.trusts)


def _spans_of_passes(
    passes: list[PassTokens], text: str, trusts: tuple[Trust, ...]
) -> Iterator[Span]:
    """The matches of the first pass in `text`, and those of the others in the parts between."""
    first, *later = passes
    if trusts:
        first = first._replace(matcher=first.matcher.trusting(*trusts))
    _, spans, _ = _Pass(first).advance(text, is_last=True)
    if not later:
        yield from spans
        return

    def _of_later(start: int, end: int) -> Iterator[Span]:
        trusted = tuple(trust.within(start, end) for trust in trusts)
        for span in _spans_of_passes(later, text[start:end], trusted):
            yield Span(span.plain_start + start, span.start + start, span.end + start, span.content)

    end = 0
    for span in spans:
        plain_start = span.plain_start
        for within in _of_later(span.plain_start, span.start):
            yield within
            plain_start = within.end
        yield span._replace(plain_start=plain_start)
        end = span.end
    yield from _of_later(end, len(text))


class _Pass:
    """One pass over a text that arrives in pieces."""

    def __init__(self, tokens: PassTokens) -> None:
        self.tokens = tokens
        # The undecided text, and the character before it if a `single_word` token depends on it.
        self._text = ""
        self._n_before = any(token.single_word for token in tokens.tokens.values())
        self.plain_start = 0
        """The index of the first character that was not returned."""
        self._search_start = 0

    @property
    def held(self) -> str:
        """The text that was not returned."""
        return self._text[self.plain_start :]

    def advance(self, text: str, *, is_last: bool) -> tuple[str, list[Span], int]:
        """The text to which positions refer: the undecided text and `text`; the certain matches in
        it; and the end of the certain plain text after them."""
        text = self._text + text
        spans, unsure = self._find(text, is_last=is_last)
        end = unsure
        if self.tokens.strips_left and not is_last:
            # A token that includes this white space may follow.
            end = self.plain_start + len(text[self.plain_start : unsure].rstrip(WHITE_SPACE))
        end = max(end, self.plain_start)
        self._search_start = max(self._search_start, unsure)
        kept_from = max(min(self._search_start, end) - self._n_before, 0)
        self._text = text[kept_from:]
        self.plain_start = end - kept_from
        self._search_start -= kept_from
        return text, spans, end

    def _find(self, text: str, *, is_last: bool) -> tuple[list[Span], int]:
        """The certain matches, and the first index at which a match may begin that is not."""
        matcher, tokens, _ = self.tokens
        doubtful = [] if is_last else matcher.doubtful_starts(text)
        spans: list[Span] = []
        for match in matcher.matches(text, self._search_start):
            start, end = match.span()
            if any(self._search_start <= position <= start for position in doubtful):
                break  # a longer or earlier match may still begin here
            token = tokens.get(match.group(), _WITHOUT_FLAGS)
            stop = _skip_white_space(text, end) if token.rstrip else end
            if stop == len(text) and not is_last and (token.rstrip or token.single_word):
                return spans, start
            self._search_start = end
            if token.single_word and (_is_word(text, start - 1) or _is_word(text, end)):
                continue
            if token.lstrip:
                plain = text[self.plain_start : start].rstrip(WHITE_SPACE)
                start = self.plain_start + len(plain)
            spans.append(Span(self.plain_start, start, stop, match.group()))
            self.plain_start = stop
        unsure = (position for position in doubtful if position >= self._search_start)
        return spans, next(unsure, len(text))


def _skip_white_space(text: str, start: int) -> int:
    run = _WHITE_SPACE_RUN.match(text, start)
    return run.end() if run else start


@cache
def _word_character() -> regex.Pattern[str]:
    return compile_exactly("[" + "".join(rf"\p{{{name}}}" for name in _WORD_PROPERTIES) + "]")


def _is_word(text: str, index: int) -> bool:
    """Whether the character at `index`, if there is one, belongs to a word."""
    return 0 <= index < len(text) and _word_character().match(text[index]) is not None


class MatchStream:
    """Cuts the tokens of a matcher, which is not `trusting`, out of a text that arrives in pieces.

    Example:
        >>> stream = MatchStream(SpecialTokenMatcher(["<|a|>"]))
        >>> stream.feed("x<|"), stream.feed("a|>y"), stream.finish()
        ([('x', None)], [('', '<|a|>'), ('y', None)], [('', None)])
    """

    def __init__(self, matcher: SpecialTokenMatcher) -> None:
        passes = [PassTokens(matcher, {}, strips_left=False)]
        if isinstance(matcher, FlaggedTokenMatcher):
            passes = matcher.passes
        self._passes = list(map(_Pass, passes))
        self._is_plain, self._matcher = not isinstance(matcher, FlaggedTokenMatcher), matcher
        self.held = ""
        """The text that was fed and not yet returned."""

    def feed(self, text: str) -> list[tuple[str, str | None]]:
        """Pairs as of `split`, as far as they are certain; the plain text of the last continues."""
        is_idle = self._is_plain and not self.held
        if is_idle and not (self._matcher.may_match(text) or self._matcher.doubtful_starts(text)):
            return [(text, None)]  # most texts, faster
        pairs = self._advance(0, text, is_last=False)
        self.held = "".join(each.held for each in reversed(self._passes))
        return pairs

    def finish(self) -> list[tuple[str, str | None]]:
        """The pairs of the remaining text, which ends here."""
        self.held = ""
        return self._advance(0, "", is_last=True)

    def _advance(self, n_pass: int, text: str, *, is_last: bool) -> list[tuple[str, str | None]]:
        """The pairs of a pass and of the later ones."""
        if n_pass == len(self._passes):
            return [(text, None)]
        current = self._passes[n_pass]
        begin = current.plain_start
        text, spans, end = current.advance(text, is_last=is_last)
        pairs: list[tuple[str, str | None]] = []
        for span in spans:
            plain = text[span.plain_start : span.start]
            *within, (rest, _) = self._advance(n_pass + 1, plain, is_last=True)
            pairs += [*within, (rest, span.content)]
            begin = span.end
        if is_last:  # the next part is a text of its own
            self._passes[n_pass] = _Pass(current.tokens)
        pairs += self._advance(n_pass + 1, text[begin:end], is_last=is_last)
        return pairs
