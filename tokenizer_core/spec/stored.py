"""A spec without its vocabulary and merges as JSON, for a compiled tokenizer; and back.

The JSON also holds what follows from the vocabulary and the merges and is small, so that a text is
encoded without either. Nothing is checked again: the caller knows that these bytes are its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any

from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec import AddedToken, Alphabet, MissingBytes, TokenizerSpec
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import SplitPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokenizer_core.spec import Merge

_IDS = ("empty_ids", "reachable_added_ids")
_NUMBERS = ("fingerprint", "largest_id", "vocab_size")


def render_spec(spec: TokenizerSpec) -> bytes:
    """All of `spec` but its vocabulary and merges."""
    alphabet, normalizer, chat = spec.alphabet, spec.normalizer, spec.chat
    table = {
        "kind": spec.kind,
        "pattern": spec.pattern.fields(),
        "added_tokens": [astuple(token) for token in spec.added_tokens],
        "ignore_merges": spec.ignore_merges,
        "normalizer": [normalizer.name, normalizer.fields()],
        "affixes": [spec.prefix_ids, spec.suffix_ids],
        "unicode_tables": spec.unicode_tables,
        "byte_ids": alphabet.byte_ids,
        "missing": alphabet.missing and asdict(alphabet.missing),
        "word_suffix": alphabet.word_suffix.decode("latin-1"),
        "idle_ids": alphabet.idle_ids,
        "batch_settings": dict(spec.batch_settings),
        "post_processor": spec.post_processor,
        "model_added_ids": spec.model_added_ids,
        "chat": chat.to_json().decode() if chat != ChatTemplates() else None,
        **{name: getattr(spec, name) for name in _NUMBERS},
        **{name: list(getattr(spec, name)) for name in _IDS},
    }
    return json.dumps(table, separators=(",", ":")).encode()


def parse_spec(
    data: bytes,
    read_tables: Callable[[TokenizerSpec], tuple[Mapping[int, bytes], tuple[Merge, ...]]],
) -> TokenizerSpec:
    """The spec of `render_spec`. `read_tables` returns its vocabulary and merges, once somebody
    asks for them; it gets the spec."""
    table: dict[str, Any] = json.loads(data)
    missing, (normalizer, steps), chat = table["missing"], table["normalizer"], table["chat"]
    return TokenizerSpec.with_tables(
        read_tables,
        {name: table[name] for name in _NUMBERS}
        | {"empty_ids": tuple(table["empty_ids"])}
        | {"reachable_added_ids": frozenset(table["reachable_added_ids"])},
        kind=table["kind"],
        pattern=SplitPattern.from_fields(table["pattern"]),
        added_tokens=tuple(AddedToken(*token) for token in table["added_tokens"]),
        ignore_merges=table["ignore_merges"],
        normalizer=normalizer_of(normalizer, tuple(map(NormalizerStep.from_fields, steps))),
        prefix_ids=tuple(table["affixes"][0]),
        suffix_ids=tuple(table["affixes"][1]),
        unicode_tables=table["unicode_tables"],
        alphabet=Alphabet(
            tuple(table["byte_ids"]),
            None if missing is None else _parse_missing(**missing),
            table["word_suffix"].encode("latin-1"),
            tuple(table["idle_ids"]),
        ),
        batch_settings=table["batch_settings"],
        post_processor=table["post_processor"],
        model_added_ids=tuple(table["model_added_ids"]),
        chat=ChatTemplates.from_json(chat.encode()) if chat else ChatTemplates(),
    )


def _parse_missing(values: list[int], ends: list[int], **others: Any) -> MissingBytes:
    return MissingBytes(tuple(values), ends=tuple(ends), **others)
