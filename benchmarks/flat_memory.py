"""Check that memory stays flat over gigabytes of text that hardly repeats itself.

    .venv/bin/python benchmarks/flat_memory.py                     # 2 GB through each way, native
    .venv/bin/python benchmarks/flat_memory.py --ways stream --megabytes 500 --engine python

Each way runs in a fresh process: `pieces` encodes each piece separately, `threads` does the same
with two threads, `count` counts, `stream` feeds one StreamingEncoder. Ids are dropped at once. The
table shows resident memory against the bytes encoded so far. The exit status is 1 if memory grows
by more than `--tolerance-megabytes` after the first tenth, which fills every cache.

It does not measure the trainer, whose counts hold every distinct pre-token and so grow on such
text.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from corpora import REPOSITORY, vocab_path
from distinct_text import distinct_text
from figures import render_row

from tokenizer_core import StreamingEncoder, Tokenizer

STARTER = REPOSITORY / "artifacts" / "tokenizers" / "starter"


def load_tokenizer(ranks: Path | None, pattern: str, engine: str) -> Tokenizer:
    if ranks is not None:
        return Tokenizer.from_tiktoken(ranks, pattern=pattern, special_tokens={}, engine=engine)
    version = min(path for path in STARTER.iterdir() if path.is_dir())
    return Tokenizer.from_files(version / "vocab.pkl", version / "merges.pkl", engine=engine)


def encode_piece(tokenizer: Tokenizer, num_threads: int, piece: str) -> int:
    return len(tokenizer.encode_to_numpy(piece, num_threads=num_threads))


def feed_piece(stream: StreamingEncoder, piece: str) -> int:
    # In small parts, as from a socket.
    return sum(len(stream.feed(piece[at : at + 20_000])) for at in range(0, len(piece), 20_000))


def step_of(way: str, tokenizer: Tokenizer) -> Callable[[str], int]:
    """A function that encodes a piece and returns the number of ids."""
    steps: dict[str, Callable[[str], int]] = {
        "pieces": partial(encode_piece, tokenizer, 1),
        "threads": partial(encode_piece, tokenizer, 2),
        "count": tokenizer.count,
        "stream": partial(feed_piece, StreamingEncoder(tokenizer)),
    }
    return steps[way]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def run(way: str, arguments: argparse.Namespace) -> None:
    """Print a table; exit with 1 if memory grew."""
    tokenizer = load_tokenizer(arguments.ranks, arguments.pattern, arguments.engine)
    step = step_of(way, tokenizer)
    n_bytes = arguments.megabytes * 1_000_000
    print(f"\n{way}, {tokenizer!r}")
    columns = ["MB of text", "resident MB", "cache entries", "of at most", "misses", "s"]
    print(render_row(columns) + render_row(["---"] * len(columns)), end="")
    started, done, next_line, after_first_tenth, n_ids = time.monotonic(), 0, 0, 0, 0
    highest = 0
    for piece in distinct_text(n_bytes, arguments.seed):
        n_ids += step(piece)
        done += len(piece.encode())
        resident = resident_bytes()
        if done >= n_bytes // 10:
            after_first_tenth = after_first_tenth or resident
            highest = max(highest, resident)
        if done >= next_line or done >= n_bytes:
            cache = tokenizer.cache_statistics()
            row = [done / 1e6, resident / 1e6, cache.entries, cache.maximum, cache.misses]
            print(render_row([*row, time.monotonic() - started]), end="", flush=True)
            next_line += n_bytes // 10
    growth = highest - after_first_tenth
    print(f"{n_ids:,} ids; at most {growth / 1e6:+.1f} MB after the first tenth")
    sys.exit(growth > arguments.tolerance_megabytes * 1_000_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    ways = ["pieces", "threads", "count", "stream"]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--ranks", type=vocab_path, help="a .tiktoken file (default: the starter)")
    parser.add_argument("--pattern", default="gpt2", help="the split pattern of --ranks")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--tolerance-megabytes", type=int, default=16)
    arguments = parser.parse_args()
    # Memory that the allocator keeps after free looks like growth, so return large blocks.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    context = multiprocessing.get_context("spawn")
    failed = []
    for way in arguments.ways:
        process = context.Process(target=run, args=(way, arguments))
        process.start()
        process.join()
        if process.exitcode:
            failed.append(way)
    print(f"\ngrew: {', '.join(failed)}" if failed else "\nflat")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
