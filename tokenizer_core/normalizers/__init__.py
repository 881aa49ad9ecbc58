"""Normalizers, which change a text before it is split; `protocol` describes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.normalizers.nfc import Nfc, is_found_alike
from tokenizer_core.normalizers.protocol import Normalizer
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER, Spaces
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.normalizers.steps import NFC_ALONE, OF_STEPS, Steps, step_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenizer_core.spec import AddedToken

__all__ = ["META_TO_SPACE", "PREPEND", "Normalizer", "Steps", "normalizer_for", "normalizer_of"]

META_TO_SPACE: Final = NormalizerStep("Replace", pattern=METASPACE_CHARACTER, content=" ")
PREPEND: Final = NormalizerStep("Prepend", content=" ")

_OF_SPACES: Final = tuple(f"metaspace{rule}" for rule in ("", "-prepend", "-first", "-always"))
_NAMES: Final = ("none", "nfc", *OF_STEPS, *_OF_SPACES, "prefix-space")


def normalizer_of(name: str, steps: tuple[NormalizerStep, ...] = ()) -> Normalizer:
    """The normalizer with this name. Raises InvalidSpecError: an unknown name, or steps that are
    missing or that this one does not take."""
    if name not in _NAMES:
        raise InvalidSpecError(f"unknown normalizer {name!r:.40}: one of {', '.join(_NAMES)}")
    if (name in OF_STEPS) != bool(steps):
        raise step_error(name, len(steps))
    if steps:
        return Steps(name, steps)
    return Normalizer() if name == "none" else Nfc() if name == "nfc" else Spaces(name)


def normalizer_for(normalizer: Normalizer | str, added: Iterable[AddedToken]) -> Normalizer:
    """The normalizer (or its name) as it runs in a spec with these added tokens.

    It has steps if `normalized` tokens must be searched in the normalized text. If it can neither
    make nor change such a token, searching the text as given finds the same tokens, faster.
    """
    if isinstance(normalizer, str):
        normalizer = normalizer_of(normalizer)
    name = normalizer.name
    if name in OF_STEPS:
        return normalizer
    searched = [token for token in added if token.normalized]
    if name == "nfc" and any(t.single_word or not is_found_alike(t.content) for t in searched):
        return Steps(name, NFC_ALONE)
    if name == "metaspace-prepend" and searched:
        return Steps(name, (META_TO_SPACE, PREPEND))
    if name == "metaspace" and any({" ", METASPACE_CHARACTER} & {*t.content} for t in searched):
        return Steps(name, (META_TO_SPACE,))
    return normalizer_of(name)
