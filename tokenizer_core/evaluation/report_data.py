"""What a report holds, as plain data, and how a token is shown to people.

`Report.to_dict` is the JSON of `tokenizer report --json`; its fields are described in
`docs/evaluation.md`, and `SCHEMA` changes when one of them changes its meaning or goes. Imports
nothing of the package.
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
    """A token: `text` for people (see `show_token`), `bytes` in base64 for programs. `reason`: why
    it is unreachable."""

    id: int
    text: str
    bytes: str
    n_bytes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer, as far as no single corpus decides it; `vocabulary_use`, `text_length_shares`
    and `rank_frequency` are those of all samples together."""

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
    """What was read of a corpus. `has_words`: most of its letters are of scripts with spaces."""

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
    """One tokenizer on one corpus; `measures` says what each figure is. `fertility` and
    `single_token_words` are None where the corpus has no words to speak of."""

    tokenizer: str
    corpus: str
    n_bytes: int
    n_tokens: int
    bytes_per_token: float
    tokens_per_byte: float
    n_words: int
    fertility: float | None
    single_token_words: float | None
    n_ids_used: int
    vocabulary_use: float
    renyi_efficiency: float
    renyi_efficiency_of_used: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Parity:
    """Tokens on each corpus over those on `reference`, by tokenizer; `basis` is `parallel lines`,
    or `equal bytes` where the corpora do not say the same."""

    basis: str
    reference: str
    ratios: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Report:
    """All of it; `machine` is where the throughput was measured."""

    schema: str
    renyi_alpha: float
    machine: str
    tokenizers: list[Vocabulary]
    corpora: list[CorpusSample]
    measurements: list[Measurement]
    parity: Parity | None

    def to_dict(self) -> dict[str, Any]:
        """The report as a dict that `json.dumps` takes."""
        return asdict(self)

    def measurement(self, tokenizer: str, corpus: str) -> Measurement:
        """The figures of this tokenizer on this corpus.

        Raises:
            LookupError: no such pair.
        """
        for found in self.measurements:
            if (found.tokenizer, found.corpus) == (tokenizer, corpus):
                return found
        raise LookupError(f"the report has no tokenizer {tokenizer!r} on a corpus {corpus!r}")


def shown_token(id_: int, token: bytes, reason: str | None = None) -> ShownToken:
    """The token with how it is shown."""
    encoded = base64.b64encode(token).decode()
    return ShownToken(id_, show_token(token), encoded, len(token), reason)


def show_token(token: bytes) -> str:
    """The bytes in quotes, as a person can read them on one line: what is no printable character
    is escaped, bytes that are no UTF-8 as `\\x..`, a run of one character is counted, and what is
    long is cut off.

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
