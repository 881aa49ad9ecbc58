"""DocumentCuts: finds offsets at which a long document can be cut and encoded part by part.

The ids of the parts, joined, are those of the document: no token and no special token crosses a
cut, and normalization changes no characters across it. A cut depends only on the characters around
it.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import PreTokenTooLongError
from tokenizer_core.normalizers.normalize import strips_space
from tokenizer_core.normalizers.steps import run_of
from tokenizer_core.spec import WHITE_SPACE
from tokenizer_core.specials.matcher import matcher_of
from tokenizer_core.splitting.pretokenize import find_last_safe_cut, split, split_settled
from tokenizer_core.text.streaming import MAX_PENDING_CHARS

if TYPE_CHECKING:
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.normalizers.steps import NormalizerRun
    from tokenizer_core.spec import TokenizerSpec

_WINDOW_CHARS: Final = 1 << 12
_FIRST_WINDOW_CHARS: Final = 1 << 7
"""Most text has a cut within this many characters."""
_TAIL_BYTES: Final = 1 << 14


class DocumentCuts:
    """Finds cuts in the documents that are encoded by one plan."""

    def __init__(
        self, plan: TokenFilesPlan, spec: TokenizerSpec | None = None, *, is_whole: bool = False
    ) -> None:
        """`spec`: that of the tokenizer of the plan, for one that has normalizer steps or added
        tokens with flags. With `is_whole` no document can be cut."""
        self._pattern = plan.tokenizer.pattern
        self._is_nfc = plan.tokenizer.normalizer == "nfc"
        # Each part would begin with what is put before a text.
        normalizer = plan.tokenizer.normalizer
        steps = spec.steps if spec else ()
        self._steps = run_of(steps) if steps else None
        self._is_whole = (
            is_whole
            or strips_space(normalizer)
            or bool(spec and steps and spec.has_flags)
            or any(step.kind == "Prepend" for step in steps)
            or (normalizer == "steps" and not steps)
        )
        # No space is put before a part that begins with one.
        self._needs_space = normalizer == "prefix-space"
        self._names = [*plan.recognised_special, *plan.forbidden_special]
        self._matcher = matcher_of(frozenset(self._names))
        self._divided = self._names
        if self._pattern.is_named:
            # A safe cut is before white space, so only these special tokens can contain one.
            self._divided = [name for name in self._names if any(map(str.isspace, name[1:]))]
        added_tokens = spec.added_tokens if spec else ()
        flagged = [t for t in added_tokens if t.flags and t.content in plan.recognised_special]
        self._has_flags = bool(flagged)
        # Neither the white space that a token includes nor what it looks at is in another part.
        self._must_not_end = tuple(t.content for t in flagged if t.rstrip or t.single_word)
        self._must_not_begin = tuple(t.content for t in flagged if t.single_word)
        near = [*self._divided, *self._must_not_end, *self._must_not_begin]
        self._longest = max(map(len, near), default=1)
        self._names_in_steps: list[str] = []
        if spec and self._steps:
            found = spec.normalized_tokens.intersection(self._names)
            self._names_in_steps = [self._steps.normalize(name) for name in found]
            self._longest = max(map(len, [*self._names, *self._names_in_steps]), default=1)

    def find_last(self, text: str) -> int | None:
        """The last offset, or one of the last, at which `text` can be cut; None if it has no cut.
        The document continues after `text`.

        Raises:
            PreTokenTooLongError: the text has no cut and is longer than `MAX_PENDING_CHARS`.
        """
        cut = None
        if self._steps and not self._is_whole:
            cut = self._find_between_steps(text, self._steps)
        elif not self._is_whole:
            cut = self._find_safe(text) or self._find_checked(text)
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
        cut = None if self._is_whole or self._steps else self._find_safe(tail)
        if self._steps and not self._is_whole:
            cut = self._find_between_steps(tail, self._steps)
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

    def _find_between_steps(self, text: str, steps: NormalizerRun) -> int | None:
        """A cut in the last characters of `text` that no step crosses, and that is safe in the
        normalized text around it."""
        n_near = 2 * self._longest + _FIRST_WINDOW_CHARS
        skipped = max(0, len(text) - _WINDOW_CHARS - 2 * n_near)
        text = text[skipped:]
        cut = steps.find_cut(text)
        while cut:
            start = steps.find_cut(text[: max(0, cut - n_near)])
            end = cut + steps.find_cut(text[cut : cut + n_near])
            if start >= self._longest and self._is_safe_between(text, start, cut, end, steps):
                return skipped + cut
            cut = steps.find_cut(text[:cut])
        return None

    def _is_safe_between(
        self, text: str, start: int, cut: int, end: int, steps: NormalizerRun
    ) -> bool:
        """Whether a cut of the normalizer is safe; `start` and `end` are such cuts around it."""
        # A special token would be normalized with the text around it.
        if self._matcher.find(text[start - self._longest : end]) is not None:
            return False
        before = steps.normalize(text[start:cut], is_first=False)
        after = steps.normalize(text[cut:end], is_first=False)
        at, joined = len(before), before + after
        return (
            after == steps.normalize(text[cut:end])  # a part is the first of its text
            and min(len(before), len(after)) >= self._longest
            and find_last_safe_cut(joined[: at + 1], self._pattern) == at
            and _is_outside(joined, at, self._names_in_steps)
        )

    def _is_whole_around(self, text: str, cut: int) -> bool:
        """Whether neither a special token nor normalization crosses a safe cut."""
        if not _is_outside(text, cut, self._divided):
            return False
        before, after = text[cut - 1], text[cut]
        if self._needs_space and after != " ":
            return False
        if self._has_flags and not self._is_between_flagged(text, cut):
            return False
        is_named = self._pattern.is_named
        if not self._is_nfc or (is_named and after == " "):
            return True
        # NFC must not change the character before the cut, nor join it with the one after it. Named
        # patterns make no safe cut after a mark, and only before white space.
        if not is_named and (not after.isascii() or unicodedata.category(before)[0] == "M"):
            return False
        is_jamo = "\u1161" <= before <= "\u11c2"
        return not is_jamo and unicodedata.is_normalized("NFC", before)

    def _is_between_flagged(self, text: str, cut: int) -> bool:
        """Whether each part of a text finds the tokens with flags that the whole text has."""
        return (
            text[cut - 1] not in WHITE_SPACE
            and not text[:cut].endswith(self._must_not_end)
            and not text.startswith(self._must_not_begin, cut)
        )

    def _find_checked(self, text: str) -> int | None:
        """A cut in text without white space: after a special token, or after a pre-token if the
        text before the cut is split in the same way without the text after it. Slow."""
        if self._has_flags or self._needs_space:
            return None
        pairs, start, end = self._matcher.split_settled(text)
        if pairs:
            return start if start < end and _is_outside(text, start, self._names) else None
        if self._is_nfc and not unicodedata.is_normalized("NFC", text):
            return None
        pre_tokens, cut = split_settled(text[:end], self._pattern)
        return cut if cut and split(text[:cut], self._pattern) == pre_tokens else None


def _is_outside(text: str, cut: int, names: list[str]) -> bool:
    """Whether no occurrence of any of the names crosses a cut."""
    return not any(
        name in text[max(0, cut - len(name) + 1) : cut + len(name) - 1] for name in names
    )
