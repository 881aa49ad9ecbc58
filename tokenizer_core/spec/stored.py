"""A spec without its vocabulary and merges as JSON: in the manifest of a published version, and in
a compiled file. Fields are written and read by their types, so a new field needs no line here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.strict_json import parse_record, types_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizer_core.spec import Merge

_APART: Final = ("vocab", "merges", "chat", "normalizer")
_NAMES: Final = tuple(each.name for each in fields(TokenizerSpec) if each.name not in _APART)
_ALWAYS: Final = frozenset(
    (
        *("kind", "pattern", "added_tokens", "ignore_merges", "prefix_ids", "suffix_ids"),
        "unicode_tables",
    )
)
"""The fields that are written even with their default."""
_DERIVED: Final = {
    "fingerprint": str,
    "largest_id": int,
    "vocab_size": int,
    "empty_ids": tuple[int, ...],
    "reachable_added_ids": tuple[int, ...],
}
"""What follows from the vocabulary and the merges and is small, by type: with it, a text is encoded
without either."""


def render_fields(spec: TokenizerSpec) -> dict[str, Any]:
    """All of `spec` but its vocabulary, merges and chat templates. Fields with their default are
    left out, so that a new one changes no older file."""
    steps = spec.normalizer.fields()
    values = {name: getattr(spec, name) for name in _NAMES}
    return {
        **{
            name: _plain(value)
            for name, value in values.items()
            if name in _ALWAYS or (value and value != getattr(TokenizerSpec, name, None))
        },
        "normalizer": spec.normalizer.name,
        **({"normalizer_steps": steps} if steps else {}),
    }


def parse_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of TokenizerSpec in `render_fields`; other fields are ignored. The pattern may
    not be that of its name, and nothing is compared with the vocabulary.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: a field is missing or malformed.
        InvalidSpecError: an unknown normalizer.
    """
    types = types_of(TokenizerSpec)
    names = [name for name in _NAMES if name in _ALWAYS or name in table]
    steps = parse_record(tuple[NormalizerStep, ...], table.get("normalizer_steps", []))
    return {
        **{name: parse_record(types[name], table[name]) for name in names},
        "normalizer": normalizer_of(table["normalizer"], steps),
    }


def render_spec(spec: TokenizerSpec) -> bytes:
    """All of `spec` but its vocabulary and merges, with what follows from these and is small."""
    derived = {name: _plain(getattr(spec, name)) for name in _DERIVED}
    chat = None if spec.chat == ChatTemplates() else spec.chat.to_json().decode()
    table = {"spec": render_fields(spec), "derived": derived, "chat": chat}
    return json.dumps(table, separators=(",", ":")).encode()


def parse_spec(
    data: bytes,
    read_tables: Callable[[TokenizerSpec], tuple[Mapping[int, bytes], tuple[Merge, ...]]],
) -> TokenizerSpec:
    """The spec of `render_spec`, not checked again: the caller knows that these bytes are its own.
    `read_tables` returns its vocabulary and merges, once somebody asks for them; it gets the
    spec."""
    table: dict[str, Any] = json.loads(data)
    derived = {name: parse_record(kind, table["derived"][name]) for name, kind in _DERIVED.items()}
    derived["reachable_added_ids"] = frozenset(derived["reachable_added_ids"])
    chat = ChatTemplates.from_json(table["chat"].encode()) if table["chat"] else ChatTemplates()
    arguments = parse_fields(table["spec"])
    return TokenizerSpec.with_tables(read_tables, derived, chat=chat, **arguments)


def _plain(value: Any) -> Any:
    """A value as JSON has it; `parse_record` reads it back."""
    if hasattr(value, "from_fields"):
        return value.fields()
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple | frozenset):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return dict(value)
    return value.decode("ascii") if isinstance(value, bytes) else value
