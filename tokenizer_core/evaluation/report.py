"""The report: every measure of some tokenizers on some corpora, as plain data.

`build_report` reads each corpus once, piece by piece, and passes each piece to every tokenizer.
Memory holds one piece, and the id counts for each tokenizer and corpus. `tables` and `pages`
display a report.

`Report.to_dict` is the JSON of `tokenizer report --json`; `docs/evaluation.md` describes its
fields. `SCHEMA` changes when a field is removed or changes its meaning.
"""

from __future__ import annotations

import base64
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.errors import CorpusError
from tokenizer_core.evaluation import measures
from tokenizer_core.evaluation.measures import (
    count_unspaced_letters,
    longest_tokens,
    partial_utf8_tokens,
    token_byte_lengths,
    tokens_of_words,
    word_spans,
)
from tokenizer_core.evaluation.unreachable import PROVEN, unreachable_tokens
from tokenizer_core.specials.parts import join_parts, parts_as_encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokenizer_core.evaluation.samples import ParallelFile, TextFiles
    from tokenizer_core.tokenizer import Tokenizer

    Progress = Callable[[str, int], None]


SCHEMA: Final = "tokenizer-report/1"

_SHOWN_CHARS: Final = 60
_RUN: Final = 8


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token: `text` for readers (see `show_token`), `bytes` in base64 for programs. `reason`
    explains why an unreachable token is unreachable."""

    id: int
    text: str
    bytes: str
    n_bytes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The figures of a tokenizer that do not depend on a single corpus; `vocabulary_use`,
    `text_length_shares` and `rank_frequency` are those of all samples together."""

    name: str
    fingerprint: str
    kind: str
    pattern: str
    normalizer: str
    engine: str
    vocab_size: int
    largest_id: int
    n_special: int
    vocabulary_use: float
    n_unreachable: int
    n_not_found: int
    unreachable_by_reason: dict[str, int]
    unreachable_examples: list[ShownToken]
    n_partial_utf8: int
    longest_tokens: list[ShownToken]
    length_shares: list[float]
    text_length_shares: list[float]
    rank_frequency: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """The sample of a corpus. `has_words`: most letters are in scripts with spaces."""

    name: str
    size_bytes: int
    sample_bytes: int
    seed: int
    n_pieces: int
    n_texts: int
    n_pieces_cut_elsewhere: int
    n_words: int
    has_words: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """One tokenizer on one corpus; `measures` defines each figure. `fertility` and
    `single_token_words` are means over `n_words`: None if that is 0, or if the corpus has hardly
    any words. `n_words_left_out`: the words in texts that encode to tokens of other bytes."""

    tokenizer: str
    corpus: str
    n_bytes: int
    n_tokens: int
    bytes_per_token: float
    tokens_per_byte: float
    n_words: int
    n_words_left_out: int
    fertility: float | None
    single_token_words: float | None
    n_ids_used: int
    vocabulary_use: float
    renyi_efficiency: float
    renyi_efficiency_of_used: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Parity:
    """Tokens on each corpus divided by those on `reference`, by tokenizer; `basis` is `parallel
    lines`, or `equal bytes` if the corpora have different content."""

    basis: str
    reference: str
    ratios: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report; `machine` names the machine on which throughput was measured."""

    schema: str
    renyi_alpha: float
    machine: str
    tokenizers: list[Vocabulary]
    corpora: list[CorpusSample]
    measurements: list[Measurement]
    parity: Parity | None

    def to_dict(self) -> dict[str, Any]:
        """The report as a JSON-serialisable dict."""
        return asdict(self)

    def measurement(self, tokenizer: str, corpus: str) -> Measurement:
        """The figures of this tokenizer on this corpus. Raises LookupError: the report has no such
        pair."""
        for found in self.measurements:
            if (found.tokenizer, found.corpus) == (tokenizer, corpus):
                return found
        raise LookupError(f"the report has no tokenizer {tokenizer!r} on a corpus {corpus!r}")


def shown_token(id_: int, token: bytes, reason: str | None = None) -> ShownToken:
    """The token as text for readers and as bytes for programs."""
    encoded = base64.b64encode(token).decode()
    return ShownToken(id_, show_token(token), encoded, len(token), reason)


def show_token(token: bytes) -> str:
    """The bytes in quotes on one line, for readers: escapes for unprintable characters, `\\x..` for
    bytes that are not UTF-8, a count for a run of one character, and at most 60 characters."""
    text = token.decode(errors="surrogateescape")
    if len(text) >= _RUN and text == text[0] * len(text):
        return f"{show_token(text[0].encode(errors='surrogateescape'))} × {len(text)}"
    cut = text[:_SHOWN_CHARS]
    shown = "".join(map(_show_character, cut))
    return f"'{shown}'" + ("…" if len(text) > _SHOWN_CHARS else "")


def _show_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character.isprintable() and character not in "\\'":
        return character
    return character.encode("unicode_escape").decode() if character != "'" else "\\'"


def build_report(
    tokenizers: Mapping[str, Tokenizer],
    corpora: Mapping[str, TextFiles | ParallelFile],
    *,
    seed: int = 0,
    is_parallel: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Measure each tokenizer on each corpus; the keys of both are their displayed names.

    Text is plain text: special tokens in it are not recognised. `seed` is recorded as the sampling
    seed of the corpora; `is_parallel` means that they are line-by-line translations. `progress` is
    called with a label and the bytes processed since the last call, counted once for each
    tokenizer. Raises CorpusError: a corpus is missing, empty or not UTF-8, or no sample has a
    character.
    """
    if not (isinstance(tokenizers, Mapping) and isinstance(corpora, Mapping)):
        raise TypeError(
            "tokenizers and corpora are dicts by displayed name, such as {'gpt2': tokenizer} and "
            "{'news': TextFiles('news.txt')}"
        )
    show = progress or (lambda _word, _n_bytes: None)
    tallies = {name: {corpus: _Tally(t) for corpus in corpora} for name, t in tokenizers.items()}
    samples = []
    for corpus, source in corpora.items():
        gathered = [by_corpus[corpus] for by_corpus in tallies.values()]
        samples.append(_read_corpus(corpus, source, gathered, seed, show))
    if not any(sample.sample_bytes for sample in samples):
        raise CorpusError(
            "no corpus has a character in its sample; sample more bytes (--sample-bytes)"
        )
    measured = [
        tally.measurement(name, sample)
        for name, by_corpus in tallies.items()
        for sample, tally in zip(samples, by_corpus.values(), strict=True)
    ]
    vocabularies = []
    for name, by_corpus in tallies.items():
        show(f"vocabulary of {name}", 0)
        vocabularies.append(_vocabulary(name, tokenizers[name], list(by_corpus.values())))
    return Report(
        schema=SCHEMA,
        renyi_alpha=measures.RENYI_ALPHA,
        # Without the number of processors: only one thread encodes.
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        tokenizers=vocabularies,
        corpora=samples,
        measurements=measured,
        parity=_parity(measured, list(tokenizers), list(corpora), is_parallel=is_parallel),
    )


