"""Measure what superwords (SuperBPE) save and cost: training, bytes per token, encoding.

    .venv/bin/python benchmarks/superwords.py en_reuters_news
    .venv/bin/python benchmarks/superwords.py --vocab-size 50000 --from 40000 news.txt

The script holds out a random tenth of the documents and trains on the others, once without
superwords and once from each size. Times are of the processor; encoding is of the held-out text,
unseen.
"""

import time

from corpora import label, text_path
from figures import Table, make_parser, report
from pruning_loss import draw

from tokenizer_core.training import TrainingOptions, VocabularyOptions, train_from_iterator

COLUMNS = ["text", "superwords from", "training, s", "bytes per token", "encoding, MB/s"]


def compare(path, vocab_size, sizes, seed):
    """The rows of one file."""
    held, documents = draw(path, seed)
    n_bytes = sum(len(text.encode()) for text in held)
    rows = []
    for size in (None, *sizes):
        options = TrainingOptions(
            vocab_size, num_workers=1, vocabulary=VocabularyOptions(superwords_from=size)
        )
        start = time.process_time()
        tokenizer = train_from_iterator(documents, options).tokenizer
        trained = time.process_time()
        n_ids = sum(map(tokenizer.count, held))
        encoded = time.process_time()
        title = f"{label(path)}, {sum(map(len, documents)) / 1e6:.0f} MB"
        speed = n_bytes / 1e6 / (encoded - trained)
        rows.append([title, size or "never", trained - start, n_bytes / n_ids, speed])
    return rows


def main():
    """Print the table."""
    parser = make_parser(__doc__, rounds=0)
    parser.add_argument("files", type=text_path, nargs="+")
    parser.add_argument("--vocab-size", type=int, default=50_000)
    parser.add_argument("--from", type=int, nargs="+", default=[40_000, 20_000], dest="sizes")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    how = (arguments.vocab_size, arguments.sizes, arguments.seed)
    rows = [row for path in arguments.files for row in compare(path, *how)]
    report([Table(COLUMNS, rows)], arguments.json, f"{arguments.vocab_size:,} entries")


if __name__ == "__main__":
    main()
