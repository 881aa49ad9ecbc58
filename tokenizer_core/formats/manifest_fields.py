"""`manifest.json`: the fields that affect ids but are not in the two pickles.

Pickles contain the vocabulary and merges. The split pattern, added tokens, normalizer and declared
gaps affect ids too. They are in the manifest, so that `Tokenizer.from_files` on a published folder
returns the published tokenizer. `sealed_json` protects the manifest with a checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.pickle_files import check_gaps
from tokenizer_core.formats.sealed_json import SealedFormat
from tokenizer_core.formats.tokenizer_json.batch_settings import parse_batch_settings
from tokenizer_core.formats.tokenizer_json.post_processor import check_post_processor
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.chat_templates import CHAT_FILE, ChatTemplates
from tokenizer_core.spec.stored import parse_fields, render_fields
from tokenizer_core.splitting.patterns import UNICODE_TABLES, is_as_named, resolve_pattern
from tokenizer_core.strict_json import typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT_NAME: Final = "tokenizer-artifact"
MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 4 << 20
"""The size cap; a manifest of thousands of added tokens has 300 kB."""

MANIFEST: Final = SealedFormat(FORMAT_NAME, 1, "a tokenizer artifact", MAX_MANIFEST_BYTES)


def render_spec_fields(spec: TokenizerSpec) -> dict[str, object]:
    """The manifest fields that define `spec` together with the vocabulary and merges."""
    by_rank = "by rank: merges.pkl holds an empty list"
    chat = spec.chat.record()
    return {
        "fingerprint": spec.fingerprint,
        "merging": by_rank if spec.kind == "ranks" else "by the list in merges.pkl, in its order",
        **render_fields(spec),
        "gaps": [list(gap) for gap in spec.gaps()],
        "vocab_size": len(spec.vocab),
        "largest_id": spec.largest_id,
        "n_merges": len(spec.merges),
        **({"chat_templates": chat} if chat else {}),
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
        found = parse_fields(fields)
        batch = parse_batch_settings(found.pop("batch_settings", {}))
        spec = TokenizerSpec(vocab=vocab, merges=tuple(merges), batch_settings=batch, **found)
        fingerprint = fields["fingerprint"]
        # The spec compares that of a vocabulary of characters with its merges.
        if spec.pattern.is_named and not is_as_named(spec.pattern):
            raise FormatError(
                f"the split pattern {spec.pattern.name!r:.40} has another expression in this "
                f"release"
            )
        resolve_pattern(spec.pattern)  # raises if it does not compile
    except (FormatError, InvalidSpecError):
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
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
            f"{spec.fingerprint[:12]}, the manifest says {fingerprint!s:.12}; load another copy, "
            f"or load it with the release that wrote it"
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
