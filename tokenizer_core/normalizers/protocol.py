"""Normalizer: changes a text before it is split.

Added tokens are cut out of a text first, and each part between them is normalized by itself. One
object decides all of it: the normalized part and where it came from, how much of a stream is
settled, where a document may be cut, and what decoding undoes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizer_core.normalizers.aligned import Aligned
    from tokenizer_core.normalizers.step import NormalizerStep


@dataclass(frozen=True)
class Normalizer:
    """The normalizer `none`, which changes nothing; the base of those in `nfc`, `spaces` and
    `steps`.

    - `name`: as fingerprints, manifests and reports have it.
    - `steps`: its steps, if `normalized` tokens are searched in the text that it makes.
    """

    name: str = "none"
    steps: tuple[NormalizerStep, ...] = ()

    def check(self) -> None:
        """Raise InvalidSpecError unless it can run."""

    def fields(self) -> list[dict[str, object]]:
        """What the name does not say: the fields of each step."""
        return []

    @property
    def is_of_characters(self) -> bool:
        """Whether it is one of SentencePiece, which writes a space as U+2581."""
        return self.name.startswith("metaspace")

    @property
    def strips_space(self) -> bool:
        """Whether decoding leaves out a space at the beginning, which encoding may have put
        there. `ByteLevel`, the rule `prefix-space`, does not take it away again."""
        return self.is_of_characters and self.name != "metaspace"

    @property
    def spaces_follow_tokens(self) -> bool:
        """Whether it is a pre-tokenizer that puts a space before the text after every token."""
        return self.name in ("prefix-space", "metaspace-always")

    def spell(self, content: str) -> str:
        """What an added token that is `normalized` is searched as, and decodes to."""
        return content

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """A part of a text between added tokens, normalized. `is_first`: the text begins with it.
        `continues`: it continues a part that was cut."""
        return text

    def align(self, text: str, *, is_first: bool = True, continues: bool = False) -> Aligned:
        """As `normalize`, with what each byte came from."""
        from tokenizer_core.normalizers.aligned import Aligned

        return Aligned(text)

    def find_cut(self, text: str, *, continues: bool = True) -> int:
        """The last index where a part that begins with `text` may be cut, whatever follows it; 0
        without one. At a cut, the two sides normalized separately join to the normalized part."""
        return len(text)

    @property
    def cuts_documents(self) -> bool:
        """Whether the two sides of some cut may be two texts."""
        return not self.strips_space

    def may_cut(self, before: str, after: str, *, is_at_space: bool) -> bool:
        """Whether a text may be cut between these two characters, if the split pattern allows it
        there. `is_at_space`: the pattern allows it only before white space, and not after marks."""
        return True
