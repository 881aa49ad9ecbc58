r"""Run the tokenizer experiments of Stanford CS336, assignment 1, with one command.

    .venv/bin/python benchmarks/course_experiments.py
    .venv/bin/python benchmarks/course_experiments.py --stories TinyStoriesV2-train.txt \
        --web owt_train.txt --output experiments

The script trains 10,000 tokens on stories and 32,000 on web text and measures what the assignment
asks for: time and memory of training, the longest token, bytes per token on each text with each
tokenizer, throughput, the hours for a large corpus, and uint16 files. It holds out every fiftieth
document and measures compression on held-out text only. Each step runs the package's commands in a
fresh process. Documents end in <|endoftext|>.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from corpora import DATA, SEPARATOR
from figures import Table, add_json_option, report

from tokenizer_core import Tokenizer
from tokenizer_core.corpus import verify_token_files
from tokenizer_core.documents import read_documents
from tokenizer_core.registry import ArtifactStore

GIGABYTES = (82, 825)
"""A pretraining corpus, and the Pile of the assignment."""

HELD_OUT_EVERY = 50
THROUGHPUT_BYTES = 100_000_000

PUBLISHED = {
    ("stories", "stories"): "4.05 to 4.12",
    ("web", "web"): "4.38 to 4.54",
    ("stories", "web"): "3.31",
}
"""Bytes per token by tokenizer and text, as solutions of the assignment report them: TinyStories
(2.2 GB) with 10,000 entries, OpenWebText (12 GB) with 32,000."""


@dataclass(frozen=True)
class Domain:
    """One kind of text: training file, held-out file, vocabulary size."""

    name: str
    source: Path
    train: Path
    held_out: Path
    vocab_size: int

    def split(self) -> int:
        """Write the two files; return the number of held-out documents."""
        n_held_out = 0
        with self.train.open("wb") as train, self.held_out.open("wb") as held_out:
            for number, text in enumerate(read_documents(self.source, separator=SEPARATOR)):
                is_held_out = number % HELD_OUT_EVERY == 0
                n_held_out += is_held_out
                (held_out if is_held_out else train).write((text + SEPARATOR).encode())
        return n_held_out


def run(*command: str) -> str:
    """Return the output of a command; a failing command ends the run."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def tokenizer_command(*arguments: str) -> str:
    return run(sys.executable, "-m", "tokenizer_service.cli", *arguments)


def load(artifacts: Path | str, name: str) -> Tokenizer:
    store = ArtifactStore(artifacts)
    return Tokenizer.from_spec(store.open(store.resolve(name)))


def in_own_process(step: str, *arguments: str) -> Any:
    """Return the result of `--step`, run in a fresh process."""
    return json.loads(run(sys.executable, __file__, "--step", step, *arguments))


# ----------------------------------------------------------------- steps, each in a fresh process


def step_compress(artifacts: str, name: str, path: str) -> dict[str, float]:
    """Bytes per token over the documents of a file, without the separators."""
    tokenizer = load(artifacts, name)
    documents = list(read_documents(path, separator=SEPARATOR))
    n_tokens = sum(len(tokenizer.encode_to_numpy(text)) for text in documents)
    n_bytes = sum(len(text.encode()) for text in documents)
    return {"n_bytes": n_bytes, "n_tokens": n_tokens, "bytes_per_token": n_bytes / n_tokens}


def step_throughput(artifacts: str, name: str, path: str) -> dict[str, Any]:
    """Bytes per second of one thread on text that is new to this process."""
    tokenizer = load(artifacts, name)
    documents, n_bytes = [], 0
    for text in read_documents(path, separator=SEPARATOR):
        documents.append(text)
        n_bytes += len(text.encode())
        if n_bytes >= THROUGHPUT_BYTES:
            break
    started = time.perf_counter()
    tokenizer.encode_batch_to_numpy(documents, num_threads=1)
    seconds = time.perf_counter() - started
    return {"bytes_per_second": n_bytes / seconds, "engine": tokenizer.engine_name}


# ------------------------------------------------------------------------------- the experiments


def train(domain: Domain, artifacts: Path) -> dict[str, Any]:
    """The training report of the artifact, and the time of the whole process."""
    started = time.perf_counter()
    tokenizer_command(
        "train", str(domain.train), "--vocab-size", str(domain.vocab_size), "--name", domain.name,
        "--artifacts-dir", str(artifacts), "--quiet",
    )  # fmt: skip
    seconds = time.perf_counter() - started
    (version,) = (artifacts / "tokenizers" / domain.name).iterdir()
    manifest = json.loads((version / "manifest.json").read_text())
    return {"seconds": seconds, **manifest["training"]}


def encode(domain: Domain, artifacts: Path, folder: Path) -> dict[str, Any]:
    """Write the uint16 file with the command, verify it, and open it as the assignment does."""
    started = time.perf_counter()
    tokenizer_command(
        "corpus", "encode", str(domain.train), "--output", str(folder), "--dtype", "uint16",
        "--tokenizer", domain.name, "--artifacts-dir", str(artifacts), "--quiet",
    )  # fmt: skip
    seconds = time.perf_counter() - started
    verify_token_files(folder, tokenizer=load(artifacts, domain.name))
    ids = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
    size = domain.train.stat().st_size
    return {
        "seconds": seconds,
        "n_tokens": len(ids),
        "file_bytes": ids.nbytes,
        "bytes_per_second": size / seconds,
    }


