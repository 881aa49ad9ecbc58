"""P20, no leak: a server under every kind of load for minutes, and what it holds at rest.

    make soak                       # ten minutes, a line a round; exit status 1 if something grew
    make soak ARGS="--minutes 60"

Load and rest alternate. The soak compares the resources that the server's processes hold together
at rest, when every client is gone, no job runs, the tokenizers have been loaded again and the
engine has released the buffers that it keeps for later results: then nothing is in use and caches
are empty, so that any growth is a leak. The first third is the warm-up.

The engine's buffers are bounded, 64 MB a process; the soak checks that bound by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tests.integration.reliability.soak_load import MAX_BODY_BYTES, SoakLoad
from tests.integration.reliability.soaked_service import ACCOUNTS
from tests.integration.server_process import (
    Server,
    publish_bytes,
    serve,
    wait_until,
    wait_until_gone,
)
from tests.integration.swap_load import SECOND_FIRST_ID
from tokenizer_core.registry import ArtifactStore

WORKERS = 2
N_TURNS = 40
MIN_TURN_SECONDS = 4.0
MIN_TURNS = 9
"""Three for each third, however slow the machine is."""
SETTLE_SECONDS = 1.0
"""Time after the last client leaves, until the server drops a connection that was cut off."""
MAX_ENGINE_BUFFERS = 64 << 20
"""Bytes that the engine of a process may keep for later results."""

MAX_MORE = {
    "bytes of memory": 8 << 20,
    "files": 4,
    "threads": 4,
    "processes": 0,
    "files on disk": 12,
    "blocks": 20_000,
}
"""How much more the last third may hold than the middle one; all processes together.

