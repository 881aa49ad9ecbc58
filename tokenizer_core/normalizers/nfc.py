"""NFC."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tokenizer_core.normalizers.forms import normalize_nfc, pieces_of_form, settled_length
from tokenizer_core.normalizers.protocol import Normalizer

if TYPE_CHECKING:
    from tokenizer_core.normalizers.aligned import Aligned

NFC_MAKES: Final = frozenset("K;`")
"""The ASCII characters that NFC makes of others: of U+212A, U+037E and U+1FEF."""


@dataclass(frozen=True)
class Nfc(Normalizer):
    """NFC alone."""

    name: str = "nfc"

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """Alike in all parts."""
        return normalize_nfc(text)

    def align(self, text: str, *, is_first: bool = True, continues: bool = False) -> Aligned:
        """A token with half of a composed character covers all that was composed."""
        from tokenizer_core.normalizers.aligned import Aligned

        changed = normalize_nfc(text)
        return Aligned(text) if changed == text else Aligned.of(text, *pieces_of_form("NFC", text))

    def find_cut(self, text: str, *, continues: bool = True) -> int:
        """Before the last character that nothing joins to those before it."""
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
