"""The `decoder` of a `tokenizer.json`: ByteLevel, or what reverts Metaspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tokenizer_json.fields import (
    check_byte_level,
    render_byte_level,
    steps_of,
)
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER

if TYPE_CHECKING:
    from tokenizer_core.normalizers import Normalizer
    from tokenizer_core.spec import TokenizerSpec

OF_CHARACTERS: Final[list[dict[str, object]]] = [
    {"type": "Replace", "pattern": {"String": METASPACE_CHARACTER}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP: Final[dict[str, object]] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def check_decoder(value: object, normalizer: Normalizer, *, by_characters: bool) -> None:
    """Refuse a decoder that does not revert what encoding with this normalizer did."""
    if by_characters:
        expected = _steps_after(normalizer)
        if steps_of(value, "decoders") != expected:
            raise FormatError(
                f"tokenizer.json: the decoder of this vocabulary must be the Sequence "
                f"{', '.join(str(step['type']) for step in expected)}; no other can be read exactly"
            )
    elif value is None:
        raise FormatError(
            "tokenizer.json: decoder is null, so that tokenizers joins tokens by spaces, in the "
            'byte alphabet; for their text write {"type": "ByteLevel"} there, and load the file'
        )
    else:
        check_byte_level(value, "decoder")


def render_decoder(spec: TokenizerSpec) -> dict[str, object]:
    """The `decoder` of a spec."""
    if spec.alphabet.has_characters:
        return {"type": "Sequence", "decoders": _steps_after(spec.normalizer)}
    return render_byte_level()


def _steps_after(normalizer: Normalizer) -> list[dict[str, object]]:
    return [*OF_CHARACTERS, STRIP] if normalizer.strips_space else OF_CHARACTERS
