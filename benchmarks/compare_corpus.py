r"""Encode the same corpus to token files with this project and with the usual tools, and compare.

    .venv/bin/python benchmarks/compare_corpus.py --vocab gpt2 --ranks r50k_base \
        --peers peers/bin/python en_reuters_news news.txt

A document ends at <|endoftext|>. Every contender writes the same file: uint16 ids of GPT-2's
vocabulary, with the id of <|endoftext|> after each document. The contenders:

- `ours-1`, `ours-2`: `tokenizer corpus encode` with one and two workers. It also hashes the text,
  checks and counts every id, writes the document index and the manifest, and calls
  fsync. `unsynced-2` is the same without fsync, `unhashed-2` also without hashes.
- `engine-2`: `encode_batch_to_numpy` by two threads, of the texts in memory: only the call is
  measured, without start and files. Its *to start* is of one document.
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
medians. The text is in the page cache; bytecode and compiled tokenizers are kept between rounds.
With `--together` the texts are one corpus, with `--times` repeated; `--scratch` says where it is
written: a disk, or a file system in memory. The exit status is 1 if two files of ids differ.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
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
    "unsynced-2": "the same without fsync",
    "unhashed-2": "the same without fsync and hashes",
    "engine-2": "the engine alone, two threads, texts in memory",
    "gigatoken-1": "gigatoken's `encode_files`, `ndarray.tofile` (one thread)",
    "gigatoken-2": "gigatoken, two threads",
    "pool": "tiktoken in a pool of two processes, as in llm.c",
    "nanogpt": "`datasets.map` with tiktoken in two processes, a memmap, as in nanoGPT",
    "datasets": "`datasets.map` with `tokenizers` in two processes, a memmap",
}


def documents(texts):
    """The documents: the text before each separator, and the rest of a file if it is not empty."""
    parts = (Path(text).read_bytes().decode().split(END) for text in texts)
    return [one for found in parts for one in (found if found[-1] else found[:-1])]


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

    dataset = Dataset.from_dict({"text": documents(job["texts"])})
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

    work = ((job["ranks"], text) for text in documents(job["texts"]))
    with multiprocessing.Pool(job["workers"]) as processes, Path(job["output"]).open("wb") as file:
        for ids in processes.imap(array_of_ids, work, chunksize=16):
            ids.tofile(file)


def gigatoken(job):
    import awkward
    import numpy as np
    from gigatoken.gigatoken_rs import BPETokenizer, TextFileSource

    tokenizer = BPETokenizer.from_hf(job["vocab"])
    rows = tokenizer.encode_files(TextFileSource(job["texts"], separator=END))
    ids = np.asarray(awkward.flatten(rows, axis=None))
    ends = np.cumsum(np.asarray(awkward.num(rows)))
    np.insert(ids.astype(np.uint16), ends, END_ID).tofile(job["output"])


def engine(job):
    """Print the seconds and the processor seconds of the call as JSON."""
    import numpy as np

    from tokenizer_core import Tokenizer

    tokenizer = Tokenizer.load(job["vocab"])
    texts = documents(job["texts"])
    start, start_cpu = time.perf_counter(), time.process_time()
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, num_threads=job["workers"])
    print(json.dumps([time.perf_counter() - start, time.process_time() - start_cpu]))
    np.insert(ids.astype(np.uint16), offsets[1:].astype(np.int64), END_ID).tofile(job["output"])


class NoHash:
    """In place of SHA-256, to see what it costs."""

    def update(self, data):
        pass

    def hexdigest(self):
        return "0" * 64


def unsynced(job):
    """`tokenizer corpus encode` in this process."""
    from tokenizer_service.cli import main

    os.fsync = lambda descriptor: None
    sys.exit(main(job["arguments"]))


def unhashed(job):
    from types import SimpleNamespace

    from tokenizer_core.corpus import staging
    from tokenizer_core.documents import corpus_files

    for module in (staging, corpus_files):
        module.hashlib = SimpleNamespace(sha256=NoHash, file_digest=hashlib.file_digest)
    unsynced(job)


def command_of(contender, texts, folder, args):
    """The command of a contender; it writes `folder`/train.bin."""
    name, _, number = contender.partition("-")
    files = ["corpus", "encode", *texts, "--files", str(args.vocab), "--quiet"]
    arguments = [*files, "--workers", number, "--output", str(folder)]
    if name == "ours":
        return [sys.executable, "-m", "tokenizer_service.cli", *arguments]
    python = args.peers
    if name in ("unsynced", "unhashed", "engine"):
        python = sys.executable
    if name not in ("unsynced", "unhashed"):
        folder.mkdir()
    job = {
        "contender": name,
        "arguments": arguments,
        "texts": texts,
        "output": str(folder / "train.bin"),
        "vocab": str(args.vocab),
        "ranks": str(args.ranks),
        "workers": int(number or 2),
    }
    return [python, str(Path(__file__).resolve()), "--job", json.dumps(job)]


def run(contender, texts, args):
    """Wall and processor seconds of a fresh process, and the hash of its output.

    Raises:
        ModuleNotFoundError: the peers' Python lacks a module.
    """
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        folder = Path(scratch) / "tokens"
        command = command_of(contender, [str(text.resolve()) for text in texts], folder, args)
        threads = contender.partition("-")[2] or "1"
        environment = os.environ | {
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HOME": scratch,
            "PYTHONDONTWRITEBYTECODE": "",  # as installed packages
            "PYTHONPYCACHEPREFIX": str(args.cache / "bytecode"),
            "XDG_CACHE_HOME": str(args.cache),
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
        if contender.startswith("engine"):
            seconds, cpu = json.loads(done.stdout)
        digest = hashlib.sha256((folder / "train.bin").read_bytes()).hexdigest()[:10]
        return seconds, cpu, digest


def children_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(texts, args):
    """For each contender its wall seconds, those of a text of one document, and the processor
    seconds of both; and whether the outputs are equal."""
    contenders = args.contenders.split(",")
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        args.cache = Path(scratch) / "cache"
        one = Path(scratch) / "one.txt"
        one.write_text(f"One document.{END}")
        # Copies, because a file that is named twice is read once.
        copies = [(text, Path(scratch) / f"{n}-{text.name}")
                  for n in range(1, args.times) for text in texts]  # fmt: skip
        texts = (*texts, *(shutil.copyfile(text, copy) for text, copy in copies))
        jobs = [(contender, which) for contender in contenders for which in (texts, (one,))]
        seconds = {job: [] for job in jobs}
        seen = {contender: set() for contender in contenders}
        for round_number in range(args.rounds):
            turn = 2 * (round_number % len(contenders))
            for contender, which in jobs[turn:] + jobs[:turn]:
                doing = f"\r{texts[0].name}: round {round_number + 1}, {contender:<12}"
                print(doing, end="", file=sys.stderr)
                try:
                    clock, cpu, digest = run(contender, which, args)
                except ModuleNotFoundError:
                    continue
                seconds[contender, which].append((clock, cpu))
                if which is texts:
                    seen[contender].add(digest)
    print(file=sys.stderr)
    found = {
        contender: [
            statistics.median(pair[kind] for pair in seconds[contender, which])
            for kind in (0, 1)
            for which in (texts, (one,))
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
    parser.add_argument("--together", action="store_true", help="make one corpus of the texts")
    parser.add_argument("--times", type=int, default=1, help="how often a corpus has each text")
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
    paths = tuple(map(text_path, args.texts))
    for texts in [paths] if args.together else [(path,) for path in paths]:
        found, are_equal = compare(texts, args)
        all_equal &= are_equal
        size = args.times * sum(text.stat().st_size for text in texts) / 1e6
        name = f"{len(texts)} texts" if args.together else label(texts[0])
        columns += [f"{name}, {size:.0f} MB, s", "to start", "processor s", "to start"]
        for name, row in rows.items():
            row += found[name] or [NOT_INSTALLED, None, None, None]
    report([Table(columns, list(rows.values()))], args.json, f"Medians of {args.rounds} rounds")
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
