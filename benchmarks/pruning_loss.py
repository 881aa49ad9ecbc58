"""Measure what pruning the counts costs a tokenizer: dropped counts, the bound, held-out text.

    .venv/bin/python benchmarks/pruning_loss.py en_reuters_news
    .venv/bin/python benchmarks/pruning_loss.py news.txt --min-count 2 10 --vocab-size 50000

The script holds out a random tenth of the documents. It counts the others, learns from the counts,
prunes them and learns again; for comparison it does the same with a sample of the documents that
has as many distinct pre-tokens as the pruned counts. `merges above it` is the number of leading
merges that occur more often than the bound. docs/benchmarks.md has the figures for our corpora.
"""

import random
import tempfile
from itertools import pairwise

from corpora import SEPARATOR, label, text_path
from figures import Table, make_parser, report

from tokenizer_core import Tokenizer
from tokenizer_core.splitting.patterns import resolve_pattern
from tokenizer_core.training import (
    count_pretokens,
    prune_counts,
    train_from_counts,
)

COLUMNS = [
    "text", "kept from", "distinct dropped", "bytes dropped", "bound", "merges above it",
    "first other merge", "same merges", "held out", "a sample as small",
]  # fmt: skip
STEPS = 10
"""Steps of the search for a sample of the wanted size."""

COUNTING = {"special_tokens": [SEPARATOR], "num_workers": 1}


def draw(path, seed):
    """Split the documents into a tenth and the rest."""
    text = path.read_text(encoding="utf-8")
    parts = (text.split(separator) for separator in (SEPARATOR, "\n\n", "\n"))
    documents = next((found for found in parts if len(found) >= 100), [text])
    random.Random(seed).shuffle(documents)
    n_held = len(documents) // 10
    return documents[:n_held], documents[n_held:]


def count(documents, pattern):
    """Count these documents."""
    text = SEPARATOR.join(documents)
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        return count_pretokens([file.name], pattern=resolve_pattern(pattern), **COUNTING)


def bytes_per_token(run, texts):
    """Bytes per token on these texts."""
    ids, _ = Tokenizer.from_spec(run.spec).encode_batch_to_numpy(texts)
    return sum(len(text.encode()) for text in texts) / len(ids)


def n_equal(a, b):
    """The length of the common prefix of two merge lists."""
    pairs = zip(a.merges, b.merges, strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(a.merges), len(b.merges)))


def n_above(run, bound):
    """The number of leading merges that joined more positions than the bound."""
    counts = run.learned.token_counts
    joined = (before - after for before, after in pairwise(counts))
    return next((n for n, places in enumerate(joined) if places <= bound), len(counts) - 1)


def sample(documents, pattern, n_distinct):
    """The counts of as many documents as have about this many distinct pre-tokens."""
    low, high = 0, len(documents)
    for _ in range(STEPS):
        middle = (low + high) // 2
        counts = count(documents[:middle], pattern)
        low, high = (low, middle) if len(counts.counts) > n_distinct else (middle, high)
    return counts


def compare(path, pattern, vocab_size, min_counts, seed):
    """The rows of one file."""
    held, documents = draw(path, seed)
    counts = count(documents, pattern)
    whole = train_from_counts(counts, vocab_size)
    n_bytes, n_distinct = counts.n_pre_token_bytes, len(counts.counts)
    best = bytes_per_token(whole, held)
    rows = []
    for min_count in min_counts:
        pruned = prune_counts(counts, min_count=min_count)
        assert pruned.pruning is not None
        run = train_from_counts(pruned, vocab_size)
        found = bytes_per_token(run, held)
        shared = len(set(run.merges) & set(whole.merges)) / len(whole.merges)
        sampled = sample(documents, pattern, len(pruned.counts))
        of_sample = bytes_per_token(train_from_counts(sampled, vocab_size), held)
        rows.append([
            f"{label(path)}, {n_bytes / 1e6:.0f} MB", min_count,
            f"{pruned.pruning.n_distinct / n_distinct:.1%}",
            f"{pruned.pruning.n_bytes / n_bytes:.1%}", pruned.pruning.bound,
            n_above(run, pruned.pruning.bound), n_equal(run, whole) + 1, f"{shared:.1%}",
            f"{found / best:.1%}", f"{of_sample / best:.1%}",
        ])  # fmt: skip
    return rows


def main():
    """Print the tables."""
    parser = make_parser(__doc__, rounds=0)
    parser.add_argument("files", type=text_path, nargs="+")
    parser.add_argument("--pattern", default="gpt2")
    parser.add_argument("--vocab-size", type=int, default=256 + 1 + 32_000)
    parser.add_argument("--min-count", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    how = (arguments.pattern, arguments.vocab_size, arguments.min_count, arguments.seed)
    rows = [row for path in arguments.files for row in compare(path, *how)]
    report([Table(COLUMNS, rows)], arguments.json, f"Pattern {arguments.pattern}")


if __name__ == "__main__":
    main()
