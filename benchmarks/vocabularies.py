"""Print a table of how fast published vocabularies encode some texts.

    .venv/bin/python benchmarks/vocabularies.py --texts en_reuters_news code.c -- \\
        gpt2 o200k.tiktoken llama2 kimi_k2:kimi_k2

A vocabulary is anything that `Tokenizer.load` reads, a rank file with its split pattern after a
colon, a name of `../shared/data`, or the name of a preset. A figure is MB/s of the first pass over
a text, with one thread; `--again` prints that of later passes too. `--loading` prints instead how
long loading takes, beside `tokenizers` for a `tokenizer.json` and tiktoken for a rank file. Each
round begins with a new tokenizer, the vocabularies take turns, and the table shows medians. Seconds
are those of the process (`time.process_time`), so that other work on the machine disturbs less;
quote ratios of one run.
"""

import argparse
import gc
import statistics
import time
from pathlib import Path

from corpora import label, text_path, vocab_path
from figures import Table, make_parser, report

from tokenizer_core import Tokenizer
from tokenizer_core.presets import PRESETS
from tokenizer_core.splitting.patterns import PATTERNS

PASSES = 3


def find(name):
    """The file (or folder) of a vocabulary, and its pattern."""
    path, _, pattern = name.partition(":")
    return Path(path) if Path(path).is_dir() else vocab_path(path), pattern


def load(name):
    try:
        path, pattern = find(name)
    except argparse.ArgumentTypeError:
        if name in PRESETS:
            return Tokenizer.from_preset(name)
        raise
    if pattern:
        return Tokenizer.from_tiktoken(path, pattern=pattern, special_tokens={})
    return Tokenizer.load(path)


def speeds(tokenizer, text):
    """MB/s of the first pass of a new tokenizer, and of the best later one."""
    fresh = Tokenizer.from_spec(tokenizer.spec)
    fresh.encode_to_numpy("a b")  # makes the cache
    seconds = []
    for _ in range(PASSES):
        start = time.process_time()
        fresh.encode_to_numpy(text)
        seconds.append(time.process_time() - start)
    n_megabytes = len(text.encode()) / 1e6
    return n_megabytes / seconds[0], n_megabytes / min(seconds[1:])


def load_in_peer(name):
    """Load the same file in the library that it is made for; None for anything else."""
    path, pattern = find(name)
    if path.suffix == ".tiktoken":
        from tiktoken import Encoding
        from tiktoken.load import load_tiktoken_bpe

        # The expression is compiled, and no text is split by it here.
        expression = PATTERNS[pattern or "gpt2"].expression if pattern != "kimi_k2" else r"\p{L}+"
        ranks = load_tiktoken_bpe(str(path))
        return Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    if path.is_dir() or "tekken" in path.name:
        return None
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(path))


def seconds_of(load, name):
    gc.collect()
    start = time.process_time()
    loaded = load(name)
    seconds = time.process_time() - start
    return None if loaded is None else seconds


def loading_table(names, n_rounds):
    rows = []
    for name in names:
        rounds = [(seconds_of(load, name), seconds_of(load_in_peer, name)) for _ in range(n_rounds)]
        ours, others = (
            [seconds for seconds in column if seconds is not None]
            for column in zip(*rounds, strict=True)
        )
        own, other = statistics.median(ours), statistics.median(others) if others else None
        rows.append([label(find(name)[0]), own, other, own / other if other else None])
    return Table(["vocabulary", "load, s", "its own library", "ratio"], rows)


def speed_table(names, paths, args):
    tokenizers = {name: load(name) for name in names}
    texts = [read(path, int(args.megabytes * 1e6)) for path in paths]
    measured = {}
    for _ in range(args.rounds):
        for number, text in enumerate(texts):
            for name, tokenizer in tokenizers.items():
                measured.setdefault((name, number), []).append(speeds(tokenizer, text))
    rows = []
    for name in tokenizers:
        row = [name]
        for number in range(len(texts)):
            columns = zip(*measured[name, number], strict=True)
            first, again = (round(statistics.median(column)) for column in columns)
            row.append([first, again] if args.again else first)
        rows.append(row)
    return Table(["vocabulary", *map(label, paths)], rows)


def read(path, n_bytes):
    with path.open("rb") as file:
        return file.read(n_bytes).decode("utf-8", "ignore")


def main():
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--texts", type=text_path, nargs="+", default=[], help="files in UTF-8")
    parser.add_argument("--loading", action="store_true", help="how long loading takes")
    parser.add_argument("--megabytes", type=float, default=4.0, help="of each text (default 4)")
    parser.add_argument("--again", action="store_true", help="also the speed of later passes")
    parser.add_argument("vocabularies", nargs="+")
    args = parser.parse_args()
    if args.loading:
        table = loading_table(args.vocabularies, args.rounds)
    elif args.texts:
        table = speed_table(args.vocabularies, args.texts, args)
    else:
        parser.error("give --texts or --loading")
    report([table], args.json, f"Medians of {args.rounds} rounds in processor time")


if __name__ == "__main__":
    main()
