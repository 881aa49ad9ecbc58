"""The `post_processor` of a `tokenizer.json`: the ids that it puts around a text.

The library encodes single texts alone. A spec keeps the whole stage of its source, so that a file
written from it gives pairs of texts the same ids and type ids.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.gpt2_files import check_id, render_token
from tokenizer_core.formats.tokenizer_json.fields import (
    check_byte_level,
    check_fields,
    kind_of,
    render_byte_level,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tokenizer_core.spec import TokenizerSpec

Ends = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids to insert before and after a single text."""

Pairs = Literal["each", "whole", "roberta"]
"""What has the tokens around it in a pair: each of the two texts, the whole pair, or, as RoBERTa
has it, each text with one more of the last token before the second (`<s> A </s></s> B </s>`)."""

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
    sides: list[list[int]] = [[]]
    for sequence, ids, _ in _pieces(table, "single", ("A",)):
        sides += [[]] if sequence else []
        sides[-1] += ids
    if len(sides) != 2:
        raise FormatError("tokenizer.json: post_processor.single must hold sequence A once")
    for _ in _pieces(table, "pair", ("A", "B")):
        pass
    return tuple(sides[0]), tuple(sides[1])


def _pieces(
    table: Mapping[str, Any], template: str, sequences: tuple[str, ...]
) -> Iterator[tuple[str, list[int], int]]:
    """Of each piece of a template the sequence, or "" and the ids of a token; and its type id."""
    if not isinstance(table["special_tokens"], dict):
        raise FormatError("tokenizer.json: post_processor.special_tokens is malformed")
    tokens = {
        name: _ids_of_template_token(token, name) for name, token in table["special_tokens"].items()
    }
    pieces = table[template]
    if not isinstance(pieces, list):
        raise FormatError(f"tokenizer.json: post_processor.{template} is no list")
    for piece in pieces:
        match piece:
            case {"Sequence": {"id": str(name), "type_id": type_id}} if name in sequences:
                sequence, ids = name, []
            case {"SpecialToken": {"id": str(name), "type_id": type_id}} if name in tokens:
                sequence, ids = "", tokens[name]
            case _:
                type_id = None
        # tokenizers loads no other piece.
        if type(type_id) is not int or not 0 <= type_id < 1 << 32 or len(piece) > 1:
            raise FormatError(f"tokenizer.json: post_processor.{template} holds {piece!r:.100}")
        yield sequence, ids, type_id


def _ids_of_template_token(value: object, name: str) -> list[int]:
    where = f"{_WHERE}.special_tokens[{name!r:.60}]"
    fields = ("id", "ids", "tokens")
    table = check_fields(value, where, {}, fields, fields)
    ids, tokens = table["ids"], table["tokens"]
    if not isinstance(ids, list) or not isinstance(tokens, list):
        raise FormatError(f"tokenizer.json: {where} has no lists of ids and tokens")
    for id_ in ids:
        check_id(id_, name)
    if not all(isinstance(text, str) for text in (table["id"], *tokens)):
        raise FormatError(f"tokenizer.json: {where} has a token that is no text")
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
    """The `post_processor` of the source of `spec`; without one, the `post_processor` that adds
    the prefix and suffix ids around each text. Raises as `check_post_processor`."""
    if spec.post_processor is not None:
        check_post_processor(spec)
        return dict(spec.post_processor)
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


def check_post_processor(spec: TokenizerSpec) -> None:
    """Raise FormatError: the `post_processor` of `spec` is malformed, or puts other ids around a
    text than the spec does."""
    if parse_post_processor(spec.post_processor) != (spec.prefix_ids, spec.suffix_ids):
        raise FormatError(
            "the spec's post_processor puts other ids around a text than its prefix_ids and "
            "suffix_ids; replace it too, by None for a template of these ids"
        )


def ids_of_post_processor(value: Mapping[str, Any]) -> set[int]:
    """All its ids, also those that only pairs of texts get."""
    found: set[int] = set()

    def note(id_: int) -> int:
        found.add(id_)
        return id_

    renumber_post_processor(value, note)
    return found


def renumber_post_processor(value: Mapping[str, Any], new_id: Callable[[int], int]) -> Any:
    """The same post-processor with the id that `new_id` gives for each."""
    table = dict(value)
    if "processors" in table:
        table["processors"] = [renumber_post_processor(s, new_id) for s in table["processors"]]
    for name in {"cls", "sep"} & table.keys():
        table[name] = [table[name][0], new_id(table[name][1])]
    if "special_tokens" in table:
        table["special_tokens"] = {
            name: {**token, "ids": [new_id(id_) for id_ in token["ids"]]}
            for name, token in table["special_tokens"].items()
        }
    return table


def template_steps(spec: TokenizerSpec) -> list[Mapping[str, Any]]:
    """The steps of the source's post-processor that have a template, for one text and for two."""
    value = spec.post_processor or {"processors": []}
    return [step for step in value.get("processors", [value]) if kind_of(step) != "ByteLevel"]


def show_pair(spec: TokenizerSpec) -> str:
    """A pair of texts as `tokenizers` encodes it with a file written from `spec`: the texts A and B
    and the ids around them, each with its type id.

    Example:
        >>> from tokenizer_core.spec import TokenizerSpec
        >>> vocab = {i: bytes([i]) for i in range(256)}
        >>> show_pair(TokenizerSpec.from_merges(vocab, [], ["<s>"], prefix_ids=(256,)))
        '256:0 A:0 256:1 B:1'
    """
    steps = template_steps(replace(spec, post_processor=render_post_processor(spec)))
    if not steps:
        return "A:0 B:1"
    pieces: list[tuple[Sequence[int | str], int]] = []
    for step in steps:
        if kind_of(step) == "TemplateProcessing":
            found = _pieces(step, "pair", ("A", "B"))
            pieces += [([name] if name else ids, type_id) for name, ids, type_id in found]
            continue
        (cls, sep), is_roberta = _PARSERS[step["type"]](step), step["type"] == "RobertaProcessing"
        before_b, type_b = (sep, 0) if is_roberta else ((), 1)
        pieces += [([*cls, "A", *sep], 0), ([*before_b, "B", *sep], type_b)]
    return " ".join(f"{part}:{type_id}" for parts, type_id in pieces for part in parts)


def has_type_ids(spec: TokenizerSpec) -> bool:
    """Whether `tokenizers` gives a token of a single text another type id than 0."""
    pieces = [piece for step in template_steps(spec) for piece in step.get("single", ())]
    return any(fields["type_id"] for piece in pieces for fields in piece.values())


def render_template(
    before: Sequence[str],
    after: Sequence[str],
    ids: Mapping[str, int],
    pairs: Pairs = "each",
) -> dict[str, object]:
    """A post-processor that puts these tokens before and after a text."""
    if pairs == "roberta":
        ends = {"sep": [after[0], ids[after[0]]], "cls": [before[0], ids[before[0]]]}
        no_offsets = {"trim_offsets": False, "add_prefix_space": False}
        return {"type": "RobertaProcessing", **ends, **no_offsets}

    def pieces(
        type_id: int, sequence: str, before: Sequence[str], after: Sequence[str]
    ) -> list[object]:
        def special(name: str) -> object:
            return {"SpecialToken": {"id": name, "type_id": type_id}}

        text = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*map(special, before), text, *map(special, after)]

    is_each = pairs == "each"
    first = pieces(0, "A", before, after if is_each else ())
    return {
        "type": "TemplateProcessing",
        "single": pieces(0, "A", before, after),
        "pair": first + pieces(1, "B", before if is_each else (), after),
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (*before, *after)
        },
    }
