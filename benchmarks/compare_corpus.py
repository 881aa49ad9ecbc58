r"""Encode the same corpus to token files with this project and with the usual tools, and compare.

    python3 -m venv peers && peers/bin/pip install numpy datasets tokenizers tiktoken gigatoken
    .venv/bin/python benchmarks/compare_corpus.py --vocab gpt2.tokenizer.json \
        --ranks r50k_base.tiktoken --peers peers/bin/python news.txt stories.txt

A document ends at <|endoftext|>. Every contender writes the same file: uint16 ids of GPT-2's
vocabulary, with the id of <|endoftext|> after each document. The contenders:

- `ours-1`, `ours-2`: `tokenizer corpus encode` with one and two workers. It also hashes the text,
  checks and counts every id, writes the document index and the manifest, and calls
  fsync.
- `datasets`: Hugging Face `datasets`, `map(batched=True, num_proc=2)` with `tokenizers`; the ids
  are copied shard by shard into a memmap, as nanoGPT does.
- `nanogpt`: nanoGPT's `prepare.py`: `datasets`, `map(num_proc=2)` with tiktoken, a memmap.
- `pool`: llm.c's method: tiktoken in a `multiprocessing.Pool` of two; arrays are written in order.
- `gigatoken-1`, `gigatoken-2`: `encode_files` with one and two threads, all ids in memory, and
  `ndarray.tofile`.

`datasets` gets the documents in memory, already split, and no cache. Each figure covers a fresh
process from start to end: *s* is wall time, *cpu* the processor time of all processes, which other
load disturbs less. *start* is the same for a text of one document: the time to import, load the
vocabulary and start workers. The contenders take turns in rotating order, and the table shows
medians. The text is in the page cache. The exit status is 1 if two files of ids differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
END: Final = "<|endoftext|>"
END_ID: Final = 50256
CONTENDERS: Final = "ours-1,ours-2,datasets,nanogpt,pool,gigatoken-1,gigatoken-2"


def documents(text: str) -> list[str]:
    """The documents: the text before each separator, and the rest if it is not empty."""
    found = Path(text).read_bytes().decode().split(END)
    return found if found[-1] else found[:-1]


@cache
def hugging_face(vocab: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(vocab)


@cache
def tiktoken_encoding(ranks: str) -> Any:
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext.openai_public import r50k_pat_str

    return tiktoken.Encoding(
        "gpt2",
        pat_str=r50k_pat_str,
        mergeable_ranks=load_tiktoken_bpe(ranks),
        special_tokens={END: END_ID},
    )


def batch_of_ids(rows: dict[str, list[str]], *, vocab: str) -> dict[str, list[Any]]:
    encodings = hugging_face(vocab).encode_batch_fast(rows["text"], add_special_tokens=False)
    ids = [[*encoding.ids, END_ID] for encoding in encodings]
    return {"ids": ids, "len": [len(one) for one in ids]}


def row_of_ids(row: dict[str, str], *, ranks: str) -> dict[str, Any]:
    ids = tiktoken_encoding(ranks).encode_ordinary(row["text"])
    ids.append(END_ID)
    return {"ids": ids, "len": len(ids)}


def array_of_ids(work: tuple[str, str]) -> Any:
    import numpy as np

    ranks, text = work
    ids = tiktoken_encoding(ranks).encode_ordinary(text)
    ids.append(END_ID)
    return np.array(ids, dtype=np.uint16)


def with_datasets(job: dict[str, Any], function: Callable[..., Any], **options: Any) -> None:
    """nanoGPT's `prepare.py` from `split_dataset.map` on."""
    import numpy as np
    from datasets import Dataset

    dataset = Dataset.from_dict({"text": documents(job["text"])})
    dataset = dataset.map(function, remove_columns=["text"], num_proc=job["workers"], **options)
    array = np.memmap(
        job["output"], dtype=np.uint16, mode="w+", shape=(int(np.sum(dataset["len"])),)
    )
    n_shards = min(1024, len(dataset))
    place = 0
    for index in range(n_shards):
        shard = dataset.shard(num_shards=n_shards, index=index, contiguous=True)
        ids = np.concatenate(shard.with_format("numpy")["ids"])
        array[place : place + len(ids)] = ids
        place += len(ids)
    array.flush()


def datasets(job: dict[str, Any]) -> None:
    with_datasets(job, batch_of_ids, batched=True, fn_kwargs={"vocab": job["vocab"]})


def nanogpt(job: dict[str, Any]) -> None:
    with_datasets(job, row_of_ids, fn_kwargs={"ranks": job["ranks"]})


def pool(job: dict[str, Any]) -> None:
    import multiprocessing

    work: Iterator[tuple[str, str]] = ((job["ranks"], text) for text in documents(job["text"]))
    with multiprocessing.Pool(job["workers"]) as processes, Path(job["output"]).open("wb") as file:
        for ids in processes.imap(array_of_ids, work, chunksize=16):
            ids.tofile(file)


