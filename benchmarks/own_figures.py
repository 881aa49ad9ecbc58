"""Measure the Python engine, the starter tokenizer and swaps.

    .venv/bin/python benchmarks/own_figures.py              # all of them, about twenty minutes
    .venv/bin/python benchmarks/own_figures.py encode train # some of them

Each figure comes from fresh processes that have not seen the text; contenders take turns, and the
tables show medians over the rounds. Quote ratios of one run, not times of two runs. The texts come
from `../shared/data` (or TOKENIZER_TEST_DATA); `tiktoken` is a development dependency. Run it on an
otherwise idle machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from corpora import DATA, REPOSITORY, SEPARATOR, label
from figures import Cell, Table, add_json_option, report

GPT2 = {SEPARATOR: 50256}
ENGLISH = "en_reuters_news"


# ------------------------------------------------------------ measurements, each in a fresh process


def read_text(corpus: str, n_bytes: int, offset: int = 0) -> str:
    with (DATA / "corpora" / f"{corpus}.txt").open("rb") as file:
        file.seek(offset)
        return file.read(n_bytes).decode("utf-8", "ignore")


def gpt2_tokenizer(engine: str = "python"):
    from tokenizer_core import Tokenizer

    path = DATA / "vocab" / "r50k_base.tiktoken"
    return Tokenizer.from_tiktoken(path, pattern="gpt2", special_tokens=GPT2, engine=engine)


def engines() -> list[str]:
    """The installed engines."""
    from tokenizer_core.engines import resolve_engine

    return ["python"] if resolve_engine("auto") == "python" else ["python", "native"]


def work_encode(engine: str, corpus: str, n_bytes: int) -> dict:
    """Seconds of a first and a second pass over a text; the parent compares the ids."""
    import hashlib

    import numpy as np

    text = read_text(corpus, n_bytes)
    if engine != "tiktoken":
        tokenizer = gpt2_tokenizer(engine)
        encode = tokenizer.encode_to_numpy
    else:
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe
        from tiktoken_ext.openai_public import r50k_pat_str

        encoding = tiktoken.Encoding(
            "gpt2",
            pat_str=r50k_pat_str,
            mergeable_ranks=load_tiktoken_bpe(str(DATA / "vocab" / "r50k_base.tiktoken")),
            special_tokens=GPT2,
        )

        def encode(text: str):
            return np.array(encoding.encode(text, allowed_special="all"), dtype=np.uint32)

    started = time.perf_counter()
    ids = encode(text)
    cold = time.perf_counter() - started
    started = time.perf_counter()
    encode(text)
    warm = time.perf_counter() - started
    digest = hashlib.sha256(ids.tobytes()).hexdigest()
    return {"cold": cold, "warm": warm, "bytes": len(text.encode()), "sha256": digest}


def work_batch(num_workers: int, corpus: str, n_bytes: int) -> dict:
    """Seconds of encode_batch over documents, including the start of the processes."""
    documents = read_text(corpus, n_bytes).split(SEPARATOR)
    tokenizer = gpt2_tokenizer()
    started = time.perf_counter()
    ids = tokenizer.encode_batch(documents, num_threads=num_workers)
    seconds = time.perf_counter() - started
    total = sum(map(len, ids))
    return {"seconds": seconds, "tokens": total, "bytes": sum(len(d.encode()) for d in documents)}


def work_train(path: str, vocab_size: int, num_workers: int, engine: str) -> dict:
    """One training run: time and memory from its own report and from outside."""
    from tokenizer_core.training import TrainingOptions, train

    started = time.perf_counter()
    result = train(
        [Path(path)],
        TrainingOptions(
            vocab_size=vocab_size,
            special_tokens=[SEPARATOR],
            num_workers=num_workers,
            engine=engine,
        ),
    )
    return {"seconds": time.perf_counter() - started, "report": result.report.to_dict()}


def work_naive_train(path: str, vocab_size: int) -> dict:
    """The textbook trainer: one process that recounts all pairs before every merge."""
    import regex

    started = time.perf_counter()
    text = Path(path).read_text(encoding="utf-8")
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    counts = Counter(p for d in text.split(SEPARATOR) for p in regex.findall(pattern, d))
    words = [([bytes([b]) for b in p.encode()], n) for p, n in counts.items()]
    merges: list[tuple[bytes, bytes]] = []
    while len(merges) < vocab_size - 257:
        pairs: Counter = Counter()
        for parts, n in words:
            for pair in itertools.pairwise(parts):
                pairs[pair] += n
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for parts, _ in words:
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == best:
                    parts[i : i + 2] = [best[0] + best[1]]
                i += 1
    return {"seconds": time.perf_counter() - started, "merges": merge_digest(merges)}


def work_small_train(path: str, vocab_size: int) -> dict:
    from tokenizer_core import train_bpe

    started = time.perf_counter()
    _, merges = train_bpe(path, vocab_size, [SEPARATOR], engine="python")
    return {"seconds": time.perf_counter() - started, "merges": merge_digest(merges)}


def work_iterable_memory(n_bytes: int) -> dict:
    """Peak memory while encode_iterable reads lines with a full cache."""
    tokenizer = gpt2_tokenizer()
    lines = read_text(ENGLISH, n_bytes).splitlines(keepends=True)
    n_tokens = sum(1 for _ in tokenizer.encode_iterable(lines))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    again = sum(1 for _ in tokenizer.encode_iterable(lines))
    _, peak = tracemalloc.get_traced_memory()
    return {"tokens": n_tokens, "same": n_tokens == again, "peak_bytes": peak - before}


def work_quality(corpus: str, offset: int, n_bytes: int) -> dict:
    """Bytes per token of the starter and of GPT-2 on a part of a corpus."""
    from tokenizer_core import Tokenizer
    from tokenizer_core.registry.folder_store import ArtifactStore

    text = read_text(corpus, n_bytes, offset)
    store = ArtifactStore(REPOSITORY / "artifacts")
    starter = Tokenizer.from_spec(store.open(store.resolve("starter")))
    size = len(text.encode())
    return {"starter": size / starter.count(text), "gpt2": size / gpt2_tokenizer().count(text)}


# --------------------------------------------------------------------------- running and tables


def measure(function: Callable[..., dict], **arguments) -> dict:
    """Call once in a fresh process."""
    job = json.dumps({"function": function.__name__, "arguments": arguments})
    command = [sys.executable, str(Path(__file__).resolve()), "--job", job]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if done.returncode:
        raise SystemExit(f"{function.__name__} failed:\n{done.stderr}")
    result: dict = json.loads(done.stdout.splitlines()[-1])
    return result


def in_turn(rounds: int, **contenders: Callable[[], dict]) -> dict[str, list[dict]]:
    """Run each contender once per round, in rotating order."""
    results: dict[str, list[dict]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            results[name].append(contenders[name]())
    return results


def median(results: list[dict], key: str) -> float:
    return statistics.median(result[key] for result in results)


def tables_encode(rounds: int) -> list[Table]:
    """GPT-2's vocabulary, one thread, MB/s first / again."""
    names = [*engines(), "tiktoken"]
    rows: list[list[Cell]] = []
    for corpus in (ENGLISH, "en_books", "zh_modern_bitext", "ru_ruslit", "code_c_linux"):
        results = in_turn(
            rounds,
            **{
                name: lambda n=name, c=corpus: measure(
                    work_encode, engine=n, corpus=c, n_bytes=20_000_000
                )
                for name in names
            },
        )
        every = [run for name in names for run in results[name]]
        if len({run["sha256"] for run in every}) > 1:
            raise SystemExit(f"the ids of {corpus} differ")
        size = every[0]["bytes"] / 1e6
        rates = {n: [size / median(r, key) for key in ("cold", "warm")] for n, r in results.items()}
        ratio = rates["python"][0] / rates["tiktoken"][0]
        rows.append([f"{label(Path(corpus))}, {size:.0f} MB", *rates.values(), ratio])
    columns = ["text", *(f"{name} engine" for name in engines()), "tiktoken", "python / tiktoken"]
    return [Table(columns, rows)]