def experiments(domains: list[Domain], output: Path, rounds: int) -> dict[str, Any]:
    artifacts = output / "artifacts"
    found: dict[str, Any] = {"compression": {}}
    for domain in domains:
        n_held_out = domain.split()
        found[domain.name] = {
            "n_bytes": domain.train.stat().st_size,
            "n_held_out": n_held_out,
            "train": train(domain, artifacts),
            "files": encode(domain, artifacts, output / f"{domain.name}-tokens"),
        }
    for mine in domains:
        for text in domains:
            found["compression"][f"{mine.name} on {text.name}"] = in_own_process(
                "compress", str(artifacts), mine.name, str(text.held_out)
            )
        samples = [
            in_own_process("throughput", str(artifacts), mine.name, str(mine.train))
            for _ in range(rounds)
        ]
        found[mine.name]["engine"] = samples[0]["engine"]
        found[mine.name]["bytes_per_second"] = statistics.median(
            sample["bytes_per_second"] for sample in samples
        )
    return found


def tables(domains: list[Domain], found: dict[str, Any]) -> list[Table]:
    names = [domain.name for domain in domains]
    results = [found[name] for name in names]
    trained = [result["train"] for result in results]
    hours = (
        f"{' / '.join(f'{gigabytes * 1e9 / rate / 3600:.1f}' for gigabytes in GIGABYTES)}"
        for rate in (result["bytes_per_second"] for result in results)
    )
    rows: list[tuple[str, Any]] = [
        ("text, MB", (f"{result['n_bytes'] / 1e6:.1f}" for result in results)),
        ("vocabulary", (f"{report['vocab_size']:,}" for report in trained)),
        ("training, s (counting + learning)", (
            f"{report['seconds']:.1f} ({report['seconds_counting']:.1f} + "
            f"{report['seconds_learning']:.1f})" for report in trained)),
        ("peak memory, MB", (f"{report['peak_memory_bytes'] / 1e6:.0f}" for report in trained)),
        ("longest token", (
            f"`{report['longest_token_text']!r}` ({report['longest_token_bytes']} bytes)"
            for report in trained)),
        ("encoding, MB/s, one thread", (
            f"{result['bytes_per_second'] / 1e6:.1f} ({result['engine']})" for result in results)),
        (f"hours for {' / '.join(map(str, GIGABYTES))} GB", hours),
        ("uint16 file, MB (tokens)", (
            f"{result['files']['file_bytes'] / 1e6:.1f} ({result['files']['n_tokens']:,})"
            for result in results)),
        ("file to file, MB/s", (
            f"{result['files']['bytes_per_second'] / 1e6:.1f}" for result in results)),
    ]  # fmt: skip
    compression = []
    for mine in names:
        cells = []
        for text in names:
            value = found["compression"][f"{mine} on {text}"]["bytes_per_token"]
            published = PUBLISHED.get((mine, text))
            cells.append(f"{value:.2f}" + (f" (published: {published})" if published else ""))
        compression.append([f"trained on {mine}", *cells])
    return [
        Table(["", *names], [[what, *cells] for what, cells in rows]),
        Table(["bytes per token", *(f"on {name}" for name in names)], compression),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stories", type=Path, default=DATA / "corpora" / "tinystories_small.txt")
    parser.add_argument("--web", type=Path, default=DATA / "corpora" / "en_reuters_news.txt")
    parser.add_argument("--vocab-sizes", type=int, nargs=2, default=(10_000, 32_000), metavar="N")
    parser.add_argument("--rounds", type=int, default=3, help="of the throughput (default: 3)")
    parser.add_argument("--output", type=Path, help="a new folder for all files; else temporary")
    add_json_option(parser)
    parser.add_argument("--details", type=Path, metavar="FILE", help="write every figure as JSON")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, *rest = arguments.step
        steps = {"compress": step_compress, "throughput": step_throughput}
        print(json.dumps(steps[step](*rest)))
        return
    for path in (arguments.stories, arguments.web):
        if not path.is_file():
            parser.error(f"{path} is no file: name the texts with --stories and --web")
    with tempfile.TemporaryDirectory(prefix="course-") as temporary:
        output = arguments.output or Path(temporary)
        output.mkdir(parents=True, exist_ok=True)
        domains = [
            Domain(name, source, output / f"{name}-train.txt", output / f"{name}-held-out.txt", n)
            for name, source, n in zip(
                ("stories", "web"),
                (arguments.stories, arguments.web),
                arguments.vocab_sizes,
                strict=True,
            )
        ]
        found = experiments(domains, output, arguments.rounds)
        report(tables(domains, found), arguments.json)
        if arguments.details:
            told = {"domains": [asdict(domain) for domain in domains], **found}
            arguments.details.write_text(json.dumps(told, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
