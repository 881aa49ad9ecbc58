"""Worker processes: results, bounds, deaths, errors, cancelling; no process remains."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from operator import mul

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import wait_until, wait_until_gone
from tests.tokenizer_core.parallel import worker_tasks
from tokenizer_core.errors import WorkerProcessError
from tokenizer_core.parallel import WorkerTracebackError, run_tasks


@pytest.fixture(autouse=True)
def _tasks_are_importable(monkeypatch):
    # The workers get the path of this process; pytest may not have put the repository on it.
    monkeypatch.syspath_prepend(str(REPOSITORY))


@pytest.fixture(autouse=True)
def _no_process_is_left():
    before = set(workers())
    yield
    left = set(workers()) - before
    assert not left, f"left behind: {left}"


def workers():
    """The worker processes below this one; other tests leave helpers of `multiprocessing`."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("tokenizer_core.parallel" in word for word in child.cmdline()):
                found.append(child)
    return found


@pytest.mark.parametrize(("num_workers", "caller_takes_part"), [(1, False), (2, True), (3, False)])
def test_every_task_has_one_result(num_workers, caller_takes_part):
    how = {"num_workers": num_workers, "state": 3, "caller_takes_part": caller_takes_part}
    results = run_tasks(mul, range(200), max_tasks_per_worker=30, **how)
    assert sorted(results) == [(i, 3 * i) for i in range(200)]
    assert list(run_tasks(mul, [], **how)) == []


def process_ids(n_tasks, num_workers, **how):
    tasks = range(n_tasks)
    found = run_tasks(worker_tasks.process_id, tasks, num_workers=num_workers, state=None, **how)
    return [pid for _, pid in found]


def test_tasks_run_in_other_processes_which_are_replaced():
    found = run_tasks(worker_tasks.process_id, [0], num_workers=4, state=None)
    next(found)
    assert len(workers()) == 1, "one task needs one worker"
    found.close()
    assert process_ids(1, 1) == [os.getpid()]
    assert len(set(process_ids(2, 2))) == 2
    pids = process_ids(20, 2, max_tasks_per_worker=4)
    assert os.getpid() not in pids
    assert len(set(pids)) >= 5
    assert max(map(pids.count, pids)) <= 4
    pids = process_ids(300, 2, caller_takes_part=True)
    assert os.getpid() in pids
    assert len(set(pids)) == 2, "one worker beside the caller"


def test_no_task_begins_long_before_the_oldest_is_done(tmp_path):
    may_end, begun, answered, looks = tmp_path / "may end", [], [], []

    def tasks():
        for task in range(30):
            begun.append(task)
            yield task

    def release():
        # The others cannot all finish: one may wait after the first task, in its worker.
        looks.append(len(answered))
        if len(begun) >= 6 and looks[-5:] == 5 * looks[-1:]:
            may_end.touch()

    how = {"num_workers": 3, "state": may_end, "max_ahead": 6, "while_waiting": release}
    for index, _ in run_tasks(worker_tasks.first_waits, tasks(), **how):
        answered.append(index)
        assert may_end.exists() or len(begun) <= 6
    assert sorted(answered) == list(range(30))


def test_large_frames_both_ways_do_not_block_each_other():
    tasks = [bytes([i]) * 3_000_000 for i in range(12)]
    results = dict(run_tasks(worker_tasks.large, tasks, num_workers=2, state=None))
    assert all(results[i] == task[::-1] for i, task in enumerate(tasks))


def test_prints_do_not_reach_the_results(capfd):
    results = run_tasks(worker_tasks.print_a_lot, range(6), num_workers=2, state=None)
    assert sorted(results) == [(i, i) for i in range(6)]
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("from a child") == 6
    assert err.count("no newline") == 6


@pytest.mark.parametrize(
    ("function", "n_tasks", "state", "message"),
    [
        (worker_tasks.die, 9, signal.SIGKILL, "killed by SIGKILL"),
        (worker_tasks.die, 9, signal.SIGSEGV, "killed by SIGSEGV"),
        (worker_tasks.die_on_seven, 50, None, "out of memory: use fewer workers"),
        (worker_tasks.leave, 1, None, "ended with exit status 3"),
    ],
)
def test_a_worker_that_dies_is_an_error_and_not_a_hang(function, n_tasks, state, message):
    with pytest.raises(WorkerProcessError, match=message):
        list(run_tasks(function, range(n_tasks), num_workers=2, state=state))