def tables_processes(rounds: int) -> list[Table]:
    """`encode_batch` with two processes, their start included."""
    rows: list[list[Cell]] = []
    for n_bytes in (20_000_000, 40_000_000):
        results = in_turn(
            rounds,
            one=lambda n=n_bytes: measure(work_batch, num_workers=1, corpus=ENGLISH, n_bytes=n),
            two=lambda n=n_bytes: measure(work_batch, num_workers=2, corpus=ENGLISH, n_bytes=n),
        )
        ratios = [
            a["seconds"] / b["seconds"] for a, b in zip(results["one"], results["two"], strict=True)
        ]
        seconds = [median(results[name], "seconds") for name in ("one", "two")]
        rows.append(
            [f"English news, {n_bytes // 1_000_000} MB", *seconds, statistics.median(ratios)]
        )
    return [Table(["`encode_batch`", "one process, s", "two, with their start, s", "ratio"], rows)]


def tables_train(rounds: int) -> list[Table]:
    path = str(DATA / "corpora" / f"{ENGLISH}.txt")
    rows: list[list[Cell]] = []
    for engine in engines():
        for vocab_size, num_workers in ((10_000, 2), (10_000, 1), (32_000, 2)):
            runs = [
                measure(
                    work_train, path=path, vocab_size=vocab_size, num_workers=num_workers,
                    engine=engine,
                )
                for _ in range(rounds)
            ]  # fmt: skip
            reports = [run["report"] for run in runs]
            rows.append([
                vocab_size, engine, num_workers, median(runs, "seconds"),
                median(reports, "seconds_counting"), median(reports, "seconds_learning"),
                round(median(reports, "peak_memory_bytes") / 1e6),
            ])  # fmt: skip
    columns = ["training on 40 MB of English: entries", "engine", "workers", "s", "counting",
               "learning", "memory, MB"]  # fmt: skip
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".txt") as piece:
        piece.write(read_text(ENGLISH, 1_000_000))
        piece.flush()
        naive = measure(work_naive_train, path=piece.name, vocab_size=1_000)
        ours = measure(work_small_train, path=piece.name, vocab_size=1_000)
    if naive["merges"] != ours["merges"]:
        raise SystemExit("recounting all pairs gives other merges")
    course = str(DATA / "cs336" / "corpus.en")
    runs = [measure(work_small_train, path=course, vocab_size=500) for _ in range(rounds)]
    small: list[list[Cell]] = [
        ["1 MB of English to 1,000", ours["seconds"]],
        ["the same, recounting all pairs before every merge", naive["seconds"]],
        ["the course's `corpus.en` to 500", median(runs, "seconds")],
    ]
    return [Table(columns, rows), Table(["training with the Python engine", "s"], small)]


