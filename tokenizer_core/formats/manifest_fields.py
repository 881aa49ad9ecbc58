"""`manifest.json`: what two pickles cannot say, and the seal that shows it is undamaged.

Pickles hold vocabulary and merges; split pattern, added tokens, normalizer and declared gaps also
decide ids and stand in the manifest beside them. It is here, below the store that writes it, so
that `Tokenizer.from_files` on a published folder gives the published tokenizer. The text must be
exactly what `render_manifest_json` writes, and carries a sha256 over its own fields, so that no
flipped bit goes unnoticed.

May import `errors`, `patterns`, `spec` and its neighbours.
"""

from __future__ import annotations

import hashlib
import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.pickle_files import check_gaps
from tokenizer_core.formats.strict_json import parse_strict_json
from tokenizer_core.patterns import CUSTOM, PATTERNS, UNICODE_TABLES, SplitPattern, resolve_pattern
from tokenizer_core.spec import AddedToken, TokenizerSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_T = TypeVar("_T")

FORMAT_NAME: Final = "tokenizer-artifact"
FORMAT_VERSION: Final = 1
MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 4 << 20
"""The size cap; a manifest of thousands of added tokens has 300 kB."""


def render_manifest_json(fields: Mapping[str, object]) -> bytes:
    """The text of a manifest: its format, `fields`, and the sha256 that seals them.

    Raises:
        FormatError: a value that JSON cannot hold (NaN, bytes, a lone surrogate).
    """
    table = {"format": FORMAT_NAME, "format_version": FORMAT_VERSION, **fields}
    try:
        return _render({**table, "checksum": _checksum(table)})
    except (TypeError, ValueError) as error:
        raise FormatError(f"the manifest cannot be written as JSON: {error!s:.120}") from None


def _render(table: Mapping[str, object]) -> bytes:
    return (json.dumps(table, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()


def _checksum(table: Mapping[str, object]) -> str:
    text = json.dumps(
        table, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def parse_manifest_json(data: bytes) -> dict[str, Any]:
    """The fields of a manifest, its seal checked and taken off.

    Raises:
        FormatError: no manifest of this format and version, or changed since it was written.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise FormatError(f"the manifest is larger than {MAX_MANIFEST_BYTES} bytes")
    table = parse_strict_json(data, "the manifest")
    if not isinstance(table, dict) or table.get("format") != FORMAT_NAME:
        raise FormatError("the manifest is not that of a tokenizer artifact")
    if table.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"the manifest has format version {table.get('format_version')!r:.20}; this release "
            f"reads version {FORMAT_VERSION}"
        )
    try:
        unchanged = _render(table) == data and table.pop("checksum", None) == _checksum(table)
    except (ValueError, RecursionError):  # JSON that is never written: a lone surrogate, 1e999
        unchanged = False
    if not unchanged:
        raise FormatError("the manifest was changed or damaged after it was written")
    return {key: value for key, value in table.items() if key not in ("format", "format_version")}


def render_spec_fields(spec: TokenizerSpec) -> dict[str, object]:
    """The fields of a manifest that, with vocabulary and merges, are `spec`."""
    by_rank = "by rank: merges.pkl holds an empty list"
    return {
        "fingerprint": spec.fingerprint,
        "kind": spec.kind,
        "merging": by_rank if spec.kind == "ranks" else "by the list in merges.pkl, in its order",
        "ignore_merges": spec.ignore_merges,
        "pattern": {"name": spec.pattern.name, "expression": spec.pattern.expression},
        "unicode_tables": spec.unicode_tables,
        "normalizer": spec.normalizer,
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
    }


def build_spec(
    fields: Mapping[str, Any], vocab: Mapping[int, bytes], merges: Sequence[tuple[bytes, bytes]]
) -> TokenizerSpec:
    """The spec that a manifest's `fields`, a vocabulary and merges are, its fingerprint checked.

    Raises:
        FormatError: a field is missing or malformed, a gap is not declared, the fingerprint
            differs, or the split pattern was made for Unicode tables other than those here.
        InvalidSpecError: the parts do not make a tokenizer.
    """
    try:
        pattern = _parse_pattern(fields["pattern"])
        added = tuple(
            AddedToken(
                _typed(token["content"], str),
                _typed(token["id"], int),
                _typed(token["special"], bool),
            )
            for token in fields["added_tokens"]
        )
        spec = TokenizerSpec(
            kind=_parse_kind(fields["kind"]),
            vocab=MappingProxyType(dict(vocab)),
            merges=tuple(merges),
            pattern=pattern,
            added_tokens=added,
            ignore_merges=_typed(fields["ignore_merges"], bool),
            normalizer=fields["normalizer"],
            prefix_ids=tuple(_typed(id_, int) for id_ in fields["prefix_ids"]),
            suffix_ids=tuple(_typed(id_, int) for id_ in fields["suffix_ids"]),
            unicode_tables=_typed(fields["unicode_tables"], str),
        )
        fingerprint = fields["fingerprint"]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the manifest is malformed: {error!r:.120}") from None
    if not spec.vocab:
        raise FormatError("the vocabulary is empty")
    check_gaps(spec.vocab, declared_gaps(fields))
    spec.check()
    if spec.kind == "ranks" and spec.merges:
        raise FormatError("the manifest says kind ranks, but there are merges")
    if spec.fingerprint != fingerprint:
        raise FormatError(
            f"manifest, vocabulary and merges do not belong together: the fingerprint is "
            f"{spec.fingerprint[:12]}, the manifest says {fingerprint!s:.12}"
        )
    check_unicode_tables(spec)
    return spec


def declared_gaps(fields: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The gaps in the ids that a manifest declares, first and last id of each.

    Raises:
        FormatError: they are missing or malformed.
    """
    try:
        return [(_typed(first, int), _typed(last, int)) for first, last in fields["gaps"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the manifest's gaps are malformed: {error!r:.120}") from None


def check_unicode_tables(spec: TokenizerSpec) -> None:
    """Refuse a spec whose split was made for other Unicode tables: its ids could differ here."""
    if spec.unicode_tables != UNICODE_TABLES:
        raise FormatError(
            f"the tokenizer was made with the Unicode tables of {spec.unicode_tables!r:.40}, here "
            f"are those of {UNICODE_TABLES!r}, which may split text otherwise; install that "
            f"release, or train or import the tokenizer anew"
        )


def _parse_pattern(table: Mapping[str, Any]) -> SplitPattern:
    name, expression = _typed(table["name"], str), _typed(table["expression"], str)
    if name == CUSTOM:
        pattern = SplitPattern(CUSTOM, expression)
        resolve_pattern(expression)  # refuses what does not compile
        return pattern
    if PATTERNS.get(name) != SplitPattern(name, expression):
        raise FormatError(f"the split pattern {name!r:.40} has another expression in this release")
    return PATTERNS[name]


def _parse_kind(value: object) -> Literal["merges", "ranks"]:
    if value == "merges":
        return "merges"
    if value == "ranks":
        return "ranks"
    raise FormatError(f"the manifest's kind is {value!r:.40}, neither merges nor ranks")


def _typed(value: Any, kind: type[_T]) -> _T:
    """`value` if its type is `kind` itself: JSON's true is no id."""
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is no {kind.__name__}")
    return value
