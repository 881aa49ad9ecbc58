"""The `post_processor` of a `tokenizer.json`: the ids put around a text (Llama 3 prepends one).

It stands apart because the template language is a small format of its own. Only the template for
one text matters; we have no pairs of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.gpt2_files import check_id, render_token
from tokenizer_core.formats.tokenizer_json_fields import (
    check_byte_level,
    check_fields,
    render_byte_level,
)

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec


def parse_post_processor(value: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids put before and after a single text.

    Raises:
        FormatError: a post-processor other than ByteLevel and TemplateProcessing, by name.

    Example:
        >>> parse_post_processor({"type": "ByteLevel", "trim_offsets": False})
        ((), ())
    """
    where = "post_processor"
    if value is None:
        return (), ()
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "ByteLevel":  # trims offsets, touches no id
        check_byte_level(value, where)
        return (), ()
    if kind == "TemplateProcessing":
        return _parse_template(value)
    table = check_fields(
        value, where, {"type": ("Sequence",)}, ("processors",), ("type", "processors")
    )
    steps = table["processors"]
    if not isinstance(steps, list):
        raise FormatError("tokenizer.json: post_processor.processors is no list")
    if any(isinstance(step, dict) and step.get("type") == "Sequence" for step in steps):
        raise FormatError("tokenizer.json: post_processor nests one Sequence in another")
    found = [ids for step in steps if any(ids := parse_post_processor(step))]
    if len(found) > 1:
        raise FormatError("tokenizer.json: post_processor has more than one TemplateProcessing")
    return found[0] if found else ((), ())


def _parse_template(value: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    where = "post_processor"
    fields = ("single", "pair", "special_tokens")
    table = check_fields(value, where, {"type": ("TemplateProcessing",)}, fields, fields)
    single, tokens = table["single"], table["special_tokens"]
    if not isinstance(single, list) or not isinstance(tokens, dict):
        raise FormatError("tokenizer.json: post_processor.single or .special_tokens is malformed")
    sides: list[list[int]] = [[]]
    for piece in single:
        match piece:
            case {"Sequence": {"id": "A"}}:
                sides.append([])
            case {"SpecialToken": {"id": str(name)}} if name in tokens:
                sides[-1] += _ids_of_template_token(tokens[name], name)
            case _:
                raise FormatError(f"tokenizer.json: post_processor.single holds {piece!r:.100}")
    if len(sides) != 2:
        raise FormatError("tokenizer.json: post_processor.single must hold sequence A once")
    return tuple(sides[0]), tuple(sides[1])


def _ids_of_template_token(value: object, name: str) -> list[int]:
    ids = value.get("ids") if isinstance(value, dict) else None
    if not isinstance(ids, list):
        raise FormatError(f"tokenizer.json: post_processor.special_tokens[{name!r:.60}] has no ids")
    for id_ in ids:
        check_id(id_, name)
    return ids


def render_post_processor(spec: TokenizerSpec) -> dict[str, object]:
    """The `post_processor` that puts the prefix and suffix ids of `spec` around a text."""
    byte_level = render_byte_level()
    if not spec.prefix_ids and not spec.suffix_ids:
        return byte_level
    names = {id_: render_token(spec.vocab[id_]) for id_ in (*spec.prefix_ids, *spec.suffix_ids)}
    names.update({token.id: token.content for token in spec.added_tokens if token.id in names})

    def single(sequence: str, type_id: int) -> list[object]:
        def special(id_: int) -> object:
            return {"SpecialToken": {"id": names[id_], "type_id": type_id}}

        return [
            *map(special, spec.prefix_ids),
            {"Sequence": {"id": sequence, "type_id": type_id}},
            *map(special, spec.suffix_ids),
        ]

    template = {
        "type": "TemplateProcessing",
        "single": single("A", 0),
        "pair": single("A", 0) + single("B", 1),
        "special_tokens": {
            name: {"id": name, "ids": [id_], "tokens": [name]} for id_, name in names.items()
        },
    }
    return {"type": "Sequence", "processors": [byte_level, template]}
