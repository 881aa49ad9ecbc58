"""Compare the strict JSON reader with the standard library's, jiter and msgspec.

    .venv/bin/python benchmarks/json_readers.py --peers peers/bin/python

Each figure is of a fresh process: the time, the longest pause of another thread meanwhile, and the
growth of the peak memory as a multiple of the body.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HOSTILE_BYTES = 64 << 20
PAUSE_SECONDS = 0.001
READERS = ("ours", "ours, in Python", "json", "jiter", "msgspec")


def _ids(n_ids: int) -> bytes:
    rng = random.Random(1)
    return json.dumps({"tokens": [rng.randrange(200_000) for _ in range(n_ids)]}).encode()


def _text(n_chars: int) -> bytes:
    rng = random.Random(2)
    words = ["the", "naïve", "tokenizer", "reads", '"quoted"', "中文", "lines\n"]
    text = " ".join(rng.choices(words, k=n_chars // 4))[:n_chars]
    return json.dumps({"text": text}, ensure_ascii=False).encode()


def _texts(n_texts: int) -> bytes:
    return b'{"texts": [' + b", ".join(_text(90)[9:-1] for _ in range(n_texts)) + b"]}"


BODIES: dict[str, Callable[[], bytes]] = {
    "100 bytes": lambda: _text(80),
    "1 MB, texts of 100 bytes": lambda: _texts(10_000),
    "8 MB of text": lambda: _text(8_000_000),
    "10 million ids": lambda: _ids(10_000_000),
    '64 MB of "",': lambda: b"[" + b'"",' * (HOSTILE_BYTES // 3) + b'""]',
    "64 MB of [],": lambda: b"[" + b"[]," * (HOSTILE_BYTES // 3) + b"[]]",
    "64 MB of [": lambda: b"[" * HOSTILE_BYTES,
    "1e400": lambda: b"[1e400]",
    "a key twice": lambda: b'{"a": 1, "a": 2}',
}


def reader(name: str) -> Callable[[bytes], object]:
    """The reader of this name, with its strictest options."""
    if name.startswith("ours"):
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        from tokenizer_service.http.json import parse_strict_json

        from tokenizer_core.engines import choose_engine

        engine = choose_engine("native" if name == "ours" else "python")
        return lambda body: parse_strict_json(body, engine)
    if name == "jiter":
        import jiter

        return lambda body: jiter.from_json(body, catch_duplicate_keys=True, allow_inf_nan=False)
    if name == "msgspec":
        import msgspec

        return msgspec.json.decode
    return json.loads


def measure(name: str, body_name: str) -> str:
    """One figure, as a cell of the table."""
    read, body = reader(name), BODIES[body_name]()
    if len(body) < 1000:
        try:
            result = repr(read(body))[:20]
        except Exception:
            return "refused"
        started = time.perf_counter()
        for _ in range(20_000):
            read(body)
        return f"{(time.perf_counter() - started) / 20_000 * 1e6:.1f} µs" + (
            "" if body_name == "100 bytes" else f", {result}"
        )
    longest, is_done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal longest
        before = time.perf_counter()
        while not is_done.is_set():
            time.sleep(PAUSE_SECONDS)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now

    watcher = threading.Thread(target=watch)
    watcher.start()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = ""
    started = time.perf_counter()
    try:
        value = read(body)
    except Exception:
        value, result = None, "refused in "
    seconds = time.perf_counter() - started
    is_done.set()
    watcher.join()
    del value
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 / len(body)
    figure = f"{result}{seconds * 1e3:,.0f} ms ({longest * 1e3:,.0f} ms)"
    return figure if grown < 10 else f"{figure}, {grown:.0f} times the body in memory"


def main() -> None:
    """Print a row for each body."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="a Python that has jiter and msgspec")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    if "--one" in sys.argv:  # in the environment of the peers, where this project is not
        print(measure(*parser.parse_args().one))
        return

    from figures import NOT_INSTALLED, Table, add_json_option, report

    add_json_option(parser)
    arguments = parser.parse_args()
    rows = []
    for body in BODIES:
        row = [body.replace("64 MB of ", "64 MB of `") + "`" * body.startswith("64 MB")]
        for name in READERS:
            python = arguments.peers if name in ("jiter", "msgspec") else sys.executable
            command = [python or sys.executable, __file__, "--one", name, body]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode and "ModuleNotFoundError" not in done.stderr:
                raise SystemExit(done.stderr)
            row.append(NOT_INSTALLED if done.returncode else done.stdout.strip())
        rows.append(row)
    report([Table(["body", *READERS], rows)], arguments.json, "Each measured once")


if __name__ == "__main__":
    main()
