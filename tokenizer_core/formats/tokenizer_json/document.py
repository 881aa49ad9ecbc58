"""A `tokenizer.json` as a whole: its stages, each read once and in the order in which they need one
another."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, cast

from tokenizer_core.blobs.atomic_files import check_size
from tokenizer_core.engines.native_calls import read_packed_model
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.gpt2_files import check_one_name_an_id
from tokenizer_core.formats.tokenizer_json.added_tokens import (
    check_added_tokens_as_pre_tokens,
    parse_added_tokens,
    render_added_tokens,
)
from tokenizer_core.formats.tokenizer_json.batch_settings import parse_batch_settings
from tokenizer_core.formats.tokenizer_json.decoder import check_decoder, render_decoder
from tokenizer_core.formats.tokenizer_json.fields import check_fields
from tokenizer_core.formats.tokenizer_json.model import merges_characters, parse_model, render_model
from tokenizer_core.formats.tokenizer_json.normalizer import parse_normalizer, render_normalizer
from tokenizer_core.formats.tokenizer_json.post_processor import (
    parse_post_processor,
    render_post_processor,
)
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import (
    parse_pre_tokenizer,
    render_pre_tokenizer,
)
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.alphabet import pattern_of_characters
from tokenizer_core.strict_json import check_number_of_values, parse_strict_json

MAX_FILE_BYTES: Final = 128 << 20
"""The size cap; o200k with all its splits has about 20 MB."""


def parse_tokenizer_json(data: bytes) -> TokenizerSpec:
    """The spec, of kind `merges`, of the text of a `tokenizer.json`.

    Raises:
        FormatError: not JSON, or a field whose effect on ids is not supported (named).
        InvalidSpecError: vocabulary, merges and added tokens do not form a tokenizer.
    """
    return parse_tokenizer_table(parse_tokenizer_document(data, "tokenizer.json"))


def parse_tokenizer_document(data: bytes, what: str) -> object:
    """The JSON value of a `tokenizer.json`, as `parse_strict_json`.

    If the compiled module can read entries and merges of the model, which takes a tenth of the
    time, both `vocab` and `merges` of the model are a `PackedModel` instead.
    """
    check_number_of_values(data, what)
    packed = read_packed_model(data)
    if packed is not None:
        rest, model = packed
        with suppress(FormatError):  # named below, with its position
            table = cast("dict[str, Any]", parse_strict_json(rest, what))
            table["model"].update(vocab=model, merges=model)
            return table
    return parse_strict_json(data, what)


def parse_tokenizer_table(value: object) -> TokenizerSpec:
    """Parse the JSON value of a `tokenizer.json` to a spec; raises as `parse_tokenizer_json`."""
    root = check_fields(
        value,
        "tokenizer",
        {"version": ("1.0",)},
        (
            "truncation",
            "padding",
            "added_tokens",
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
            "model",
        ),
        ("pre_tokenizer", "decoder", "model"),
    )
    by_characters = merges_characters(root)
    batch_settings = parse_batch_settings(root)
    pre_tokenizer = parse_pre_tokenizer(root["pre_tokenizer"], by_characters=by_characters)
    normalizer = parse_normalizer(root.get("normalizer"), pre_tokenizer)
    check_decoder(root["decoder"], normalizer.made, by_characters=by_characters)
    added = parse_added_tokens(root.get("added_tokens", []), normalizer)
    model = parse_model(root["model"], added, pre_tokenizer.cuts, by_characters=by_characters)
    prefix_ids, suffix_ids = parse_post_processor(root.get("post_processor"))
    spec = TokenizerSpec(
        kind="merges",
        vocab=model.vocab,
        merges=tuple(model.merges),
        pattern=pre_tokenizer.pattern or pattern_of_characters(model.merges),
        ignore_merges=model.ignore_merges,
        normalizer=normalizer.made,
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        batch_settings=batch_settings,
        post_processor=cast("Any", root.get("post_processor")),
        alphabet=model.alphabet,
    ).with_added_tokens(added, model.known)
    if spec.ignore_merges:
        check_added_tokens_as_pre_tokens(spec, model.entries)
    return spec


def render_tokenizer_json(spec: TokenizerSpec) -> bytes:
    """The `tokenizer.json` of `spec` for the same ids in Hugging Face `tokenizers`.

    Ranks are written as their equivalent merges (see `tiktoken_file`) with `ignore_merges`. Raises
    FormatError: a custom split pattern of another dialect, two names for an id, or tokens whose
    spelling means another token to `tokenizers`; or it would be too large to be read.
    """
    check_one_name_an_id(spec, "a tokenizer.json")
    table: dict[str, object] = {
        "version": "1.0",
        "truncation": spec.batch_settings.get("truncation"),
        "padding": spec.batch_settings.get("padding"),
        "added_tokens": render_added_tokens(spec),
        "normalizer": render_normalizer(spec),
        "pre_tokenizer": render_pre_tokenizer(spec),
        "post_processor": render_post_processor(spec),
        "decoder": render_decoder(spec),
        "model": render_model(spec),
    }
    # Render in pieces: `dumps` would block every other thread for 0.2 s at 200,000 tokens.
    pieces = json.JSONEncoder(ensure_ascii=False).iterencode(table)
    return check_size("".join([*pieces, "\n"]).encode(), MAX_FILE_BYTES, "the tokenizer.json")
