"""P20, no leak: a server under every kind of load for minutes, and what it holds at rest.

    make soak                       # ten minutes, a table, the verdict; exit status 1 where it grew
    make soak ARGS="--minutes 60"

Load and rest alternate. The soak compares the resources that the server's processes hold together
at rest, when every client is gone, no job runs, the tokenizers have been loaded again and the
engine has released the buffers that it keeps for later results: then nothing is in use and caches
are empty, so that any growth is a leak. The first third is the warm-up.

The engine's buffers are bounded (64 MB a process), and the soak checks that bound by itself. While
they counted as memory at rest, seven minutes rose from 298 to 379 MB and failed, because the
buffers fill for four minutes; in an hour they moved the figure up and down by 10 MB, which hid
smaller leaks.

Each serving process accounts for itself (`soaked_service.py`). Where something grew, the verdict
names it for each process: kinds of mappings, blocks and types of Python, malloc, threads, files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import REPOSITORY
from tests.integration.reliability.soak_figures import (
    Account,
    Sample,
    header,
    leaks,
    row_of,
    summary,
    what_grew,
)
from tests.integration.reliability.soak_load import MAX_BODY_BYTES, SoakLoad
from tests.integration.reliability.soaked_service import ACCOUNTS
from tests.integration.server_process import Server, publish_bytes, serve, wait_until_gone
from tests.integration.swap_load import SECOND_FIRST_ID
from tokenizer_core.registry import ArtifactStore

WORKERS = 2
N_TURNS = 40
MIN_TURN_SECONDS = 4.0
MIN_TURNS = 9
"""Three for each third, however slow the machine is."""
SETTLE_SECONDS = 1.0
"""Time after the last client leaves, until the server drops a connection that was cut off."""
ACCOUNT_SECONDS = 60.0
MAX_ENGINE_BUFFERS = 64 << 20
"""Bytes that the engine of a process may keep for later results."""

GIVE_BACK = (
    "MALLOC_ARENA_MAX=1",
    "MALLOC_MMAP_THRESHOLD_=65536",
    "MALLOC_TRIM_THRESHOLD_=65536",
)
"""Freed memory that the allocator keeps looks like growth: each thread's arena keeps the most it
ever held, some 70 MB more in a process, and reaches that late. With an arena per thread, the memory
at rest still rose by steps of up to 8 MB, while the number of blocks that Python used did not."""

_JOB_FILES = {"request.json", "train.log"}
_LASTING = {"active.json", "last_good.json", "jobs.sqlite3"}
"""Files that may remain, besides published versions, locks, and `_JOB_FILES` of each job."""


@dataclass
class SoakReport:
    """The samples after each turn, and the broken promises."""

    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def soak(minutes: float, tell: Callable[[Sample], None] = lambda sample: None) -> SoakReport:
    """Load a new server for this long; call `tell` after each turn."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        artifacts_dir, temporary = folders = Path(folder, "artifacts"), Path(folder, "tmp")
        temporary.mkdir()
        with soaked_server(artifacts_dir, temporary) as (server, load):
            samples = _take_turns(server, load, folders, minutes * 60, tell)
            failures = [*_end(server), *load.failures, *too_many_buffers(samples)]
        failures += [f"left over: {path}" for path in left_over(artifacts_dir, temporary)]
    return SoakReport(samples, failures)


@contextlib.contextmanager
def soaked_server(artifacts_dir: Path, temporary: Path) -> Iterator[tuple[Server, SoakLoad]]:
    """The starter and a tokenizer of single bytes, served by two processes whose temporary files
    are in `temporary`."""
    shutil.copytree(REPOSITORY / "artifacts", artifacts_dir)
    other = publish_bytes(artifacts_dir, "other", first_id=SECOND_FIRST_ID)
    versions = [other, ArtifactStore(artifacts_dir).resolve("starter")]
    accounts = _accounts_folder(temporary)
    accounts.mkdir()
    environment = (f"TMPDIR={temporary}", f"{ACCOUNTS}={accounts}", *GIVE_BACK)
    module = "tests.integration.reliability.soaked_service"
    command = ("env", *environment, sys.executable, "-m", module, "serve")
    settings: dict[str, Any] = {"keep_versions": "2", "max_body_bytes": str(MAX_BODY_BYTES)}
    with serve(artifacts_dir, workers=WORKERS, command=command, **settings) as server:
        yield server, SoakLoad(server, artifacts_dir, versions)


def _take_turns(
    server: Server,
    load: SoakLoad,
    folders: tuple[Path, Path],
    seconds: float,
    tell: Callable[[Sample], None],
) -> list[Sample]:
    samples: list[Sample] = []
    turn_seconds = max(MIN_TURN_SECONDS, seconds / N_TURNS)
    load.warm()
    started = time.monotonic()
    while time.monotonic() - started < seconds or len(samples) < MIN_TURNS:
        with _highest_memory(server) as highest:
            load.run(turn_seconds)
        load.drop_caches()
        time.sleep(SETTLE_SECONDS)
        samples.append(
            take_sample(
                server.processes(),
                ask_accounts(server.serving_pids(), _accounts_folder(folders[1])),
                seconds=time.monotonic() - started,
                highest=max(highest),
                disk_files=sum(1 for _ in files_that_may_go(*folders)),
                done=Counter(load.done),
            )
        )
        load.done.clear()
        tell(samples[-1])
    return samples


