"""Compare tokenizers by the bits per byte of small language models, all with the same budget.

    python examples/language_model/judge.py news-1000 news-4000 --corpus news.txt
    python examples/language_model/judge.py mine=tokenizer.json gpt2 --corpus news.txt \
        --budget bytes --amount 2e6 --seeds 3 --json judge.json

Bytes per token says how much a tokenizer compresses, and not whether a model learns from its
tokens. This script trains the same Transformer (`model.py`) on the ids of each tokenizer, within
the same number of floating-point operations or on the same number of bytes, and measures the loss
on the same documents, in bits per byte of their text. Lower is better.

- A hash of the seed and the text chooses the documents for validation, so copies of a document are
  on the same side, in any order of the file.
- Every document begins with a boundary id, one above the largest id of the tokenizer, so that
  tokenizers with and without special tokens are treated alike. The loss of a boundary does not
  count. Text is plain text: special tokens in it are not recognised.
- The loss of every token of the validation text counts once, after at least half a context of
  earlier tokens, except at the beginning. The sum is divided by the bytes of the text as it is in
  the corpus, also for a tokenizer that normalizes it.

The corpus and its ids are in memory.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model import ModelConfig, TransformerLM
from tqdm import tqdm
from train import Batch, Trainer, TrainingConfig

from tokenizer_core import Tokenizer, TokenizerCoreError
from tokenizer_core.documents import CorpusFormat, read_documents
from tokenizer_core.registry import ArtifactStore

SCHEMA = "tokenizer-judge/2"
FEWEST_STEPS = 10
MOST_WARMUP_STEPS = 100


class JudgeError(Exception):
    """The tokenizers cannot be judged as asked."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The sizes of a model apart from its vocabulary, and how it is trained."""

    width: int
    n_layers: int
    n_heads: int
    context_length: int
    batch_size: int
    learning_rate: float
    flops: float
    """The default budget of floating-point operations."""
    n_bytes: float
    """The default budget of bytes."""

    @property
    def n_tokens_per_step(self) -> int:
        """Targets of one batch."""
        return self.batch_size * self.context_length


SIZES = {
    "tiny": ModelSize(128, 2, 4, 128, 8, 3e-3, 2e12, 1e6),
    "small": ModelSize(256, 4, 8, 256, 32, 2e-3, 1e14, 2e7),
    "medium": ModelSize(512, 4, 16, 256, 64, 1e-3, 1e16, 5e8),
}
"""`tiny` is for a processor; `medium` is the size of the course's model for TinyStories."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to judge.

    `amount` is the budget of one model, by default that of the size. `n_seeds` models are trained
    for each tokenizer, with the seeds `seed`, `seed + 1` and so on; `seed` also chooses the
    documents for validation, about `validation_bytes` of them.
    """

    budget: str = "flops"
    amount: float | None = None
    size: ModelSize = SIZES["tiny"]
    n_seeds: int = 2
    seed: int = 0
    validation_bytes: int = 200_000
    device: str = "cpu"
    compiles: bool = False

    @property
    def spent(self) -> float:
        """The budget of one model."""
        default = self.size.flops if self.budget == "flops" else self.size.n_bytes
        return default if self.amount is None else self.amount


@dataclass(frozen=True, slots=True)
class Judged:
    """A tokenizer, what one of its models had, and the bits per byte of each.

    `bytes_per_token` is on the validation text. `n_tokens` and `n_bytes` are what a model saw in
    training, and `epochs` is how often that is the training text.
    """

    name: str
    fingerprint: str
    vocab_size: int
    n_parameters: int
    bytes_per_token: float
    n_steps: int
    n_tokens: int
    n_bytes: int
    flops: int
    epochs: float
    tokens_per_second: float
    bits_per_byte: list[float]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.bits_per_byte)

    def overlaps(self, other: Judged) -> bool:
        """Whether the ranges over the seeds have a common value."""
        mine, theirs = self.bits_per_byte, other.bits_per_byte
        return min(mine) <= max(theirs) and min(theirs) <= max(mine)


# ---- Documents and ids


