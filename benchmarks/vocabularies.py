"""Print a table of how fast published vocabularies encode some texts.

    .venv/bin/python benchmarks/vocabularies.py --texts news.txt chinese.txt code.c -- \\
        gpt2 o200k.tiktoken llama2/tokenizer.json kimi_k2.tiktoken:kimi_k2

A vocabulary is the name of a preset, anything that `Tokenizer.load` reads, or the path of a rank
file with its split pattern after a colon. A figure is MB/s of the first pass over a text, with one
thread; `--again` prints that of later passes too. `--loading` prints instead how long loading
takes, beside `tokenizers` for a `tokenizer.json` and tiktoken for a rank file. Each round begins
with a new tokenizer, the vocabularies take turns, and the table shows medians. Seconds are those of
the process (`time.process_time`), so that other work on the machine disturbs less; quote ratios of
one run.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizer_core import Tokenizer
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable

PASSES = 3


def load(name: str) -> Tokenizer:
    if name in PRESETS:
        return Tokenizer.from_preset(name)
    path, _, pattern = name.partition(":")
    if pattern:
        return Tokenizer.from_tiktoken(Path(path), pattern=pattern, special_tokens={})
    return Tokenizer.load(Path(path))


def speeds(tokenizer: Tokenizer, text: str) -> tuple[float, float]:
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


def load_in_peer(name: str) -> object:
    """Load the same file in the library that it is made for; None for anything else."""
    path, _, pattern = name.partition(":")
    if path in PRESETS or Path(path).is_dir():
        return None
    if path.endswith(".tiktoken"):
        from tiktoken import Encoding
        from tiktoken.load import load_tiktoken_bpe

        # The expression is compiled, and no text is split by it here.
        expression = PATTERNS[pattern or "gpt2"].expression if pattern != "kimi_k2" else r"\p{L}+"
        ranks = load_tiktoken_bpe(path)
        return Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    if "tekken" in Path(path).name:
        return None
    import tokenizers

    return tokenizers.Tokenizer.from_file(path)


def seconds_of(load: Callable[[str], object], name: str) -> float | None:
    gc.collect()
    start = time.process_time()
    loaded = load(name)
    seconds = time.process_time() - start
    return None if loaded is None else seconds


def print_loading(names: list[str], n_rounds: int) -> None:
    print("| vocabulary | load, seconds | its own library | ratio |\n|---|---|---|---|")
    for name in names:
        rounds = [(seconds_of(load, name), seconds_of(load_in_peer, name)) for _ in range(n_rounds)]
        ours, others = (
            [seconds for seconds in column if seconds is not None]
            for column in zip(*rounds, strict=True)
        )
        own = statistics.median(ours)
        if others:
            other = statistics.median(others)
            print(f"| {name} | {own:.2f} | {other:.2f} | {own / other:.2f} |")
        else:
            print(f"| {name} | {own:.2f} | | |")


def read(path: Path, n_bytes: int) -> str:
    with path.open("rb") as file:
        return file.read(n_bytes).decode("utf-8", "ignore")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=Path, nargs="+", default=[], help="files in UTF-8")
    parser.add_argument("--loading", action="store_true", help="how long loading takes")
    parser.add_argument("--megabytes", type=float, default=4.0, help="of each text (default 4)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="also the speed of later passes")
    parser.add_argument("vocabularies", nargs="+")
    args = parser.parse_args()

    if args.loading:
        print_loading(args.vocabularies, args.rounds)
        return
    if not args.texts:
        parser.error("give --texts or --loading")
    tokenizers = {name: load(name) for name in args.vocabularies}
    texts = [read(path, int(args.megabytes * 1e6)) for path in args.texts]
    measured: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(args.rounds):
        for number, text in enumerate(texts):
            for name, tokenizer in tokenizers.items():
                measured.setdefault((name, number), []).append(speeds(tokenizer, text))

    print(f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, Python {platform.python_version()}\n")
    print("| vocabulary | " + " | ".join(path.stem for path in args.texts) + " |")
    print("|---" * (len(texts) + 1) + "|")
    for name in tokenizers:
        cells = []
        for number in range(len(texts)):
            columns = zip(*measured[name, number], strict=True)
            first, again = map(statistics.median, columns)
            cells.append(f"{first:.0f} / {again:.0f}" if args.again else f"{first:.0f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
