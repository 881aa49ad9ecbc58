"""Train a small Transformer on token files.

    python examples/language_model/train.py examples/language_model/small.toml
    python examples/language_model/train.py examples/language_model/small.toml \
        model.width=256 training.n_steps=5000 out=wide

Any value of the configuration may be given again as `name=value`. The folder `out` gets
`checkpoint.pt`, `metrics.jsonl`, `loss.svg` and `config.json`. The same command continues an
interrupted run, with the losses that it would have had. The model is `model.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import torch
from model import (
    AdamW,
    ModelConfig,
    TransformerLM,
    clip_gradients,
    cosine_schedule,
    token_losses,
)
from torch import Tensor, nn
from tqdm import tqdm

from tokenizer_core import Tokenizer, TokenizerCoreError
from tokenizer_core.corpus import TokenDataset, TokenFiles
from tokenizer_core.evaluation import token_byte_lengths
from tokenizer_core.evaluation.plots import lines, picture
from tokenizer_core.registry import ArtifactStore

Batch = tuple[np.ndarray, np.ndarray]
"""Inputs and targets, each (B, T) of int64."""


# ---- Training


class Batches(Protocol):
    """Where batches are drawn from; a `TokenDataset` is one."""

    def sample_batch(self, batch_size: int, context_length: int, rng: np.random.Generator) -> Batch:
        """Inputs and targets, drawn with `rng`."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How a model is trained; the learning rate follows `cosine_schedule` over `n_steps`.

    `seed` draws the weights and the batches. `dtype` is the type of the matrix products, `float32`
    or `bfloat16`; parameters and optimizer stay in float32. `compiles` runs `torch.compile`.
    """

    n_steps: int
    batch_size: int = 32
    max_lr: float = 1e-3
    min_lr: float = 1e-4
    n_warmup_steps: int = 100
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    max_gradient_norm: float = 1.0
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    compiles: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be float32 or bfloat16, not {self.dtype!r}")
        if self.n_steps < 1 or self.batch_size < 1:
            raise ValueError("n_steps and batch_size must be at least 1")


MAY_CHANGE = ("n_steps", "device", "dtype", "compiles")
"""What a resumed run may change; its losses then differ from those of an uninterrupted run."""


class Trainer:
    """A model in training: call `step` until `is_done`; `save` and `resume` in between.

    A resumed run draws the same batches as an uninterrupted one and, on the CPU in float32, has the
    same losses.
    """

    def __init__(self, model: ModelConfig, config: TrainingConfig, batches: Batches) -> None:
        self.config, self.batches = config, batches
        self.model = TransformerLM(model, config.seed).to(config.device)
        self.optimizer = AdamW(
            self.model.parameters(),
            lr=config.max_lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        self.n_done = 0
        self._rng = np.random.default_rng(config.seed)
        # Compiled together, model and loss do not write the logits in float32: on an H200 a step
        # with 10,000 entries takes a third less time, and with 32,000 half.
        self._losses = torch.compile(self._token_losses) if config.compiles else self._token_losses

    @property
    def is_done(self) -> bool:
        """Whether all steps are done."""
        return self.n_done >= self.config.n_steps

    @property
    def tokens_per_step(self) -> int:
        """Targets of one batch."""
        return int(self.config.batch_size * self.model.config.context_length)

    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        config = self.config
        # Step 0 of the schedule has the rate 0 and would learn nothing.
        return cosine_schedule(
            self.n_done + 1, config.max_lr, config.min_lr, config.n_warmup_steps, config.n_steps
        )

    def step(self) -> float:
        """Train on one batch; return its loss in nats per token.

        Raises:
            ArithmeticError: the loss is not finite; the weights are as before the step.
        """
        config = self.config
        context_length = self.model.config.context_length
        inputs, targets = self.batches.sample_batch(config.batch_size, context_length, self._rng)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        loss = self._losses(self._on_device(inputs), self._on_device(targets)).mean()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ArithmeticError(
                f"the loss of step {self.n_done + 1} is {value}; lower the learning rate"
            )
        self.optimizer.zero_grad()
        loss.backward()
        clip_gradients(self.model.parameters(), config.max_gradient_norm)
        self.optimizer.step()
        self.n_done += 1
        return value

    def evaluate(self, windows: Iterable[Batch], n_bytes_of_ids: np.ndarray) -> Evaluation:
        """The loss over `windows`.

        `n_bytes_of_ids` has the number of bytes of each id, 0 for special tokens, as
        `token_byte_lengths` gives it. Targets without bytes do not count for bits per byte. Targets
        below 0 are padding and count for nothing.
        """
        nats = counted_nats = 0.0
        n_tokens = n_bytes = 0
        lengths = torch.from_numpy(n_bytes_of_ids.astype(np.int64)).to(self.config.device)
        for inputs, targets in windows:
            wanted = self._on_device(targets)
            is_target = wanted >= 0
            wanted = wanted.clamp(min=0)
            with torch.no_grad():
                losses = self._losses(self._on_device(inputs), wanted) * is_target
            n_of_target = lengths[wanted] * is_target
            # A sum of float32 over millions of tokens would lose digits.
            nats += float(losses.double().sum())
            counted_nats += float((losses.double() * (n_of_target > 0)).sum())
            n_tokens += int(is_target.sum())
            n_bytes += int(n_of_target.sum())
        return Evaluation(nats, counted_nats, n_tokens, n_bytes)

    def save(self, path: Path, *, tokenizer: str) -> None:
        """Write a checkpoint whole or not at all; `tokenizer` is the fingerprint of the tokenizer.

        Raises:
            OSError: it cannot be written.
        """
        staged = path.with_suffix(".new")
        try:
            with staged.open("wb") as file:
                save_checkpoint(
                    file,
                    self.model,
                    self.optimizer,
                    self.n_done,
                    model_config=asdict(self.model.config),
                    training_config=asdict(self.config),
                    rng=self._rng.bit_generator.state,
                    tokenizer=tokenizer,
                )
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)

    def resume(self, path: Path, *, tokenizer: str) -> None:
        """Continue from a checkpoint of the same model, settings and tokenizer, on the same data.

        Raises:
            ValueError: not a checkpoint, or one of another tokenizer, model or other settings.
            OSError: it cannot be read.
        """
        state = load_checkpoint(path, tokenizer=tokenizer)
        before = state["model_config"] | state["training_config"]
        now = asdict(self.model.config) | asdict(self.config)
        for name, value in now.items():
            if name not in MAY_CHANGE and before[name] != value:
                raise ValueError(
                    f"{path} was trained with {name} {before[name]}, not {value}; continue with "
                    f"that, or write to another folder"
                )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.n_done = state["step"]
        self._rng.bit_generator.state = state["rng"]

    def _token_losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        config = self.config
        with (
            torch.autocast(torch.device(config.device).type, dtype=torch.bfloat16)
            if config.dtype == "bfloat16"
            else contextlib.nullcontext()
        ):
            logits = self.model(inputs)
        return token_losses(logits, targets)

    def _on_device(self, ids: np.ndarray) -> Tensor:
        return torch.from_numpy(ids).to(self.config.device)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Losses in nats over a text: of all targets (`nats`), and of those with bytes."""

    nats: float
    nats_of_bytes: float
    n_tokens: int
    n_bytes: int

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / max(self.n_tokens, 1)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text: comparable between tokenizers, unlike the loss per token."""
        return self.nats_of_bytes / math.log(2) / max(self.n_bytes, 1)


# ---- Checkpoints


def save_checkpoint(
    out: str | os.PathLike[str] | IO[bytes],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    **more: Any,
) -> None:
    """Write the model, the optimizer, the steps done and `more` to a file."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, **more}
    torch.save(state, out)


