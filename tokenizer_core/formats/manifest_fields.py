"""`manifest.json`: the fields that affect ids but are not in the two pickles.

Pickles contain the vocabulary and merges. The split pattern, added tokens, normalizer and declared
gaps affect ids too. They are in the manifest, so that `Tokenizer.from_files` on a published folder
returns the published tokenizer. `sealed_json` protects the manifest with a checksum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.pickle_files import check_gaps
from tokenizer_core.formats.sealed_json import SealedFormat, parse_record, typed
from tokenizer_core.formats.tokenizer_json.batch_settings import parse_batch_settings
from tokenizer_core.formats.tokenizer_json.post_processor import check_post_processor
from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec import AddedToken, Alphabet, Kind, MissingBytes, TokenizerSpec
from tokenizer_core.spec.added_tokens import ADDED_TOKEN_FLAGS
from tokenizer_core.spec.chat_templates import CHAT_FILE, ChatTemplates
from tokenizer_core.spec.fingerprint import list_extensions
from tokenizer_core.splitting.patterns import (
    UNICODE_TABLES,
    SplitPattern,
    is_as_named,
    resolve_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT_NAME: Final = "tokenizer-artifact"
MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 4 << 20
"""The size cap; a manifest of thousands of added tokens has 300 kB."""

_EXTENSIONS: Final = frozenset(
    (
        "added_token_flags",
        "byte_ids",
        "idle_ids",
        "missing_bytes",
        "normalizer_steps",
        "split_steps",
        "word_suffix",
    )
)
_IDS: Final = tuple[int, ...]

MANIFEST: Final = SealedFormat(FORMAT_NAME, 1, "a tokenizer artifact", MAX_MANIFEST_BYTES)


def render_spec_fields(spec: TokenizerSpec) -> dict[str, object]:
    """The manifest fields that define `spec` together with the vocabulary and merges."""
    by_rank = "by rank: merges.pkl holds an empty list"
    unusual: dict[str, object] = {
        "empty_ids": list(spec.empty_ids),
        "missing_bytes": spec.missing_bytes(),
        "extensions": list_extensions(spec),
        "batch_settings": dict(spec.batch_settings),
        "post_processor": spec.post_processor,
        "model_added_ids": list(spec.model_added_ids),
        "chat_templates": spec.chat.record(),
    }
    pattern = replace(spec.pattern, before=(), behavior="isolated", invert=False)
    return {
        "fingerprint": spec.fingerprint,
        "kind": spec.kind,
        "merging": by_rank if spec.kind == "ranks" else "by the list in merges.pkl, in its order",
        "ignore_merges": spec.ignore_merges,
        "pattern": pattern.fields(),
        "unicode_tables": spec.unicode_tables,
        "normalizer": spec.normalizer.name,
        "added_tokens": [
            {"content": token.content, "id": token.id, "special": token.special}
            for token in spec.added_tokens
        ],
        "prefix_ids": list(spec.prefix_ids),
        "suffix_ids": list(spec.suffix_ids),
        "gaps": [list(gap) for gap in spec.gaps()],
        "vocab_size": len(spec.vocab),
        "largest_id": spec.largest_id,
        "n_merges": len(spec.merges),
        **{name: found for name, found in unusual.items() if found},
    }


def build_spec(
    fields: Mapping[str, Any], vocab: Mapping[int, bytes], merges: Sequence[tuple[bytes, bytes]]
) -> TokenizerSpec:
    """Build the spec from `fields`, a vocabulary and merges; checks the fingerprint.

    Raises:
        FormatError: a field is missing or malformed, a gap is not declared, the fingerprint
            differs, or the split pattern was made for other Unicode tables.
        InvalidSpecError: the parts do not form a tokenizer.
    """
    try:
        extensions = _parse_extensions(fields)
        pattern = _parse_pattern(fields["pattern"], extensions)
        flags = _parse_flags(extensions)
        added = tuple(
            AddedToken(
                typed(token["content"], str),
                typed(token["id"], int),
                typed(token["special"], bool),
                **flags.get(token["content"], {}),
            )
            for token in fields["added_tokens"]
        )
        steps = parse_record(tuple[NormalizerStep, ...], extensions.get("normalizer_steps", []))
        spec = TokenizerSpec(
            kind=_parse_kind(fields["kind"]),
            vocab=vocab,
            merges=tuple(merges),
            pattern=pattern,
            added_tokens=added,
            ignore_merges=typed(fields["ignore_merges"], bool),
            normalizer=normalizer_of(fields["normalizer"], steps),
            prefix_ids=parse_record(_IDS, fields["prefix_ids"]),
            suffix_ids=parse_record(_IDS, fields["suffix_ids"]),
            unicode_tables=typed(fields["unicode_tables"], str),
            alphabet=Alphabet(
                parse_record(_IDS, extensions.get("byte_ids", [])),
                _parse_missing(extensions.get("missing_bytes")),
                typed(extensions.get("word_suffix", ""), str).encode("ascii"),
                parse_record(_IDS, extensions.get("idle_ids", [])),
            ),
            batch_settings=parse_batch_settings(typed(fields.get("batch_settings", {}), dict)),
            model_added_ids=parse_record(_IDS, fields.get("model_added_ids", [])),
            post_processor=fields.get("post_processor"),
        )
        fingerprint = fields["fingerprint"]
    except InvalidSpecError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the manifest is malformed: {error!r:.120}") from None
    if not spec.vocab:
        raise FormatError("the vocabulary is empty")
    check_gaps(spec.vocab, declared_gaps(fields))
    if spec.post_processor is not None:
        check_post_processor(spec)
    spec.check()
    if spec.kind == "ranks" and spec.merges:
        raise FormatError("the manifest says kind ranks, but there are merges")
    if spec.fingerprint != fingerprint:
        raise FormatError(
            f"manifest, vocabulary and merges do not belong together: the fingerprint is "
            f"{spec.fingerprint[:12]}, the manifest says {fingerprint!s:.12}"
        )
    for name, found in (("empty_ids", spec.empty_ids), ("missing_bytes", spec.missing_bytes())):
        if fields.get(name, []) != list(found):
            raise FormatError(
                f"the manifest's {name} are {fields.get(name, [])!r:.60}, the vocabulary's "
                f"{list(found)}"
            )
    if spec.unicode_tables != UNICODE_TABLES:  # its ids could differ here
        raise FormatError(
            f"the tokenizer was made with the Unicode tables of {spec.unicode_tables!r:.40}, here "
            f"are those of {UNICODE_TABLES!r}, which may split text otherwise; load it with the "
            f"release that wrote it, or train or import the tokenizer anew"
        )
    return spec


def declared_gaps(fields: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The gaps in the ids that a manifest declares: the first and last id of each. Raises
    FormatError: the gaps are missing or malformed."""
    try:
        return [(typed(first, int), typed(last, int)) for first, last in fields["gaps"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the manifest's gaps are malformed: {error!r:.120}") from None


def parse_chat_file(fields: Mapping[str, Any], data: bytes) -> ChatTemplates:
    """The chat templates in `data`, which must be what the manifest's `chat_templates` records.
    Raises FormatError: they are others, or malformed."""
    try:
        chat = ChatTemplates.from_json(data)
    except InvalidSpecError as error:
        raise FormatError(f"{CHAT_FILE}: {error}") from None
    if chat.to_json() != data or chat.record() != fields["chat_templates"]:
        raise FormatError(f"{CHAT_FILE} does not hold the chat templates that the manifest lists")
    return chat


def _parse_extensions(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The extensions of a manifest; refuses those that this release does not know."""
    extensions = typed(fields.get("extensions", {}), dict)
    unknown = sorted(extensions.keys() - _EXTENSIONS)
    if unknown:
        raise FormatError(
            f"the manifest has the extension {unknown[0]!a:.60}, which this release does not know "
            f"and which may change ids; load it with the release that wrote it"
        )
    return extensions


def _parse_missing(value: object) -> MissingBytes | None:
    if value is None:
        return None
    table = typed(value, dict)
    unk_id = table["unk_id"]
    return MissingBytes(
        parse_record(_IDS, table["bytes"]),
        None if unk_id is None else typed(unk_id, int),
        typed(table["fuse_unk"], bool),
        parse_record(_IDS, table.get("ends", [])),
    )


def _parse_flags(extensions: dict[str, Any]) -> dict[str, dict[str, bool]]:
    """Content -> the flags that are set. Names without a token make another fingerprint."""
    flags = {}
    for content, names in typed(extensions.get("added_token_flags", {}), dict).items():
        if not names or names != [name for name in ADDED_TOKEN_FLAGS if name in names]:
            raise ValueError(f"the flags of {content!a:.60} are malformed")
        flags[content] = dict.fromkeys(names, True)
    return flags


def _parse_pattern(table: dict[str, Any], extensions: dict[str, Any]) -> SplitPattern:
    pattern = SplitPattern.from_fields(table)
    if pattern.has_steps:
        raise ValueError("the steps of a split pattern stand among the extensions")
    steps = typed(extensions.get("split_steps", []), list)
    if steps:
        pattern = SplitPattern.from_fields({**typed(steps[-1], dict), "before": steps[:-1]})
        return resolve_pattern(pattern)
    if pattern.is_named:
        # The spec compares that of a vocabulary of characters with its merges.
        if not is_as_named(pattern):
            raise FormatError(
                f"the split pattern {pattern.name!r:.40} has another expression in this release"
            )
        return pattern
    resolve_pattern(pattern)  # raises if it does not compile
    return pattern


def _parse_kind(value: object) -> Kind:
    if value not in get_args(Kind):
        raise FormatError(f"the manifest's kind is {value!r:.40}, neither merges nor ranks")
    return cast("Kind", value)
