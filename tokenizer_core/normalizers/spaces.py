"""Which spaces are put before a text: the rules of SentencePiece, and `add_prefix_space` of
byte-level BPE.

`steps` runs such a rule as a step `Prepend` where tokens are searched in the result. The compiled
twin is `native/src/normalize/spaces.rs`. `formats.transformers_releases` knows
which rule a class has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tokenizer_core.normalizers.protocol import Normalizer

if TYPE_CHECKING:
    from tokenizer_core.normalizers.aligned import Aligned

METASPACE_CHARACTER: Final = "\u2581"


def with_spaces(text: str) -> str:
    """`text` with U+2581 read as a space."""
    return text.replace(METASPACE_CHARACTER, " ")


@dataclass(frozen=True)
class Spaces(Normalizer):
    """Reads U+2581 as a space, and puts a space before a part.

    SentencePiece writes a space as U+2581; here the vocabulary's tokens hold the space itself. The
    rules: `metaspace` puts none, `metaspace-prepend` always one (Llama 2), `metaspace-always` one
    before a part without, `metaspace-first` the same for the first part alone (Mistral).
    `prefix-space` is `metaspace-always` for byte-level BPE, where U+2581 is no space.
    """

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """Puts no space before a text that continues a part."""
        if self.is_of_characters:
            text = with_spaces(text)
        if not text or continues or self.name == "metaspace":
            return text
        if self.name == "metaspace-prepend":
            return " " + text
        if text[0] == " " or (self.name == "metaspace-first" and not is_first):
            return text
        return " " + text

    def align(self, text: str, *, is_first: bool = True, continues: bool = False) -> Aligned:
        """The space before a part comes from the first character, as in Hugging Face."""
        import numpy as np

        from tokenizer_core.normalizers.aligned import Aligned, each_character

        changed = self.normalize(text, is_first=is_first, continues=continues)
        n_put = len(changed) - len(text)
        if changed.endswith(text):
            return Aligned(changed, n_put)
        spans = each_character(len(text))
        return Aligned.of(text, changed, np.concatenate([spans[:n_put], spans]))

    def may_cut(self, before: str, after: str, *, is_at_space: bool) -> bool:
        """No space is put before a part that begins with one."""
        return self.name != "prefix-space" or after == " "
