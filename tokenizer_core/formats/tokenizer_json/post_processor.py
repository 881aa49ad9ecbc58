"""The `post_processor` of a `tokenizer.json`: the ids that it puts around a text.

Only the template for a single text matters; the library has no pairs of texts.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.gpt2_files import check_id, render_token
from tokenizer_core.formats.tokenizer_json.fields import (
    check_byte_level,
    check_fields,
    kind_of,
    render_byte_level,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokenizer_core.spec import TokenizerSpec

Ends = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids to insert before and after a single text."""

_WHERE: Final = "post_processor"
_EITHER: Final = (True, False)


def parse_post_processor(value: object) -> Ends:
    """The ids to insert before and after a single text. Raises FormatError: a post-processor other
    than ByteLevel, TemplateProcessing, RobertaProcessing and BertProcessing (named)."""
    if value is None:
        return (), ()
    kind = kind_of(value)
    if isinstance(kind, str) and kind in _PARSERS:
        return _PARSERS[kind](value)
    table = check_fields(
        value, _WHERE, {"type": ("Sequence",)}, ("processors",), ("type", "processors")
    )
    steps = table["processors"]
    if not isinstance(steps, list):
        raise FormatError("tokenizer.json: post_processor.processors is no list")
    if any(kind_of(step) == "Sequence" for step in steps):
        raise FormatError("tokenizer.json: post_processor nests one Sequence in another")
    found = [ids for step in steps if any(ids := parse_post_processor(step))]
    if len(found) > 1:
        raise FormatError(
            "tokenizer.json: post_processor has more than one step that adds tokens; only one can "
            "be read exactly"
        )
    return found[0] if found else ((), ())


def _parse_byte_level(value: object) -> Ends:
    check_byte_level(value, _WHERE)  # trims offsets, changes no id
    return (), ()


def _parse_bert(value: object, **others: tuple[object, ...]) -> Ends:
    """The ids of `cls`, before a text, and of `sep`, after it."""
    fixed = {"type": ("BertProcessing", "RobertaProcessing"), **others}
    table = check_fields(value, _WHERE, fixed, ("cls", "sep"), ("cls", "sep", *fixed))
    ids: list[tuple[int, ...]] = []
    for name in ("cls", "sep"):
        match table[name]:
            case [str(content), id_]:
                check_id(id_, content)
                ids.append((cast("int", id_),))
            case other:
                raise FormatError(
                    f"tokenizer.json: {_WHERE}.{name} is {other!a:.60}, not a token and its id"
                )
    return ids[0], ids[1]


def _parse_roberta(value: object) -> Ends:
    return _parse_bert(value, trim_offsets=_EITHER, add_prefix_space=_EITHER)  # of offsets alone


def _parse_template(value: object) -> Ends:
    fields = ("single", "pair", "special_tokens")
    # Cohere's files have the fields of a ByteLevel here, which tokenizers does not read.
    idle = dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), _EITHER)
    fixed = {"type": ("TemplateProcessing",), **idle}
    table = check_fields(value, _WHERE, fixed, fields, fields)
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


_PARSERS: Final[Mapping[str, Callable[[object], Ends]]] = MappingProxyType(
    {
        "ByteLevel": _parse_byte_level,
        "TemplateProcessing": _parse_template,
        "RobertaProcessing": _parse_roberta,
        "BertProcessing": _parse_bert,
    }
)


def render_post_processor(spec: TokenizerSpec) -> dict[str, object] | None:
    """The `post_processor` that adds the prefix and suffix ids of `spec` around a text."""
    byte_level = None if spec.alphabet.has_characters else render_byte_level()
    if not spec.prefix_ids and not spec.suffix_ids:
        return byte_level
    names = {id_: render_token(spec.vocab[id_]) for id_ in (*spec.prefix_ids, *spec.suffix_ids)}
    names.update(
        {token.id: token.content for token in reversed(spec.added_tokens) if token.id in names}
    )
    before, after = ([names[id_] for id_ in ids] for ids in (spec.prefix_ids, spec.suffix_ids))
    template = render_template(before, after, {name: id_ for id_, name in names.items()})
    if byte_level is None:
        return template
    return {"type": "Sequence", "processors": [byte_level, template]}


def render_template(
    before: Sequence[str], after: Sequence[str], ids: Mapping[str, int]
) -> dict[str, object]:
    """A TemplateProcessing that puts these tokens before and after a text."""

    def single(sequence: str, type_id: int) -> list[object]:
        def special(name: str) -> object:
            return {"SpecialToken": {"id": name, "type_id": type_id}}

        text = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*map(special, before), text, *map(special, after)]

    return {
        "type": "TemplateProcessing",
        "single": single("A", 0),
        "pair": single("A", 0) + single("B", 1),
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (*before, *after)
        },
    }
