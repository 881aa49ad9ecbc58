r"""Measure the overhead of a distributed encoding over a local one, and of Ray on top of that.

    .venv/bin/python benchmarks/distributed_encoding.py \
        --tokenizer ../shared/data/vocab/gpt2.tokenizer.json en_reuters_news zh_modern_bitext

The script encodes the same files in three ways, in turn and several times, each in a fresh process:
`encode_corpus`, a run on local processes, and the same run with as many workers on a local Ray
cluster that was started before. The resulting token files must be equal byte for byte.
docs/benchmarks.md quotes the figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpora import text_path, vocab_path
from figures import Table, add_json_option, report

from tokenizer_core import Tokenizer
from tokenizer_core.corpus import CorpusFormat, encode_corpus, plan_token_files
from tokenizer_core.distributed import encode_distributed
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.parallel.ray_cluster import connect_to_ray

WAYS = {
    "one machine": "`encode_corpus`",
    "local run": "a run, processes of this machine",
    "run on Ray": "the same run on Ray",
}


def encode(way: str, arguments: argparse.Namespace, folder: Path) -> float:
    """Seconds until the token files are on disk, on a cluster that is already up."""
    tokenizer = Tokenizer.from_tokenizer_json(arguments.tokenizer)
    plan = plan_token_files(tokenizer, end_of_document="<|endoftext|>")
    what = (tokenizer, arguments.files, folder / "tokens", plan)
    how = {"corpus_format": CorpusFormat(separator=arguments.separator), "validation_share": 0.01}
    if way == "run on Ray":
        import ray

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False)
    started = time.perf_counter()
    if way == "one machine":
        encode_corpus(*what, workers=arguments.workers, **how)
    elif way == "local run":
        executor = LocalExecutor(arguments.workers)
        encode_distributed(*what, storage=folder / "run", executor=executor, **how)
    else:
        with connect_to_ray() as on_ray:
            encode_distributed(*what, storage=folder / "run", executor=on_ray, **how)
    return time.perf_counter() - started


def measure(way: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Run once in this process."""
    with tempfile.TemporaryDirectory(prefix="encoding-") as name:
        seconds = encode(way, arguments, Path(name))
        # The manifest holds the sha256 of all other files.
        manifest = Path(name, "tokens", "manifest.json").read_bytes()
    return {"seconds": seconds, "digest": hashlib.sha256(manifest).hexdigest()}


def main() -> int:
    """Measure, print, and fail if the token files differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=text_path)
    parser.add_argument("--tokenizer", type=vocab_path, required=True)
    parser.add_argument("--separator", default="\n")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    add_json_option(parser)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments)))
        return 0
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    digests = set()
    for _ in range(arguments.times):
        for way in WAYS:
            command = [sys.executable, *sys.argv, "--way", way]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            result = json.loads(printed.splitlines()[-1])
            digests.add(result["digest"])
            found[way].append(result["seconds"])
    n_bytes = sum(path.stat().st_size for path in arguments.files)
    rows = [[WAYS[way], statistics.median(seconds), min(seconds)] for way, seconds in found.items()]
    columns = ["encoding", "seconds", "least"]
    note = (
        f"{n_bytes / 1e6:.0f} MB, {arguments.workers} workers, medians of {arguments.times}, "
        f"the same bytes"
    )
    report([Table(columns, rows)], arguments.json, note)
    if len(digests) > 1:
        print(f"FILES DIFFER: {digests}", file=sys.stderr)
    return len(digests) > 1


if __name__ == "__main__":
    sys.exit(main())
