"""Encode or decode the same text with this project and with others, and print speeds and ratios.

    .venv/bin/python benchmarks/compare_encoders.py --vocab gpt2 en_reuters_news
    .venv/bin/python benchmarks/compare_encoders.py --vocab tokenizer.json news.txt books.txt \
        --peers peers/bin/python --engines native,gigatoken,fastokens,tokenizers

Texts and vocabularies are paths or names of `../shared/data`; the text `distinct-100` is 100 MB of
`distinct_text.py`. The other libraries run in this Python, or in the one that `--peers` names
(`pip install -r benchmarks/peers.txt`).

Each figure comes from a fresh process, pinned to as many processors as it has threads, that has
loaded its tokenizer and encoded a different 100 kB. The engines take turns in rotating order, and
the table shows medians, so that a slow minute of the machine affects all of them. The exit status
is 1 if most engines have other ids than ours.

`--what encode`: MB/s of the first pass over the text and of the better of two more; the result is
an array of uint32. With one thread the input is one text, and the seconds are those of the
processor, which other work on the machine disturbs less. With `--threads 2` or more it is a batch
of documents, groups of lines of about 10,000 characters, because the others split their work by
document.
`--what list`: microseconds of one call that returns a list, the median of distinct texts.
`--what decode`: MB/s from an array of ids to the bytes (or the `str`) of the text.
`--what start`: a process from its start to the first ids and its end: ms of wall time, ms of
processor time, and the most MB; of no text. Each engine reads its own form of the vocabulary. Ours
has a compiled tokenizer from earlier starts; the engine `uncompiled` is the first start. The
command `tokenizer encode Hello` and `python -c pass` are the last rows.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora import label, text_in, vocab_path
from figures import NOT_INSTALLED, Table, make_parser, report

OURS = {
    "native": "native engine",
    "python": "Python engine",
    "uncompiled": "native engine without compiled file",
}
DOCUMENT = 10_000
LIST_SIZES = (20, 100, 1000, 10_000)
LIST_TEXTS = 3000


@dataclass
class Engine:
    """`encode` makes one array of several texts, `to_list` a list of one, `decode` text of ids."""

    encode: Callable[[list[str]], Any]
    to_list: Callable[[str], list[int]] | None = None
    decode: Callable[[Any], bytes | str] | None = None


# ------------------------------------------------- the engines; `job` names the vocabulary's files


def ours(job):
    from tokenizer_core import Tokenizer

    tokenizer = Tokenizer.load(Path(job["vocab"]), engine=job["engine"])
    return Engine(
        lambda texts: (
            tokenizer.encode_to_numpy(texts[0])
            if len(texts) == 1
            else tokenizer.encode_batch_to_numpy(texts, num_threads=job["threads"])[0]
        ),
        tokenizer.encode,
        tokenizer.decode_bytes,
    )


def gigatoken(job):
    import awkward
    from gigatoken.gigatoken_rs import BPETokenizer

    tokenizer = BPETokenizer.from_hf(job["json"])

    def encode(texts):
        if len(texts) == 1:
            return tokenizer.encode(texts[0])
        return awkward.to_numpy(awkward.flatten(tokenizer.encode_batch(texts), axis=None))

    return Engine(encode, lambda text: tokenizer.encode(text).tolist(), tokenizer.decode)


def fastokens(job):
    import numpy as np
    from fastokens._native import Tokenizer

    tokenizer = Tokenizer.from_file(job["json"])
    return Engine(
        lambda texts: np.frombuffer(tokenizer.encode_batch_flat(texts)[0], dtype=np.uint32),
        lambda text: tokenizer.encode(text).ids,
    )


def tokie(job):
    import tokie

    tokenizer = tokie.Tokenizer.from_json(job["json"])
    return Engine(lambda texts: tokenizer.encode_batch_flat(texts, add_special_tokens=False)[0])


def tiktoken(job):
    import numpy as np
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    encoding = tiktoken.Encoding(
        "compared",
        pat_str=job["pattern"],
        mergeable_ranks=load_tiktoken_bpe(job["ranks"]),
        special_tokens=job["special_tokens"],
    )
    return Engine(
        lambda texts: np.concatenate(
            [encoding.encode_to_numpy(text, allowed_special="all") for text in texts]
        ),
        lambda text: encoding.encode(text, allowed_special="all"),
        encoding.decode_bytes,
    )


def riptoken(job):
    import riptoken
    from tiktoken.load import load_tiktoken_bpe

    specials = job["special_tokens"]
    ranks = load_tiktoken_bpe(job["ranks"])
    tokenizer = riptoken.CoreBPE(ranks, specials, job["pattern"])
    return _of_lists(lambda text: tokenizer.encode(text, set(specials)))


def tokenizers(job):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(job["json"])
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)  # 1.0 has one only
    return _of_lists(lambda text: encode([text], add_special_tokens=False)[0].ids)


def splintr(job):
    import splintr

    tokenizer = splintr.from_json(job["json"])
    return _of_lists(tokenizer.encode_raw)


def toktok(job):
    """Its public functions count; these are the ids that they count. It gets the documents between
    `<|endoftext|>`, because it is many times slower where it looks for special tokens itself."""
    import numpy as np
    import toktok

    tokenizer = toktok._encoding(Path(job["vocab"]).name.partition(".")[0])
    end = "<|endoftext|>"

    def encode(texts):
        documents = end.join(texts).split(end)
        ids, offsets = tokenizer.encode_batch_to_numpy(documents, job["threads"])
        return np.insert(ids, offsets[1:-1], job["special_tokens"][end])

    return Engine(encode)


def _of_lists(encode):
    import numpy as np

    return Engine(
        lambda texts: np.concatenate([np.array(encode(text), dtype=np.uint32) for text in texts]),
        encode,
    )


PEERS = {one.__name__: one for one in (
    gigatoken, fastokens, tokie, tiktoken, riptoken, tokenizers, splintr, toktok
)}  # fmt: skip


OF_RANKS = {"tiktoken", "riptoken"}
"""Libraries that read a file of ranks."""

START = {
    "native": """