Memory is private bytes: 8 MB are some 400 bytes for each of 20,000 requests, and as much as three
threads bring that a pool starts late. Blocks are those of Python's allocator: a tokenizer that a
client named last is 7,000 a process, and comes and goes. Two more versions of what was trained may
be in use, so not removed yet.
"""

GIVE_BACK = (
    "MALLOC_ARENA_MAX=1",
    "MALLOC_MMAP_THRESHOLD_=65536",
    "MALLOC_TRIM_THRESHOLD_=65536",
)
"""Freed memory that the allocator keeps looks like growth: each thread's arena keeps the most it
ever held."""

_JOB_FILES = {"request.json", "train.log"}
_LASTING = {"active.json", "last_good.json", "jobs.sqlite3"}
"""Files that may remain, besides published versions, locks, and `_JOB_FILES` of each job."""


@dataclass(frozen=True)
class Sample:
    """What the processes hold together at rest, by the names of MAX_MORE, and what was done in the
    load before."""

    seconds: float
    held: Mapping[str, int]
    done: Counter[str]

    def __str__(self) -> str:
        figures = [f"{n:,} {name}" for name, n in (*self.done.items(), *self.held.items())]
        return f"{self.seconds / 60:.1f} min: {', '.join(figures)}"


def growths(samples: Sequence[Sample]) -> dict[str, int]:
    """How much more the last third held than the middle one, at the least moment of each.

    The first third is the warm-up. Temporary resources are absent at some moment; of a leak that
    loses a little at each request, a third shows between the two.

    Raises:
        ValueError: fewer than six samples say nothing.
    """
    third = len(samples) // 3
    if third < 2:
        raise ValueError(f"{len(samples)} samples are too few to compare two thirds of them")
    middle, last = samples[-2 * third : -third], samples[-third:]

    def least(part: Sequence[Sample], name: str) -> int:
        return min(sample.held[name] for sample in part)

    return {name: least(last, name) - least(middle, name) for name in MAX_MORE}


def leaks(samples: Sequence[Sample], max_more: Mapping[str, int] = MAX_MORE) -> list[str]:
    """One line for each figure that grew more than allowed."""
    return [
        f"{name} grew by {growth:,}, and may by {max_more[name]:,}"
        for name, growth in growths(samples).items()
        if growth > max_more[name]
    ]


def soak(
    minutes: float, tell: Callable[[Sample], None] = lambda sample: None
) -> tuple[list[Sample], list[str]]:
    """Load a new server for this long; call `tell` after each turn.

    Returns the samples after each turn, and the broken promises.
    """
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        artifacts_dir, temporary, accounts = (
            Path(folder, name) for name in ("artifacts", "tmp", "accounts")
        )
        temporary.mkdir()
        accounts.mkdir()
        shutil.copytree(REPOSITORY / "artifacts" / "tokenizers", artifacts_dir / "tokenizers")
        other = publish_bytes(artifacts_dir, "other", first_id=SECOND_FIRST_ID)
        versions = [other, ArtifactStore(artifacts_dir).resolve("starter")]
        environment = (f"TMPDIR={temporary}", f"{ACCOUNTS}={accounts}", *GIVE_BACK)
        module = "tests.integration.reliability.soaked_service"
        command = ("env", *environment, sys.executable, "-m", module, "serve")
        settings: dict[str, Any] = {"keep_versions": "2", "max_body_bytes": str(MAX_BODY_BYTES)}
        with serve(artifacts_dir, workers=WORKERS, command=command, **settings) as server:
            load = SoakLoad(server, artifacts_dir, versions)
            samples: list[Sample] = []
            turn_seconds = max(MIN_TURN_SECONDS, minutes * 60 / N_TURNS)
            load.warm()
            started = time.monotonic()
            while time.monotonic() - started < minutes * 60 or len(samples) < MIN_TURNS:
                load.run(turn_seconds)
                load.drop_caches()
                time.sleep(SETTLE_SECONDS)
                held = _held(server, accounts, load.failures)
                held["files on disk"] = sum(1 for _ in files_that_may_go(artifacts_dir, temporary))
                samples.append(Sample(time.monotonic() - started, held, Counter(load.done)))
                load.done.clear()
                tell(samples[-1])
            failures = [*_end(server), *load.failures]
        failures += [f"left over: {path}" for path in left_over(artifacts_dir, temporary)]
    return samples, failures


def _held(server: Server, folder: Path, failures: list[str]) -> dict[str, int]:
    """What the processes hold, after each serving one has released the buffers of its engine."""
    accounts = {Path(folder, f"{pid}.json"): pid for pid in server.serving_pids()}
    for path, pid in accounts.items():
        path.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: all(path.exists() for path in accounts))
    blocks = 0
    for path, pid in accounts.items():
        account = json.loads(path.read_text())
        blocks += account["blocks"]
        if account["engine_buffers"] > MAX_ENGINE_BUFFERS:
            failures.append(f"the engine of process {pid} kept {account['engine_buffers']:,} bytes")
    processes = server.processes()
    return {
        "bytes of memory": sum(process.memory_full_info().uss for process in processes),
        "files": sum(process.num_fds() for process in processes),
        "threads": sum(process.num_threads() for process in processes),
        "processes": len(processes),
        "blocks": blocks,
    }


def files_that_may_go(*folders: Path) -> Iterator[Path]:
    """All files except those of ended jobs, of which the service keeps the last thousand."""
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_file() and not (path.parts[-3] == "jobs" and path.name in _JOB_FILES):
            yield path


def left_over(artifacts_dir: Path, temporary: Path) -> Iterator[Path]:
    """Leftovers that an ended server should have removed."""
    yield from temporary.iterdir()
    for path in files_that_may_go(artifacts_dir):
        inside = path.relative_to(artifacts_dir).parts
        is_version = inside[0] == "tokenizers" and len(inside) == 4 and inside[1][0] != "."
        is_lasting = path.name in _LASTING or path.name.endswith(".lock")
        if not (is_version or is_lasting):
            yield path


def _end(server: Server) -> Iterator[str]:
    """End it as its owner would; return the broken promises."""
    if len(server.serving_pids()) != WORKERS:
        yield f"a serving process died: {server.serving_pids()}"
    processes = [process.pid for process in server.processes()]
    server.terminate()
    wait_until_gone(processes)
    if "Traceback" in server.output:
        yield f"in the log: {server.output[server.output.index('Traceback') :][:2000]}"


def main(argv: list[str] | None = None) -> int:
    """The command line; returns 1 if something grew or a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    minutes = parser.parse_args(argv).minutes
    if minutes < 1:
        parser.error("less than a minute says nothing")
    samples, failures = soak(minutes, lambda sample: print(sample, flush=True))
    told = (f"{name} {growth:+,}" for name, growth in growths(samples).items())
    print(f"the last third against the middle one: {', '.join(told)}", *failures[:20], sep="\n")
    grown = leaks(samples)
    is_well = not grown and not failures
    print(*grown, "no leak, no wrong answer" if is_well else "FAILED", sep="\n")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
