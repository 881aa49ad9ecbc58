"""NFC, and the changes that it makes in a text."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tokenizer_core.normalizers.aligned import Aligned
from tokenizer_core.normalizers.forms import normalize_nfc, pieces_of_form, settled_length
from tokenizer_core.normalizers.protocol import Normalizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NFC_MAKES: Final = frozenset("K;`")
"""The ASCII characters that NFC makes of others: of U+212A, U+037E and U+1FEF."""

NfcChange = tuple[int, int, str]
"""Start and end of a part of a text, in characters, and the part in NFC."""


@dataclass(frozen=True)
class Nfc(Normalizer):
    """NFC alone."""

    name: str = "nfc"

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """Alike in all parts."""
        del is_first, continues
        return normalize_nfc(text)

    def align(self, text: str, *, is_first: bool = True, continues: bool = False) -> Aligned:
        """A token with half of a composed character covers all that was composed."""
        del is_first, continues
        changed = normalize_nfc(text)
        return Aligned(text) if changed == text else Aligned.of(text, *pieces_of_form("NFC", text))

    def find_cut(self, text: str, *, continues: bool = True) -> int:
        """Before the last character that nothing joins to those before it."""
        del continues
        return settled_length(text)

    def may_cut(self, before: str, after: str, *, is_at_space: bool) -> bool:
        """NFC must not change the character before the cut, nor join it with the one after it."""
        if is_at_space and after == " ":
            return True
        if not is_at_space and (not after.isascii() or unicodedata.category(before)[0] == "M"):
            return False
        is_jamo = "\u1161" <= before <= "\u11c2"
        return not is_jamo and unicodedata.is_normalized("NFC", before)


def is_found_alike(content: str) -> bool:
    """Whether a token is found at the same positions in a text and in the text's NFC.

    NFC changes an ASCII character only by composing it with marks after it, which have to follow
    the token's last character: a letter, or `<`, `=`, `>`. It makes those of `NFC_MAKES`. It joins
    marks, which are word characters, to symbols, which are none: not for `single_word`.
    """
    last = content[-1:]
    return (
        content.isascii()
        and not (last.isalpha() or last in "<=>")
        and NFC_MAKES.isdisjoint(content)
    )


def changes_by_nfc(text: str, runs: Iterable[tuple[int, int]] | None = None) -> list[NfcChange]:
    """The changes that `normalize_nfc` makes in `text`. `runs` lists the only characters that NFC
    may change; then the result has one change per changed run, including the character before it.
    Without `runs`, the result is one change of the whole text.
    """
    changes = []
    for start, end in [(0, len(text))] if runs is None else runs:
        start = max(start - 1, 0)
        part = text[start:end]
        normalized = normalize_nfc(part)
        if normalized != part:
            changes.append((start, end, normalized))
    return changes


def changed(text: str, changes: Iterable[NfcChange]) -> str:
    """Apply these changes, which must be in order, to `text`."""
    parts, end = [], 0
    for start, next_end, normalized in changes:
        parts += [text[end:start], normalized]
        end = next_end
    return "".join([*parts, text[end:]]) if parts else text


def touch_any(
    text: str, changes: list[NfcChange], find: Callable[[str], str | None], longest: int
) -> bool:
    """Whether the changes may create or remove one of the strings that `find` finds; the longest of
    these strings has `longest` characters."""
    index = 0
    while longest and index < len(changes):
        first = index
        while index + 1 < len(changes) and changes[index + 1][0] - changes[index][1] < longest:
            index += 1
        start, end = max(0, changes[first][0] - longest), changes[index][1] + longest
        part = text[start:end]
        near = [(s - start, e - start, new) for s, e, new in changes[first : index + 1]]
        if find(part) or find(changed(part, near)):
            return True
        index += 1
    return False
