"""DocumentCuts: where a long document may be cut so that its parts are encoded one by one.

The ids of the parts, joined, are those of the document: no token and no special token lies across
a cut, and normalizing changes nothing across it. A cut depends on the characters around it only. It
stands alone because of that promise.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import PreTokenTooLongError
from tokenizer_core.pretokenize import find_last_safe_cut, split, split_settled
from tokenizer_core.special_tokens import matcher_of
from tokenizer_core.streaming import MAX_PENDING_CHARS

if TYPE_CHECKING:
    from tokenizer_core.corpus.token_plan import TokenFilesPlan

_WINDOW_CHARS: Final = 1 << 12
_FIRST_WINDOW_CHARS: Final = 1 << 7
"""Most text has a cut in so much."""
_TAIL_BYTES: Final = 1 << 14


class DocumentCuts:
    """Finds cuts in the documents that are encoded by one plan.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> from tokenizer_core.corpus import plan_token_files
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
        >>> cuts = DocumentCuts(plan_token_files(tokenizer))
        >>> text = "some words and mor"
        >>> text[:cuts.find_last(text)]
        'some words and'
    """

    def __init__(self, plan: TokenFilesPlan) -> None:
        self._pattern = plan.tokenizer.pattern
        self._is_nfc = plan.tokenizer.normalizer == "nfc"
        self._names = [*plan.recognised_special, *plan.forbidden_special]
        self._matcher = matcher_of(frozenset(self._names))
        # Safe cuts are before white space: in no other special token can one be.
        self._divided = [name for name in self._names if any(map(str.isspace, name[1:]))]
        self._longest = max(map(len, self._divided), default=1)

    def find_last(self, text: str) -> int | None:
        """The last place, or one of the last, where `text`, which will go on, may be cut; None
        where there is none.

        Raises:
            PreTokenTooLongError: there is none, and the text is longer than anything is held.
        """
        cut = self._find_safe(text) or self._find_checked(text)
        if cut is None and len(text) > MAX_PENDING_CHARS:
            why = (
                "break such text with white space"
                if self._pattern.is_named
                else "with a split pattern of your own no place is sure, so make documents shorter"
            )
            raise PreTokenTooLongError(
                f"a document has no place to be cut in {MAX_PENDING_CHARS} characters, and no more "
                f"are held at once; {why}"
            )
        return cut

    def find_last_in_utf8(self, text: bytes) -> int | None:
        """As `find_last`, in bytes, of a text in UTF-8: most often only its end is decoded.

        Raises:
            UnicodeDecodeError: what is looked at is not UTF-8.
            PreTokenTooLongError: as `find_last`.
        """
        start = max(0, len(text) - _TAIL_BYTES)
        while start < len(text) and text[start] & 0xC0 == 0x80:
            start += 1
        tail = text[start:].decode()
        cut = self._find_safe(tail)
        # Nearer to its beginning a special token might reach across it unseen.
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
                end = start + 1  # the character before a cut must be seen with it
            elif self._is_whole_around(text, start + found):
                return start + found
            else:
                end = start + found
        return None

    def _is_whole_around(self, text: str, cut: int) -> bool:
        """Whether neither a special token nor normalizing reaches across a safe cut."""
        if not _is_outside(text, cut, self._divided):
            return False
        if not self._is_nfc or text[cut] == " ":
            return True
        # A letter that stays the letter it is: marks are other classes to a split pattern.
        before = text[cut - 1]
        is_jamo = "\u1161" <= before <= "\u11c2"
        return not is_jamo and unicodedata.is_normalized("NFC", before)

    def _find_checked(self, text: str) -> int | None:
        """A cut in text without white space: behind a special token, or where a pre-token ends, if
        what stands before it is split the same without what stands behind. Slow."""
        pairs, start, end = self._matcher.split_settled(text)
        if pairs:
            return start if start < end and _is_outside(text, start, self._names) else None
        if self._is_nfc and not unicodedata.is_normalized("NFC", text):
            return None
        pre_tokens, cut = split_settled(text[:end], self._pattern)
        return cut if cut and split(text[:cut], self._pattern) == pre_tokens else None


def _is_outside(text: str, cut: int, names: list[str]) -> bool:
    """Whether no occurrence of one of the names reaches across a cut."""
    return not any(
        name in text[max(0, cut - len(name) + 1) : cut + len(name) - 1] for name in names
    )
