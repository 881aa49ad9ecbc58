"""Train on the same text with this project and with two others: time and memory.

    .venv/bin/python benchmarks/compare_trainers.py --peers peers/bin/python en_reuters_news
    .venv/bin/python benchmarks/compare_trainers.py --threads 2 all distinct-100 noised-12000

`all` is all texts of `../shared/data` together, `distinct-100` is 100 MB of `distinct_text.py`,
and `noised-12000` is 12 GB or a little more: a fiftieth of distinct text, then `all` again and
again, each time with another seeded letter in place of about every 1,000th byte.

Each figure is of a whole process, from its start to its end: seconds of the clock, seconds of all
its processors (which other work on the machine disturbs less), and peak memory; none starts other
processes. The contenders take turns, and the table shows medians. gigatoken breaks ties its own
way, and gigabpe splits its own way, so their merges are others.
"""

import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from corpora import DATA, SEPARATOR, label, text_in
from distinct_text import distinct_text
from figures import NOT_INSTALLED, Table, make_parser, report

OURS = """
import sys
from tokenizer_core.training import TrainingOptions, train
options = TrainingOptions(
    vocab_size=int(sys.argv[2]), special_tokens=[sys.argv[3]], num_workers=int(sys.argv[4]),
    engine="native", max_memory_bytes=int(sys.argv[5]) // 4,
)
print(len(train([sys.argv[1]], options).merges))
"""
GIGATOKEN = """
import sys
from gigatoken.gigatoken_rs import TextFileSource, train_bpe
source = TextFileSource([sys.argv[1]], separator=sys.argv[3].encode())
size = int(sys.argv[2])
print(len(train_bpe(source, size, [sys.argv[3]], tie_breaking="assembled_bytes")[1]))
"""
GIGABPE = """
import gigabpe, sys
options = {"pretokenizer": "bytelevel", "threads": int(sys.argv[4])}
size = int(sys.argv[2])
print(len(gigabpe.train_bpe([sys.argv[1]], size, special_tokens=[sys.argv[3]], **options)[1]))
"""
CONTENDERS = {"native engine": OURS, "gigatoken": GIGATOKEN, "gigabpe": GIGABPE}
NOISED = "noised-"


def run(contender, text, args):
    """Seconds, processor seconds and peak MB of a fresh process, or why there are none."""
    python = sys.executable if contender == "native engine" else args.peers or sys.executable
    command = [python, "-c", CONTENDERS[contender], str(text), str(args.vocab_size), SEPARATOR]
    processors = sorted(os.sched_getaffinity(0))[: args.threads]
    most = int(args.most_gb * 1e9)

    def limit():
        os.sched_setaffinity(0, processors)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    start = time.perf_counter()
    try:
        process = subprocess.Popen(
            [*command, str(args.threads), str(most)],
            env=os.environ | {"RAYON_NUM_THREADS": str(args.threads)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )
    except FileNotFoundError:
        return NOT_INSTALLED
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        if "memory allocation of" in errors or "MemoryError" in errors:
            return f"needs more than {args.most_gb:g} GB"
        missing = "ModuleNotFoundError" in errors
        return NOT_INSTALLED if missing else f"exit status {process.returncode}"
    seconds = time.perf_counter() - start
    return [seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3]


def write_all(path):
    """All texts, one after the other."""
    with path.open("wb") as file:
        for text in sorted((DATA / "corpora").glob("*.txt")):
            file.write(text.read_bytes() + SEPARATOR.encode())


def write_noised(path, n_bytes):
    """All texts again and again with seeded noise, after distinct text."""
    rng = np.random.default_rng(2026)
    texts = [np.fromfile(text, np.uint8) for text in sorted((DATA / "corpora").glob("*.txt"))]
    with path.open("wb") as file:
        file.writelines(piece.encode() for piece in distinct_text(n_bytes // 50))
        for text in itertools.cycle(texts):
            if file.tell() >= n_bytes:
                break
            noised = text.copy()
            places = rng.integers(len(text) - 1, size=len(text) // 1000)
            # Letters of ASCII, and the last bytes of longer characters: it remains UTF-8.
            is_last = (text[places] & 0xC0 == 0x80) & (text[places + 1] & 0xC0 != 0x80)
            for least, most, chosen in (
                (ord("a"), ord("z"), (text[places] >= ord("a")) & (text[places] <= ord("z"))),
                (0x80, 0xBF, is_last),
            ):
                drawn = rng.integers(least, most + 1, len(places), np.uint8)
                noised[places[chosen]] = drawn[chosen]
            file.write(noised.data)
            file.write(SEPARATOR.encode())


def main():
    parser = make_parser(__doc__)
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--peers", help="the Python that imports gigatoken and gigabpe")
    parser.add_argument("--threads", type=int, default=1, help="processors of each")
    parser.add_argument("--most-gb", type=float, default=10, help="of memory for each")
    args = parser.parse_args()
    columns = ["text"]
    for contender in CONTENDERS:
        columns += [f"{contender}, s", "processor s", "memory, MB"]
    columns.append("the faster peer's processor time over ours")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for text in args.texts:
            path = Path(folder) / text
            if text == "all":
                title = "all texts"
                write_all(path)
            elif text.startswith(NOISED):
                title = "noised text"
                write_noised(path, int(text.removeprefix(NOISED)) * 1_000_000)
            else:
                path = text_in(Path(folder), text)
                title = label(path)
            size = path.stat().st_size / 1e6
            row = [f"{title}, {size:,.0f} MB"]
            found = {contender: [] for contender in CONTENDERS}
            for _ in range(args.rounds):
                for contender, runs in found.items():
                    runs.append(run(contender, path, args))
            processor_s = {}
            for contender, runs in found.items():
                error = next((one for one in runs if isinstance(one, str)), None)
                if error:
                    row += [error, None, None]
                else:
                    medians = [statistics.median(one) for one in zip(*runs, strict=True)]
                    processor_s[contender] = medians[1]
                    row += medians
            ours = processor_s.pop("native engine", None)
            is_comparable = ours and processor_s
            rows.append([*row, min(processor_s.values()) / ours if is_comparable else None])
    note = (
        f"{args.vocab_size:,} entries, {args.threads} threads, medians of {args.rounds} rounds. "
        f"A process may have {args.most_gb:g} GB"
    )
    report([Table(columns, rows)], args.json, note)


if __name__ == "__main__":
    main()
