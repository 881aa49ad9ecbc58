"""Where the files of a model folder contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_table
from tokenizer_core.formats.transformers_releases import (
    CONFIG,
    NAMED,
    SPECIAL_TOKENS,
    TOKENIZER,
    added_tokens_of,
    token_content,
    tokens_of_decoder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokenizer_core.formats.transformers_releases import FolderTables
    from tokenizer_core.spec import TokenizerSpec

_PUTTING_SPACE: Final = (
    *("prefix-space", "metaspace-prepend", "metaspace-first", "metaspace-always"),
)
_EXTRA: Final = ("additional_special_tokens", "extra_special_tokens")


def contradictions(files: FolderTables) -> Iterator[str]:
    """One sentence for each, those that can change ids first. Raises FormatError: a file is
    malformed, or `tokenizer.json` cannot be read."""
    yield from _of_tokens(files)
    yield from _of_names(files)
    if files.has_file:
        yield from _of_settings(files.config, parse_tokenizer_table(dict(files.table)))


def _of_tokens(files: FolderTables) -> Iterator[str]:
    """Tokens that two files describe, or one twice."""
    known: dict[str, tuple[str, int, dict[str, Any]]] = {}
    for token, entry in zip(
        added_tokens_of(files.table), files.table.get("added_tokens") or (), strict=True
    ):
        known[token["content"]] = (TOKENIZER, entry["id"], token)
    for id_, token in tokens_of_decoder(files.config.get("added_tokens_decoder", {})).items():
        where = f"added_tokens_decoder of {CONFIG}"
        file, other_id, other = known.setdefault(token["content"], (where, id_, token))
        differing = [name for name in token if token[name] != other[name]]
        if other_id != id_ or differing:
            what = ", ".join([*(["id"] if other_id != id_ else []), *differing])
            yield f"{file} and {where} differ on the token {token['content']!r:.60}: {what}"
    for content, id_ in files.added_tokens.items():
        if content in known and known[content][1] != id_:
            yield (
                f"{known[content][0]} gives the token {content!r:.60} the id {known[content][1]}, "
                f"and added_tokens.json {id_}"
            )


def _of_names(files: FolderTables) -> Iterator[str]:
    """Names with two tokens, and lists that differ."""
    for name in NAMED:
        mine, other = (
            None if of.get(name) is None else token_content(of[name], name)
            for of in (files.config, files.special_tokens)
        )
        if mine is not None and other is not None and mine != other:
            yield f"{name} is {mine!r:.60} in {CONFIG}, and {other!r:.60} in {SPECIAL_TOKENS}"
    lists = [
        # Tokens with names are no list.
        {token_content(v) for key in _EXTRA if isinstance(of.get(key), list) for v in of[key]}
        for of in (files.config, files.special_tokens)
    ]
    if all(lists) and lists[0] != lists[1]:
        only = ", ".join(sorted(lists[0] ^ lists[1]))
        yield f"{CONFIG} and {SPECIAL_TOKENS} list different extra special tokens: {only:.200}"


def _of_settings(config: Mapping[str, Any], spec: TokenizerSpec) -> Iterator[str]:
    """Settings that say something else than `tokenizer.json` does."""
    for name, around in (("bos", spec.prefix_ids), ("eos", spec.suffix_ids)):
        wanted, token = config.get(f"add_{name}_token"), config.get(f"{name}_token")
        if not isinstance(wanted, bool) or token is None:
            continue
        is_added = spec.added_ids.get(token_content(token, f"{name}_token")) in around
        if wanted != is_added:
            yield (
                f"add_{name}_token of {CONFIG} is {str(wanted).lower()}, and the post_processor of "
                f"{TOKENIZER} does {'' if is_added else 'not '}add the token"
            )
    space = config.get("add_prefix_space")
    puts_space = spec.normalizer.name in _PUTTING_SPACE
    if isinstance(space, bool) and space != puts_space:
        yield (
            f"add_prefix_space of {CONFIG} is {str(space).lower()}, and {TOKENIZER} does "
            f"{'' if puts_space else 'not '}put a space before a text"
        )