def gigatoken(job: dict[str, Any]) -> None:
    import awkward
    import numpy as np
    from gigatoken.gigatoken_rs import BPETokenizer, TextFileSource

    tokenizer = BPETokenizer.from_hf(job["vocab"])
    rows = tokenizer.encode_files(TextFileSource([job["text"]], separator=END))
    ids = np.asarray(awkward.flatten(rows, axis=None))
    ends = np.cumsum(np.asarray(awkward.num(rows)))
    np.insert(ids.astype(np.uint16), ends, END_ID).tofile(job["output"])


def command_of(contender: str, text: Path, folder: Path, args: argparse.Namespace) -> list[str]:
    """The command of a contender; it writes `folder`/train.bin."""
    name, _, number = contender.partition("-")
    if name == "ours":
        files = ["corpus", "encode", str(text), "--files", str(args.vocab), "--quiet"]
        workers = ["--workers", number, "--output", str(folder)]
        return [sys.executable, "-m", "app.cli", *files, *workers]
    folder.mkdir()
    job = {
        "contender": name,
        "text": str(text),
        "output": str(folder / "train.bin"),
        "vocab": str(args.vocab),
        "ranks": str(args.ranks),
        "workers": int(number or 2),
    }
    return [args.peers, str(Path(__file__).resolve()), "--job", json.dumps(job)]


def run(contender: str, text: Path, args: argparse.Namespace) -> tuple[float, float, str]:
    """Wall and processor seconds of a fresh process, and the hash of its output."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        folder = Path(scratch) / "tokens"
        command = command_of(contender, text.resolve(), folder, args)
        threads = contender.partition("-")[2] or "1"
        environment = os.environ | {
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HOME": scratch,
            "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        }
        start, start_cpu = time.perf_counter(), children_cpu_seconds()
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True
        )
        seconds, cpu = time.perf_counter() - start, children_cpu_seconds() - start_cpu
        if done.returncode:
            raise SystemExit(f"{contender} failed:\n{done.stderr[-2000:]}")
        digest = hashlib.sha256((folder / "train.bin").read_bytes()).hexdigest()[:10]
        return seconds, cpu, digest


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(text: Path, args: argparse.Namespace) -> bool:
    """Measure all contenders on one text, print a table, return whether the outputs are equal."""
    contenders = args.contenders.split(",")
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        one = Path(scratch) / "one.txt"
        one.write_text(f"One document.{END}")
        jobs = [(contender, which) for contender in contenders for which in (text, one)]
        seconds: dict[tuple[str, Path], list[tuple[float, float]]] = {job: [] for job in jobs}
        seen: dict[str, set[str]] = {contender: set() for contender in contenders}
        for round_number in range(args.rounds):
            turn = 2 * (round_number % len(contenders))
            for contender, which in jobs[turn:] + jobs[:turn]:
                doing = f"\r{text.name}: round {round_number + 1}, {contender:<12}"
                print(doing, end="", file=sys.stderr)
                clock, cpu, digest = run(contender, which, args)
                seconds[contender, which].append((clock, cpu))
                if which is text:
                    seen[contender].add(digest)
    size = text.stat().st_size / 1e6
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    print(f"\n{text.name}, {size:.1f} MB, {args.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'':<12}{'s':>8}{'start':>8}{'/ ours-1':>10}{'/ ours-2':>10}"
        f"{'cpu':>9}{'start':>8}{'/ ours-1':>10}   ids"
    )
    for contender in contenders:
        line = f"{contender:<12}"
        for kind, ours in enumerate((("ours-1", "ours-2"), ("ours-1",))):
            whole, start = (
                statistics.median(pair[kind] for pair in seconds[contender, which])
                for which in (text, one)
            )
            line += f"{whole:>{8 + kind}.2f}{start:>8.2f}"
            for name in ours:
                base = [pair[kind] for pair in seconds.get((name, text), [])]
                line += f"{whole / statistics.median(base):>10.2f}" if base else f"{'-':>10}"
        print(f"{line}   {','.join(sorted(seen[contender]))}")
    are_equal = len(set().union(*seen.values())) == 1
    if not are_equal:
        print("THE IDS DIFFER", file=sys.stderr)
    return are_equal


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", type=Path, metavar="TEXT", help="UTF-8 files")
    parser.add_argument("--vocab", type=Path, help="GPT-2's tokenizer.json")
    parser.add_argument("--ranks", type=Path, help="the same as ranks, r50k_base.tiktoken")
    parser.add_argument("--peers", default=sys.executable, help="the Python that imports others")
    parser.add_argument("--contenders", default=CONTENDERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to write to")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        globals()[args.job["contender"]](args.job)
        return 0
    if not args.texts or args.vocab is None or args.ranks is None:
        parser.error("give --vocab FILE, --ranks FILE and at least one text")
    for name in ("vocab", "ranks"):
        setattr(args, name, getattr(args, name).resolve())
    unknown = set(args.contenders.split(",")) - set(CONTENDERS.split(","))
    if unknown:
        parser.error(f"unknown contenders: {', '.join(sorted(unknown))}")
    are_equal = [compare(text, args) for text in args.texts]
    return 0 if all(are_equal) else 1


if __name__ == "__main__":
    sys.exit(main())
