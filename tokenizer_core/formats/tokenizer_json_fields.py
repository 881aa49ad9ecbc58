"""Reading the objects of a `tokenizer.json` field by field, so that none goes unread.

Each part of the file (model, pre_tokenizer, post_processor, added tokens) is checked the same way:
a field that is not known, or has a value whose effect on ids is not supported, is an error that
names it.
"""

from __future__ import annotations

from tokenizer_core.errors import FormatError


def check_fields(
    table: object,
    where: str,
    fixed: dict[str, tuple[object, ...]],
    free: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
) -> dict[str, object]:
    """`table`, if it is an object whose `fixed` fields have one of the values given, whose others
    are all in `free`, and which has all of `required`; else a FormatError that names the field."""
    if not isinstance(table, dict):
        raise FormatError(f"tokenizer.json: {where} is no object")
    for key, value in table.items():
        if key in free:
            continue
        if key not in fixed:
            shown = ascii(key)[1:-1]  # a line break in it would be one in the log
            raise FormatError(f"tokenizer.json: the field {where}.{shown:.60} is not known here")
        # By type as well: True == 1 in Python, not in JSON.
        if not any(type(value) is type(known) and value == known for known in fixed[key]):
            known = " or ".join(repr(known) for known in fixed[key])
            raise FormatError(
                f"tokenizer.json: {where}.{key} is {value!r:.120}; only {known} can be read exactly"
            )
    for key in required:
        if key not in table:
            raise FormatError(f"tokenizer.json: the field {where}.{key} is missing")
    return table


def check_byte_level(table: object, where: str, **fixed: tuple[object, ...]) -> dict[str, object]:
    """A ByteLevel object, with the values allowed for some of its fields."""
    either: dict[str, tuple[object, ...]] = dict.fromkeys(
        ("add_prefix_space", "trim_offsets", "use_regex"), (True, False)
    )
    return check_fields(
        table, where, {"type": ("ByteLevel",), **either, **fixed}, required=("type",)
    )


def render_byte_level(*, use_regex: bool = True) -> dict[str, object]:
    """A ByteLevel object that adds no prefix space."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": use_regex,
    }
