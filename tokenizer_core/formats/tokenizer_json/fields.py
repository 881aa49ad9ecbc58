"""What the stages of a `tokenizer.json` share: the check of an object's fields, and ByteLevel,
which is a pre-tokenizer, a post-processor and a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizer_core.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizer_core.engines.protocol import PackedModel

    Entries = dict[str, int] | PackedModel
    """Of the `vocab` of a model: text -> id."""


def check_fields(
    table: object,
    where: str,
    fixed: Mapping[str, tuple[object, ...]],
    free: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
) -> dict[str, object]:
    """Return `table` if it is an object with all `required` fields, whose `fixed` fields have one
    of the given values and whose other fields are in `free`; else a FormatError names the field."""
    if not isinstance(table, dict):
        raise FormatError(f"tokenizer.json: {where} is no object")
    for key, value in table.items():
        if key in free:
            continue
        if key not in fixed:
            shown = ascii(key)[1:-1]  # escapes line breaks, which would break the log
            raise FormatError(f"tokenizer.json: the field {where}.{shown:.60} is not known here")
        # Compare the type too: True == 1 in Python, but not in JSON.
        if not any(type(value) is type(known) and value == known for known in fixed[key]):
            known = " or ".join(repr(known) for known in fixed[key])
            raise FormatError(
                f"tokenizer.json: {where}.{key} is {value!r:.120}; only {known} can be read exactly"
            )
    for key in required:
        if key not in table:
            raise FormatError(f"tokenizer.json: the field {where}.{key} is missing")
    return table


def kind_of(value: object) -> object:
    """The `type` of a step; None for what is no object."""
    return value.get("type") if isinstance(value, dict) else None


def steps_of(value: object, field: str) -> list[object]:
    """The steps of a Sequence in its `field`, or of a single step; none for null."""
    if value is None:
        return []
    if isinstance(value, dict) and value.keys() == {"type", field} and kind_of(value) == "Sequence":
        return value[field] if isinstance(value[field], list) else [value]
    return [value]


def check_byte_level(
    table: object, where: str, *required: str, **fixed: tuple[object, ...]
) -> dict[str, object]:
    """Check a ByteLevel object, whose `fixed` fields have one of the given values."""
    either = dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), (True, False))
    known = {"type": ("ByteLevel",), **either, **fixed}
    return check_fields(table, where, known, required=("type", *required))


def render_byte_level(*, use_regex: bool = True) -> dict[str, object]:
    """A ByteLevel object without a prefix space."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": use_regex,
    }