def tables_memory(rounds: int) -> list[Table]:
    del rounds
    result = measure(work_iterable_memory, n_bytes=5_000_000)
    row = ["`encode_iterable` over 5 MB", result["peak_bytes"] / 1e6]
    return [Table(["memory beyond the tokenizer and its cache", "MB"], [row])]


def tables_starter(rounds: int) -> list[Table]:
    """Bytes per token on text that the starter (32,000 entries) was not trained on."""
    del rounds
    rows: list[list[Cell]] = []
    for corpus, offset in json.loads((REPOSITORY / "benchmarks" / "starter_mix.json").read_text()):
        found = measure(work_quality, corpus=corpus, offset=offset, n_bytes=20_000_000)
        row = [found["starter"], found["gpt2"], found["starter"] / found["gpt2"]]
        rows.append([label(Path(corpus)), *row])
    return [Table(["bytes per token", "starter", "GPT-2", "ratio"], rows)]


def tables_swaps(rounds: int) -> list[Table]:
    """100 swaps under continuous encoding and streaming."""
    del rounds
    from tests.integration.server_process import publish_bytes, serve
    from tests.integration.swap_load import SECOND_FIRST_ID, run_swaps

    rows: list[list[Cell]] = []
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            first = publish_bytes(Path(folder), "starter")
            second = publish_bytes(Path(folder), "other", first_id=SECOND_FIRST_ID)
            with serve(Path(folder), workers=workers) as server:
                swaps = run_swaps(server, first, second, n_swaps=100)
                server.terminate()
        rows.append([
            workers, swaps.encodes, swaps.streams, swaps.streams_across_a_swap,
            len(swaps.failures), swaps.slowest_swap_seconds,
        ])  # fmt: skip
    columns = ["100 swaps: serving processes", "encodes", "streams", "across a swap", "failures",
               "slowest swap, s"]  # fmt: skip
    return [Table(columns, rows)]


SECTIONS = {
    "encode": tables_encode,
    "processes": tables_processes,
    "train": tables_train,
    "memory": tables_memory,
    "starter": tables_starter,
    "swaps": tables_swaps,
}


def merge_digest(merges: list[tuple[bytes, bytes]]) -> str:
    import hashlib

    return hashlib.sha256(repr(merges).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; none: all")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each figure (default 3)")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    add_json_option(parser)
    arguments = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY))
    if arguments.job:
        job = json.loads(arguments.job)
        print(json.dumps(globals()[job["function"]](**job["arguments"])))
        return
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {sorted(unknown)[0]!r}; there are: {', '.join(SECTIONS)}")
    if not (DATA / "corpora").is_dir():
        parser.error(f"no data in {DATA}; set TOKENIZER_TEST_DATA")
    names = arguments.sections or SECTIONS
    tables = [table for name in names for table in SECTIONS[name](arguments.rounds)]
    report(tables, arguments.json, f"Medians of {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
