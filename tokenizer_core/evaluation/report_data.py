"""The plain data of a report, and tokens as readable text.

`Report.to_dict` is the JSON of `tokenizer report --json`; `docs/evaluation.md` describes its
fields. `SCHEMA` changes when a field is removed or changes its meaning.
"""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from typing import Any, Final

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
        """The figures of this tokenizer on this corpus.

        Raises:
            LookupError: the report has no such pair.
        """
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
    bytes that are not UTF-8, a count for a run of one character, and at most 60 characters.

    Example:
        >>> show_token(b" the"), show_token(b"\\xe4\\xb8"), show_token(b"-" * 64)
        ("' the'", "'\\\\xe4\\\\xb8'", "'-' × 64")
    """
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
