"""Train a small Transformer on token files.

    python examples/language_model/train.py examples/language_model/small.toml
    python examples/language_model/train.py examples/language_model/small.toml \
        model.width=256 training.n_steps=5000 out=wide

Any value of the configuration may be given again as `name=value`. The folder `out` gets
`checkpoint.pt`, `metrics.jsonl`, `loss.svg` and `config.json`. The same command continues a run
that was interrupted, with the losses that it would have had. The model is
`tokenizer_core/evaluation/language_model.py`.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tokenizer_core import Tokenizer
from tokenizer_core.blobs.atomic_files import write_whole_file
from tokenizer_core.corpus import TokenDataset, TokenFiles
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.evaluation import token_byte_lengths
from tokenizer_core.evaluation.language_model import (
    CompileError,
    Evaluation,
    ModelConfig,
    Trainer,
    TrainingConfig,
)
from tokenizer_core.evaluation.plots import lines, picture
from tokenizer_core.registry import ArtifactStore


@dataclass(frozen=True)
class Report:
    """What a run reports: every how many steps, on how many batches, and where to.

    `stop_after` ends this call after that many steps; the same command continues.
    """

    every: int = 100
    validation_batches: int = 8
    wandb: str = ""
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
    except CompileError as error:
        print(f"train: {error}: training.compiles=false", file=sys.stderr)
        return 1
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
    run = Run(Path(config.out), trainer, tokenizer.spec.fingerprint, report)
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

    def __init__(self, folder: Path, trainer: Trainer, tokenizer: str, report: Report) -> None:
        self.folder, self.trainer, self.tokenizer = folder, trainer, tokenizer
        self.checkpoint = folder / "checkpoint.pt"
        self._metrics = folder / "metrics.jsonl"
        self._wandb = start_wandb(report.wandb, folder.name)

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
        rows = "".join(json.dumps(row) + "\n" for row in kept)
        write_whole_file(self._metrics, rows.encode())
        shown = {"tokens": config.tokens, "artifacts": config.artifacts}
        (self.folder / "config.json").write_text(json.dumps(shown, indent=1) + "\n")

    def record(self, **values: float) -> None:
        """Append metrics of the last step."""
        with self._metrics.open("a") as file:
            file.write(json.dumps({"step": self.trainer.n_done, **values}) + "\n")
        if self._wandb is not None:
            self._wandb.log(values, step=self.trainer.n_done)

    def read(self) -> list[dict[str, float]]:
        """All metrics so far; a line that a crash cut off is left out."""
        lines = self._metrics.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

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


def start_wandb(project: str, name: str) -> Any:
    """A run of Weights & Biases, or None without a project."""
    if not project:
        return None
    import wandb

    return wandb.init(project=project, name=name)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
