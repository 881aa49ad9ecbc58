"""The `truncation` and `padding` that a `tokenizer.json` saves: how to cut texts and fill batches
for a model. This library does neither. A spec keeps them, so that a file written from it has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tokenizer_json.fields import check_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_PAD_TOKEN_CHARS: Final = 1024


def _is_within(limit: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and 0 <= value <= limit


def _is_one_of(*known: object) -> Callable[[object], bool]:
    return lambda value: value in known


def _is_filling_strategy(value: object) -> bool:
    is_fixed = isinstance(value, dict) and value.keys() == {"Fixed"} and _is_size(value["Fixed"])
    return value == "BatchLongest" or is_fixed


_is_size, _is_id = _is_within((1 << 64) - 1), _is_within((1 << 32) - 1)
_is_direction = _is_one_of("Left", "Right")
_FIELDS: Final[Mapping[str, Mapping[str, Callable[[object], bool]]]] = {
    "truncation": {
        "direction": _is_direction,
        "max_length": _is_size,
        "strategy": _is_one_of("LongestFirst", "OnlyFirst", "OnlySecond"),
        "stride": _is_size,
    },
    "padding": {
        "strategy": _is_filling_strategy,
        "direction": _is_direction,
        "pad_to_multiple_of": lambda value: value is None or _is_size(value),
        "pad_id": _is_id,
        "pad_type_id": _is_id,
        "pad_token": lambda value: isinstance(value, str) and len(value) <= _MAX_PAD_TOKEN_CHARS,
    },
}
_OPTIONAL: Final = ("direction of truncation", "pad_to_multiple_of of padding")


def parse_batch_settings(root: Mapping[str, Any]) -> dict[str, Any]:
    """The `truncation` and `padding` of `root`, without those that are null or absent. Raises
    FormatError: a field of them is missing, unknown or malformed; tokenizers would not load it."""
    found: dict[str, Any] = {}
    for name, fields in _FIELDS.items():
        value = root.get(name)
        if value is None:
            continue
        required = tuple(key for key in fields if f"{key} of {name}" not in _OPTIONAL)
        for key, given in check_fields(value, name, {}, tuple(fields), required).items():
            if not fields[key](given):
                raise FormatError(
                    f"tokenizer.json: {name}.{key} is {given!r:.60}, which tokenizers does not "
                    f"load; write {name} as null to have none"
                )
        found[name] = value
    return found
