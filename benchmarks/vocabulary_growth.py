"""Measure how the distinct pre-tokens of a corpus grow, and estimate the cost of more text.

    .venv/bin/python benchmarks/vocabulary_growth.py en_reuters_news zh_modern_bitext
    .venv/bin/python benchmarks/vocabulary_growth.py --sampling 32000 news.txt
    .venv/bin/python benchmarks/vocabulary_growth.py news.txt --pattern o200k --terabytes 1 100

Heaps' law: n bytes of one kind of text have about K * n**beta distinct pre-tokens. The script
counts each file at doubling sizes; the exponent is the slope between the last two, because it
falls as text grows. An extrapolation is therefore an upper bound for text of the same kind, and
says nothing about other kinds. docs/sizing.md explains how to read it.
"""

import math
import tempfile
import time
from dataclasses import dataclass

from corpora import label, text_path
from figures import Table, make_parser, report
from pruning_loss import COUNTING, bytes_per_token, count, draw

from tokenizer_core.splitting.patterns import resolve_pattern
from tokenizer_core.training import count_pretokens, train_from_counts

SMALLEST = 1 << 19
PARTS = (1, 2, 4, 8, 16)
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

    def distinct_at(self, n_bytes):
        """The estimated distinct pre-tokens in `n_bytes` of such text."""
        return self.n_distinct * (n_bytes / self.n_bytes) ** self.beta


def measure(path, pattern):
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
    return Growth(label(path), n_last, last, mean, beta, n_last / seconds)


def growth_table(found):
    columns = [
        "text", "MB", "distinct pre-tokens", "mean bytes", "exponent", "counting, MB/s per thread",
    ]  # fmt: skip
    rows = [
        [one.name, round(one.n_bytes / 1e6), one.n_distinct, one.mean_bytes, one.beta,
         one.bytes_per_second / 1e6]
        for one in found
    ]  # fmt: skip
    return Table(columns, rows)


def predict(found, terabytes, shard_gigabytes, cores):
    """The estimated cost of counting this much of each kind."""
    n_bytes, shard = terabytes * 1e12, shard_gigabytes * 1e9
    title = f"{terabytes:g} TB in shards of {shard_gigabytes:g} GB, {cores} cores:"
    columns = [
        "text", "distinct, at most", "all counts", "one shard's", "to shuffle", "counting, hours",
    ]  # fmt: skip
    rows = []
    for one in found:
        record = one.mean_bytes + RECORD_BYTES
        whole, part = one.distinct_at(n_bytes), one.distinct_at(shard)
        memory = part * (one.mean_bytes + TABLE_BYTES)
        shuffled = n_bytes / shard * part * record
        hours = n_bytes / one.bytes_per_second / cores / 3600
        rows.append([
            one.name, f"{whole / 1e6:,.0f} M", f"{whole * record / 1e9:,.1f} GB",
            f"{memory / 1e6:,.0f} MB", f"{shuffled / 1e9:,.0f} GB", hours,
        ])  # fmt: skip
    return Table(columns, rows, title)


def lose_by_sampling(path, pattern, vocab_size):
    """Bytes per token of tokenizers trained on ever smaller samples (`PARTS`), on a held-out tenth
    of the documents."""
    held, rest = draw(path, seed=1)
    samples = (count(rest[: len(rest) // part], pattern) for part in PARTS)
    return [bytes_per_token(train_from_counts(counts, vocab_size), held) for counts in samples]


def sampling_table(paths, pattern, vocab_size):
    found = [lose_by_sampling(path, pattern, vocab_size) for path in paths]
    rows = [["all", *(f"{losses[0]:.3f} bytes per token" for losses in found)]]
    rows += [
        [f"1/{part} of the documents", *(f"{losses[number] / losses[0]:.1%}" for losses in found)]
        for number, part in enumerate(PARTS)
        if number
    ]
    return Table(["trained on", *map(label, paths)], rows)


def main():
    """Print the tables."""
    parser = make_parser(__doc__, rounds=0)
    parser.add_argument("files", type=text_path, nargs="+")
    parser.add_argument("--pattern", default="gpt2")
    parser.add_argument("--terabytes", type=float, nargs="*", default=[1, 100])
    parser.add_argument("--shard-gigabytes", type=float, default=1)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--sampling", type=int, metavar="VOCAB_SIZE", help="what a sample loses")
    arguments = parser.parse_args()
    if arguments.sampling:
        table = sampling_table(arguments.files, arguments.pattern, arguments.sampling)
        report([table], arguments.json, f"{arguments.sampling:,} entries")
        return
    found = [measure(path, arguments.pattern) for path in arguments.files]
    predicted = [
        predict(found, terabytes, arguments.shard_gigabytes, arguments.cores)
        for terabytes in arguments.terabytes
    ]
    report([growth_table(found), *predicted], arguments.json, f"Pattern {arguments.pattern}")


if __name__ == "__main__":
    main()