def load_checkpoint(
    source: str | os.PathLike[str] | IO[bytes], *, tokenizer: str | None = None
) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU. Only tensors and plain values are unpickled.

    Raises:
        ValueError: not a checkpoint, or not one for the tokenizer of this fingerprint.
        OSError: it cannot be read.
    """
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged or foreign file
        raise ValueError(f"{source} is no checkpoint, or is damaged") from error
    if not isinstance(state, dict) or not {"model", "optimizer", "step"} <= state.keys():
        raise ValueError(f"{source} is no checkpoint of a language model")
    if tokenizer is not None and state.get("tokenizer") != tokenizer:
        raise ValueError(
            f"{source} was trained on ids of another tokenizer; its model would read other words. "
            f"Give the tokenizer of the checkpoint"
        )
    return state


# ---- The command


@dataclass(frozen=True)
class Report:
    """What a run reports: every how many steps, and on how many batches.

    `stop_after` ends this call after that many steps; the same command continues.
    """

    every: int = 100
    validation_batches: int = 8
    stop_after: int | None = None


@dataclass(frozen=True)
class Config:
    """The content of the TOML file and the command line."""

    tokens: str = "tokens"
    artifacts: str = "artifacts"
    out: str = "run"
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)


def main(arguments: list[str]) -> int:
    """Train as the configuration says; return 0 on success."""
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 0 if "--help" in arguments or "-h" in arguments else 2
    try:
        train(read_config(Path(arguments[0]), arguments[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues from the checkpoint", file=sys.stderr)
        return 130
    except (TokenizerCoreError, ArithmeticError, LookupError, OSError, TypeError, ValueError) as e:
        print(f"train: {e}", file=sys.stderr)
        return 1
    return 0


def read_config(path: Path, overrides: list[str]) -> Config:
    """The configuration of a TOML file, changed by `section.name=value` words."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    for word in overrides:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is no setting; write name=value, such as training.seed=1")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # a word without quotes
        *sections, last = name.split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    return Config(**values)


