"""What merging starts from, where that is not the 256 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.splitting.patterns import metaspace_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokenizer_core.spec import Merge
    from tokenizer_core.splitting.patterns import SplitPattern

NEVER_IN_UTF8: Final = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))
"""The bytes that no UTF-8 text has. A vocabulary may lack them (GPT-NeoX, OLMo)."""


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are complete characters."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class MissingBytes:
    """The bytes of UTF-8 that a vocabulary lacks, and what merging makes of them (SmolLM).

    - `values`: the bytes, ascending.
    - `unk_id`: the id that each of them gives, which no merge joins. With None, merging leaves
      them out, so that the bytes around them may merge.
    - `is_fused`: several in a row give one `unk_id`.
    - `ends`: bytes after which a byte that is left out still separates what is around it (Falcon).
    """

    values: tuple[int, ...]
    unk_id: int | None = None
    is_fused: bool = False
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Alphabet:
    """What merging starts from. By default, these are the 256 bytes.

    - `byte_ids`: the ids of the 256 bytes in a vocabulary that merges characters (SentencePiece's,
      with byte fallback); empty where merging starts from bytes. A character that is a token
      starts as that token, any other as the tokens of its bytes, which never merge. -1 stands for
      a byte that no fallback needs: only its character has a token (Gemma's tab), or UTF-8 never
      has it.
    - `missing`: the bytes of UTF-8 without a token. With None, there are none.
    - `word_suffix`: what the tokens at the end of a pre-token have after their bytes (CLIP's
      `</w>`). Merging starts with the last byte of a pre-token as such a token.
    - `idle_ids`: the ids, ascending, of entries that encoding never gives, also where merges make
      their bytes: a `tokenizer.json` spells them outside the alphabet of bytes (Cohere's emoji).
    """

    byte_ids: tuple[int, ...] = ()
    missing: MissingBytes | None = None
    word_suffix: bytes = b""
    idle_ids: tuple[int, ...] = ()

    @property
    def has_characters(self) -> bool:
        """Whether merging starts from characters."""
        return bool(self.byte_ids)

    @property
    def unk_id(self) -> int | None:
        """The id that missing bytes give; None if none are missing, or they are left out."""
        return self.missing.unk_id if self.missing else None

    def has_one_id_each(self, vocab: Mapping[int, bytes]) -> bool:
        """Whether no two tokens have the same bytes. The token of a byte and that of its character
        are two: merging gives the second."""
        own = vocab.keys() & set(self.byte_ids)
        tokens = vocab if not own else {id_: vocab[id_] for id_ in vocab.keys() - own}
        return len(set(tokens.values())) == len(tokens)

    def bytes_in_text(self, token: bytes) -> bytes:
        """The bytes of a text that a token stands for: without the `word_suffix`."""
        return (self.word_suffix and token.removesuffix(self.word_suffix)) or token


def pattern_of_characters(merges: Iterable[Merge]) -> SplitPattern:
    """Where the texts of a vocabulary of characters may be cut: before a space, where no merge
    joins a token that ends with the character before it to one that begins with a space.

    Every merge across such a cut would join two such tokens, so both sides merge separately.

    Example:
        >>> pattern = pattern_of_characters([(b"a", b" b"), (b"a", b"b")])
        >>> pattern.compile().findall("a b c a d")
        ['a b', ' c', ' a d']
    """
    # A file has hundreds of thousands of merges, and an index makes no object, as a slice does.
    space = ord(" ")
    before = {left for left, right in merges if right and right[0] == space and left[-1:] != b" "}
    try:
        return metaspace_pattern({left.decode()[-1] for left in before})
    except UnicodeDecodeError:
        raise InvalidSpecError(
            "a merge of a vocabulary of characters joins a part of a character to a space"
        ) from None