class _Tally:
    """The data collected for one tokenizer on one corpus."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._lengths = measures.lengths_in_text(tokenizer.spec)
        self.counts = np.zeros(len(self._lengths), dtype=np.int64)
        self.n_bytes = self.n_words = self.n_word_tokens = self.n_single = self.n_left_out = 0
        self._timed: list[tuple[int, float]] = []

    def add(self, texts: Sequence[str], n_bytes: int, spans: Sequence[NDArray[np.int64]]) -> None:
        """Encode the texts of a piece; `spans` are the words of each text."""
        begin = time.perf_counter()
        ids, offsets = self.tokenizer.encode_batch_to_numpy(texts, allowed_special=())
        self._timed.append((n_bytes, time.perf_counter() - begin))
        self.n_bytes += n_bytes
        self.counts += np.bincount(ids, minlength=len(self.counts))
        bounds = offsets.astype(np.int64)
        for i, (encoded, words) in enumerate(self._spans_as_encoded(texts, spans)):
            if len(words):
                ends = np.cumsum(self._lengths[ids[bounds[i] : bounds[i + 1]]])
                if not len(ends) or ends[-1] != len(encoded.encode()):
                    self.n_left_out += len(words)
                    continue  # encoding lost text, so tokens and words are not aligned
                n_tokens = tokens_of_words(words, ends)
                self.n_words += len(words)
                self.n_word_tokens += int(n_tokens.sum())
                self.n_single += int((n_tokens == 1).sum())

    def _spans_as_encoded(
        self, texts: Sequence[str], spans: Sequence[NDArray[np.int64]]
    ) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """The text as encoded, which some tokenizers normalize, and the words in it."""
        spec = self.tokenizer.spec
        for text, words in zip(texts, spans, strict=True):
            # Tokens with flags take white space, without which two words would be one.
            if spec.normalizer.name == "none" or spec.has_flags:
                yield text, words
                continue
            normalized = join_parts(parts_as_encoded(spec, text))
            yield normalized, words if normalized == text else word_spans(normalized)

    def measurement(self, name: str, sample: CorpusSample) -> Measurement:
        """The figures of the tokenizer on the corpus."""
        n_tokens, vocab_size = int(self.counts.sum()), self.tokenizer.vocab_size
        per_token = measures.bytes_per_token(self.n_bytes, n_tokens)
        n_used = int(np.count_nonzero(self.counts))
        has_words = sample.has_words and self.n_words > 0
        return Measurement(
            tokenizer=name,
            corpus=sample.name,
            n_bytes=self.n_bytes,
            n_tokens=n_tokens,
            bytes_per_token=per_token,
            tokens_per_byte=1 / per_token if per_token else 0.0,
            n_words=self.n_words,
            n_words_left_out=self.n_left_out,
            fertility=(measures.fertility(self.n_word_tokens, self.n_words) if has_words else None),
            single_token_words=(
                measures.single_token_share(self.n_single, self.n_words) if has_words else None
            ),
            n_ids_used=n_used,
            vocabulary_use=measures.vocabulary_use(self.counts, vocab_size),
            renyi_efficiency=measures.renyi_efficiency(self.counts, vocab_size),
            renyi_efficiency_of_used=measures.renyi_efficiency(self.counts, n_used),
            bytes_per_second=measures.bytes_per_second(self._timed),
        )


def _read_corpus(
    name: str,
    source: TextFiles | ParallelFile,
    tallies: Sequence[_Tally],
    seed: int,
    show: Progress,
) -> CorpusSample:
    size = source.size_bytes()
    n_pieces = n_texts = n_bytes = n_unsafe = n_words = n_word_bytes = n_unspaced = 0
    for piece in source.pieces():
        texts = piece.texts
        piece_bytes = sum(len(text.encode()) for text in texts)
        spans = [word_spans(text) for text in texts]
        n_words += sum(map(len, spans))
        n_word_bytes += sum(int((words[:, 1] - words[:, 0]).sum()) for words in spans)
        n_unspaced += sum(map(count_unspaced_letters, texts))
        for tally in tallies:
            tally.add(texts, piece_bytes, spans)
            show(name, piece.end - piece.start)
        n_pieces, n_texts = n_pieces + 1, n_texts + len(texts)
        n_bytes, n_unsafe = n_bytes + piece_bytes, n_unsafe + (not piece.is_safe)
    return CorpusSample(
        name=name,
        size_bytes=size,
        sample_bytes=n_bytes,
        seed=seed,
        n_pieces=n_pieces,
        n_texts=n_texts,
        n_pieces_cut_elsewhere=n_unsafe,
        n_words=n_words,
        # Letters of scripts without spaces nearly always have three bytes.
        has_words=n_words > 0 and n_word_bytes > 3 * n_unspaced,
    )


def _vocabulary(name: str, tokenizer: Tokenizer, tallies: Sequence[_Tally]) -> Vocabulary:
    spec = tokenizer.spec
    lengths = token_byte_lengths(spec)
    counts = sum((tally.counts for tally in tallies), np.zeros(len(lengths), dtype=np.int64))
    is_token = (lengths > 0).astype(np.int64)
    # The samples are far larger than the texts tried: a token that occurred in them is reachable.
    unreachable = [token for token in unreachable_tokens(tokenizer) if not counts[token.id]]
    reasons = Counter(token.reason for token in unreachable)
    return Vocabulary(
        name=name,
        fingerprint=spec.fingerprint,
        kind=spec.kind,
        pattern=spec.pattern.name,
        normalizer=spec.normalizer.name,
        engine=tokenizer.engine_name,
        vocab_size=tokenizer.vocab_size,
        largest_id=spec.largest_id,
        n_special=len(spec.special_tokens),
        vocabulary_use=measures.vocabulary_use(counts, tokenizer.vocab_size),
        n_unreachable=sum(n for reason, n in reasons.items() if reason in PROVEN),
        n_not_found=reasons["not_found"],
        unreachable_by_reason=dict(sorted(reasons.items())),
        # Bytes outside UTF-8 are the same in every vocabulary, and would fill the list.
        unreachable_examples=[
            shown_token(token.id, token.token, token.reason)
            for token in unreachable
            if token.reason != "bytes"
        ][:20],
        n_partial_utf8=len(partial_utf8_tokens(spec)),
        longest_tokens=[shown_token(id_, token) for id_, token in longest_tokens(spec)],
        length_shares=measures.length_shares(lengths, is_token),
        text_length_shares=measures.length_shares(lengths, counts),
        rank_frequency=measures.rank_frequency(counts),
    )


def _parity(
    measured: Sequence[Measurement],
    tokenizers: Sequence[str],
    corpora: Sequence[str],
    *,
    is_parallel: bool,
) -> Parity | None:
    if len(corpora) < 2:
        return None
    ratios = {}
    for name in tokenizers:
        mine = [m for m in measured if m.tokenizer == name]
        amounts = {m.corpus: m.n_tokens if is_parallel else m.tokens_per_byte for m in mine}
        ratios[name] = measures.parity(amounts, corpora[0])
    basis = "parallel lines" if is_parallel else "equal bytes"
    return Parity(basis=basis, reference=corpora[0], ratios=ratios)
