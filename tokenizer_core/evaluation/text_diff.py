"""How two tokenizers differ on text: which pre-tokens and texts they cut or number otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.evaluation.report_data import show_token
from tokenizer_core.normalize import changed
from tokenizer_core.pretokenize import split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.evaluation.corpus_samples import SamplePiece
    from tokenizer_core.tokenizer import Tokenizer

_MAX_DISTINCT: Final = 100_000

_Made = tuple[list[int], list[int]]
Vocab = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class DifferingPreToken:
    """A pre-token the two encode differently, how often, and what each made of it where it came
    first: the tokens that reach into it, shown, and their ids."""

    pre_token: str
    count: int
    tokens_a: list[str]
    tokens_b: list[str]
    ids_a: list[int]
    ids_b: list[int]


@dataclass(slots=True)
class TextDiff:
    """Counts over a sample; pre-tokens are those of A's split pattern.

    `n_texts_not_aligned`: texts that one of the two normalizes to other bytes, so that boundaries
    cannot be compared; they count among the texts, and none of their pre-tokens does.
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

    def to_dict(self) -> dict[str, Any]:
        """The counts as a dict that `json.dumps` takes."""
        return asdict(self)


def diff_on_text(
    a: Tokenizer,
    b: Tokenizer,
    pieces: Iterable[SamplePiece],
    *,
    n_examples: int = 10,
    progress: Callable[[int], None] | None = None,
) -> TextDiff:
    """Encode the texts of `pieces` with both, as plain text, and count what differs.

    A pre-token has other boundaries where a token begins or ends in it on one side only; other ids
    where it has other boundaries or a token of it has another id. The examples are the commonest
    with other boundaries, or where none has, the commonest with other ids. `progress` is called
    with the bytes of each piece.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> from tokenizer_core.evaluation.corpus_samples import SamplePiece
        >>> vocab = {i: bytes([i]) for i in range(256)}
        >>> a, b = Tokenizer(vocab, []), Tokenizer(vocab | {256: b"ab"}, [(b"a", b"b")])
        >>> found = diff_on_text(a, b, [SamplePiece(("ab cd",), 0, 5, True)])
        >>> found.n_pre_tokens, found.n_pre_tokens_other_boundaries, found.examples[0].tokens_b
        (2, 1, ["'ab'"])
    """
    comparison = _Comparison(a, b)
    for piece in pieces:
        comparison.add(piece.texts)
        if progress is not None:
            progress(piece.end - piece.start)
    return comparison.finish(n_examples)


class _Comparison:
    """What has been found so far."""

    def __init__(self, a: Tokenizer, b: Tokenizer) -> None:
        self._a, self._b = a, b
        self._lengths = [_lengths(tokenizer) for tokenizer in (a, b)]
        self._normalizes = [tokenizer.spec.normalizer == "nfc" for tokenizer in (a, b)]
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
        if any(self._normalizes) and (changes := self._a.engine.nfc_changes(text)):
            if not all(self._normalizes):
                diff.n_texts_not_aligned += 1
                return
            text = changed(text, changes)
        ends_a, ends_b = np.cumsum(self._lengths[0][ids_a]), np.cumsum(self._lengths[1][ids_b])
        places = np.setxor1d(ends_a, ends_b, assume_unique=True)
        diff.n_texts_other_boundaries += bool(len(places))
        pre_tokens = split(text, self._a.spec.pattern)
        sizes = list(map(len, pre_tokens if text.isascii() else map(str.encode, pre_tokens)))
        ends = np.cumsum(sizes)
        diff.n_pre_tokens += len(pre_tokens)
        renumbered = _ends_of_renumbered(ids_a, ids_b, ends_a, ends_b)
        if not len(places) and not len(renumbered):
            return
        recut = _pre_tokens_at(ends, places, is_boundary=True)
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
        """The counts with their examples."""
        commonest, kept = self._other_boundaries, self._made_of_recut
        if not commonest:
            commonest, kept = self._other_ids, self._made_of_numbered
        vocabularies = self._a.spec.vocab, self._b.spec.vocab
        for pre_token, count in commonest.most_common():
            if len(self._diff.examples) >= n_examples:
                break
            if pre_token in kept:
                example = _example(pre_token, count, kept[pre_token], vocabularies)
                self._diff.examples.append(example)
        return self._diff


def _example(
    pre_token: str, count: int, made: _Made, vocabularies: tuple[Vocab, Vocab]
) -> DifferingPreToken:
    ids_a, ids_b = made
    vocab_a, vocab_b = vocabularies
    return DifferingPreToken(
        pre_token=show_token(pre_token.encode()),
        count=count,
        tokens_a=[show_token(vocab_a[id_]) for id_ in ids_a],
        tokens_b=[show_token(vocab_b[id_]) for id_ in ids_b],
        ids_a=ids_a,
        ids_b=ids_b,
    )


def _lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    lengths = np.zeros(tokenizer.spec.largest_id + 1, dtype=np.int64)
    for id_, token in tokenizer.spec.vocab.items():
        lengths[id_] = len(token)
    return lengths


def _ids_over(span: tuple[int, int], ids: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
    """The ids of the tokens that hold a byte of the span."""
    first = int(np.searchsorted(ends, span[0], side="right"))
    last = int(np.searchsorted(ends, span[1], side="left"))
    found: list[int] = ids[first : last + 1].tolist()
    return found


def _ends_of_renumbered(
    ids_a: NDArray[np.int64],
    ids_b: NDArray[np.int64],
    ends_a: NDArray[np.int64],
    ends_b: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Where tokens of both sides end that have other ids. Where they begin elsewhere, the boundary
    that one side lacks is in the same pre-token, or where it begins."""
    ends, in_a, in_b = np.intersect1d(ends_a, ends_b, assume_unique=True, return_indices=True)
    found: NDArray[np.int64] = ends[ids_a[in_a] != ids_b[in_b]]
    return found


def _pre_tokens_at(
    ends: NDArray[np.int64], places: NDArray[np.int64], *, is_boundary: bool
) -> NDArray[np.int64]:
    """The numbers of the pre-tokens that hold or end at the places. A boundary that one side lacks
    between two of them joins both."""
    numbers = np.searchsorted(ends, places, side="left")
    if is_boundary:
        between = numbers[ends[numbers] == places] + 1
        numbers = np.concatenate([numbers, between[between < len(ends)]])
    return np.unique(numbers)
