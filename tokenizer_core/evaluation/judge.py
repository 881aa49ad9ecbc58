"""Judge tokenizers by the bits per byte of small language models, all with the same budget.

Bytes per token says how much a tokenizer compresses, and not whether a model learns from its
tokens. `judge` trains the same Transformer on the ids of each tokenizer, within the same number of
floating-point operations or on the same number of bytes, and measures the loss on the same
documents, in bits per byte of their text. The file is long because dividing the text, encoding it
and training within a budget are one experiment.

    from tokenizer_core.evaluation.judge import JudgeOptions, judge

    judgement = judge({"a": a, "b": b}, "news.txt", JudgeOptions(n_seeds=3))
    print(judgement.best.name)

- The documents of the corpus are divided once. A hash of the seed and the text chooses those for
  validation, so copies of a document are on the same side, in any order of the file.
- Every document begins with a boundary id, one above the largest id of the tokenizer, so that
  tokenizers with and without special tokens are treated alike. The loss of a boundary does not
  count. Text is plain text: special tokens in it are not recognised.
- The loss of every token of the validation text counts once, after at least half a context of
  earlier tokens, except at the beginning. The sum is divided by the bytes of the text as it is in
  the corpus, also for a tokenizer that normalizes it.

Only `judge` needs torch (extra `judge`).
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.documents import corpus_file_name, open_documents
from tokenizer_core.errors import CorpusChangedError, CorpusError, JudgeError
from tokenizer_core.evaluation.judge_data import (
    JUDGE_SCHEMA,
    JudgedCorpus,
    JudgedModel,
    JudgedTokenizer,
    Judgement,
    LossPoint,
    ModelSize,
    Spread,
)
from tokenizer_core.evaluation.report import describe_machine
from tokenizer_core.normalization import text_as_encoded

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from tokenizer_core.evaluation.language_model import ModelConfig
    from tokenizer_core.tokenizer import Tokenizer

    Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
    Progress = Callable[[str, float], object]

BUDGETS: Final = ("flops", "bytes")

SIZES: Final = {
    size.name: size
    for size in (
        ModelSize("tiny", 128, 2, 4, 128, 8, 3e-3),
        ModelSize("small", 256, 4, 8, 256, 32, 2e-3),
        ModelSize("medium", 512, 4, 16, 256, 64, 1e-3),
    )
}
"""`tiny` is for a processor, `medium` is the size of the course's model for TinyStories."""

DEFAULT_AMOUNTS: Final = {
    ("tiny", "flops"): 2 * 10**12,
    ("tiny", "bytes"): 10**6,
    ("small", "flops"): 10**14,
    ("small", "bytes"): 2 * 10**7,
    ("medium", "flops"): 10**16,
    ("medium", "bytes"): 5 * 10**8,
}
"""The budget of a model by size and kind of budget."""

