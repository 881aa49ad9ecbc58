"""Measure again every figure that this project quotes about itself.

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
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("TOKENIZER_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
SEPARATOR = "<|endoftext|>"
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


def work_pathological(unit: str, n_bytes: int) -> dict:
    import random

    tokenizer = gpt2_tokenizer()
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    text = unit * (n_bytes // len(unit.encode()))
    if unit == "random letters":
        text = "".join(rng.choices(letters, k=n_bytes))
    started = time.perf_counter()
    tokenizer.encode(text)
    return {"seconds": time.perf_counter() - started}


def work_quality(corpus: str, offset: int, n_bytes: int) -> dict:
    """Bytes per token of the starter and of GPT-2 on a part of a corpus."""
    from tokenizer_core import Tokenizer
    from tokenizer_core.registry.folder_store import ArtifactStore

    text = read_text(corpus, n_bytes, offset)
    store = ArtifactStore(REPOSITORY / "artifacts")
    starter = Tokenizer.from_spec(store.open(store.resolve("starter")))
    size = len(text.encode())
    return {"starter": size / starter.count(text), "gpt2": size / gpt2_tokenizer().count(text)}


# --------------------------------------------------------------------------- running and printing


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


def show_encode(rounds: int) -> None:
    print("\n## Encoding, one thread, GPT-2 vocabulary, MB/s cold / warm (cold: text never seen)\n")
    names = [*engines(), "tiktoken"]
    print(f"| corpus | {' | '.join(names)} | python / tiktoken, cold | ids |")
    print("|---" * (len(names) + 3) + "|")
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
        size = every[0]["bytes"] / 1e6
        rates = {
            n: (size / median(r, "cold"), size / median(r, "warm")) for n, r in results.items()
        }
        cells = " | ".join(f"{cold:.1f} / {warm:.1f}" for cold, warm in rates.values())
        ratio = rates["python"][0] / rates["tiktoken"][0]
        same = "equal" if len({run["sha256"] for run in every}) == 1 else "DIFFER"
        print(f"| {corpus} {size:.0f} MB | {cells} | {ratio:.2f} | {same} |")


def show_processes(rounds: int) -> None:
    print("\n## encode_batch, two processes over one, GPT-2 vocabulary, cold, start included\n")
    print("| text | one, s | two, s | ratio |")
    print("|---|---|---|---|")
    for n_bytes in (20_000_000, 40_000_000):
        results = in_turn(
            rounds,
            one=lambda n=n_bytes: measure(work_batch, num_workers=1, corpus=ENGLISH, n_bytes=n),
            two=lambda n=n_bytes: measure(work_batch, num_workers=2, corpus=ENGLISH, n_bytes=n),
        )
        one, two = median(results["one"], "seconds"), median(results["two"], "seconds")
        ratios = [
            a["seconds"] / b["seconds"] for a, b in zip(results["one"], results["two"], strict=True)
        ]
        print(
            f"| {ENGLISH} {n_bytes // 1_000_000} MB | {one:.2f} | {two:.2f} "
            f"| {statistics.median(ratios):.2f} |"
        )


def show_train(rounds: int) -> None:
    print("\n## Training\n")
    print("| corpus | vocabulary | engine | workers | wall s | count | learn | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    path = str(DATA / "corpora" / f"{ENGLISH}.txt")
    cases = [
        (engine, size) for engine in engines() for size in ((10_000, 2), (10_000, 1), (32_000, 2))
    ]
    for engine, (vocab_size, num_workers) in cases:
        runs = [
            measure(
                work_train, path=path, vocab_size=vocab_size, num_workers=num_workers, engine=engine
            )
            for _ in range(rounds)
        ]
        report = runs[0]["report"]
        print(
            f"| {ENGLISH} 40 MB | {vocab_size} | {engine} | {num_workers} "
            f"| {median(runs, 'seconds'):.1f} | {report['seconds_counting']:.1f} "
            f"| {report['seconds_learning']:.1f} "
            f"| {report['peak_memory_bytes'] / 1e6:.0f} |"
        )
    piece = REPOSITORY / "benchmarks" / ".naive_sample.txt"
    piece.write_text(read_text(ENGLISH, 1_000_000), encoding="utf-8", newline="")
    try:
        naive = measure(work_naive_train, path=str(piece), vocab_size=1_000)
        ours = measure(work_small_train, path=str(piece), vocab_size=1_000)
    finally:
        piece.unlink()
    same = "the same merges" if naive["merges"] == ours["merges"] else "DIFFERENT MERGES"
    print(
        f"\nThe naive way on 1 MB of it to 1,000: {naive['seconds']:.1f} s; ours "
        f"{ours['seconds']:.2f} s ({naive['seconds'] / ours['seconds']:.0f} times), {same}."
    )
    course = DATA / "cs336" / "corpus.en"
    runs = [measure(work_small_train, path=str(course), vocab_size=500) for _ in range(rounds)]
    print(f"\nCS336 corpus.en to 500: {median(runs, 'seconds'):.2f} s (asked: under 1.5).")


def show_memory(rounds: int) -> None:
    del rounds
    result = measure(work_iterable_memory, n_bytes=5_000_000)
    print("\n## encode_iterable over a 5 MB file\n")
    print(
        f"{result['tokens']} ids; peak {result['peak_bytes'] / 1e6:.2f} MB beyond the tokenizer "
        f"and its filled cache (asked: 1 MB)."
    )


def show_pathological(rounds: int) -> None:
    print("\n## One pre-token of n bytes, GPT-2 vocabulary\n")
    print("| text | 500 kB, s | 1 MB, s | ratio (linear 2, quadratic 4) |")
    print("|---|---|---|---|")
    for unit in ("a", "^", " ", "\u0301", "\u200d", "中", "random letters"):
        small = [measure(work_pathological, unit=unit, n_bytes=500_000) for _ in range(rounds)]
        large = [measure(work_pathological, unit=unit, n_bytes=1_000_000) for _ in range(rounds)]
        a, b = median(small, "seconds"), median(large, "seconds")
        print(f"| {unit!a} | {a:.2f} | {b:.2f} | {b / a:.2f} |")


def show_starter(rounds: int) -> None:
    del rounds
    print("\n## The starter tokenizer (32,000) beside GPT-2 (50,257): bytes a token on text that")
    print("## the starter was not trained on\n")
    print("| corpus | starter | GPT-2 | starter / GPT-2 |")
    print("|---|---|---|---|")
    for corpus, offset in json.loads((REPOSITORY / "benchmarks" / "starter_mix.json").read_text()):
        result = measure(work_quality, corpus=corpus, offset=offset, n_bytes=20_000_000)
        print(
            f"| {corpus} | {result['starter']:.2f} | {result['gpt2']:.2f} "
            f"| {result['starter'] / result['gpt2']:.2f} |"
        )


def show_swaps(rounds: int) -> None:
    del rounds
    from tests.integration.server_process import publish_bytes, serve
    from tests.integration.swap_load import SECOND_FIRST_ID, run_swaps

    print("\n## 100 swaps under continuous encoding and streaming\n")
    print("| serving processes | encodes | streams | across a swap | failures | slowest swap, s |")
    print("|---|---|---|---|---|---|")
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            first = publish_bytes(Path(folder), "starter")
            second = publish_bytes(Path(folder), "other", first_id=SECOND_FIRST_ID)
            with serve(Path(folder), workers=workers) as server:
                report = run_swaps(server, first, second, n_swaps=100)
                server.terminate()
        print(
            f"| {workers} | {report.encodes} | {report.streams} | {report.streams_across_a_swap} "
            f"| {len(report.failures)} | {report.slowest_swap_seconds:.2f} |"
        )


SECTIONS = {
    "encode": show_encode,
    "processes": show_processes,
    "train": show_train,
    "memory": show_memory,
    "pathological": show_pathological,
    "starter": show_starter,
    "swaps": show_swaps,
}


def merge_digest(merges: list[tuple[bytes, bytes]]) -> str:
    import hashlib

    return hashlib.sha256(repr(merges).encode()).hexdigest()


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; none: all")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each figure (default 3)")
    parser.add_argument("--job", help=argparse.SUPPRESS)
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
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu_name()}, {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}, {arguments.rounds} rounds, medians"
    )
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments.rounds)


if __name__ == "__main__":
    main()
