r"""Compare encoding corpus files to token files with the engine alone on documents in memory.

    .venv/bin/python benchmarks/encode_corpus_speed.py
    .venv/bin/python benchmarks/encode_corpus_speed.py --workers 2 --separator $'\n' --repeats 7

`encode` is the whole of `encode_corpus`: read, hash, encode, count, write, fsync, manifest.
`engine` is one call of `encode_batch_to_numpy` with as many threads on the same documents, read
and split beforehand. Each run is a fresh process, and the two take turns, so that other load
affects both. The table shows medians of wall time and of processor time (which other load hardly
disturbs), the peak memory of each, and the ratio of the speeds.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from corpora import DATA, label, vocab_path
from figures import Table, add_json_option, report

from tokenizer_core import Tokenizer
from tokenizer_core.corpus import CorpusFormat, encode_corpus, plan_token_files
from tokenizer_core.documents import read_documents

END = "<|endoftext|>"


def measure(way: str, vocab: Path, files: list[Path], workers: int, separator: str) -> None:
    """Run once in this process and print the figures."""
    tokenizer = Tokenizer.load(vocab)
    tokenizer.encode("warm")
    texts = []
    if way == "engine":
        texts = [text for file in files for text in read_documents(file, separator=separator)]
    n_bytes = sum(len(text.encode()) for text in texts)
    base = Path(tempfile.mkdtemp())
    wall, cpu = time.perf_counter(), time.process_time()
    if way == "engine":
        ids, _ = tokenizer.encode_batch_to_numpy(texts, num_threads=workers)
        n_tokens = len(ids) + len(texts)  # `encode` adds one id to each document
    else:
        plan = plan_token_files(tokenizer, end_of_document=END)
        how = CorpusFormat(separator=separator)
        manifest = encode_corpus(
            tokenizer, files, base / "tokens", plan, corpus_format=how, workers=workers
        )
        n_tokens = manifest.split("train").n_tokens
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    shutil.rmtree(base)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(json.dumps([wall, cpu, peak, n_bytes, n_tokens]))


def run(way: str, arguments: argparse.Namespace, vocab: Path, workers: int) -> list[float]:
    """Run once in a fresh process."""
    command = [sys.executable, __file__, "--one", way, str(vocab), str(workers)]
    command += ["--separator", arguments.separator]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: list[float] = json.loads(done.stdout)
    return figures


def compare(arguments: argparse.Namespace, vocab: Path, workers: int) -> list[Any]:
    """A row of the table."""
    found: dict[str, list[list[float]]] = {"engine": [], "encode": []}
    for _ in range(arguments.repeats):
        for way, runs in found.items():
            runs.append(run(way, arguments, vocab, workers))
    n_tokens = {figures[4] for runs in found.values() for figures in runs}
    assert len(n_tokens) == 1, f"they have other ids: {n_tokens}"
    middle = {
        way: [statistics.median(column) for column in zip(*runs, strict=True)]
        for way, runs in found.items()
    }
    engine, encode = middle["engine"], middle["encode"]
    megabytes = engine[3] / 1e6
    return [
        label(vocab), workers, megabytes / engine[0], megabytes / encode[0],
        engine[0] / encode[0], engine[1], encode[1], encode[2],
    ]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--separator", default=END, help=f"of documents (default: {END})")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    add_json_option(parser)
    arguments = parser.parse_args()
    files = sorted((DATA / "corpora").glob("*.txt"))
    if arguments.one:
        way, vocab, workers = arguments.one
        measure(way, Path(vocab), files, int(workers), arguments.separator)
        return
    total = sum(file.stat().st_size for file in files) / 1e6
    columns = ["vocabulary", "workers", "engine, MB/s", "pipeline, MB/s", "ratio",
               "engine, processor s", "pipeline, processor s", "memory, MB"]  # fmt: skip
    rows = [
        compare(arguments, vocab_path(name), workers)
        for name in ("gpt2", "o200k_base")
        for workers in arguments.workers
    ]
    note = f"{len(files)} texts, {total:.0f} MB, median of {arguments.repeats} rounds"
    report([Table(columns, rows)], arguments.json, note)


if __name__ == "__main__":
    main()
