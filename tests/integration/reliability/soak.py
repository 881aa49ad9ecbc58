"""P20, no leak: a server under many kinds of load for minutes, and what it holds at rest.

    make soak                       # ten minutes, a line a round; exit status 1 if something grew
    make soak ARGS="--minutes 60"

Load and rest alternate. The soak compares the resources that the server's processes hold together
at rest, when every client is gone, no job runs, the tokenizers have been loaded again and the
engine has released the buffers that it keeps for later results: then nothing is in use and caches
are empty, so that any growth is a leak. The first third is the warm-up.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.integration.reliability.soak_load import MAX_BODY_BYTES, SoakLoad
from tests.integration.server_process import (
    publish_bytes,
    serve,
    wait_until,
    wait_until_gone,
)
from tests.integration.swap_load import SECOND_FIRST_ID
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.cli import main as serve_from_command_line

ACCOUNTS = "SOAK_ACCOUNTS"
"""The variable that names the folder where serving processes write `PID.json`."""
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

JOB_FILES = {"request.json", "train.log"}
LASTING = {"active.json", "last_good.json", "jobs.sqlite3"}
"""Files that may remain, besides published versions, locks, and JOB_FILES of each job."""


def leaks(samples, max_more):
    """One line for each figure that grew more than allowed from the middle third to the last one,
    at the least moment of each: temporary resources are absent at some moment."""
    third = len(samples) // 3
    found = []
    for name, most in max_more.items():
        held = [sample[name] for sample in samples]
        growth = min(held[-third:]) - min(held[-2 * third : -third])
        if growth > most:
            found.append(f"{name} grew by {growth:,}, and may by {most:,}")
    return found


def soak(minutes):
    """Load a new server for this long, and print a line after each turn.

    Returns what the processes held together at rest after each turn, by the names of MAX_MORE; what
    was done; and the broken promises.
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
        module = "tests.integration.reliability.soak"
        command = ("env", *environment, sys.executable, "-m", module, "serve")
        settings = {"keep_versions": "2", "max_body_bytes": str(MAX_BODY_BYTES)}
        with serve(artifacts_dir, workers=WORKERS, command=command, **settings) as server:
            load = SoakLoad(server, artifacts_dir, versions)
            samples = []
            turn_seconds = max(MIN_TURN_SECONDS, minutes * 60 / N_TURNS)
            load.warm()
            started = time.monotonic()
            while time.monotonic() - started < minutes * 60 or len(samples) < MIN_TURNS:
                load.run(turn_seconds)
                load.drop_caches()
                time.sleep(SETTLE_SECONDS)
                held = _held(server, accounts, load.failures)
                held["files on disk"] = len([*_lasting_files(artifacts_dir, temporary)])
                samples.append(held)
                figures = [f"{n:,} {name}" for name, n in (*load.done.items(), *held.items())]
                print(
                    f"{(time.monotonic() - started) / 60:.1f} min:", ", ".join(figures), flush=True
                )
            failures = load.failures
            if len(server.serving_pids()) != WORKERS:
                failures.append(f"a serving process died: {server.serving_pids()}")
            processes = [process.pid for process in server.processes()]
            server.terminate()
            wait_until_gone(processes)
            if "Traceback" in server.output:
                failures.append(server.output[server.output.index("Traceback") :][:2000])
        for path in _lasting_files(artifacts_dir, temporary):
            is_version = path.parts[-4] == "tokenizers" and path.parts[-3][0] != "."
            if not (is_version or path.name in LASTING or path.suffix == ".lock"):
                failures.append(f"left over: {path}")
    return samples, load.done, failures


def _held(server, folder, failures):
    """What the processes hold, after each serving one has released the buffers of its engine."""
    accounts = {Path(folder, f"{pid}.json"): pid for pid in server.serving_pids()}
    for path, pid in accounts.items():
        path.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: all(path.exists() for path in accounts))
    told = [json.loads(path.read_text()) for path in accounts]
    kept = max(account["engine_buffers"] for account in told)
    if kept > MAX_ENGINE_BUFFERS:
        failures.append(f"the engine of a process kept {kept:,} bytes")
    processes = server.processes()
    return {
        "bytes of memory": sum(process.memory_full_info().uss for process in processes),
        "files": sum(process.num_fds() for process in processes),
        "threads": sum(process.num_threads() for process in processes),
        "processes": len(processes),
        "blocks": sum(account["blocks"] for account in told),
    }


def _lasting_files(*folders):
    """All files except those of ended jobs, of which the service keeps the last thousand."""
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_file() and not (path.parts[-3] == "jobs" and path.name in JOB_FILES):
            yield path


def _write_account(*_):
    """In a serving process: the blocks of Python's allocator, and the bytes that the engine kept
    for later results, which it releases."""
    buffers = 0
    with contextlib.suppress(ImportError):
        from tokenizer_core import _native

        buffers = _native.release_buffers()
    gc.collect()
    path = Path(os.environ[ACCOUNTS], f"{os.getpid()}.json")
    unfinished = path.with_suffix(".unfinished")
    account = {"engine_buffers": buffers, "blocks": sys.getallocatedblocks()}
    unfinished.write_text(json.dumps(account))
    unfinished.replace(path)


if ACCOUNTS in os.environ:  # multiprocessing imports the main module in each serving process
    signal.signal(signal.SIGUSR2, _write_account)


def main():
    """The command line; returns 1 if something grew or a promise was broken."""
    if ACCOUNTS in os.environ:
        return serve_from_command_line()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    samples, _, failures = soak(parser.parse_args().minutes)
    wrong = [*failures[:20], *leaks(samples, MAX_MORE)]
    print(*wrong, "FAILED" if wrong else "no leak, no wrong answer", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
