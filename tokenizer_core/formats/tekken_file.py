"""Mistral's `tekken.json`: ranks, a split expression and special tokens in one file.

The rules come from the reader in mistral-common 1.13 (`tokens/tokenizers/tekken.py`). The special
tokens have the first `default_num_special_tokens` ids; the id of a learned token is its rank plus
that number. Of `vocab`, only the first `default_vocab_size - default_num_special_tokens` entries
count. If the list of special tokens is shorter than its number, `<SPECIAL_20>`, `<SPECIAL_21>` and
so on fill it up. Without that list, files up to version v7 have 20 fixed tokens. Like
mistral-common, the reader ignores `num_vocab_tokens`, the settings for images and audio, and
fields that it does not know: a change of the format has a new version, which the reader refuses.

mistral-common never looks for special tokens in a text. Here a text with `<s>` gives the id of that
token, as with every other vocabulary; `allowed_special="none"` gives the ids of mistral-common. The
file does not say which ids surround a text: mistral-common adds `<s>` and `</s>` only on request.
So the spec has neither `prefix_ids` nor `suffix_ids`.
"""

from __future__ import annotations

import binascii
from contextlib import suppress
from typing import Final, cast

from tokenizer_core.engines.native_calls import read_tekken_entries
from tokenizer_core.errors import FormatError, UnknownPatternError
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.checks import MAX_TOKEN_ID
from tokenizer_core.splitting.patterns import ALIASES, PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.strict_json import check_number_of_values, parse_strict_json

MAX_SPECIAL_TOKENS: Final = 1 << 16
"""Published files have 1,000. A file of 20 kB could ask for a million, which take a gigabyte."""

_VERSIONS: Final = ("v1", "v2", "v3", "v7", "v11", "v13", "v15")
_VERSIONS_WITH_FIXED_TOKENS: Final = ("v1", "v2", "v3", "v7")
_FIXED_TOKENS: Final = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]  # fmt: skip
_ENTRY_FIELDS: Final = {"rank", "token_bytes", "token_str"}
_N_BYTES: Final = 256


def parse_tekken(data: bytes) -> TokenizerSpec:
    """The spec, of kind `ranks`, of the text of a `tekken.json`. All special tokens are matched in
    a text.

    Raises:
        FormatError: the file is malformed, has an unknown version, or has a split expression that
            cannot be translated exactly; names the field.
        InvalidSpecError: a special token is also a learned token, or is too long.
    """
    return parse_tekken_table(parse_tekken_document(data, "tekken.json"))


def parse_tekken_document(data: bytes, what: str) -> object:
    """The JSON value of a `tekken.json`, as `parse_strict_json`. If the compiled module can read
    the entries of `vocab`, which takes a tenth of the time, they are the tokens alone."""
    check_number_of_values(data, what)
    packed = read_tekken_entries(data)
    if packed is not None:
        rest, tokens = packed
        with suppress(FormatError):  # named below, with its position
            return {**cast("dict[str, object]", parse_strict_json(rest, what)), "vocab": tokens}
    return parse_strict_json(data, what)


def parse_tekken_table(root: object) -> TokenizerSpec:
    """Parse the JSON value of a `tekken.json` to a spec; raises as `parse_tekken`."""
    if not is_tekken(root):
        raise FormatError(
            "this is no tekken.json: that is an object with an object `config` and a list `vocab`"
        )
    assert isinstance(root, dict)  # noqa: S101 - is_tekken has refused other types; for mypy
    config, vocab = root["config"], root["vocab"]
    version = config.get("version")
    if version not in _VERSIONS:
        raise FormatError(
            f"tekken.json: config.version is {version!r:.40}; only {', '.join(_VERSIONS)} can be "
            f"read exactly. Take a file of such a version, or a newer release of this library"
        )
    n_special = _check_count(config, "default_num_special_tokens", MAX_SPECIAL_TOKENS)
    n_ranks = _check_count(config, "default_vocab_size", MAX_TOKEN_ID + 1) - n_special
    if not _N_BYTES <= n_ranks <= len(vocab):
        raise FormatError(
            f"tekken.json: config.default_vocab_size less config.default_num_special_tokens is "
            f"{n_ranks}, the number of ranks; it must be between {_N_BYTES} and the number of "
            f"entries of vocab, {len(vocab)}. Get the complete file"
        )
    specials = _parse_special_tokens(root.get("special_tokens"), version, n_special)
    return TokenizerSpec.from_ranks(
        _parse_ranks(vocab[:n_ranks], n_special), specials, pattern=_parse_pattern(config)
    )


def is_tekken(table: object) -> bool:
    """Whether a JSON value has the outline of a `tekken.json`: an object `config` and a list
    `vocab`. Both names are also tokens of GPT-2's `vocab.json`, whose values are ids."""
    return (
        isinstance(table, dict)
        and isinstance(table.get("config"), dict)
        and isinstance(table.get("vocab"), list)
    )


