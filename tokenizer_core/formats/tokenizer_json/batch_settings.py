"""The `truncation` and `padding` that a `tokenizer.json` saves: how to cut texts and fill batches
for a model. This library does neither. A spec keeps them, so that a file written from it has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import FormatError

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
    FormatError: a field of them is missing, unknown or malformed; tokenizers would not load it.

    Example:
        >>> parse_batch_settings({"truncation": None, "model": {}})
        {}
    """
    found: dict[str, Any] = {}
    for name, fields in _FIELDS.items():
        value = root.get(name)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise FormatError(f"tokenizer.json: {name} is no object; write null to have none")
        for key in [key for key in value if key not in fields]:
            raise FormatError(f"tokenizer.json: the field {name}.{ascii(key)[1:-1]:.60} is unknown")
        for key, is_sound in fields.items():
            if key not in value:
                if f"{key} of {name}" in _OPTIONAL:
                    continue
                raise FormatError(f"tokenizer.json: the field {name}.{key} is missing")
            if not is_sound(value[key]):
                raise FormatError(
                    f"tokenizer.json: {name}.{key} is {value[key]!r:.60}, which tokenizers does "
                    f"not load; write {name} as null to have none"
                )
        found[name] = value
    return found