from tokenizer_core import Tokenizer
print(Tokenizer.load({vocab!r}).encode("Hello, world!"))
""",
    "tiktoken": """
import tiktoken
from tiktoken.load import load_tiktoken_bpe
ranks = load_tiktoken_bpe({ranks!r})
encoding = tiktoken.Encoding(
    "compared", pat_str={pattern!r}, mergeable_ranks=ranks, special_tokens={special_tokens!r}
)
print(encoding.encode("Hello, world!"))
""",
    "tokenizers": """
from tokenizers import Tokenizer
print(Tokenizer.from_file({json!r}).encode("Hello, world!", add_special_tokens=False).ids)
""",
    "gigatoken": """
from gigatoken.gigatoken_rs import BPETokenizer
print(BPETokenizer.from_hf({json!r}).encode("Hello, world!").tolist())
""",
}
START["uncompiled"] = START["native"]
"""What a fresh process runs for `--what start`."""

COMMANDS = {
    "`tokenizer encode Hello`": [Path(sys.executable).with_name("tokenizer"), "encode", "Hello"],
    "`python -c pass`": [sys.executable, "-c", "pass"],
}


# ---------------------------------------------------------------- measurements in a fresh process


def measure(job):
    """One measurement; `job` says of what."""
    threads = job["threads"]
    resource.setrlimit(resource.RLIMIT_DATA, (job["most_bytes"], job["most_bytes"]))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    with Path(job["text"]).open("rb") as file:
        text = file.read(job["n_bytes"]).decode("utf-8", errors="ignore")
        file.seek(-min(100_000, file.seek(0, os.SEEK_END)), os.SEEK_END)
        other = file.read().decode("utf-8", errors="ignore")
    engine = (ours if job["engine"] in OURS else PEERS[job["engine"]])(job)
    texts, others = ([text], [other]) if threads == 1 else map(documents_of, (text, other))
    engine.encode(others)
    work = {"encode": measure_encode, "list": measure_list, "decode": measure_decode}
    return work[job["what"]](engine, texts, job)


def measure_encode(engine, texts, job):
    clock = time.process_time if job["threads"] == 1 else time.perf_counter
    before, seconds, found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, [], set()
    for _ in range(1 if job["memory"] else 3):
        ids = None
        start = clock()
        ids = engine.encode(texts)
        seconds.append(clock() - start)
        found.add(hashlib.sha256(ids.astype("<u4", copy=False)).hexdigest())
    figures = [job["n_bytes"] / 1e6 / seconds[0]]
    if job["memory"]:
        figures.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
    else:
        figures.append(job["n_bytes"] / 1e6 / min(seconds[1:]))
    return {"figures": figures, "ids": sorted(found)}


def measure_list(engine, texts, job):
    assert engine.to_list is not None
    figures = []
    for size in LIST_SIZES:
        step = max(size, len(texts[0]) // LIST_TEXTS)
        pieces = [texts[0][at : at + size] for at in range(0, len(texts[0]) - size, step)]
        times = []
        for piece in dict.fromkeys(pieces):
            start = time.perf_counter()
            engine.to_list(piece)
            times.append(time.perf_counter() - start)
        figures.append(statistics.median(times) * 1e6)
    return {"figures": figures, "ids": [str(engine.to_list(texts[0][:DOCUMENT]))]}


def measure_decode(engine, texts, job):
    assert engine.decode is not None
    ids, best, text = engine.encode(texts), float("inf"), texts[0].encode()
    for _ in range(3):
        start = time.process_time()
        decoded = engine.decode(ids)
        best = min(best, time.process_time() - start)
    decoded = decoded.encode() if isinstance(decoded, str) else decoded
    return {"figures": [len(text) / 1e6 / best], "ids": [hashlib.sha256(decoded).hexdigest()]}


LAUNCH = """
import json, os, sys, time
start = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0)
seconds = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
print(json.dumps([seconds[0] * 1e3, seconds[1] * 1e3, usage.ru_maxrss / 1e3]))
sys.exit(status != 0)
"""
"""A small process starts the measured one, whose most memory includes that of its parent."""


def measure_start(command):
    """Wall time and processor time in ms and the most memory in MB of a process, and what it
    prints."""
    done = subprocess.run([sys.executable, "-c", LAUNCH, *command], capture_output=True, text=True)
    if done.returncode:
        is_missing = "ModuleNotFoundError" in done.stderr
        return {"error": NOT_INSTALLED if is_missing else done.stderr.strip()[-80:]}
    *ids, figures = done.stdout.splitlines()
    return {"figures": json.loads(figures), "ids": ids}


def documents_of(text):
    documents, lines, length = [], [], 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        length += len(line)
        if length >= DOCUMENT:
            documents.append("".join(lines))
            lines, length = [], 0
    return [*documents, "".join(lines)]


# ------------------------------------------------------------------------------ turns and tables


def run(job, python):
    """`measure` in a fresh process of `python`; {"error": ...} when it fails."""
    if job["engine"] in OF_RANKS and not Path(job["ranks"]).exists():
        return {"error": "has no ranks"}
    if job["what"] == "start":
        os.environ["TOKENIZER_COMPILED"] = "off" if job["engine"] == "uncompiled" else "on"
        return measure_start([python, "-c", START[job["engine"]].format(**job)])
    command = [python, __file__, "--job", json.dumps(job)]
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(job["threads"]),
        "TOKENIZERS_PARALLELISM": str(job["threads"] > 1).lower(),
    }
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except FileNotFoundError:
        return {"error": NOT_INSTALLED}
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        if words[-1].startswith("ModuleNotFoundError"):
            return {"error": NOT_INSTALLED}
        if "memory allocation of" in done.stderr or "MemoryError" in words[-1]:
            return {"error": f"needs more than {job['most_bytes'] / 1e9:g} GB"}
        return {"error": words[-1][:80]}
    return json.loads(done.stdout.splitlines()[-1])


def python_of(engine, args):
    return sys.executable if engine in OURS else args.peers or sys.executable


def take_turns(job, args):
    """For each engine its median figures, or a word instead of them; and whether ours has the ids
    that most have."""
    engines = args.engines.split(",")
    runs = {engine: [] for engine in engines}
    if job["what"] == "start":  # compile the modules, and at the second load the tokenizer
        for engine in 2 * engines:
            run(job | {"engine": engine}, python_of(engine, args))
    for round_number in range(args.rounds):
        turn = round_number % len(engines)
        for engine in engines[turn:] + engines[:turn]:
            doing = f"\r{label(Path(job['text']))}: round {round_number + 1}, {engine:<12}"
            print(doing, end="", file=sys.stderr)
            runs[engine].append(run(job | {"engine": engine}, python_of(engine, args)))
    print(file=sys.stderr)
    ids = {engine: {one for run in results for one in run.get("ids", ())}
           for engine, results in runs.items()}  # fmt: skip
    usual = next(iter(Counter(one for each in ids.values() for one in each).most_common()), [""])[0]
    found = {}
    for engine, results in runs.items():
        error = next((result["error"] for result in results if "error" in result), None)
        medians = [
            statistics.median(column)
            for column in zip(*(run.get("figures", ()) for run in results), strict=True)
        ]
        found[engine] = error or (medians if ids[engine] == {usual} else "other ids")
    return found, all(ids[engine] <= {usual} for engine in engines if engine in OURS)


def ratio(found):
    """The speeds of the first engine over those of the fastest of the others."""
    mine, *others = found.values()
    others = [speeds for speeds in others if not isinstance(speeds, str)]
    if isinstance(mine, str) or not others:
        return None
    return [a / max(speeds) for a, *speeds in zip(mine, *others, strict=True)]


def share(found):
    """The figures of the first engine over the least of the others."""
    mine, *others = found.values()
    others = [figures for figures in others if not isinstance(figures, str)]
    if isinstance(mine, str) or not others:
        return None
    return [a / min(figures) for a, *figures in zip(mine, *others, strict=True)]


def measure_command(command, rounds):
    """The median figures of `measure_start`, in the cell of ours."""
    runs = [measure_start(command)["figures"] for _ in range(rounds + 2)]
    return [list(map(statistics.median, zip(*runs[2:], strict=True)))]


def describe(vocab, engines, folder):
    """The part of a job that tells a vocabulary; writes the forms that its readers take."""
    from tokenizer_core import Tokenizer
    from tokenizer_core.errors import FormatError

    tokenizer = Tokenizer.load(vocab)
    specials = dict(tokenizer.special_tokens)
    told = {"vocab": str(vocab), "json": str(vocab), "special_tokens": specials}
    if vocab.suffix != ".json":
        told["json"] = str(folder / f"{vocab.stem}.json")
        tokenizer.save(Path(told["json"]))
        number_special_tokens_densely(Path(told["json"]))
    if OF_RANKS & set(engines):
        told["ranks"] = str(folder / f"{vocab.stem}.tiktoken")
        with contextlib.suppress(FormatError):  # then there are none
            tokenizer.save_tiktoken(Path(told["ranks"]))
        told["pattern"] = tokenizer.spec.pattern.expression
    return told


def number_special_tokens_densely(path):
    """Keep special tokens out of the vocabulary of a `tokenizer.json`, and fill the gaps of their
    ids: fastokens reads no other file, and `tokenizers` would give them other ids."""
    data = json.loads(path.read_text(encoding="utf-8"))
    vocab, added = data["model"]["vocab"], {one["id"]: one for one in data["added_tokens"]}
    for token in added.values():
        vocab.pop(token["content"], None)
    data["added_tokens"] = [
        added.get(id_) or {**next(iter(added.values())), "id": id_, "content": f"<|unused_{id_}|>"}
        for id_ in range(len(vocab), max(added) + 1)
    ]
    path.write_text(json.dumps(data), encoding="utf-8")


def main():
    parser = make_parser(__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--vocab", nargs="+", metavar="VOCABULARY")
    parser.add_argument("--what", choices=["encode", "list", "decode", "start"], default="encode")
    parser.add_argument("--engines", default="native,gigatoken,fastokens,tokenizers")
    parser.add_argument("--peers", help="the Python that imports the others")
    parser.add_argument("--mb", type=float, default=20, help="of each text at most, in MB")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument(
        "--memory", action="store_true", help="MB that the first pass needs, instead of more passes"
    )
    parser.add_argument("--most-gb", type=float, default=8, help="of memory for a process")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    if "--job" in sys.argv:  # in the environment of the peers, where this project is not
        print(json.dumps(measure(parser.parse_args().job)))
        return 0

    args = parser.parse_args()
    engines = args.engines.split(",")
    n_processors = len(os.sched_getaffinity(0))
    if not args.vocab or bool(args.texts) == (args.what == "start"):
        parser.error("give --vocab VOCABULARY and at least one text; none for --what start")
    if not 1 <= args.threads <= n_processors:
        parser.error(f"--threads must be 1 to {n_processors}, the processors there are")
    unknown = set(engines) - {*OURS, *PEERS}
    if unknown:
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}")
    rows = []
    are_ours_right = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocabularies = {
            label(path): describe(path, engines, folder) for path in map(vocab_path, args.vocab)
        }
        if args.what == "start":
            os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")  # as installed packages
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
            for vocab, job in vocabularies.items():
                found, is_right = take_turns(job | {"what": "start", "text": job["vocab"]}, args)
                are_ours_right &= is_right
                rows.append([vocab, *found.values(), share(found)])
            none = [None] * len(engines)
            rows += [[name, *measure_command(command, args.rounds), *none[1:], None]
                     for name, command in COMMANDS.items()]  # fmt: skip
        for text in args.texts:
            path = text_in(folder, text)
            size = min(path.stat().st_size, int(args.mb * 1e6))
            for vocab, job in vocabularies.items():
                job |= {"text": str(path), "n_bytes": size, "threads": args.threads}
                job |= {"what": args.what, "memory": args.memory}
                job["most_bytes"] = int(args.most_gb * 1e9)
                found, is_right = take_turns(job, args)
                are_ours_right &= is_right
                if args.what == "list":
                    rows += [
                        [f"{vocab}, {OURS.get(engine, engine)}",
                         *([cells] * len(LIST_SIZES) if isinstance(cells, str) else cells)]
                        for engine, cells in found.items()
                    ]  # fmt: skip
                    continue
                cells = [cell if isinstance(cell, str) or args.what == "encode" else cell[0]
                         for cell in found.values()]  # fmt: skip
                over = ratio(found)
                what = f"{vocab}, {label(path)}, {size / 1e6:.0f} MB"
                rows.append([what, *cells, over[:1] if args.memory and over else over])
            if path.parent == folder:
                path.unlink()
    if args.what == "list":
        columns = ["", *(f"{size:,} B" for size in LIST_SIZES)]
    else:
        columns = ["vocabulary, text", *(OURS.get(engine, engine) for engine in engines)]
        columns.append("over the least" if args.what == "start" else "over the fastest peer")
        if args.what != "start" and len(rows) > 4 and all(row[-1] for row in rows):
            ratios = list(zip(*(row[-1] for row in rows), strict=True))
            none = [None] * len(engines)
            rows += [
                [f"least of these {len(rows)}", *none, list(map(min, ratios))],
                ["median", *none, list(map(statistics.median, ratios))],
            ]
    is_wall = args.threads > 1 or args.what in ("list", "start")
    clock = "wall time" if is_wall else "processor time"
    note = f"Median of {args.rounds} rounds in {clock}"
    report([Table(columns, rows)], args.json, note)
    if not are_ours_right:
        print("OUR IDS DIFFER FROM MOST", file=sys.stderr)
    return 0 if are_ours_right else 1


if __name__ == "__main__":
    sys.exit(main())