@pytest.mark.parametrize(
    ("function", "state", "error", "message"),
    [
        (worker_tasks.fail, KeyError, KeyError, "task 0"),
        (worker_tasks.fail, SystemExit, SystemExit, "task 0"),
        (worker_tasks.fail_strangely, None, WorkerProcessError, "OwnError: text"),
    ],
)
def test_an_error_arrives_with_the_traceback_of_the_worker(function, state, error, message):
    with pytest.raises(error, match=message) as caught:
        list(run_tasks(function, [0], num_workers=2, state=state))
    assert isinstance(caught.value.__cause__, WorkerTracebackError)
    assert f"in {function.__name__}" in str(caught.value.__cause__)


def test_what_cannot_be_pickled_or_started_is_an_error(monkeypatch):
    with pytest.raises((AttributeError, pickle.PicklingError, WorkerProcessError)):
        list(run_tasks(worker_tasks.give_what_cannot_be_pickled, [0], num_workers=2, state=None))
    with pytest.raises(ValueError, match="top level of a module"):
        run_tasks(lambda state, task: task, [0], num_workers=2, state=None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(WorkerProcessError, match="could not be started"):
        list(run_tasks(mul, [0], num_workers=2, state=1))


def test_the_last_error_of_an_ended_worker_is_raised():
    def tasks():
        yield 0
        (worker,) = workers()
        wait_until_gone([worker.pid])
        yield 1  # into a pipe that no process reads

    how = {"num_workers": 2, "state": worker_tasks.RefusesToLoad(), "caller_takes_part": True}
    with pytest.raises(ValueError, match="not a number"):
        list(run_tasks(worker_tasks.process_id, tasks(), **how))


def test_an_error_in_the_tasks_ends_the_workers():
    def tasks():
        yield from range(5)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(run_tasks(mul, tasks(), num_workers=2, state=1))


def test_an_interruption_ends_sleeping_workers(tmp_path):
    def interrupt():
        if len(list(tmp_path.iterdir())) == 2:
            raise InterruptedError

    how = {"num_workers": 2, "state": str(tmp_path), "while_waiting": interrupt}
    found = run_tasks(worker_tasks.note_and_sleep, range(9), **how)
    with pytest.raises(InterruptedError):
        next(found)
    assert list(found) == []


def test_tasks_run_from_several_threads_at_once():
    def work(_):
        return sum(result for _, result in run_tasks(mul, range(50), num_workers=2, state=1))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(3))) == [sum(range(50))] * 3


SCRIPT = """
import signal
# Whoever started these tests in the background may have had it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.tokenizer_core.parallel import worker_tasks
from tokenizer_core.parallel import run_tasks
# No main guard: a pool that imports this file again would start itself over.
for _ in run_tasks(worker_tasks.{function}, range(4), num_workers=2, state={state!r}):
    print("done", flush=True)
"""


def run_script(tmp_path, function, state):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(function=function, state=state))
    return subprocess.Popen(
        [sys.executable, str(script)],
        env=dict(os.environ, PYTHONPATH=str(REPOSITORY)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_a_script_without_a_main_guard_works(tmp_path):
    process = run_script(tmp_path, "multiply", 2)
    assert process.communicate(timeout=60) == (b"done\n" * 4, b"")


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGINT"])
def test_workers_end_with_their_parent(tmp_path, signal_name):
    notes = tmp_path / "notes"
    notes.mkdir()
    process = run_script(tmp_path, "note_and_sleep", str(notes))
    try:
        wait_until(lambda: len(list(notes.iterdir())) == 2)
        pids = [int(note.name.split(".")[0]) for note in notes.iterdir()]
        # Ctrl-C reaches the whole group, as from a terminal; the other signals only the parent.
        kill = os.killpg if signal_name == "SIGINT" else os.kill
        kill(process.pid, getattr(signal, signal_name))
        process.communicate(timeout=20)
        wait_until_gone(pids)
    finally:
        process.kill()
        process.communicate()
