"""The `normalizer` of a `tokenizer.json`: any steps, or those that write a space as U+2581."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from tokenizer_core.errors import FormatError, InvalidSpecError, UnknownPatternError
from tokenizer_core.formats.tokenizer_json.fields import check_fields, kind_of, steps_of
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import SCHEMES
from tokenizer_core.normalizers import Normalizer, normalizer_of
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER
from tokenizer_core.normalizers.step import NormalizerStep, StepKind, check_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizer_core.formats.tokenizer_json.pre_tokenizer import PreTokenizer
    from tokenizer_core.spec import TokenizerSpec

_NFC: Final = NormalizerStep("NFC")
_PREFIX_SPACE: Final = (
    NormalizerStep("Prepend", content=" "),
    NormalizerStep("Replace", r"\A  ", is_regex=True, content=" "),
)
"""`add_prefix_space` after the steps of a normalizer: a text that has a space there keeps one."""

_PREPEND: Final[dict[str, object]] = {"type": "Prepend", "prepend": METASPACE_CHARACTER}
SPACE_TO_META: Final[dict[str, object]] = {
    "type": "Replace",
    "pattern": {"String": " "},
    "content": METASPACE_CHARACTER,
}
# transformers 5 writes add_dummy_prefix of a tokenizer.model so: a space before every text, also
# before one that begins with a space.
_DOUBLE_FIRST: Final[dict[str, object]] = {
    "type": "Replace",
    "pattern": {"Regex": rf"\A{METASPACE_CHARACTER}"},
    "content": METASPACE_CHARACTER * 2,
}
_RULES: Final[tuple[tuple[list[dict[str, object]], Mapping[str, str]], ...]] = (
    ([_PREPEND, SPACE_TO_META], {"none": "metaspace-prepend"}),
    ([SPACE_TO_META], {"none": "metaspace", "idle": "metaspace", "never": "metaspace"}),
    ([SPACE_TO_META, _DOUBLE_FIRST], {"always": "metaspace-prepend"}),
    ([], SCHEMES),
)
"""The steps of a normalizer of characters, and what the pre-tokenizer after it does with spaces ->
what both do."""

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Replace": ("pattern", "content"),
        "Prepend": ("prepend",),
        "Strip": ("strip_left", "strip_right"),
    }
)


class ParsedNormalizer(NamedTuple):
    """The normalizer of a spec, and what it means for the search for added tokens.

    - `is_before_search`: `normalized` tokens are searched in what it makes. False where the
      pre-tokenizer changes the spaces: then `tokenizers` searches them in the text as given.
    - `excludes`: why no token may be `normalized`; empty if one may.
    """

    made: Normalizer
    is_before_search: bool = True
    excludes: str = ""


def parse_normalizer(value: object, pre_tokenizer: PreTokenizer) -> ParsedNormalizer:
    """What the normalizer does, and the pre-tokenizer before it splits. Raises FormatError: a step
    that cannot be read exactly (named); of characters, anything else than to write a space as
    U+2581, and to put one before a text."""
    if pre_tokenizer.spaces:
        return _parse_metaspace(steps_of(value, "normalizers"), pre_tokenizer.spaces)
    steps = _parse_steps(value)
    if pre_tokenizer.puts_space and steps:
        why = "pre_tokenizer.add_prefix_space is True beside a normalizer"
        return ParsedNormalizer(normalizer_of("steps", (*steps, *_PREFIX_SPACE)), excludes=why)
    if not steps:
        name = "prefix-space" if pre_tokenizer.puts_space else "none"
        return ParsedNormalizer(normalizer_of(name))
    is_nfc = steps == (_NFC,)
    return ParsedNormalizer(normalizer_of("nfc") if is_nfc else normalizer_of("steps", steps))


def _parse_metaspace(steps: list[object], spaces: str) -> ParsedNormalizer:
    for known, rules in _RULES:
        if steps == known and spaces in rules:
            why = "normalizer doubles the first U+2581" if _DOUBLE_FIRST in known else ""
            return ParsedNormalizer(normalizer_of(rules[spaces]), bool(steps), why)
    raise FormatError(
        "tokenizer.json: the normalizer and the pre-tokenizer of a vocabulary of characters must "
        "write spaces as U+2581, by Prepend and Replace or by Metaspace; others cannot be read "
        "exactly"
    )


def _parse_steps(value: object) -> tuple[NormalizerStep, ...]:
    steps: list[NormalizerStep] = []
    # A loop, not recursion: newer Pythons parse JSON deeper than their recursion limit.
    waiting = [] if value is None else [(value, "normalizer")]
    while waiting:
        step, where = waiting.pop()
        if kind_of(step) == "Sequence":
            table = check_fields(
                step, where, {"type": ("Sequence",)}, ("normalizers",), ("normalizers",)
            )
            listed = table["normalizers"]
            if not isinstance(listed, list):
                raise FormatError(f"tokenizer.json: {where}.normalizers is no list")
            # A path of any length would take quadratic time.
            named = [(one, f"{where:.200}.normalizers[{i}]") for i, one in enumerate(listed)]
            waiting += reversed(named)
        else:
            steps.append(_parse_step(step, where))
    try:
        check_steps(tuple(steps))
    except (InvalidSpecError, UnknownPatternError) as error:
        raise FormatError(f"tokenizer.json: normalizer: {error}") from None
    return tuple(steps)


def _parse_step(value: object, where: str) -> NormalizerStep:
    kind = kind_of(value)
    names = _FIELDS.get(kind, ()) if isinstance(kind, str) else ()
    table = check_fields(value, where, {"type": get_args(StepKind)}, names, ("type", *names))
    try:
        return NormalizerStep.from_fields(table)
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"tokenizer.json: {where}: {error}") from None


def render_normalizer(spec: TokenizerSpec) -> dict[str, object] | None:
    """The `normalizer` of a spec. Raises FormatError: SentencePiece rules that no file has."""
    name = spec.normalizer.name
    if name == "metaspace-steps":
        raise FormatError(
            "remove_extra_whitespaces of SentencePiece, and add_dummy_prefix beside user-defined "
            "pieces, are not written to a tokenizer.json; publish the tokenizer as an artifact"
        )
    steps = spec.normalizer.fields()
    if name == "nfc":
        steps = [_NFC.fields()]
    elif name == "metaspace-prepend":
        steps = [_PREPEND, SPACE_TO_META]
    elif name == "metaspace":
        steps = [SPACE_TO_META]
    if len(steps) > 1:
        return {"type": "Sequence", "normalizers": steps}
    return steps[0] if steps else None