def divide(documents: Sequence[str], options: Options) -> tuple[list[str], list[str]]:
    """The documents for training and those for validation.

    Raises:
        JudgeError: too few documents, or too little text.
    """
    counts = Counter(text for text in documents if text)
    if len(counts) < 2:
        raise JudgeError("the corpus is one document; name what ends documents: --separator")
    key = str(options.seed).encode()
    chosen: set[str] = set()
    taken = 0
    for text in sorted(counts, key=lambda text: blake2b(text.encode(), key=key).digest()):
        if taken >= options.validation_bytes:
            break
        chosen.add(text)
        taken += counts[text] * len(text.encode())
    training = [text for text in documents if text and text not in chosen]
    if count_bytes(training) < taken:
        raise JudgeError(
            f"the corpus is too small: {taken:,} bytes validate and {count_bytes(training):,} "
            f"train; give more text, or lower --validation-bytes"
        )
    return training, [text for text in documents if text in chosen]


def count_bytes(texts: Sequence[str]) -> int:
    """The bytes of the texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


class TokenStream:
    """The ids of documents one after another, each after the boundary id."""

    def __init__(self, tokenizer: Tokenizer, documents: Sequence[str]) -> None:
        ids, offsets = tokenizer.encode_batch_to_numpy(documents, allowed_special=())
        is_plain = tokenizer.spec.normalizer.name == "none"
        if is_plain and tokenizer.decode_bytes(ids) != "".join(documents).encode():
            raise JudgeError(
                "a tokenizer drops a part of the text, so that its loss per byte says nothing; "
                "judge on text that its split pattern matches"
            )
        boundary = tokenizer.spec.largest_id + 1
        self.ids = np.insert(ids.astype(np.int64), offsets[:-1].astype(np.int64), boundary)
        self.n_tokens = len(ids)
        self.n_bytes = count_bytes(documents)

    def sample_batch(self, batch_size: int, context_length: int, rng: np.random.Generator) -> Batch:
        """Inputs and targets from random positions, each (batch_size, context_length) of int64."""
        starts = rng.integers(0, len(self.ids) - context_length, size=batch_size)
        rows = np.stack([self.ids[start : start + context_length + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    def windows(self, batch_size: int, context_length: int) -> Iterator[Batch]:
        """Inputs and targets (B, context_length) in which each id but the first is a target once.

        A window begins half a context after the one before. Targets that the one before has are -1.
        """
        n_targets, half = len(self.ids) - 1, max(context_length // 2, 1)
        n_windows = 1 + -(-max(n_targets - context_length, 0) // half)
        padding = np.full(context_length + half, -1, dtype=np.int64)
        padded = np.concatenate((self.ids, padding))
        rows = np.lib.stride_tricks.sliding_window_view(padded, context_length + 1)[::half]
        for first in range(0, n_windows, batch_size):
            batch = rows[first : min(first + batch_size, n_windows)]
            targets = batch[:, 1:].copy()
            targets[1 if first == 0 else 0 :, : context_length - half] = -1
            yield np.maximum(batch[:, :-1], 0), targets


# ---- Models


class Entrant:
    """A tokenizer with its ids, the sizes of its model, and the steps that the budget allows."""

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        training: Sequence[str],
        validation: Sequence[str],
        options: Options,
    ) -> None:
        self.name, self.tokenizer, self.options = name, tokenizer, options
        size = options.size
        self.training = TokenStream(tokenizer, training)
        self.validation = TokenStream(tokenizer, validation)
        if len(self.training.ids) <= size.context_length:
            raise JudgeError(f"the text to train on is shorter than a context of {name}")
        self.config = ModelConfig(
            vocab_size=tokenizer.spec.largest_id + 2,  # with the boundary
            context_length=size.context_length,
            width=size.width,
            n_layers=size.n_layers,
            n_heads=size.n_heads,
        )
        model = TransformerLM(self.config)
        self.n_parameters, self.flops_per_token = model.n_parameters, model.flops_per_token
        per_id = self.training.n_bytes / len(self.training.ids)
        per_step = size.n_tokens_per_step * (
            self.flops_per_token if options.budget == "flops" else per_id
        )
        self.n_steps = int(options.spent / per_step)
        self.n_tokens = self.n_steps * size.n_tokens_per_step
        self.n_bytes = round(self.n_tokens * per_id)
        if self.n_steps < FEWEST_STEPS:
            raise JudgeError(
                f"a budget of {options.spent:.2e} {options.budget} trains a model of {name} for "
                f"{self.n_steps} steps, too few to learn; give at least "
                f"{FEWEST_STEPS * per_step * 1.01:.2e} (--amount), or a smaller model"
            )

    def train(self, seed: int, show: Callable[[int], object]) -> tuple[float, float]:
        """Train one model; return its bits per byte and the seconds of training. `show` gets the
        operations of each step.

        Raises:
            JudgeError: the loss is not finite, or the memory of the GPU is too small.
        """
        options, size = self.options, self.options.size
        config = TrainingConfig(
            n_steps=self.n_steps,
            batch_size=size.batch_size,
            max_lr=size.learning_rate,
            min_lr=size.learning_rate / 10,
            n_warmup_steps=min(MOST_WARMUP_STEPS, self.n_steps // 10),
            seed=seed,
            device=options.device,
            dtype="float32" if options.device == "cpu" else "bfloat16",
            compiles=options.compiles,
        )
        if options.compiles:
            torch.compiler.reset()  # torch compiles only a few models of one process
        trainer = Trainer(self.config, config, self.training)
        begin = time.perf_counter()
        try:
            while not trainer.is_done:
                trainer.step()
                show(size.n_tokens_per_step * self.flops_per_token)
        except ArithmeticError as error:
            raise JudgeError(f"{self.name}, seed {seed}: {error}") from None
        except torch.OutOfMemoryError:
            raise JudgeError(
                f"the GPU has too little memory for {self.name}; take a smaller batch or size"
            ) from None
        seconds = time.perf_counter() - begin
        trainer.config = replace(config, dtype="float32")  # 16 bits would round the logits
        # 1 for each id of text and 0 for the boundary. Tokens are counted instead of their bytes,
        # because those of a tokenizer that normalizes are not the bytes of the corpus.
        counted = np.ones(self.config.vocab_size, dtype=np.int64)
        counted[-1] = 0
        windows = self.validation.windows(size.batch_size, size.context_length)
        found = trainer.evaluate(windows, counted)
        if found.n_bytes != self.validation.n_tokens:
            raise AssertionError("a target was not counted once")
        return found.nats_of_bytes / math.log(2) / self.validation.n_bytes, seconds

    def judged(self, models: Sequence[tuple[float, float]]) -> Judged:
        """The result of its models."""
        return Judged(
            name=self.name,
            fingerprint=self.tokenizer.spec.fingerprint,
            vocab_size=self.tokenizer.vocab_size,
            n_parameters=self.n_parameters,
            bytes_per_token=self.validation.n_bytes / self.validation.n_tokens,
            n_steps=self.n_steps,
            n_tokens=self.n_tokens,
            n_bytes=self.n_bytes,
            flops=self.n_tokens * self.flops_per_token,
            epochs=self.n_tokens / len(self.training.ids),
            tokens_per_second=statistics.median(self.n_tokens / seconds for _, seconds in models),
            bits_per_byte=[bits for bits, _ in models],
        )


def judge(
    tokenizers: Mapping[str, Tokenizer],
    documents: Sequence[str],
    options: Options,
    *,
    is_quiet: bool = True,
) -> list[Judged]:
    """Train and measure `n_seeds` models for each tokenizer. On the CPU, the same arguments give
    the same losses.

    Raises:
        JudgeError: the text or the budget is too small, or a model diverges.
    """
    training, validation = divide(documents, options)
    entrants = [Entrant(*item, training, validation, options) for item in tokenizers.items()]
    models: dict[str, list[tuple[float, float]]] = {entrant.name: [] for entrant in entrants}
    total = options.n_seeds * sum(each.n_tokens * each.flops_per_token for each in entrants)
    with tqdm(total=total, disable=is_quiet or None, bar_format="{desc} {percentage:.0f}%") as bar:
        for seed in range(options.seed, options.seed + options.n_seeds):
            for entrant in entrants:
                bar.set_description(f"{entrant.name}, seed {seed}")
                models[entrant.name].append(entrant.train(seed, bar.update))
    return [entrant.judged(models[entrant.name]) for entrant in entrants]


# ---- The command


def render(judged: Sequence[Judged]) -> str:
    """The results as a table, and which tokenizer has the fewest bits per byte."""
    rows = [
        ["", "bits/byte", "over the seeds", "bytes/token", "entries", "parameters", "FLOPs",
         "bytes seen", "epochs", "tokens/s"]
    ]  # fmt: skip
    for each in judged:
        low, high = min(each.bits_per_byte), max(each.bits_per_byte)
        rows.append(
            [each.name, f"{each.mean:.3f}", f"{low:.3f} to {high:.3f}",
             f"{each.bytes_per_token:.3f}", f"{each.vocab_size:,}", f"{each.n_parameters:,}",
             f"{each.flops:.2e}", f"{each.n_bytes:,}", f"{each.epochs:.2f}",
             f"{each.tokens_per_second:,.0f}"]
        )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([*lines, "", verdict(judged)])


def verdict(judged: Sequence[Judged]) -> str:
    """Which tokenizer has the fewest bits per byte, and whether the seeds confirm that."""
    best = min(judged, key=lambda each: each.mean)
    first = f"Fewest bits per byte: {best.name}, {best.mean:.3f}."
    if len(judged) == 1:
        return first
    if len(best.bits_per_byte) == 1:
        return f"{first} One seed shows no spread; judge with more seeds before you conclude."
    if others := [each.name for each in judged if each is not best and each.overlaps(best)]:
        names = ", ".join(others)
        return f"{first} Its range over the seeds overlaps with {names}: no difference is shown."
    return f"{first} Its range over the seeds overlaps with no other."


def open_tokenizer(word: str, artifacts: str) -> tuple[str, Tokenizer]:
    """The tokenizer of `[LABEL=]WHAT`: a file or folder, the name of a preset, or a published one;
    and its label."""
    label, equals, what = word.rpartition("=")
    if Path(what).exists():
        return label if equals else Path(what).stem, Tokenizer.load(Path(what))
    store = ArtifactStore(artifacts)
    try:
        tokenizer = Tokenizer.from_spec(store.open(store.resolve(what)))
    except TokenizerCoreError:
        try:
            tokenizer = Tokenizer.from_preset(what)
        except TokenizerCoreError:
            raise JudgeError(f"{what} is no file, no preset and not in {artifacts}") from None
    return label if equals else what, tokenizer


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizers", nargs="+", help="[LABEL=] a file, a preset or NAME[@VERSION]")
    parser.add_argument("--corpus", required=True, help="text, JSONL or Parquet, also packed")
    parser.add_argument("--separator", default="<|endoftext|>", help="ends documents of text")
    parser.add_argument("--field", default="text", help="of JSONL and Parquet")
    parser.add_argument("--artifacts", default="artifacts", help="folder of published tokenizers")
    parser.add_argument("--validation-bytes", type=int, default=200_000)
    parser.add_argument("--budget", choices=("flops", "bytes"), default="flops")
    parser.add_argument("--amount", type=float, help="budget of one model, such as 2e12")
    parser.add_argument("--seeds", type=int, default=2, help="models for each tokenizer")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", dest="compiles", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser.parse_args(words)


def main() -> int:
    """Judge, and print the table; return 0 on success."""
    arguments = parse_arguments()
    options = Options(
        budget=arguments.budget,
        amount=arguments.amount,
        size=SIZES[arguments.size],
        n_seeds=max(arguments.seeds, 1),
        seed=arguments.seed,
        validation_bytes=arguments.validation_bytes,
        device=arguments.device,
        compiles=arguments.compiles,
    )
    try:
        opened = [open_tokenizer(word, arguments.artifacts) for word in arguments.tokenizers]
        tokenizers = dict(opened)
        if len(tokenizers) < len(opened):
            raise JudgeError("two tokenizers have one label; tell them apart: LABEL=WHAT")
        how = CorpusFormat(field=arguments.field, separator=arguments.separator or None)
        documents = read_documents(arguments.corpus, how)
        judged = judge(tokenizers, list(documents), options, is_quiet=False)
    except (JudgeError, TokenizerCoreError, OSError, ValueError) as error:
        print(f"judge: {error}", file=sys.stderr)
        return 1
    print(render(judged))
    if arguments.json:
        machine = f"{platform.system()} {platform.machine()}, torch {torch.__version__}"
        written: dict[str, Any] = {
            "schema": SCHEMA,
            "machine": machine,
            "options": asdict(options),
            "tokenizers": [asdict(each) for each in judged],
        }
        arguments.json.write_text(json.dumps(written, ensure_ascii=False, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
