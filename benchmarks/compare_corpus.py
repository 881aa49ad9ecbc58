r"""Encode the same corpus to token files with this project and with the usual tools, and compare.

    .venv/bin/python benchmarks/compare_corpus.py --vocab gpt2 --ranks r50k_base \
        --peers peers/bin/python en_reuters_news news.txt

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
from functools import cache
from pathlib import Path

from corpora import REPOSITORY, label, text_path, vocab_path
from corpora import SEPARATOR as END
from figures import NOT_INSTALLED, Table, make_parser, report

END_ID = 50256
CONTENDERS = {
    "ours-1": "`tokenizer corpus encode --workers 1`",
    "ours-2": "`tokenizer corpus encode --workers 2`",
    "gigatoken-1": "gigatoken's `encode_files`, `ndarray.tofile` (one thread)",
    "gigatoken-2": "gigatoken, two threads",
    "pool": "tiktoken in a pool of two processes, as in llm.c",
    "nanogpt": "`datasets.map` with tiktoken in two processes, a memmap, as in nanoGPT",
    "datasets": "`datasets.map` with `tokenizers` in two processes, a memmap",
}


def documents(text):
    """The documents: the text before each separator, and the rest if it is not empty."""
    found = Path(text).read_bytes().decode().split(END)
    return found if found[-1] else found[:-1]


@cache
def hugging_face(vocab):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(vocab)


@cache
def tiktoken_encoding(ranks):
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext.openai_public import r50k_pat_str

    return tiktoken.Encoding(
        "gpt2",
        pat_str=r50k_pat_str,
        mergeable_ranks=load_tiktoken_bpe(ranks),
        special_tokens={END: END_ID},
    )


def batch_of_ids(rows, *, vocab):
    tokenizer = hugging_face(vocab)
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)  # 1.0 has one only
    encodings = encode(rows["text"], add_special_tokens=False)
    ids = [[*encoding.ids, END_ID] for encoding in encodings]
    return {"ids": ids, "len": [len(one) for one in ids]}


def row_of_ids(row, *, ranks):
    ids = tiktoken_encoding(ranks).encode_ordinary(row["text"])
    ids.append(END_ID)
    return {"ids": ids, "len": len(ids)}


def array_of_ids(work):
    import numpy as np

    ranks, text = work
    ids = tiktoken_encoding(ranks).encode_ordinary(text)
    ids.append(END_ID)
    return np.array(ids, dtype=np.uint16)


def with_datasets(job, function, **options):
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


def datasets(job):
    with_datasets(job, batch_of_ids, batched=True, fn_kwargs={"vocab": job["vocab"]})


def nanogpt(job):
    with_datasets(job, row_of_ids, fn_kwargs={"ranks": job["ranks"]})


def pool(job):
    import multiprocessing

    work = ((job["ranks"], text) for text in documents(job["text"]))
    with multiprocessing.Pool(job["workers"]) as processes, Path(job["output"]).open("wb") as file:
        for ids in processes.imap(array_of_ids, work, chunksize=16):
            ids.tofile(file)


def gigatoken(job):
    import awkward
    import numpy as np
    from gigatoken.gigatoken_rs import BPETokenizer, TextFileSource

    tokenizer = BPETokenizer.from_hf(job["vocab"])
    rows = tokenizer.encode_files(TextFileSource([job["text"]], separator=END))
    ids = np.asarray(awkward.flatten(rows, axis=None))
    ends = np.cumsum(np.asarray(awkward.num(rows)))
    np.insert(ids.astype(np.uint16), ends, END_ID).tofile(job["output"])


def command_of(contender, text, folder, args):
    """The command of a contender; it writes `folder`/train.bin."""
    name, _, number = contender.partition("-")
    if name == "ours":
        files = ["corpus", "encode", str(text), "--files", str(args.vocab), "--quiet"]
        workers = ["--workers", number, "--output", str(folder)]
        return [sys.executable, "-m", "tokenizer_service.cli", *files, *workers]
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


def run(contender, text, args):
    """Wall and processor seconds of a fresh process, and the hash of its output.

    Raises:
        ModuleNotFoundError: the peers' Python lacks a module.
    """
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
        if "ModuleNotFoundError" in done.stderr:
            raise ModuleNotFoundError(contender)
        if done.returncode:
            raise SystemExit(f"{contender} failed:\n{done.stderr[-2000:]}")
        digest = hashlib.sha256((folder / "train.bin").read_bytes()).hexdigest()[:10]
        return seconds, cpu, digest


def children_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(text, args):
    """For each contender its wall seconds, those of a text of one document, and the processor
    seconds of both; and whether the outputs are equal."""
    contenders = args.contenders.split(",")
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        one = Path(scratch) / "one.txt"
        one.write_text(f"One document.{END}")
        jobs = [(contender, which) for contender in contenders for which in (text, one)]
        seconds = {job: [] for job in jobs}
        seen = {contender: set() for contender in contenders}
        for round_number in range(args.rounds):
            turn = 2 * (round_number % len(contenders))
            for contender, which in jobs[turn:] + jobs[:turn]:
                doing = f"\r{text.name}: round {round_number + 1}, {contender:<12}"
                print(doing, end="", file=sys.stderr)
                try:
                    clock, cpu, digest = run(contender, which, args)
                except ModuleNotFoundError:
                    continue
                seconds[contender, which].append((clock, cpu))
                if which is text:
                    seen[contender].add(digest)
    print(file=sys.stderr)
    found = {
        contender: [
            statistics.median(pair[kind] for pair in seconds[contender, which])
            for kind in (0, 1)
            for which in (text, one)
            if seconds[contender, which]
        ]
        for contender in contenders
    }
    are_equal = len(set().union(*seen.values())) == 1
    if not are_equal:
        print(f"THE IDS DIFFER: {seen}", file=sys.stderr)
    return found, are_equal


def main():
    parser = make_parser(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="UTF-8 files")
    parser.add_argument("--vocab", help="GPT-2's tokenizer.json")
    parser.add_argument("--ranks", help="the same as ranks, r50k_base.tiktoken")
    parser.add_argument("--peers", default=sys.executable, help="the Python that imports others")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to write to")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    if "--job" in sys.argv:  # in the environment of the peers, where this project is not
        job = parser.parse_args().job
        globals()[job["contender"]](job)
        return 0

    args = parser.parse_args()
    if not args.texts or args.vocab is None or args.ranks is None:
        parser.error("give --vocab FILE, --ranks FILE and at least one text")
    args.vocab, args.ranks = vocab_path(args.vocab), vocab_path(args.ranks)
    unknown = set(args.contenders.split(",")) - set(CONTENDERS)
    if unknown:
        parser.error(f"unknown contenders: {', '.join(sorted(unknown))}")
    columns, rows = [""], {name: [CONTENDERS[name]] for name in args.contenders.split(",")}
    all_equal = True
    for text in map(text_path, args.texts):
        found, are_equal = compare(text, args)
        all_equal &= are_equal
        columns += [f"{label(text)}, {text.stat().st_size / 1e6:.0f} MB, s", "to start",
                    "processor s", "to start"]  # fmt: skip
        for name, row in rows.items():
            row += found[name] or [NOT_INSTALLED, None, None, None]
    report([Table(columns, list(rows.values()))], args.json, f"Medians of {args.rounds} rounds")
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
