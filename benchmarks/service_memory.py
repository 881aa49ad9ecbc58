"""Measure the memory of the service, how soon it is ready, and the first requests to a tokenizer.

    .venv/bin/python benchmarks/service_memory.py gpt2 o200k_base qwen3 llama3_1

The service serves the packaged starter, or it and the vocabularies that are named, each published.
*ready*: seconds from the start of the process to the first 200 of /readyz. *first request*: the
longest of the first ones to each tokenizer, in milliseconds. *PSS*: MB of all processes of the
service after each worker had requests to each tokenizer; a page that several processes share counts
once. *after texts*: the same after texts of 2 MB. Each request has a new connection. Linux only.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from compare_http import HERE, free_port
from corpora import text_path, vocab_path
from figures import Table, make_parser, report

COMMAND = [sys.executable, "-m", "tokenizer_service.cli"]
REQUESTS_PER_WORKER = 8


def publish(vocabularies, artifacts, environment):
    """Publish the starter and these vocabularies; return their names."""
    names = ["starter", *(path.name.partition(".")[0].replace("_", "-") for path in vocabularies)]
    for name, path in zip(names, ["starter", *vocabularies], strict=True):
        pattern = ["--pattern", name.partition("-")[0]] if str(path).endswith(".tiktoken") else []
        subprocess.run(
            [*COMMAND, "import", str(path), "--name", name, *pattern],
            env=environment, check=True, stdout=subprocess.DEVNULL, cwd=HERE.parent,
        )  # fmt: skip
    subprocess.run(
        [*COMMAND, "promote", "starter"], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    return names


def memory_mb(process_id):
    """The PSS of a process and its descendants."""
    total, waiting = 0, [process_id]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):
            lines = (folder / "smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return total * 1024 / 1e6


def measure(names, workers, environment, text):
    """Seconds until it is ready, milliseconds of the slowest first request, MB, MB after texts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started = time.monotonic()
    with tempfile.TemporaryFile() as log, subprocess.Popen(
        [*COMMAND, "serve", "--port", str(port), "--workers", str(workers)],
        env=environment, stdout=log, stderr=log, cwd=HERE.parent,
    ) as process:  # fmt: skip
        client = httpx.Client(headers={"Connection": "close"}, timeout=60)
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{url}/readyz").status_code == 200:
                        break
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"the service ended:\n{log.read().decode()}")
                time.sleep(0.01)
            ready = time.monotonic() - started
            time.sleep(2)  # the other workers
            n_requests = 1 if workers == 1 else REQUESTS_PER_WORKER * workers
            slowest, seen, found = 0.0, set(), []
            for given in ["Hello", text]:
                for name in names * n_requests:
                    asked = time.monotonic()
                    client.post(
                        f"{url}/encode", json={"text": given, "tokenizer": name}
                    ).raise_for_status()
                    if name not in seen:
                        slowest = max(slowest, time.monotonic() - asked)
                        seen.add(name)
                time.sleep(3)  # memory of requests is given back after two seconds
                found.append(memory_mb(process.pid))
            return ready, 1e3 * slowest, *found
        finally:
            process.terminate()


def main():
    parser = make_parser(__doc__)
    parser.add_argument("vocabularies", nargs="*", type=vocab_path, metavar="VOCABULARY")
    parser.add_argument("--text", type=text_path, default="en_reuters_news")
    options = parser.parse_args()
    text = options.text.read_bytes()[:2_000_000].decode(errors="ignore")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        for vocabularies in ([], options.vocabularies) if options.vocabularies else ([],):
            artifacts = Path(folder) / f"artifacts-{len(vocabularies)}"
            artifacts.mkdir()
            environment["TOKENIZER_ARTIFACTS_DIR"] = str(artifacts)
            names = publish(vocabularies, artifacts, environment)
            for workers in (1, 4):
                found = [measure(names, workers, environment, text) for _ in range(options.rounds)]
                which = f"{len(names)} tokenizers" if vocabularies else "the starter"
                medians = map(statistics.median, zip(*found, strict=True))
                rows.append([f"{which}, {workers} worker{'s' * (workers > 1)}", *medians])
    columns = ["", "ready, s", "first request, ms", "PSS, MB", "after texts of 2 MB"]
    report([Table(columns, rows)], options.json, f"Medians of {options.rounds} rounds")


if __name__ == "__main__":
    main()
