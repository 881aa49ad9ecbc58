"""How two tokenizers differ: `diff_specs` in their tables and settings, `diff_on_text` on text."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.evaluation.measures import lengths_in_text
from tokenizer_core.evaluation.report import ShownToken, show_token, shown_token
from tokenizer_core.formats.tiktoken_file import recover_reachable_merges
from tokenizer_core.formats.tokenizer_json.post_processor import show_pair
from tokenizer_core.spec.fingerprint import list_extensions
from tokenizer_core.specials.parts import join_parts, parts_as_encoded
from tokenizer_core.splitting.pretokenize import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tokenizer_core.evaluation.samples import SamplePiece
    from tokenizer_core.spec import Merge, TokenizerSpec
    from tokenizer_core.specials.parts import Part
    from tokenizer_core.splitting.patterns import SplitPattern
    from tokenizer_core.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OtherIds:
    """A token of both vocabularies with different ids."""

    text: str
    ids_a: list[int]
    ids_b: list[int]


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting with both values, as text."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class AddedTokenDifference:
    """An added token that differs: `<id> special`, `<id>` for content, None if missing."""

    content: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class MergeDifference:
    """Merges of only one side, and common merges in another order. `first_rank` is the first index
    where the lists differ. Merges of kind `ranks` are recovered from the ranks; a token that is
    only matched as a whole pre-token has none."""

    n_common: int
    only_in_a: list[str]
    only_in_b: list[str]
    n_in_other_order: int
    first_rank: int | None


@dataclass(frozen=True, slots=True)
class SpecDiff:
    """All differences; the lists are complete and ordered by id or rank. `is_same`: there are none.
    With equal fingerprints only the ids or type ids of pairs of texts differ."""

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


def diff_specs(a: TokenizerSpec, b: TokenizerSpec) -> SpecDiff:
    """The differences of two specs. Added tokens are compared separately from other tokens.

    Merges are compared if at least one side lists them. For two tokenizers of kind `ranks`, whose
    ids are their ranks, `merges` is None.
    """
    ids_a, ids_b = _ids_by_token(a), _ids_by_token(b)
    settings = _diff_settings(a, b)
    common = ids_a.keys() & ids_b.keys()
    moved = [token for token in common if ids_a[token] != ids_b[token]]
    return SpecDiff(
        fingerprint_a=a.fingerprint,
        fingerprint_b=b.fingerprint,
        is_same=a.fingerprint == b.fingerprint and not settings,
        n_common_tokens=len(common),
        only_in_a=_only_in(ids_a, ids_b),
        only_in_b=_only_in(ids_b, ids_a),
        other_ids=[
            OtherIds(show_token(token), ids_a[token], ids_b[token])
            for token in sorted(moved, key=ids_a.__getitem__)
        ],
        merges=_diff_merges(a, b),
        added_tokens=_diff_added(a, b),
        settings=settings,
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
    return recover_reachable_merges(spec.token_to_id)[0] if spec.kind == "ranks" else spec.merges


def _show_merge(merge: Merge) -> str:
    return f"{show_token(merge[0])} {show_token(merge[1])}"


def _diff_added(a: TokenizerSpec, b: TokenizerSpec) -> list[AddedTokenDifference]:
    tables = [
        {token.content: " ".join([str(token.id), *["special"] * token.special, *token.flags])
         for token in spec.added_tokens}
        for spec in (a, b)
    ]  # fmt: skip
    contents = list(dict.fromkeys([*tables[0], *tables[1]]))
    found = [AddedTokenDifference(c, tables[0].get(c), tables[1].get(c)) for c in contents]
    return [difference for difference in found if difference.a != difference.b]


def _diff_settings(a: TokenizerSpec, b: TokenizerSpec) -> list[SettingDifference]:
    one, other = list_extensions(a), list_extensions(b)
    both = [
        ("kind", a.kind, b.kind),
        ("split pattern", a.pattern.name, b.pattern.name),
        ("split expression", a.pattern.expression, b.pattern.expression),
        ("dialect of the expression", a.pattern.dialect, b.pattern.dialect),
        ("text without a match", a.pattern.unmatched, b.pattern.unmatched),
        ("Unicode tables", a.unicode_tables, b.unicode_tables),
        ("normalizer", a.normalizer.name, b.normalizer.name),
        ("whole pre-tokens first", str(a.ignore_merges), str(b.ignore_merges)),
        ("ids before a text", str(a.prefix_ids), str(b.prefix_ids)),
        ("ids after a text", str(a.suffix_ids), str(b.suffix_ids)),
        ("pair of texts", show_pair(a), show_pair(b)),
        *(
            (name.replace("_", " "), json.dumps(one.get(name)), json.dumps(other.get(name)))
            for name in sorted({*one, *other})
        ),
    ]
    return [SettingDifference(name, of_a, of_b) for name, of_a, of_b in both if of_a != of_b]


_MAX_DISTINCT: Final = 100_000

_Made = tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True)
class DifferingPreToken:
    """A pre-token that the two tokenizers encode differently, its number of occurrences, and the
    tokens (with ids) that overlap its first occurrence."""

    pre_token: str
    count: int
    tokens_a: list[str]
    tokens_b: list[str]
    ids_a: list[int]
    ids_b: list[int]


@dataclass(slots=True)
class TextDiff:
    """Counts over a sample; pre-tokens are those of A's split pattern.

    `n_texts_not_aligned`: texts that only one of the two normalizes to other bytes, or of which a
    split pattern drops some, so their boundaries cannot be compared. They are included in the
    texts, but not in the pre-tokens.
    """

    n_bytes: int = 0
    n_tokens_a: int = 0
    n_tokens_b: int = 0
    n_texts: int = 0
    n_texts_other_ids: int = 0
    n_texts_other_boundaries: int = 0
    n_texts_not_aligned: int = 0
    n_pre_tokens: int = 0
    n_pre_tokens_other_ids: int = 0
    n_pre_tokens_other_boundaries: int = 0
    examples: list[DifferingPreToken] = field(default_factory=list)


def diff_on_text(
    a: Tokenizer,
    b: Tokenizer,
    pieces: Iterable[SamplePiece],
    *,
    n_examples: int = 10,
    progress: Callable[[int], None] | None = None,
) -> TextDiff:
    """Encode the texts of `pieces` with both, as plain text, and count the differences.

    A pre-token has other boundaries if a token begins or ends in it on one side only. It has other
    ids if it has other boundaries or one of its tokens has another id. The examples are the most
    frequent pre-tokens with other boundaries; if none have, those with other ids. `progress` gets
    the bytes of each piece.
    """
    comparison = _Comparison(a, b)
    for piece in pieces:
        comparison.add(piece.texts)
        if progress is not None:
            progress(piece.end - piece.start)
    return comparison.finish(n_examples)


class _Comparison:
    """The differences found so far."""

    def __init__(self, a: Tokenizer, b: Tokenizer) -> None:
        self._a, self._b = a, b
        specs = (a.spec, b.spec)
        self._lengths = [lengths_in_text(spec) for spec in specs]
        self._diff = TextDiff()
        self._other_boundaries: Counter[str] = Counter()
        self._other_ids: Counter[str] = Counter()
        self._made_of_recut: dict[str, _Made] = {}
        self._made_of_numbered: dict[str, _Made] = {}

    def add(self, texts: tuple[str, ...]) -> None:
        """Compare the two on each text."""
        encoded = [t.encode_batch_to_numpy(texts, allowed_special=()) for t in (self._a, self._b)]
        for i, text in enumerate(texts):
            ids = [
                part[int(bounds[i]) : int(bounds[i + 1])].astype(np.int64)
                for part, bounds in encoded
            ]
            self._add_text(text, ids[0], ids[1])

    def _add_text(self, text: str, ids_a: NDArray[np.int64], ids_b: NDArray[np.int64]) -> None:
        diff = self._diff
        diff.n_texts += 1
        diff.n_bytes += len(text.encode())
        diff.n_tokens_a += len(ids_a)
        diff.n_tokens_b += len(ids_b)
        diff.n_texts_other_ids += not np.array_equal(ids_a, ids_b)
        parts_a, parts_b = (parts_as_encoded(t.spec, text) for t in (self._a, self._b))
        text_a, text_b = join_parts(parts_a), join_parts(parts_b)
        ends_a, ends_b = np.cumsum(self._lengths[0][ids_a]), np.cumsum(self._lengths[1][ids_b])
        pre_tokens = _split_parts(parts_a, self._a.spec.pattern)
        sizes = list(map(len, pre_tokens if text_a.isascii() else map(str.encode, pre_tokens)))
        ends = np.cumsum(sizes)
        n_bytes = len(text_a.encode())
        covered = [part[-1] if len(part) else 0 for part in (ends, ends_a, ends_b)]
        if text_a != text_b or covered != [n_bytes] * 3:
            diff.n_texts_not_aligned += 1
            return
        boundaries = np.setxor1d(ends_a, ends_b, assume_unique=True)
        diff.n_texts_other_boundaries += bool(len(boundaries))
        diff.n_pre_tokens += len(pre_tokens)
        # The common ends of tokens with different ids. Where these begin at different offsets, the
        # boundary that one side lacks is inside or at the start of the same pre-token.
        common, in_a, in_b = np.intersect1d(ends_a, ends_b, assume_unique=True, return_indices=True)
        renumbered = common[ids_a[in_a] != ids_b[in_b]]
        if not len(boundaries) and not len(renumbered):
            return
        recut = _pre_tokens_at(ends, boundaries, is_boundary=True)
        numbered = np.union1d(recut, _pre_tokens_at(ends, renumbered, is_boundary=False))
        diff.n_pre_tokens_other_boundaries += len(recut)
        diff.n_pre_tokens_other_ids += len(numbered)
        self._other_boundaries.update(pre_tokens[i] for i in recut.tolist())
        self._other_ids.update(pre_tokens[i] for i in numbered.tolist())
        for kept, numbers in ((self._made_of_recut, recut), (self._made_of_numbered, numbered)):
            for i in numbers.tolist():
                if pre_tokens[i] not in kept and len(kept) < _MAX_DISTINCT:
                    span = int(ends[i]) - sizes[i], int(ends[i])
                    made = _ids_over(span, ids_a, ends_a), _ids_over(span, ids_b, ends_b)
                    kept[pre_tokens[i]] = made

    def finish(self, n_examples: int) -> TextDiff:
        """The counts, with examples."""
        commonest, kept = self._other_boundaries, self._made_of_recut
        if not commonest:
            commonest, kept = self._other_ids, self._made_of_numbered
        vocab_a, vocab_b = self._a.spec.vocab, self._b.spec.vocab
        known = (item for item in commonest.most_common() if item[0] in kept)
        for pre_token, count in islice(known, max(n_examples, 0)):
            ids_a, ids_b = kept[pre_token]
            self._diff.examples.append(
                DifferingPreToken(
                    pre_token=show_token(pre_token.encode()),
                    count=count,
                    tokens_a=[show_token(vocab_a[id_]) for id_ in ids_a],
                    tokens_b=[show_token(vocab_b[id_]) for id_ in ids_b],
                    ids_a=ids_a,
                    ids_b=ids_b,
                )
            )
        return self._diff


def _split_parts(parts: Iterable[Part], pattern: SplitPattern) -> list[str]:
    """The pre-tokens; a content token is one."""
    pre_tokens: list[str] = []
    for plain, token in parts:
        pre_tokens += split(plain, pattern)
        if token is not None:
            pre_tokens.append(token)
    return pre_tokens


def _ids_over(span: tuple[int, int], ids: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """The ids of the tokens that overlap the span."""
    first = int(np.searchsorted(ends, span[0], side="right"))
    last = int(np.searchsorted(ends, span[1], side="left"))
    found: list[int] = ids[first : last + 1].tolist()
    return found


def _pre_tokens_at(
    ends: NDArray[np.int64], boundaries: NDArray[np.int64], *, is_boundary: bool
) -> NDArray[np.int64]:
    """The indices of the pre-tokens that contain these offsets or end there. If one side lacks a
    boundary between two pre-tokens, both are affected."""
    numbers = np.searchsorted(ends, boundaries, side="left")
    if is_boundary:
        between = numbers[ends[numbers] == boundaries] + 1
        numbers = np.concatenate([numbers, between[between < len(ends)]])
    return np.unique(numbers)
