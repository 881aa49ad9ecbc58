"""The plain data of a judge run: tokenizers, their models' bits per byte, and the budget.

`Judgement.to_dict` is the JSON of `tokenizer judge --json`, and `load_judgement` reads it;
`docs/evaluation.md` describes its fields. `JUDGE_SCHEMA` changes when a field is removed or changes
its meaning.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from tokenizer_core.errors import FormatError
from tokenizer_core.strict_json import parse_strict_json

JUDGE_SCHEMA: Final = "tokenizer-judge/1"


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the seeds; `std` is the sample standard deviation, None with one seed."""

    mean: float
    min: float
    max: float
    std: float | None

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value.

        Example:
            >>> Spread.over([1.0, 3.0])
            Spread(mean=2.0, min=1.0, max=3.0, std=1.4142135623730951)
        """
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), min(values), max(values), std)

    def overlaps(self, other: Spread) -> bool:
        """Whether the ranges from `min` to `max` have a common value."""
        return self.min <= other.max and other.min <= self.max


@dataclass(frozen=True, slots=True)
class LossPoint:
    """The training loss after `n_tokens`: the mean since the point before, in bits per byte. The
    other figures are what was spent up to it."""

    n_tokens: int
    n_bytes: int
    flops: int
    bits_per_byte: float


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """One model of one seed. `loss` is in nats per token of the validation text, `seconds` is the
    time of its training."""

    seed: int
    bits_per_byte: float
    loss: float
    seconds: float
    curve: list[LossPoint]


@dataclass(frozen=True, slots=True)
class JudgedTokenizer:
    """A tokenizer, and what was spent on each of its models.

    `n_parameters_of_layers` leaves out the token embeddings and the output layer, so it is the same
    for all tokenizers. `bytes_per_token` is on the validation text. `n_tokens` and `n_bytes` are
    what a model saw in training, and `epochs` is how often that is the training text.
    """

    name: str
    fingerprint: str
    normalizer: str
    vocab_size: int
    n_parameters: int
    n_parameters_of_layers: int
    bytes_per_token: float
    n_validation_tokens: int
    flops_per_token: int
    n_steps: int
    n_tokens: int
    n_bytes: int
    flops: int
    epochs: float
    tokens_per_second: float
    bits_per_byte: Spread
    models: list[JudgedModel]


@dataclass(frozen=True, slots=True)
class JudgedCorpus:
    """The corpus, and its division into whole documents for training and for validation."""

    name: str
    n_documents: int
    n_validation_documents: int
    train_bytes: int
    validation_bytes: int


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The sizes of a model apart from its vocabulary, and how it is trained. `n_tokens_per_step` is
    `batch_size` times `context_length`."""

    name: str
    width: int
    n_layers: int
    n_heads: int
    context_length: int
    batch_size: int
    learning_rate: float

    @property
    def n_tokens_per_step(self) -> int:
        """Targets of one batch."""
        return self.batch_size * self.context_length


@dataclass(frozen=True, slots=True)
class Judgement:
    """A whole run. Each model had a budget of `amount`: floating-point operations if `budget` is
    `flops`, bytes of text if it is `bytes`."""

    schema: str
    budget: str
    amount: int
    size: ModelSize
    corpus: JudgedCorpus
    seeds: list[int]
    machine: str
    tokenizers: list[JudgedTokenizer]

    def to_dict(self) -> dict[str, Any]:
        """The run as a JSON-serialisable dict."""
        return asdict(self)

    @property
    def best(self) -> JudgedTokenizer:
        """The tokenizer with the fewest bits per byte."""
        return min(self.tokenizers, key=lambda tokenizer: tokenizer.bits_per_byte.mean)

    def find(self, fingerprint: str) -> JudgedTokenizer | None:
        """The tokenizer with this fingerprint, if it was judged."""
        return next((each for each in self.tokenizers if each.fingerprint == fingerprint), None)

    def as_good(self) -> list[JudgedTokenizer]:
        """The tokenizers other than the best whose range over the seeds overlaps with its range."""
        best = self.best
        return [
            tokenizer
            for tokenizer in self.tokenizers
            if tokenizer is not best and tokenizer.bits_per_byte.overlaps(best.bits_per_byte)
        ]


def load_judgement(path: str | os.PathLike[str]) -> Judgement:
    """Read what `tokenizer judge --json` wrote. Fields that this release does not know are ignored.

    Raises:
        FormatError: the file is not such a run.
        OSError: it cannot be read.
    """
    value = parse_strict_json(Path(path).read_bytes(), str(path))
    if not isinstance(value, dict) or value.get("schema") != JUDGE_SCHEMA:
        raise FormatError(
            f"{path} is not a judge run of this release ({JUDGE_SCHEMA}); make one with tokenizer "
            f"judge --json FILE"
        )
    try:
        judgement: Judgement = _read(Judgement, value, "run")
        if not judgement.tokenizers:
            raise ValueError("no tokenizers")
    except ValueError as error:
        raise FormatError(f"{path} is a damaged judge run: {error}; make it again") from None
    return judgement


def _read(kind: Any, value: Any, field: str) -> Any:
    """`value` of JSON as a `kind`: a data class, a list, a number, a str or None.

    Raises:
        ValueError: it is of another kind.
    """
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        kinds = get_type_hints(kind)
        read = {
            each.name: _read(kinds[each.name], value.get(each.name), each.name)
            for each in fields(kind)
        }
        return kind(**read)
    if get_origin(kind) is list and isinstance(value, list):
        (item,) = get_args(kind)
        return [_read(item, each, field) for each in value]
    if value is None and type(None) in get_args(kind):
        return None
    if float in (kind, *get_args(kind)) and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (int, str) and type(value) is kind:
        return value
    raise ValueError(f"{field} is missing or wrong")
