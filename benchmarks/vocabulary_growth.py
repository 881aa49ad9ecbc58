"""Measure how the distinct pre-tokens of a corpus grow, and estimate the cost of more text.

    .venv/bin/python benchmarks/vocabulary_growth.py ../shared/data/corpora/*.txt
    .venv/bin/python benchmarks/vocabulary_growth.py --sampling 32000 news.txt
    .venv/bin/python benchmarks/vocabulary_growth.py news.txt --pattern o200k --terabytes 1 100

Heaps' law: n bytes of one kind of text have about K * n**beta distinct pre-tokens. The script
counts each file at doubling sizes; the exponent is the slope between the last two, because it
falls as text grows. An extrapolation is therefore an upper bound for text of the same kind, and
says nothing about other kinds. docs/sizing.md explains how to read it.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizer_core import Tokenizer
from tokenizer_core.patterns import resolve_pattern
from tokenizer_core.training import TrainingOptions, count_pretokens, train

END = "<|endoftext|>"
SMALLEST = 1 << 19
COUNTING: dict[str, Any] = {"special_tokens": [END], "num_workers": 1}
TABLE_BYTES = 64
"""The most memory that counting needs per distinct pre-token in addition to its bytes: slots of 24
bytes in a table that doubles when it is three quarters full."""

RECORD_BYTES = 12
"""Bytes for count and length of a pre-token in a counts file, in addition to its bytes."""


@dataclass(frozen=True)
class Growth:
    """The distinct pre-tokens of one kind of text at its size, and their growth."""

    name: str
    n_bytes: int
    n_distinct: int
    mean_bytes: float
    beta: float
    bytes_per_second: float

    def distinct_at(self, n_bytes: float) -> float:
        """The estimated distinct pre-tokens in `n_bytes` of such text."""
        return self.n_distinct * (n_bytes / self.n_bytes) ** self.beta


def measure(path: Path, pattern: str) -> Growth:
    """Count a file at doubling sizes."""
    data = path.read_bytes()
    sizes = [len(data)]
    while sizes[-1] > 2 * SMALLEST:
        sizes.append(sizes[-1] // 2)
    rows = []
    for size in reversed(sizes):
        part = data[:size].decode(errors="ignore")
        with tempfile.NamedTemporaryFile() as file:
            file.write(part.encode())
            file.flush()
            started = time.perf_counter()
            counts = count_pretokens([file.name], pattern=resolve_pattern(pattern), **COUNTING)
            seconds = time.perf_counter() - started
        distinct = len(counts.counts)
        n_bytes = sum(len(word.encode()) for word in counts.counts)
        rows.append((counts.n_bytes, distinct, n_bytes / distinct, seconds))
    (n_before, before, *_), (n_last, last, mean, seconds) = rows[-2:]
    beta = math.log(last / before) / math.log(n_last / n_before)
    return Growth(path.stem, n_last, last, mean, beta, n_last / seconds)


def show(found: list[Growth]) -> None:
    """Print the measurements."""
    print("| text | MB | distinct | mean bytes | exponent | MB/s |")
    print("|---|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one.name} | {one.n_bytes / 1e6:.0f} | {one.n_distinct:,} | {one.mean_bytes:.1f} | "
            f"{one.beta:.2f} | {one.bytes_per_second / 1e6:.0f} |"
        )


def predict(found: list[Growth], terabytes: float, shard_gigabytes: float, cores: int) -> None:
    """Print the estimated cost of counting this much of each kind."""
    n_bytes, shard = terabytes * 1e12, shard_gigabytes * 1e9
    print(f"\n{terabytes:g} TB in shards of {shard_gigabytes:g} GB, {cores} cores:\n")
    print("| text | distinct, at most | all counts | one shard's | to shuffle | counting, hours |")
    print("|---|---|---|---|---|---|")
    for one in found:
        record = one.mean_bytes + RECORD_BYTES
        whole, part = one.distinct_at(n_bytes), one.distinct_at(shard)
        memory = part * (one.mean_bytes + TABLE_BYTES)
        shuffled = n_bytes / shard * part * record
        hours = n_bytes / one.bytes_per_second / cores / 3600
        print(
            f"| {one.name} | {whole / 1e6:,.0f} M | {whole * record / 1e9:,.1f} GB | "
            f"{memory / 1e6:,.0f} MB | {shuffled / 1e9:,.0f} GB | {hours:.1f} |"
        )


def show_sampling(path: Path, pattern: str, vocab_size: int, seed: int = 1) -> None:
    """Print what a tokenizer trained on a sample loses, measured on a held-out tenth of the
    documents."""
    documents = path.read_text(encoding="utf-8").split(END)
    if len(documents) < 100:  # one long text: use its paragraphs
        documents = END.join(documents).split("\n\n")
    random.Random(seed).shuffle(documents)
    held, rest = documents[: len(documents) // 10], documents[len(documents) // 10 :]
    n_held = sum(len(document.encode()) for document in held)
    print(f"\n{path.stem}, {vocab_size:,} entries, {n_held / 1e6:.1f} MB held out:\n")
    print("| trained on, MB | bytes a token, held out | of the whole |")
    print("|---|---|---|")
    found = []
    for part in (1, 2, 4, 8, 16):
        sample = END.join(rest[: len(rest) // part])
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            file.write(sample.encode())
            file.flush()
            how: dict[str, Any] = {"special_tokens": [END], "pattern": pattern}
            trained = train([file.name], TrainingOptions(vocab_size=vocab_size, **how))
        tokenizer = Tokenizer.from_spec(trained.spec)
        ids, _ = tokenizer.encode_batch_to_numpy(held)
        found.append(n_held / len(ids))
        size = len(sample.encode()) / 1e6
        print(f"| {size:.1f} | {found[-1]:.3f} | {found[-1] / found[0]:.3f} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--pattern", default="gpt2")
    parser.add_argument("--terabytes", type=float, nargs="+", default=[1, 100])
    parser.add_argument("--shard-gigabytes", type=float, default=1)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--sampling", type=int, metavar="VOCAB_SIZE", help="what a sample loses")
    arguments = parser.parse_args()
    if arguments.sampling:
        for path in arguments.files:
            show_sampling(path, arguments.pattern, arguments.sampling)
        return
    found = [measure(path, arguments.pattern) for path in arguments.files]
    show(found)
    for terabytes in arguments.terabytes:
        predict(found, terabytes, arguments.shard_gigabytes, arguments.cores)


if __name__ == "__main__":
    main()
