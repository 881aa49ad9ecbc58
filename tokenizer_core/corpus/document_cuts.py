"""DocumentCuts: finds offsets at which a long document can be cut and encoded part by part.

The ids of the parts, joined, are those of the document: no token and no special token crosses a
cut, and normalization changes no characters across it. A cut depends only on the characters around
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import PreTokenTooLongError
from tokenizer_core.specials.flags import MatchStream
from tokenizer_core.specials.matchers import matcher_of_strings
from tokenizer_core.splitting.pretokenize import find_last_safe_cut, split, split_settled
from tokenizer_core.splitting.unicode_sets import WHITE_SPACE
from tokenizer_core.text.streaming import MAX_PENDING_CHARS

if TYPE_CHECKING:
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.spec import TokenizerSpec

_WINDOW_CHARS: Final = 1 << 12
_FIRST_WINDOW_CHARS: Final = 1 << 7
"""Most text has a cut within this many characters."""
_TAIL_BYTES: Final = 1 << 14


class DocumentCuts:
    """Finds cuts in the documents that are encoded by one plan."""

    def __init__(
        self, plan: TokenFilesPlan, spec: TokenizerSpec, *, is_whole: bool = False
    ) -> None:
        """`spec`: that of the tokenizer of the plan. With `is_whole` no document can be cut."""
        self._pattern, self._normalizer = spec.pattern, spec.normalizer
        has_steps = bool(spec.normalizer.steps)
        self._find_near = self._find_between_steps if has_steps else self._find_safe
        self._is_whole = (
            is_whole or not spec.normalizer.cuts_documents or (has_steps and spec.has_flags)
        )
        self._names = [*plan.recognised_special, *plan.forbidden_special]
        self._matcher = matcher_of_strings(frozenset(self._names))
        self._divided = self._names
        if self._pattern.is_named:
            # A safe cut is before white space, so only these special tokens can contain one.
            self._divided = [name for name in self._names if any(map(str.isspace, name[1:]))]
        recognised = [t for t in spec.added_tokens if t.content in plan.recognised_special]
        self._has_flags = any(token.flags for token in recognised)
        # Neither the white space that a token includes nor what it looks at is in another part.
        self._must_not_end = tuple(t.content for t in recognised if t.rstrip or t.single_word)
        self._must_not_begin = tuple(t.content for t in recognised if t.single_word)
        near = [*self._divided, *self._must_not_end, *self._must_not_begin]
        self._names_in_steps: list[str] = []
        if has_steps:
            found = spec.normalized_tokens.intersection(self._names)
            self._names_in_steps = [spec.normalizer.normalize(name) for name in found]
            near = [*self._names, *self._names_in_steps]
        self._longest = max(map(len, near), default=1)

    def find_last(self, text: str) -> int | None:
        """The last offset, or one of the last, at which `text` can be cut; None if it has no cut.
        The document continues after `text`.

        Raises:
            PreTokenTooLongError: the text has no cut and is longer than `MAX_PENDING_CHARS`.
        """
        cut = None if self._is_whole else self._find_near(text)
        if cut is None and not self._is_whole and not self._normalizer.steps:
            cut = self._find_checked(text)
        if cut is None and len(text) > MAX_PENDING_CHARS:
            why = (
                "break such text with white space"
                if self._pattern.has_cuts and not self._is_whole
                else "with this tokenizer no document is cut, so make documents shorter"
                if self._is_whole
                else "with this split pattern no place is sure, so make documents shorter"
            )
            raise PreTokenTooLongError(
                f"a document has no place to be cut in {MAX_PENDING_CHARS} characters, and no more "
                f"are held at once; {why}"
            )
        return cut

    def find_last_in_utf8(self, text: bytes) -> int | None:
        """As `find_last`, in bytes, for a text in UTF-8; most calls decode only its end.

        Raises:
            UnicodeDecodeError: the decoded part is not UTF-8.
            PreTokenTooLongError: as `find_last`.
        """
        start = max(0, len(text) - _TAIL_BYTES)
        while start < len(text) and text[start] & 0xC0 == 0x80:
            start += 1
        tail = text[start:].decode()
        cut = None if self._is_whole else self._find_near(tail)
        # Nearer to the start of the tail, a special token that begins before it may cross the cut.
        if cut is None or cut < self._longest:
            start, tail = 0, text.decode()
            cut = self.find_last(tail)
        return None if cut is None else start + len(tail[:cut].encode())

    def _find_safe(self, text: str) -> int | None:
        end, window = len(text) - self._longest + 1, _FIRST_WINDOW_CHARS
        while end > 1:
            start = max(0, end - window)
            window = min(2 * window, _WINDOW_CHARS)
            found = find_last_safe_cut(text[start:end], self._pattern)
            if found is None:
                end = start + 1  # overlap by one: a cut needs the character before it
            elif self._is_whole_around(text, start + found):
                return start + found
            else:
                end = start + found
        return None

    def _find_between_steps(self, text: str) -> int | None:
        """A cut in the last characters of `text` that no step crosses, and that is safe in the
        normalized text around it."""
        n_near = 2 * self._longest + _FIRST_WINDOW_CHARS
        skipped = max(0, len(text) - _WINDOW_CHARS - 2 * n_near)
        text = text[skipped:]
        find_cut = self._normalizer.find_cut
        cut = find_cut(text)
        while cut:
            start = find_cut(text[: max(0, cut - n_near)])
            end = cut + find_cut(text[cut : cut + n_near])
            if start >= self._longest and self._is_safe_between(text, start, cut, end):
                return skipped + cut
            cut = find_cut(text[:cut])
        return None

    def _is_safe_between(self, text: str, start: int, cut: int, end: int) -> bool:
        """Whether a cut of the normalizer is safe; `start` and `end` are such cuts around it."""
        # A special token would be normalized with the text around it.
        if self._matcher.find(text[start - self._longest : end]) is not None:
            return False
        normalize = self._normalizer.normalize
        before = normalize(text[start:cut], continues=True)
        after = normalize(text[cut:end], continues=True)
        at, joined = len(before), before + after
        return (
            after == normalize(text[cut:end])  # a part is the first of its text
            and min(len(before), len(after)) >= self._longest
            and find_last_safe_cut(joined[: at + 1], self._pattern) == at
            and _is_outside(joined, at, self._names_in_steps)
        )

    def _is_whole_around(self, text: str, cut: int) -> bool:
        """Whether neither a special token nor normalization crosses a safe cut."""
        if not _is_outside(text, cut, self._divided):
            return False
        if self._has_flags and (
            text[cut - 1] in WHITE_SPACE
            or text[:cut].endswith(self._must_not_end)
            or text.startswith(self._must_not_begin, cut)
        ):
            return False  # a part would find other tokens with flags than the whole text
        is_at_space = self._pattern.is_named
        return self._normalizer.may_cut(text[cut - 1], text[cut], is_at_space=is_at_space)

    def _find_checked(self, text: str) -> int | None:
        """A cut in text without white space: after a special token, or after a pre-token if the
        text before the cut is split in the same way without the text after it. Slow."""
        if self._has_flags:
            return None
        stream = MatchStream(self._matcher)
        *pairs, (plain, _) = stream.feed(text)
        end = len(text) - len(stream.held)
        if pairs:
            start = end - len(plain)
            return start if plain and _is_outside(text, start, self._names) else None
        after_other = "." + text  # a part may begin anywhere
        if self._normalizer.normalize(after_other) != after_other:
            return None
        pre_tokens, cut = split_settled(text[:end], self._pattern)
        return cut if cut and split(text[:cut], self._pattern) == pre_tokens else None


def _is_outside(text: str, cut: int, names: list[str]) -> bool:
    """Whether no occurrence of any of the names crosses a cut."""
    return not any(
        name in text[max(0, cut - len(name) + 1) : cut + len(name) - 1] for name in names
    )