def open_tokenizer(config: Config) -> Tokenizer:
    """The published tokenizer that wrote the token files."""
    identity = TokenFiles.open(config.tokens).manifest.plan.tokenizer
    if identity.name is None:
        raise LookupError(
            f"{config.tokens} does not name a published tokenizer; encode with "
            f"`tokenizer corpus encode --tokenizer NAME`"
        )
    store = ArtifactStore(config.artifacts)
    return Tokenizer.from_spec(store.open(store.resolve(f"{identity.name}@{identity.version}")))


def train(config: Config) -> None:
    """Train to the end, from the last checkpoint if there is one."""
    tokenizer = open_tokenizer(config)
    dataset = TokenDataset.open(config.tokens, tokenizer)
    try:
        validation = TokenDataset.open(config.tokens, tokenizer, split="validation")
    except LookupError:
        raise LookupError(
            f"{config.tokens} has no validation split; encode with --validation-share 0.05"
        ) from None

    has_gpu = torch.cuda.is_available()
    on_device = {"device": "cuda", "dtype": "bfloat16", "compiles": True} if has_gpu else {}
    model = ModelConfig(tokenizer.spec.largest_id + 1, **config.model)
    trainer = Trainer(model, TrainingConfig(**on_device | config.training), dataset)
    report = Report(**config.report)
    run = Run(Path(config.out), trainer, tokenizer.spec.fingerprint)
    run.start(config)
    lengths = token_byte_lengths(tokenizer.spec)

    def evaluate() -> Evaluation:
        windows = validation.windows(trainer.config.batch_size, model.context_length)
        return trainer.evaluate(itertools.islice(windows, report.validation_batches), lengths)

    total, n_before = trainer.config.n_steps, trainer.n_done
    begin = time.perf_counter()
    with tqdm(total=total, initial=n_before, unit=" steps", disable=None) as bar:
        while not trainer.is_done and trainer.n_done - n_before != report.stop_after:
            rate = trainer.learning_rate()
            loss = trainer.step()
            seconds = time.perf_counter() - begin
            speed = (trainer.n_done - n_before) * trainer.tokens_per_step / seconds
            run.record(loss=loss, lr=rate, tokens_per_second=round(speed))
            bar.set_postfix(loss=f"{loss:.3f}", tokens_per_s=f"{speed:,.0f}", refresh=False)
            bar.update()
            if trainer.n_done % report.every == 0 or trainer.is_done:
                result = evaluate()
                run.record(validation_loss=result.loss, bits_per_byte=result.bits_per_byte)
                run.save()
    run.save()
    result = evaluate()
    print(
        f"{trainer.n_done} steps, {trainer.n_done * trainer.tokens_per_step:,} tokens, "
        f"{trainer.model.n_parameters:,} parameters: validation loss {result.loss:.3f}, "
        f"{result.bits_per_byte:.3f} bits per byte"
    )
    print(f"write text: python examples/language_model/sample.py {config.out} 'Once upon a time'")


class Run:
    """The folder of a run: its checkpoint, its metrics as JSON lines, and its loss curve."""

    def __init__(self, folder: Path, trainer: Trainer, tokenizer: str) -> None:
        self.folder, self.trainer, self.tokenizer = folder, trainer, tokenizer
        self.checkpoint = folder / "checkpoint.pt"
        self._metrics = folder / "metrics.jsonl"

    def start(self, config: Config) -> None:
        """Create the folder, or continue from its checkpoint.

        Metrics of steps after the checkpoint are dropped: those steps are done again.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = []
        if self.checkpoint.exists():
            self.trainer.resume(self.checkpoint, tokenizer=self.tokenizer)
            kept = [row for row in self.read() if row["step"] <= self.trainer.n_done]
            print(f"continuing {self.folder} after step {self.trainer.n_done}")
        self._metrics.write_text("".join(json.dumps(row) + "\n" for row in kept))
        shown = {"tokens": config.tokens, "artifacts": config.artifacts}
        (self.folder / "config.json").write_text(json.dumps(shown, indent=1) + "\n")

    def record(self, **values: float) -> None:
        """Append metrics of the last step."""
        with self._metrics.open("a") as file:
            file.write(json.dumps({"step": self.trainer.n_done, **values}) + "\n")

    def read(self) -> list[dict[str, float]]:
        """All metrics so far; a line that a crash cut off is left out."""
        rows = self._metrics.read_text().splitlines(keepends=True)
        return [json.loads(row) for row in rows if row.endswith("\n")]

    def save(self) -> None:
        """Write the checkpoint and the loss curve."""
        self.trainer.save(self.checkpoint, tokenizer=self.tokenizer)
        rows = self.read()
        series = [
            (label, [(row["step"], row[name]) for row in rows if name in row])
            for label, name in (("training", "loss"), ("validation", "validation_loss"))
        ]
        plot = lines(
            series, "Loss of training and validation", "step", "nats per token", y_is_linear=True
        )
        (self.folder / "loss.svg").write_text(picture(plot, [name for name, _ in series]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