def _check_count(config: dict[str, object], field: str, largest: int) -> int:
    value = config.get(field)
    # bool is a subclass of int.
    if type(value) is not int or not 0 <= value <= largest:
        raise FormatError(
            f"tekken.json: config.{field} is {value!r:.40}; it must be an integer in 0..{largest}"
        )
    return value


def _parse_pattern(config: dict[str, object]) -> SplitPattern:
    expression = config.get("pattern")
    # `resolve_pattern` takes the name of a pattern too; in this file a name is an expression.
    if not isinstance(expression, str) or expression in PATTERNS or expression in ALIASES:
        raise FormatError(
            f"tekken.json: config.pattern is {expression!r:.60}; it must be a regular expression "
            f"that splits text"
        )
    try:
        return resolve_pattern(expression, dialect="fancy-regex", unmatched="drop")
    except UnknownPatternError as error:
        raise FormatError(f"tekken.json: config.pattern: {error}") from error


def _parse_ranks(entries: list[object], n_special: int) -> dict[bytes, int]:
    """bytes -> id of the learned tokens."""
    tokens = [
        entry if type(entry) is bytes else _parse_entry(index, entry)
        for index, entry in enumerate(entries)
    ]
    ids = dict(zip(tokens, range(n_special, n_special + len(tokens)), strict=True))
    for index, token in enumerate(tokens[:_N_BYTES]):
        if token != bytes([index]):
            raise FormatError(
                f"tekken.json: vocab[{index}].token_bytes stands for {token!r:.60}; the first "
                f"{_N_BYTES} entries must be the single bytes 0 to 255, in this order"
            )
    if len(ids) != len(tokens):
        index = next(i for i, token in enumerate(tokens) if ids[token] != i + n_special)
        raise FormatError(
            f"tekken.json: vocab[{ids[tokens[index]] - n_special}].token_bytes stands for "
            f"{tokens[index]!r:.60}, which is vocab[{index}] already; two ranks must not have the "
            f"same bytes"
        )
    return ids


def _parse_entry(index: int, entry: object) -> bytes:
    """The token of an entry of `vocab`."""
    if not isinstance(entry, dict) or entry.keys() != _ENTRY_FIELDS:
        raise FormatError(
            f"tekken.json: vocab[{index}] is {entry!a:.80}; it must be an object with rank, "
            f"token_bytes and token_str, and nothing else"
        )
    rank, encoded = entry["rank"], entry["token_bytes"]
    if type(rank) is not int or rank != index:
        raise FormatError(
            f"tekken.json: vocab[{index}].rank is {rank!r:.40}; it must be {index}: the ranks "
            f"are integers and count from 0 without a gap, in the order of the list"
        )
    token = b""
    if isinstance(encoded, str) and encoded.isascii():
        with suppress(binascii.Error):
            token = binascii.a2b_base64(encoded, strict_mode=True)
    if not token:
        raise FormatError(
            f"tekken.json: vocab[{index}].token_bytes is {encoded!a:.60}; it must be the "
            f"base64 of at least one byte"
        )
    return token


def _parse_special_tokens(value: object, version: str, n_special: int) -> dict[str, int]:
    """content -> id of all special tokens, including those that fill up the ids."""
    if value is not None:
        listed = _check_special_tokens(value)
    elif version in _VERSIONS_WITH_FIXED_TOKENS:
        listed = _FIXED_TOKENS
    else:
        raise FormatError(
            f"tekken.json: special_tokens is missing, which the version {version} requires; get "
            f"the complete file"
        )
    if len(listed) > n_special:
        raise FormatError(
            f"tekken.json: there are {len(listed)} special tokens, more than the "
            f"{n_special} of config.default_num_special_tokens; correct that number"
        )
    contents = [*listed, *(f"<SPECIAL_{id_}>" for id_ in range(len(listed), n_special))]
    ids: dict[str, int] = {}
    for id_, content in enumerate(contents):
        if ids.setdefault(content, id_) != id_:
            raise FormatError(
                f"tekken.json: the special token {content!a:.60} has two ids, {ids[content]} and "
                f"{id_}; each content may be there once, and <SPECIAL_n> also fills up the ids "
                f"after the listed tokens"
            )
    return ids


def _check_special_tokens(value: object) -> list[str]:
    """The contents of the listed special tokens, by id."""
    if not isinstance(value, list):
        raise FormatError(f"tekken.json: special_tokens is {value!a:.60}; it must be a list")
    contents: list[str] = []
    for index, entry in enumerate(value):
        content = entry.get("token_str") if isinstance(entry, dict) else None
        if not isinstance(content, str) or not content:
            raise FormatError(
                f"tekken.json: special_tokens[{index}] is {entry!a:.80}; it must be an object with "
                f"rank and a token_str that is not empty"
            )
        # mistral-common encodes with the rank and decodes with the index.
        if type(entry.get("rank")) is not int or entry["rank"] != index:
            raise FormatError(
                f"tekken.json: special_tokens[{index}].rank is {entry.get('rank')!r:.40}; it must "
                f"be {index}: the ranks count from 0 without a gap, in the order of the list"
            )
        contents.append(content)
    return contents
