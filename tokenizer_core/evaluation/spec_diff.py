"""How two tokenizers differ before any text is seen: tokens, ids, merges, special tokens, settings.

What that changes on text is `text_diff`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokenizer_core.evaluation.report_data import ShownToken, show_token, shown_token
from tokenizer_core.formats import recover_merges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenizer_core.spec import Merge, TokenizerSpec


@dataclass(frozen=True, slots=True)
class OtherIds:
    """Bytes that both have as a token, under other ids."""

    text: str
    ids_a: list[int]
    ids_b: list[int]


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting, and its value on both sides, in words."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class AddedTokenDifference:
    """A special or other added token that the two do not have alike: `<id> special`, `<id>` where
    it is content, None where it is not there."""

    content: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class MergeDifference:
    """Merges only one side has, and those of both whose order differs. `first_rank` is the first
    place where the two lists differ. Merges of kind `ranks` are those its ranks come to."""

    n_common: int
    only_in_a: list[str]
    only_in_b: list[str]
    n_in_other_order: int
    first_rank: int | None


@dataclass(frozen=True, slots=True)
class SpecDiff:
    """All differences; the lists are whole, by id or rank."""

    fingerprint_a: str
    fingerprint_b: str
    is_same: bool
    n_common_tokens: int
    only_in_a: list[ShownToken]
    only_in_b: list[ShownToken]
    other_ids: list[OtherIds]
    merges: MergeDifference | None
    added_tokens: list[AddedTokenDifference]
    settings: list[SettingDifference]

    def to_dict(self) -> dict[str, Any]:
        """The differences as a dict that `json.dumps` takes."""
        return asdict(self)


def diff_specs(a: TokenizerSpec, b: TokenizerSpec) -> SpecDiff:
    """The differences of two specs. Added tokens are compared by themselves, not as tokens.

    Merges are compared where one side lists them; two tokenizers of kind `ranks` have theirs in
    their ids, and then `merges` is None.

    Example:
        >>> from tokenizer_core import TokenizerSpec
        >>> vocab = {i: bytes([i]) for i in range(256)}
        >>> a = TokenizerSpec.from_merges(vocab | {256: b"ab"}, [(b"a", b"b")])
        >>> b = TokenizerSpec.from_merges(vocab | {256: b"bc", 257: b"ab"}, [(b"b", b"c")])
        >>> found = diff_specs(a, b)
        >>> [token.text for token in found.only_in_b], found.other_ids[0].ids_b
        (["'bc'"], [257])
    """
    ids_a, ids_b = _ids_by_token(a), _ids_by_token(b)
    common = ids_a.keys() & ids_b.keys()
    moved = [token for token in common if ids_a[token] != ids_b[token]]
    return SpecDiff(
        fingerprint_a=a.fingerprint,
        fingerprint_b=b.fingerprint,
        is_same=a.fingerprint == b.fingerprint,
        n_common_tokens=len(common),
        only_in_a=_only_in(ids_a, ids_b),
        only_in_b=_only_in(ids_b, ids_a),
        other_ids=[
            OtherIds(show_token(token), ids_a[token], ids_b[token])
            for token in sorted(moved, key=ids_a.__getitem__)
        ],
        merges=_diff_merges(a, b),
        added_tokens=_diff_added(a, b),
        settings=_diff_settings(a, b),
    )


def _ids_by_token(spec: TokenizerSpec) -> dict[bytes, list[int]]:
    added = {token.id for token in spec.added_tokens}
    ids: dict[bytes, list[int]] = defaultdict(list)
    for id_, token in sorted(spec.vocab.items()):
        if id_ not in added:
            ids[token].append(id_)
    return dict(ids)


def _only_in(
    ids: Mapping[bytes, Sequence[int]], other: Mapping[bytes, Sequence[int]]
) -> list[ShownToken]:
    found = ((own[0], token) for token, own in ids.items() if token not in other)
    return [shown_token(id_, token) for id_, token in sorted(found)]


def _diff_merges(a: TokenizerSpec, b: TokenizerSpec) -> MergeDifference | None:
    if a.kind == b.kind == "ranks":
        return None
    merges_a, merges_b = _merges_of(a), _merges_of(b)
    set_a, set_b = set(merges_a), set(merges_b)
    common_a = [merge for merge in merges_a if merge in set_b]
    common_b = [merge for merge in merges_b if merge in set_a]
    pairs = enumerate(zip(merges_a, merges_b, strict=False))
    first = next((rank for rank, (one, other) in pairs if one != other), None)
    if first is None and len(merges_a) != len(merges_b):
        first = min(len(merges_a), len(merges_b))
    return MergeDifference(
        n_common=len(common_a),
        only_in_a=[_show_merge(merge) for merge in merges_a if merge not in set_b],
        only_in_b=[_show_merge(merge) for merge in merges_b if merge not in set_a],
        n_in_other_order=sum(x != y for x, y in zip(common_a, common_b, strict=True)),
        first_rank=first,
    )


def _merges_of(spec: TokenizerSpec) -> Sequence[Merge]:
    return recover_merges(spec.token_to_id) if spec.kind == "ranks" else spec.merges


def _show_merge(merge: Merge) -> str:
    return f"{show_token(merge[0])} {show_token(merge[1])}"


def _diff_added(a: TokenizerSpec, b: TokenizerSpec) -> list[AddedTokenDifference]:
    tables = [
        {token.content: f"{token.id} special" if token.special else str(token.id)
         for token in spec.added_tokens}
        for spec in (a, b)
    ]  # fmt: skip
    contents = list(dict.fromkeys([*tables[0], *tables[1]]))
    found = [AddedTokenDifference(c, tables[0].get(c), tables[1].get(c)) for c in contents]
    return [difference for difference in found if difference.a != difference.b]


def _diff_settings(a: TokenizerSpec, b: TokenizerSpec) -> list[SettingDifference]:
    both = [
        ("kind", a.kind, b.kind),
        ("split pattern", a.pattern.name, b.pattern.name),
        ("split expression", a.pattern.expression, b.pattern.expression),
        ("Unicode tables", a.unicode_tables, b.unicode_tables),
        ("normalizer", a.normalizer, b.normalizer),
        ("whole pre-tokens first", str(a.ignore_merges), str(b.ignore_merges)),
        ("ids before a text", str(a.prefix_ids), str(b.prefix_ids)),
        ("ids behind a text", str(a.suffix_ids), str(b.suffix_ids)),
    ]
    return [SettingDifference(name, one, other) for name, one, other in both if one != other]
