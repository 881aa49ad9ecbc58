"""Compare two pair queues for the merge learner: ordered count buckets and a lazy max-heap.

    .venv/bin/python benchmarks/compare_merge_learners.py

Both queues run under the same learner on the same counts, and the merges must be equal. Each run is
a fresh process, so that the memory is that of one run. The library uses the winner (`PairBuckets`);
the loser stays here so that the comparison can be repeated.

The buckets are 10 to 25 % faster and use a quarter less memory, because they compare and key only
the pairs of the current count. The run counted the whole first file (40 MB) and the first 8 MB of
the second, whose pre-tokens are long (24 bytes on average).
"""

import argparse
import heapq
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpora import label, text_path
from figures import Table, add_json_option, report

from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import PretokenCounts, count_pretokens
from tokenizer_core.training.learn_merges import PairBuckets, PairQueue, learn_with_queue

REPOSITORY = Path(__file__).resolve().parent.parent
CASES = [
    ("en_reuters_news", None, 10_000),
    ("en_reuters_news", None, 32_000),
    ("zh_modern_bitext", 8_000_000, 10_000),
]


class LazyHeap:
    """A heap of all pairs by descending count, then key. A pair whose count fell since it was
    pushed is pushed again with its current count when it reaches the top."""

    def __init__(self, pair_counts: dict[str, int], token_keys: dict[str, str]) -> None:
        self._pair_counts = pair_counts
        self._token_keys = token_keys
        # Store the keys of both sides separately: all pairs of a token share them.
        self._heap = [
            (-count, token_keys[pair[0]], token_keys[pair[1]], pair)
            for pair, count in pair_counts.items()
        ]
        heapq.heapify(self._heap)

    def add(self, pair: str, count: int) -> None:
        keys = self._token_keys
        heapq.heappush(self._heap, (-count, keys[pair[0]], keys[pair[1]], pair))

    def pop(self) -> str | None:
        while self._heap:
            negative, _, _, pair = heapq.heappop(self._heap)
            count = self._pair_counts.get(pair, 0)
            if count == -negative:
                return pair
            if count:
                self.add(pair, count)
        return None


QUEUES: dict[str, type[PairQueue]] = {"buckets": PairBuckets, "heap": LazyHeap}


def measure(counts_path: str, queue: str, vocab_size: int) -> dict[str, object]:
    """Run once in this process."""
    counts = PretokenCounts.load(counts_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    n_merges = vocab_size - 256 - len(counts.special_tokens)
    learned = learn_with_queue(counts.counts, n_merges, QUEUES[queue])
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "peak_added_mb": (after - before) / 1024,
        "merges": len(learned.merges),
        "digest": hash_merges(learned.merges),
    }


def hash_merges(merges: list[tuple[bytes, bytes]]) -> str:
    import hashlib

    return hashlib.sha256(repr(merges).encode()).hexdigest()


def measure_apart(counts_path: Path, queue: str, vocab_size: int) -> dict[str, object]:
    """Run once in a fresh process."""
    command = [sys.executable, __file__, "--one", str(counts_path), queue, str(vocab_size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def cut_corpus(source: Path, size: int | None, folder: Path) -> Path:
    """The first `size` bytes of a file, cut at a line end; the whole file without a size."""
    if size is None:
        return source
    with source.open("rb") as file:
        data = file.read(size)
    path = folder / source.name
    path.write_bytes(data[: data.rindex(b"\n") + 1])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts")
    parser.add_argument("--one", nargs=3, metavar=("COUNTS", "QUEUE", "SIZE"), help="internal")
    add_json_option(parser)
    options = parser.parse_args()
    if options.one:
        counts_path, queue, vocab_size = options.one
        print(json.dumps(measure(counts_path, queue, int(vocab_size))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, size, vocab_size in CASES:
            corpus = cut_corpus(text_path(name), size, Path(folder))
            counts = count_pretokens(
                [corpus], pattern=PATTERNS["gpt2"], special_tokens=["<|endoftext|>"]
            )
            counts_path = Path(folder, "counts")
            counts.save(counts_path)
            digests = set()
            for queue in QUEUES:
                runs = [
                    measure_apart(counts_path, queue, vocab_size) for _ in range(options.repeat)
                ]
                best = min(runs, key=lambda run: float(str(run["seconds"])))
                digests.update(str(run["digest"]) for run in runs)
                figures = [best["seconds"], best["peak_added_mb"]]
                rows.append([label(corpus), vocab_size, len(counts.counts), queue, *figures])
            if len(digests) != 1:
                raise SystemExit("the two queues learned different merges")
    columns = ["text", "entries", "distinct pre-tokens", "queue", "s", "memory, MB"]
    report([Table(columns, rows)], options.json, f"Least of {options.repeat} rounds")


if __name__ == "__main__":
    main()
