"""Check that texts which make careless tokenizers quadratic take linear time.

    .venv/bin/python benchmarks/pathological.py
    .venv/bin/python benchmarks/pathological.py --engine python --ranks o200k_base \
        --pattern o200k

Each time is the processor time of a fresh process that has only encoded a greeting, the minimum of
several rounds, so that a busy machine matters little. A ratio near 2 is linear, near 4 quadratic.
The exit status is 1 if a ratio is 2.6 or more, or a process crashes.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from corpora import vocab_path
from figures import Table, add_json_option, report
from flat_memory import load_tokenizer

SIZES = [250_000, 500_000, 1_000_000]
LIMIT = 2.6


def _repeated(unit: str) -> Callable[[int], str]:
    return lambda n_bytes: unit * (n_bytes // len(unit.encode()))


def _random_letters(n_bytes: int) -> str:
    return "".join(random.Random(2026).choices("abcdefghijklmnopqrstuvwxyz", k=n_bytes))


def _random_han(n_bytes: int) -> str:
    return "".join(
        random.Random(2026).choices([chr(c) for c in range(0x4E00, 0x9F00)], k=n_bytes // 3)
    )


INPUTS: dict[str, Callable[[int], str]] = {
    "one letter": _repeated("a"),
    "carets": _repeated("^"),
    "spaces": _repeated(" "),
    "newlines": _repeated("\n"),
    "tabs and spaces": _repeated(" \t"),
    "combining marks": _repeated("\u0301"),
    "letter and marks": _repeated("A\u0301"),
    "zero width joiners": _repeated("a\u200d"),
    "family emoji": _repeated("👩\u200d"),
    "one ideograph": _repeated("中"),
    "random ideographs": _random_han,
    "upper case": _repeated("A"),
    "digits": _repeated("1"),
    "apostrophes": _repeated("'"),
    "slashes": _repeated("/\n"),
    "random letters": _random_letters,
}


def encode_once(arguments: argparse.Namespace, name: str, n_bytes: int, answer: Connection) -> None:
    """Send the processor seconds for one text and the number of ids."""
    tokenizer = load_tokenizer(arguments.ranks, arguments.pattern, arguments.engine)
    text = INPUTS[name](n_bytes)
    tokenizer.encode_to_numpy("hello world")
    started = time.process_time()
    ids = tokenizer.encode_to_numpy(text)
    answer.send((time.process_time() - started, len(ids)))


def seconds_of(arguments: argparse.Namespace, name: str, n_bytes: int) -> float | None:
    """The minimum of the rounds; None if a process crashed or took over a minute."""
    context = multiprocessing.get_context("spawn")
    least = None
    for _ in range(arguments.rounds):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=encode_once, args=(arguments, name, n_bytes, sending))
        process.start()
        sending.close()
        try:
            seconds = receiving.recv()[0] if receiving.poll(60) else None
        except EOFError:
            seconds = None
        process.kill()
        process.join()
        if seconds is None:
            return None
        least = seconds if least is None else min(least, seconds)
    return least


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", default="native")
    parser.add_argument("--ranks", type=vocab_path, help="a .tiktoken file (default: the starter)")
    parser.add_argument("--pattern", default="gpt2", help="the split pattern of --ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inputs", nargs="+", choices=list(INPUTS), default=list(INPUTS))
    add_json_option(parser)
    arguments = parser.parse_args()
    failed, rows = [], []
    for name in arguments.inputs:
        seconds = [seconds_of(arguments, name, size) for size in SIZES]
        if None in seconds:
            failed.append(name)
            rows.append([name, *["crashed or too slow"] * len(SIZES), None])
            continue
        ratios = [large / small for small, large in itertools.pairwise(seconds)]
        if max(ratios) >= LIMIT:
            failed.append(name)
        rows.append([name, *(s * 1e3 for s in seconds), ratios])
    columns = ["input", *(f"{size // 1000} kB, ms" for size in SIZES), "ratios"]
    note = f"{arguments.engine} engine, processor time, least of {arguments.rounds} rounds"
    report([Table(columns, rows)], arguments.json, note)
    print(f"\nnot linear: {', '.join(failed)}" if failed else f"\nall below {LIMIT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
