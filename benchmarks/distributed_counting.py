"""Measure the overhead of a distributed count over a local one, and of Ray on top of that.

    .venv/bin/python benchmarks/distributed_counting.py en_reuters_news zh_modern_bitext

The script counts the same files in three ways, in turn and several times, each in a fresh process:
`count_pretokens`, a run on local processes, and the same run with as many workers on a local Ray
cluster that was started before. The resulting files must be equal byte for byte. docs/benchmarks.md
quotes the figures.
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
from typing import Any

from corpora import text_path
from figures import Table, add_json_option, report

from tokenizer_core.distributed import count_distributed
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.parallel.ray_cluster import connect_to_ray
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import count_pretokens

WAYS = {
    "one machine": "`count_pretokens`",
    "local run": "a run, processes of this machine",
    "run on Ray": "the same run on Ray",
}
SPECIALS = ["<|endoftext|>"]
PATTERN = PATTERNS["gpt2"]


def count(way: str, files: list[Path], workers: int, folder: Path) -> tuple[float, float]:
    """Seconds until counting can start, and seconds of counting until the file is on disk."""
    started = time.perf_counter()
    output = folder / "counts"
    if way == "one machine":
        counts = count_pretokens(
            files, pattern=PATTERN, special_tokens=SPECIALS, num_workers=workers
        )
        counts.save(output)
        return 0.0, time.perf_counter() - started
    options = {"pattern": PATTERN, "special_tokens": SPECIALS, "output": output}
    if way == "local run":
        count_distributed(files, storage=folder / "run", executor=LocalExecutor(workers), **options)
        return 0.0, time.perf_counter() - started
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    ready = time.perf_counter()
    with connect_to_ray() as executor:
        count_distributed(files, storage=folder / "run", executor=executor, **options)
    seconds = time.perf_counter() - ready
    ray.shutdown()
    return ready - started, seconds


def measure(way: str, files: list[Path], workers: int) -> dict[str, object]:
    """Run once in this process."""
    with tempfile.TemporaryDirectory(prefix="counting-") as name:
        start, seconds = count(way, files, workers, Path(name))
        digest = hashlib.sha256(Path(name, "counts").read_bytes()).hexdigest()
    return {"start": start, "seconds": seconds, "digest": digest}


def main() -> int:
    """Measure, print, and fail if the files differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=text_path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    add_json_option(parser)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments.files, arguments.workers)))
        return 0
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    digests = set()
    for _ in range(arguments.times):
        for way in WAYS:
            command = [sys.executable, *sys.argv, "--way", way]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            result = json.loads(printed.splitlines()[-1])
            digests.add(result["digest"])
            found[way].append(result)
    n_bytes = sum(path.stat().st_size for path in arguments.files)
    rows: list[list[Any]] = []
    for way, results in found.items():
        seconds = [result["seconds"] for result in results]
        start = statistics.median(result["start"] for result in results)
        rows.append([WAYS[way], statistics.median(seconds), min(seconds), start or None])
    columns = ["counting", "seconds", "least", "to start the cluster"]
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
