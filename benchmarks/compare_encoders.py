"""Encode the same text with this project and with others, and print speeds and ratios.

    .venv/bin/python benchmarks/compare_encoders.py --vocab tokenizer.json news.txt books.txt
    .venv/bin/python benchmarks/compare_encoders.py --vocab gpt2.tokenizer.json news.txt \
        --peers ~/peers/bin/python --engines native,gigatoken,fastokens,tokenizers

`--vocab` is a Hugging Face `tokenizer.json`. The other libraries run in this Python if they are
installed, or in the Python that `--peers` names (a virtual environment with `pip install numpy
gigatoken awkward fastokens tokenizers`).

Each figure comes from a fresh process, pinned to as many processors as it has threads, that has
loaded its tokenizer and encoded a different 100 kB. *cold* is the first pass over the text, *warm*
the better of two more. With one thread the input is one text. With `--threads 2` or more it is a
batch of documents, groups of lines of about 10,000 characters, because the others split their work
by document. The engines take turns in rotating order, and the table shows medians, so that a slow
minute of the machine affects all of them. The result is an array of uint32. The exit status is 1 if
the ids of two engines differ.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OURS = ("native", "python")
MODULES = {"gigatoken": "gigatoken", "fastokens": "fastokens", "tokenizers": "tokenizers"}
DOCUMENT = 10_000

Encode = Callable[[list[str]], Any]
"""From a text or several documents to their ids, concatenated."""


def ours(vocab: str, threads: int, engine: str) -> Encode:
    from tokenizer_core import Tokenizer

    tokenizer = Tokenizer.from_tokenizer_json(Path(vocab), engine=engine)
    return lambda texts: (
        tokenizer.encode_to_numpy(texts[0])
        if len(texts) == 1
        else tokenizer.encode_batch_to_numpy(texts, num_threads=threads)[0]
    )


def gigatoken(vocab: str, threads: int) -> Encode:
    from gigatoken.gigatoken_rs import BPETokenizer

    tokenizer = BPETokenizer.from_hf(vocab)
    if threads == 1:
        return lambda texts: tokenizer.encode(texts[0])
    import awkward

    return lambda texts: awkward.to_numpy(awkward.flatten(tokenizer.encode_batch(texts), axis=None))


def fastokens(vocab: str, threads: int) -> Encode:
    import numpy as np
    from fastokens._native import Tokenizer

    tokenizer = Tokenizer.from_file(vocab)
    return lambda texts: np.frombuffer(tokenizer.encode_batch_flat(texts)[0], dtype=np.uint32)


def tokenizers(vocab: str, threads: int) -> Encode:
    import numpy as np
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(vocab)

    def encode(texts: list[str]) -> Any:
        encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
        return np.concatenate([np.array(one.ids, dtype=np.uint32) for one in encoded])

    return encode


def documents_of(text: str) -> list[str]:
    documents, lines, length = [], [], 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        length += len(line)
        if length >= DOCUMENT:
            documents.append("".join(lines))
            lines, length = [], 0
    return [*documents, "".join(lines)]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in a fresh process; `job` names engine, vocabulary, text and threads."""
    threads = job["threads"]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    text = Path(job["text"]).read_bytes()[: job["n_bytes"]].decode("utf-8", errors="ignore")
    other = Path(job["text"]).read_bytes()[-100_000:].decode("utf-8", errors="ignore")
    engine, vocab = job["engine"], job["vocab"]
    encode: Encode = (
        ours(vocab, threads, engine) if engine in OURS else globals()[engine](vocab, threads)
    )
    texts, others = ([text], [other]) if threads == 1 else map(documents_of, (text, other))
    encode(others)
    seconds = []
    for _ in range(3):
        ids: Any = None
        start = time.perf_counter()
        ids = encode(texts)
        seconds.append(time.perf_counter() - start)
    n_bytes = len(text.encode())
    return {
        "cold": n_bytes / 1e6 / seconds[0],
        "warm": n_bytes / 1e6 / min(seconds[1:]),
        "ids": hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()[:10],
    }


def run(job: dict[str, Any], python: str) -> dict[str, Any]:
    """`measure` in a fresh process of `python`; {"error": ...} when it fails."""
    command = [python, __file__, "--job", json.dumps(job)]
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(job["threads"]),
        "TOKENIZERS_PARALLELISM": str(job["threads"] > 1).lower(),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"error": words[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(text: Path, args: argparse.Namespace) -> bool:
    """Measure all engines on one text, print a table, return whether their ids are equal."""
    engines = args.engines.split(",")
    runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
    for round_number in range(args.rounds):
        turn = round_number % len(engines)
        for engine in engines[turn:] + engines[:turn]:
            print(f"\r{text.name}: round {round_number + 1}, {engine:<12}", end="", file=sys.stderr)
            job = {
                "engine": engine,
                "vocab": str(args.vocab),
                "text": str(text),
                "n_bytes": int(args.mb * 1e6),
                "threads": args.threads,
            }
            python = sys.executable if engine in OURS else args.peers or sys.executable
            runs[engine].append(run(job, python))
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    size = min(text.stat().st_size / 1e6, args.mb)
    print(f"\n{text.name}, {size:.0f} MB, {args.rounds} rounds, threads: {args.threads}, MB/s")
    print(f"{'engine':<12}{'cold':>8}{'warm':>8}   ids")
    medians: dict[str, tuple[float, float]] = {}
    seen: set[str] = set()
    for engine, results in runs.items():
        failed = next((result["error"] for result in results if "error" in result), None)
        if failed:
            print(f"{engine:<12}{failed}")
            continue
        cold, warm = (statistics.median(r[kind] for r in results) for kind in ("cold", "warm"))
        medians[engine] = cold, warm
        seen.update(result["ids"] for result in results)
        print(f"{engine:<12}{cold:>8.1f}{warm:>8.1f}   {results[0]['ids']}")
    peers = {engine: pair for engine, pair in medians.items() if engine not in OURS}
    if "native" in medians and peers:
        for place, kind in enumerate(("cold", "warm")):
            best = max(peers, key=lambda engine: peers[engine][place])
            ratio = medians["native"][place] / peers[best][place]
            print(f"{kind}: native / {best}, the fastest of the others = {ratio:.2f}")
    if len(seen) > 1:
        print("THE IDS DIFFER", file=sys.stderr)
    return len(seen) == 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", type=Path, metavar="TEXT", help="UTF-8 files")
    parser.add_argument("--vocab", type=Path, help="a tokenizer.json")
    parser.add_argument("--engines", default="native,gigatoken,fastokens,tokenizers")
    parser.add_argument("--peers", help="the Python that imports the others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=float, default=20, help="of each text at most, in MB")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(args.job)))
        return 0
    if not args.texts or args.vocab is None:
        parser.error("give --vocab FILE and at least one text")
    n_processors = len(os.sched_getaffinity(0))
    if not 1 <= args.threads <= n_processors:
        parser.error(f"--threads must be 1 to {n_processors}, the processors there are")
    unknown = set(args.engines.split(",")) - {*OURS, *MODULES}
    if unknown:
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}")
    if args.peers is None:
        named = args.engines.split(",")
        known = [e for e in named if e in OURS or importlib.util.find_spec(MODULES[e])]
        for engine in set(named) - set(known):
            print(f"{engine} cannot be imported here: left out (see --peers)", file=sys.stderr)
        args.engines = ",".join(known)
    are_equal = [compare(text, args) for text in args.texts]
    return 0 if all(are_equal) else 1


if __name__ == "__main__":
    sys.exit(main())