_FEWEST_STEPS: Final = 10
_MOST_WARMUP_STEPS: Final = 100
_CURVE_POINTS: Final = 40
_ENCODED_CHARS: Final = 1 << 22
_DEVICE: Final = re.compile(r"auto|cpu|cuda(?::([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """How to judge.

    `amount` is the budget of one model, by default that of the size. `n_seeds` models are trained
    for each tokenizer, with the seeds `seed`, `seed + 1` and so on; `seed` also chooses the
    documents for validation, about `validation_bytes` of them. `separator` ends documents of plain
    text; `format` and `field` are those of `open_documents`. `device` is `cpu`, `cuda`, `cuda:N`,
    or `auto`: a GPU if there is one. `compiles` compiles each model first, which pays from about a
    minute of training on a GPU.

    Raises:
        JudgeError: an option is out of its range.
    """

    budget: str = "flops"
    amount: int | None = None
    size: ModelSize = SIZES["tiny"]
    n_seeds: int = 2
    seed: int = 0
    validation_bytes: int = 200_000
    separator: str = "<|endoftext|>"
    format: str | None = None
    field: str = "text"
    device: str = "auto"
    compiles: bool = False

    def __post_init__(self) -> None:
        size = self.size
        if self.budget not in BUDGETS:
            raise JudgeError(f"the budget must be flops or bytes, not {self.budget!r:.40}")
        counts = (size.width, size.n_layers, size.n_heads, size.context_length, size.batch_size)
        if min(counts) < 1 or size.width % (2 * size.n_heads) or size.learning_rate <= 0:
            raise JudgeError(
                "no model has these sizes: all must be above zero, and the width a multiple of "
                "twice the heads"
            )
        if not _DEVICE.fullmatch(self.device):
            raise JudgeError(
                f"the device must be auto, cpu, cuda or cuda:N, not {self.device!r:.40}"
            )
        if self.n_seeds < 1 or self.seed < 0 or self.validation_bytes < 1:
            raise JudgeError("n_seeds and validation_bytes must be at least 1, and seed at least 0")
        if self.spent < 1:
            raise JudgeError("the amount of the budget must be at least 1")

    @property
    def spent(self) -> int:
        """The budget of one model."""
        if self.amount is not None:
            return self.amount
        return DEFAULT_AMOUNTS.get((self.size.name, self.budget), 0)


def judge(
    tokenizers: Mapping[str, Tokenizer],
    corpus: str | os.PathLike[str],
    options: JudgeOptions | None = None,
    progress: Progress | None = None,
) -> Judgement:
    """Train and measure `n_seeds` models for each tokenizer; the keys are the displayed names.

    `corpus` is a file of any format of `open_documents`. `progress` is called with what is being
    done, and the fraction of the work that is done. Ids are in a temporary folder until the end. On
    the CPU, the same arguments give the same losses.

    Raises:
        JudgeError: torch is missing, or the budget is too small, or a model diverges.
        CorpusError: the corpus is missing, not UTF-8, or too small to divide.
    """
    options = options or JudgeOptions()
    lab = _Lab(_import_language_model(), options)
    show = progress or (lambda _word, _fraction: None)
    division = _divide(corpus, options)
    with tempfile.TemporaryDirectory(prefix="tokenizer-judge-") as folder:
        entrants = []
        for index, (name, tokenizer) in enumerate(tokenizers.items()):
            show(f"encoding for {name}", 0.0)
            streams = _encode(tokenizer, corpus, division, options, Path(folder, str(index)))
            entrants.append(lab.enter(name, tokenizer, *streams))
        for entrant in entrants:
            lab.require_steps(entrant)
        total = options.n_seeds * sum(entrant.work for entrant in entrants)
        done = 0.0
        models: dict[str, list[JudgedModel]] = {entrant.name: [] for entrant in entrants}
        seeds = list(range(options.seed, options.seed + options.n_seeds))
        for seed in seeds:
            for entrant in entrants:
                word = f"{entrant.name}, seed {seed}"

                def show_flops(n_flops: float, word: str = word, before: float = done) -> None:
                    show(word, (before + n_flops) / total)

                models[entrant.name].append(lab.train(entrant, seed, show_flops))
                done += entrant.work
        return Judgement(
            schema=JUDGE_SCHEMA,
            budget=options.budget,
            amount=options.spent,
            size=options.size,
            corpus=division.corpus,
            seeds=seeds,
            machine=lab.machine,
            tokenizers=[entrant.judged(models[entrant.name]) for entrant in entrants],
        )


def _import_language_model() -> ModuleType:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise JudgeError(
            "judging tokenizers needs the extra judge; pip install 'tokenizer-service[judge]'"
        ) from None
    from tokenizer_core.evaluation import language_model

    return language_model


# ---- Documents and ids


@dataclass(frozen=True, slots=True)
class _Division:
    """The corpus, and the digests of its documents for validation."""

    corpus: JudgedCorpus
    validation: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class TokenStream:
    """The ids of documents one after another, each after the boundary id, and the bytes of their
    text. `ids` has the shape (n_ids,), uint16 or uint32."""

    ids: NDArray[np.unsignedinteger]
    n_bytes: int
    n_documents: int

    @property
    def n_tokens(self) -> int:
        """The number of ids of text."""
        return len(self.ids) - self.n_documents

    def sample_batch(self, batch_size: int, context_length: int, rng: np.random.Generator) -> Batch:
        """Inputs and targets from random positions, each (batch_size, context_length) of int64."""
        starts = rng.integers(0, len(self.ids) - context_length, size=batch_size)
        rows = np.stack([self.ids[start : start + context_length + 1] for start in starts])
        rows = rows.astype(np.int64)
        return rows[:, :-1], rows[:, 1:]

    def windows(self, batch_size: int, context_length: int) -> Iterator[Batch]:
        """Inputs and targets (B, context_length) in which each id but the first is a target once.

        A window begins half a context after the one before. Targets that the one before has are -1.
        """
        n_targets, half = len(self.ids) - 1, max(context_length // 2, 1)
        n_windows = 1 + -(-max(n_targets - context_length, 0) // half)
        padding = np.full(context_length + half, -1, dtype=np.int64)
        padded = np.concatenate((self.ids.astype(np.int64), padding))
        rows = np.lib.stride_tricks.sliding_window_view(padded, context_length + 1)[::half]
        for first in range(0, n_windows, batch_size):
            batch = rows[first : min(first + batch_size, n_windows)]
            targets = batch[:, 1:].copy()
            targets[1 if first == 0 else 0 :, : context_length - half] = -1
            yield np.maximum(batch[:, :-1], 0), targets

    def n_evaluated(self, context_length: int) -> int:
        """The number of positions that `windows` evaluates, to estimate the work."""
        return 2 * len(self.ids) + context_length


def _documents(
    corpus: str | os.PathLike[str], options: JudgeOptions
) -> Iterator[tuple[str, bytes]]:
    """The documents that are not empty, as text and as bytes."""
    parts: list[str] = []
    how: dict[str, Any] = {"format": options.format, "field": options.field}
    with open_documents(corpus, separator=options.separator or None, **how) as reader:
        for text, is_last in reader:
            parts.append(text)
            if is_last:
                whole = "".join(parts)
                parts = []
                if whole:
                    yield whole, whole.encode()


def _digest(text: bytes, seed: int) -> bytes:
    return blake2b(text, digest_size=16, key=str(seed).encode()).digest()


def _divide(corpus: str | os.PathLike[str], options: JudgeOptions) -> _Division:
    """Choose the documents for validation.

    Raises:
        CorpusError: too few documents, or too little text.
    """
    sizes: dict[bytes, int] = {}
    counts: dict[bytes, int] = {}
    for _, encoded in _documents(corpus, options):
        digest = _digest(encoded, options.seed)
        sizes[digest] = sizes.get(digest, 0) + len(encoded)
        counts[digest] = counts.get(digest, 0) + 1
    name = corpus_file_name(corpus)
    if len(sizes) < 2:
        raise CorpusError(
            f"{name} has {len(sizes)} documents; validation needs documents that are not trained "
            f"on. Name the text that ends documents (--separator, in Python separator=)"
        )
    total, taken, chosen = sum(sizes.values()), 0, []
    for digest in sorted(sizes):  # sorted by a hash that depends on the seed: at random
        if taken >= options.validation_bytes:
            break
        chosen.append(digest)
        taken += sizes[digest]
    if 2 * taken > total:
        raise CorpusError(
            f"{name} is too small: the documents for validation take {taken:,} of {total:,} bytes; "
            f"give more text, or fewer bytes for validation than {options.validation_bytes:,} "
            f"(--validation-bytes, in Python validation_bytes=)"
        )
    described = JudgedCorpus(
        name=name,
        n_documents=sum(counts.values()),
        n_validation_documents=sum(counts[digest] for digest in chosen),
        train_bytes=total - taken,
        validation_bytes=taken,
    )
    return _Division(described, frozenset(chosen))


def _encode(
    tokenizer: Tokenizer,
    corpus: str | os.PathLike[str],
    division: _Division,
    options: JudgeOptions,
    folder: Path,
) -> tuple[TokenStream, TokenStream]:
    """The ids of the training text and of the validation text, mapped from files in `folder`.

    Raises:
        CorpusChangedError: the corpus is not as it was when it was divided.
    """
    folder.mkdir()
    training = _StreamWriter(tokenizer, folder / "training")
    validation = _StreamWriter(tokenizer, folder / "validation")
    with training, validation:
        for text, encoded in _documents(corpus, options):
            is_chosen = _digest(encoded, options.seed) in division.validation
            (validation if is_chosen else training).add(text, len(encoded))
    described = division.corpus
    if (training.n_bytes, validation.n_bytes) != (
        described.train_bytes,
        described.validation_bytes,
    ):
        raise CorpusChangedError(f"{described.name} changed while it was read; start again")
    return training.stream(), validation.stream()


class _StreamWriter:
    """Encodes documents in batches and appends the ids to a file."""

    def __init__(self, tokenizer: Tokenizer, path: Path) -> None:
        self._tokenizer, self._path = tokenizer, path
        self._boundary = tokenizer.spec.largest_id + 1
        self._dtype = np.dtype(np.uint16 if self._boundary < 1 << 16 else np.uint32)
        self._texts: list[str] = []
        self._n_chars = self._n_pending_bytes = self._n_documents = 0
        self.n_bytes = 0

    def __enter__(self) -> _StreamWriter:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._write()
        self._file.close()

    def add(self, text: str, n_bytes: int) -> None:
        """Add a document of `n_bytes` of UTF-8."""
        self._texts.append(text)
        self._n_chars += len(text)
        self._n_pending_bytes += n_bytes
        if self._n_chars >= _ENCODED_CHARS:
            self._write()

    def stream(self) -> TokenStream:
        """What was written."""
        ids = np.memmap(self._path, dtype=self._dtype, mode="r")
        return TokenStream(ids, self.n_bytes, self._n_documents)

    def _write(self) -> None:
        tokenizer = self._tokenizer
        ids, offsets = tokenizer.encode_batch_to_numpy(self._texts, allowed_special=())
        wanted = "".join(text_as_encoded(tokenizer.spec, text) for text in self._texts)
        decoded = tokenizer.engine.decode_bytes(ids).decode("utf-8", "replace")
        if decoded != wanted:
            raise JudgeError(
                "a tokenizer drops a part of the text, so that its loss per byte says nothing; "
                "judge on text that its split pattern matches"
            )
        starts = offsets[:-1].astype(np.int64)
        np.insert(ids, starts, self._boundary).astype(self._dtype).tofile(self._file)
        self.n_bytes += self._n_pending_bytes
        self._n_documents += len(self._texts)
        self._texts, self._n_chars, self._n_pending_bytes = [], 0, 0


# ---- Models


@dataclass(frozen=True, slots=True)
class _Entrant:
    """A tokenizer with its ids and its model. `work` is the number of floating-point operations of
    one model with its evaluation."""

    name: str
    tokenizer: Tokenizer
    training: TokenStream
    validation: TokenStream
    config: ModelConfig
    size: ModelSize
    n_parameters: int
    n_parameters_of_layers: int
    flops_per_token: int
    n_steps: int

    @property
    def bytes_per_id(self) -> float:
        """Of the training text, with the boundaries."""
        return self.training.n_bytes / len(self.training.ids)

    @property
    def work(self) -> float:
        """Evaluation is a forward pass, a third of the work of training."""
        n_evaluated = self.validation.n_evaluated(self.size.context_length)
        n_trained = self.n_steps * self.size.n_tokens_per_step
        return self.flops_per_token * (n_trained + n_evaluated / 3)

    def point(self, n_steps: int, loss: float) -> LossPoint:
        """What `n_steps` steps spent, and the loss in nats per id as bits per byte."""
        n_tokens = n_steps * self.size.n_tokens_per_step
        return LossPoint(
            n_tokens=n_tokens,
            n_bytes=round(n_tokens * self.bytes_per_id),
            flops=n_tokens * self.flops_per_token,
            bits_per_byte=loss / float(np.log(2)) / self.bytes_per_id,
        )

    def judged(self, models: list[JudgedModel]) -> JudgedTokenizer:
        """The result."""
        spent = self.point(self.n_steps, 0.0)
        spec = self.tokenizer.spec
        return JudgedTokenizer(
            name=self.name,
            fingerprint=spec.fingerprint,
            normalizer=spec.normalizer,
            vocab_size=self.tokenizer.vocab_size,
            n_parameters=self.n_parameters,
            n_parameters_of_layers=self.n_parameters_of_layers,
            bytes_per_token=self.validation.n_bytes / self.validation.n_tokens,
            n_validation_tokens=self.validation.n_tokens,
            flops_per_token=self.flops_per_token,
            n_steps=self.n_steps,
            n_tokens=spent.n_tokens,
            n_bytes=spent.n_bytes,
            flops=spent.flops,
            epochs=spent.n_tokens / len(self.training.ids),
            tokens_per_second=statistics.median(spent.n_tokens / m.seconds for m in models),
            bits_per_byte=Spread.over([model.bits_per_byte for model in models]),
            models=models,
        )


class _Lab:
    """The device, and the training and evaluation of models on it."""

    def __init__(self, language_model: Any, options: JudgeOptions) -> None:
        self._language_model, self._options = language_model, options
        torch = language_model.torch
        n_gpus = torch.cuda.device_count()
        self.device = options.device
        if self.device == "auto":
            self.device = "cuda" if n_gpus else "cpu"
        is_gpu = self.device != "cpu"
        if is_gpu and int(self.device.partition(":")[2] or 0) >= n_gpus:
            raise JudgeError(f"torch finds {n_gpus} GPUs here; take another device, or auto")
        self._dtype = "bfloat16" if is_gpu else "float32"
        where = f"{torch.get_num_threads()} threads"
        if is_gpu:
            where = torch.cuda.get_device_name(self.device)
        self.machine = f"{describe_machine()}, torch {torch.__version__}, {where}, {self._dtype}"

    def enter(
        self, name: str, tokenizer: Tokenizer, training: TokenStream, validation: TokenStream
    ) -> _Entrant:
        """The tokenizer with the sizes of its model, and the steps that the budget allows.

        Raises:
            CorpusError: there is less training text than one context.
        """
        options, size = self._options, self._options.size
        if len(training.ids) <= size.context_length:
            raise CorpusError(
                f"the training text has {len(training.ids)} tokens of {name}, fewer than a context "
                f"of {size.context_length}; give more text, or a smaller context"
            )
        config = self._language_model.ModelConfig(
            vocab_size=tokenizer.spec.largest_id + 2,  # with the boundary
            context_length=size.context_length,
            width=size.width,
            n_layers=size.n_layers,
            n_heads=size.n_heads,
        )
        model = self._language_model.TransformerLM(config)
        n_tokens = options.spent / model.flops_per_token
        if options.budget == "bytes":
            n_tokens = options.spent * len(training.ids) / training.n_bytes
        return _Entrant(
            name=name,
            tokenizer=tokenizer,
            training=training,
            validation=validation,
            config=config,
            size=size,
            n_parameters=model.n_parameters,
            n_parameters_of_layers=model.n_parameters - 2 * config.vocab_size * size.width,
            flops_per_token=model.flops_per_token,
            n_steps=int(n_tokens) // size.n_tokens_per_step,
        )

    def require_steps(self, entrant: _Entrant) -> None:
        """Raise JudgeError if the budget is too small to learn anything."""
        options = self._options
        if entrant.n_steps < _FEWEST_STEPS:
            least = entrant.point(_FEWEST_STEPS + 1, 0.0)
            needed = least.flops if options.budget == "flops" else least.n_bytes
            raise JudgeError(
                f"a budget of {options.spent:,} {options.budget} trains a model of {entrant.name} "
                f"for {entrant.n_steps} steps of {entrant.size.n_tokens_per_step:,} tokens, too "
                f"few to learn; give at least {needed:,}, or a smaller model"
            )

    def train(
        self, entrant: _Entrant, seed: int, show_flops: Callable[[float], object]
    ) -> JudgedModel:
        """Train one model and evaluate it.

        Raises:
            JudgeError: the loss is not finite, or the memory of the GPU is too small, or the model
                cannot be compiled.
        """
        torch = self._language_model.torch
        if self._options.compiles:
            torch.compiler.reset()  # torch compiles only a few models of one process
        try:
            return self._train(entrant, seed, show_flops)
        except self._language_model.CompileError as error:
            raise JudgeError(str(error)) from None
        except torch.OutOfMemoryError:
            raise JudgeError(
                f"the GPU has too little memory for {entrant.name}; take a smaller batch or size"
            ) from None

    def _train(
        self, entrant: _Entrant, seed: int, show_flops: Callable[[float], object]
    ) -> JudgedModel:
        size, n_steps = entrant.size, entrant.n_steps
        config = self._language_model.TrainingConfig(
            n_steps=n_steps,
            batch_size=size.batch_size,
            max_lr=size.learning_rate,
            min_lr=size.learning_rate / 10,
            n_warmup_steps=min(_MOST_WARMUP_STEPS, n_steps // 10),
            seed=seed,
            device=self.device,
            dtype=self._dtype,
            compiles=self._options.compiles,
        )
        trainer = self._language_model.Trainer(entrant.config, config, entrant.training)
        curve: list[LossPoint] = []
        losses: list[float] = []
        begin = time.perf_counter()
        while not trainer.is_done:
            try:
                losses.append(trainer.step())
            except ArithmeticError as error:
                raise JudgeError(f"{entrant.name}, seed {seed}: {error}") from None
            point = entrant.point(trainer.n_done, statistics.fmean(losses))
            show_flops(point.flops)
            if trainer.n_done * _CURVE_POINTS // n_steps > len(curve):
                curve.append(point)
                losses = []
        seconds = time.perf_counter() - begin
        trainer.config = replace(config, dtype="float32")  # 16 bits would round the logits
        found = trainer.evaluate(
            entrant.validation.windows(size.batch_size, size.context_length),
            _counted_ids(entrant.config.vocab_size),
        )
        validation = entrant.validation
        if found.n_bytes != validation.n_tokens:
            raise ArithmeticError(
                f"{found.n_bytes} targets counted of {validation.n_tokens} tokens of the text"
            )
        return JudgedModel(
            seed=seed,
            bits_per_byte=found.nats_of_bytes / float(np.log(2)) / validation.n_bytes,
            loss=found.nats_of_bytes / validation.n_tokens,
            seconds=seconds,
            curve=curve,
        )


def _counted_ids(vocab_size: int) -> NDArray[np.int64]:
    """1 for each id of text and 0 for the boundary. Counting tokens instead of their bytes also
    serves tokenizers whose tokens are not the bytes of the corpus, because they normalize it."""
    counted = np.ones(vocab_size, dtype=np.int64)
    counted[-1] = 0
    return counted