def _accounts_folder(temporary: Path) -> Path:
    """Beside the service's temporary files, so that it is no leftover."""
    return temporary.with_name("accounts")


def ask_accounts(pids: list[int], folder: Path) -> dict[int, Account]:
    """The account of each serving process, which releases the buffers of its engine first.

    Raises:
        TimeoutError: a process wrote none.
    """
    for pid in pids:
        Path(folder, f"{pid}.json").unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
    accounts: dict[int, Account] = {}
    deadline = time.monotonic() + ACCOUNT_SECONDS
    while len(accounts) < len(pids):
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {sorted(accounts)} of {pids} wrote an account")
        time.sleep(0.05)
        for pid in pids:
            path = Path(folder, f"{pid}.json")
            if pid not in accounts and path.exists():
                found = json.loads(path.read_text())
                figures = found["figures"] | _seen_from_outside(psutil.Process(pid))
                accounts[pid] = Account(figures, found["types"])
    return accounts


def _seen_from_outside(process: psutil.Process) -> dict[str, int]:
    """Private bytes of each kind of mapping, and how much else the process holds."""
    kinds = {"[heap]": "heap", "[anon]": "anonymous"}
    found: Counter[str] = Counter()
    for mapping in process.memory_maps(grouped=False):
        kind = kinds.get(mapping.path, "stack" if mapping.path == "[stack]" else "of files")
        found[f"memory, {kind}"] += mapping.private_clean + mapping.private_dirty
        found[f"mappings, {kind}"] += 1
    return {**found, "threads": process.num_threads(), "files": process.num_fds()}


def take_sample(
    processes: list[psutil.Process], accounts: dict[int, Account], *, seconds: float,
    highest: int, disk_files: int, done: Counter[str],
) -> Sample:  # fmt: skip
    """Measure these processes now."""
    return Sample(
        seconds,
        memory=sum(process.memory_full_info().uss for process in processes),
        highest=highest,
        files=sum(process.num_fds() for process in processes),
        threads=sum(process.num_threads() for process in processes),
        processes=len(processes),
        disk_files=disk_files,
        blocks=sum(account.figures["Python blocks"] for account in accounts.values()),
        done=done,
        accounts=accounts,
    )


def too_many_buffers(samples: list[Sample]) -> Iterator[str]:
    """The processes whose engine kept more than it may."""
    for sample in samples:
        for pid, account in sample.accounts.items():
            if (kept := account.figures["engine buffers"]) > MAX_ENGINE_BUFFERS:
                yield f"the engine of process {pid} kept {kept:,} bytes for later results"


@contextlib.contextmanager
def _highest_memory(server: Server) -> Iterator[list[int]]:
    """The resident memory of the server, sampled twice a second."""
    found: list[int] = [0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            with contextlib.suppress(psutil.NoSuchProcess):  # a trainer that ended just now
                found.append(sum(process.memory_info().rss for process in server.processes()))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


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
    try:
        wait_until_gone(processes, seconds=2)
    except AssertionError as error:
        yield str(error)
    if "Traceback" in server.output:
        yield f"in the log: {server.output[server.output.index('Traceback') :][:2000]}"


def main(argv: list[str] | None = None) -> int:
    """The command line; returns 1 if something grew or a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    minutes = parser.parse_args(argv).minutes
    if minutes < 1:
        parser.error("less than a minute says nothing")
    print(f"for {minutes:g} minutes, {WORKERS} serving processes\n\n{header()}", flush=True)
    table = _Table()
    report = soak(minutes, table.add)
    table.end_row()
    print("", *summary(report.samples), *report.failures[:20], sep="\n")
    grown = leaks(report.samples)
    is_well = not grown and not report.failures
    if grown:
        print(*what_grew(report.samples), sep="\n")
    print(*grown, "no leak, no wrong answer" if is_well else "FAILED", sep="\n")
    return 0 if is_well else 1


class _Table:
    """Print a row for each completed minute; on a terminal, a status line in between."""

    def __init__(self) -> None:
        self._row: list[Sample] = []
        self._is_shown = sys.stderr.isatty()

    def add(self, sample: Sample) -> None:
        self._row.append(sample)
        if self._is_shown:
            print(f"\r{row_of([sample])} ", end="", file=sys.stderr, flush=True)
        if sample.seconds // 60 > self._row[0].seconds // 60:  # with the turn that goes beyond it
            self.end_row()

    def end_row(self) -> None:
        """Print the rows that are still missing."""
        if self._row:
            print(("\r" if self._is_shown else "") + row_of(self._row), flush=True)
        self._row.clear()


if __name__ == "__main__":
    sys.exit(main())
