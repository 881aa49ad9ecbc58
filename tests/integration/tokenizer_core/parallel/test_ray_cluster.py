"""Ray as an executor, and runs on it: results, dead workers, errors, cancelling, no leftovers."""

import random
import signal
import subprocess
import sys
import threading
import time
from operator import mul
from pathlib import Path

import psutil
import pytest

from tests.integration.ray_cluster import REPOSITORY, kill, ray_cluster, ray_workers
from tests.profiles import first_and_slow
from tests.tokenizer_core.corpus.small_corpora import NARROW, content
from tests.tokenizer_core.distributed import shard_work
from tests.tokenizer_core.distributed.dying_work import DyingExecutor
from tests.tokenizer_core.distributed.test_counting import corpus, distributed, local
from tests.tokenizer_core.distributed.test_encoding import SEPARATED, write_corpora
from tests.tokenizer_core.parallel import worker_tasks
from tokenizer_core import Tokenizer
from tokenizer_core.blobs import open_storage
from tokenizer_core.corpus import CorpusFormat, encode_corpus, plan_token_files
from tokenizer_core.distributed import Run, Stage, encode_distributed
from tokenizer_core.errors import CorpusError, ShardFailedError, WorkerProcessError
from tokenizer_core.parallel import TaskFailure
from tokenizer_core.parallel.ray_cluster import connect_to_ray

__all__ = ["corpus", "ray_cluster"]

SPECIALS = ["<|endoftext|>"]


def test_every_task_is_answered_once(ray_cluster):
    with connect_to_ray() as executor:
        assert sorted(executor.run(mul, range(20), state=3)) == [(n, 3 * n) for n in range(20)]


def test_a_dead_worker_is_told_and_the_rest_goes_on(ray_cluster):
    with connect_to_ray() as executor:
        results = dict(executor.run(worker_tasks.die_on_seven, range(10), state=None))
    failure = results.pop(7)
    assert isinstance(failure, TaskFailure)
    assert "WorkerCrashedError" in failure.reason
    assert results == {n: n for n in range(10) if n != 7}


def test_what_the_function_raises_is_raised_here(ray_cluster):
    with connect_to_ray() as executor, pytest.raises(CorpusError, match="not UTF-8 at byte 7"):
        list(executor.run(worker_tasks.refuse, range(10), state=None))


def test_closing_ends_the_tasks(ray_cluster):
    with connect_to_ray() as executor:
        results = executor.run(worker_tasks.sleep_on_odd, range(4), state=60.0)
        assert next(results) == (0, 0)
        deadline = time.monotonic() + 60
        while not (busy := ray_workers()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        results.close()
    psutil.wait_procs(busy, timeout=30)
    assert not any(process.is_running() for process in busy)


def test_who_waits_is_asked_and_may_end_it(ray_cluster):
    class CancelledError(Exception):
        pass

    def cancel() -> None:
        raise CancelledError

    with connect_to_ray() as executor, pytest.raises(CancelledError):
        list(executor.run(mul, range(4), state=1, while_waiting=cancel))


def test_counting(ray_cluster, corpus, tmp_path):
    with connect_to_ray() as executor:
        found = distributed(corpus, ["<|e|>"], tmp_path, executor=executor, shard_bytes=30_000)
    assert found == local(corpus, ["<|e|>"], tmp_path / "local")


def test_counting_from_and_in_a_bucket(ray_cluster, corpus, tmp_path, s3_bucket):
    import s3fs

    store = s3fs.S3FileSystem(skip_instance_cache=True)
    for path in corpus:
        store.put_file(str(path), f"{s3_bucket}/corpus/{path.name}")
    addresses = [f"{s3_bucket}/corpus/{path.name}" for path in corpus]
    options = {"storage": f"{s3_bucket}/run", "shard_bytes": 30_000, "n_partitions": 2}
    with connect_to_ray() as executor:
        here = distributed(addresses, ["<|e|>"], tmp_path, executor=executor, **options)
    names = [addresses[i].encode() for i in range(3)]
    expected = local(corpus, ["<|e|>"], tmp_path / "local")
    assert _columns(here) == _columns(expected)
    assert all(name in here for name in names)


def _columns(data: bytes) -> bytes:
    """The bytes of a file of counts between its header, which names the files, and its hash."""
    start = data.index(b"\n") + 1
    return data[start + 8 + int.from_bytes(data[start : start + 8], "little") : -32]


def test_encoding_from_and_in_a_bucket_by_workers_that_die(ray_cluster, tmp_path, s3_bucket):
    import s3fs

    files = write_corpora(tmp_path)
    store = s3fs.S3FileSystem(skip_instance_cache=True)
    for path in files:
        store.put_file(str(path), f"{s3_bucket}/corpora/{path.name}")
    plan = plan_token_files(NARROW, end_of_document="<|end|>", seed=3)
    how = {"corpus_format": SEPARATED, "validation_share": 0.3}
    encode_corpus(NARROW, files, tmp_path / "expected", plan, **how)
    (tmp_path / "notes").mkdir()
    addresses = [f"{s3_bucket}/corpora/{path.name}" for path in files]
    with connect_to_ray() as executor:
        dying = DyingExecutor(executor, tmp_path / "notes")
        options = {"storage": f"{s3_bucket}/run", "executor": dying, "shard_bytes": 10_000}
        encode_distributed(NARROW, addresses, tmp_path / "tokens", plan, **options, **how)
    assert content(tmp_path / "tokens") == content(tmp_path / "expected")
    assert len(list((tmp_path / "notes").iterdir())) == 2
    assert open_storage(f"{s3_bucket}/run").names() == []


def test_a_shard_that_always_fails_is_named(ray_cluster, tmp_path):
    run = Run(tmp_path / "run", {})
    with (
        connect_to_ray() as executor,
        pytest.raises(ShardFailedError, match=r"shard 3 of .* failed 3 times.* WorkerCrashed"),
    ):
        run.carry_out([Stage("double", shard_work.killed_always, range(6))], executor)


def test_bad_data_stops_a_run_at_once(ray_cluster, tmp_path):
    run = Run(tmp_path / "run", {})
    with connect_to_ray() as executor, pytest.raises(CorpusError, match="byte 7"):
        run.carry_out([Stage("double", shard_work.bad_data, range(6))], executor)


def test_cancelling_a_run_ends_its_tasks(ray_cluster, tmp_path):
    class CancelledError(Exception):
        pass

    began: list[psutil.Process] = []

    def cancel() -> None:
        began.extend(ray_workers())
        if began and any(tmp_path.glob("began-*")):
            raise CancelledError

    run = Run(tmp_path / "run", {})
    stages = [Stage("slow", shard_work.slow, range(6), str(tmp_path))]
    with connect_to_ray() as executor, pytest.raises(CancelledError):
        run.carry_out(stages, executor, while_waiting=cancel)
    gone, left = psutil.wait_procs(began, timeout=10)
    assert gone
    assert not left


class _Killer(threading.Thread):
    """Kills workers at random moments, few enough that no shard can fail because of it."""

    def __init__(self, seed: int, n_kills: int) -> None:
        super().__init__()
        self._rng, self._left = random.Random(seed), n_kills
        self.ended, self.killed = threading.Event(), 0

    def run(self) -> None:
        while self._left and not self.ended.wait(self._rng.uniform(0.05, 0.6)):
            workers = ray_workers()
            if workers:
                kill(self._rng.choice(workers))
                self._left -= 1
                self.killed += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_the_command_is_interrupted_and_goes_on(ray_cluster, corpus, tmp_path, how, code):
    """A separate process, connected to the cluster, is killed midway, twice."""
    for path in corpus:
        path.write_bytes(path.read_bytes() * 150)
    paths = [str(path) for path in corpus]
    command = [sys.executable, "-m", "tokenizer_service.cli", "counts", "make", *paths]
    command += ["--special-token=<|e|>", "--executor=ray", f"--ray-address={ray_cluster}"]
    command += ["--checkpoint-dir", str(tmp_path / "run"), "--output", str(tmp_path / "out")]
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/*/count/*.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    if code > 0:
        assert error.splitlines()[-1] == "tokenizer counts make: interrupted"
    assert not (tmp_path / "out").exists()
    deadline = time.monotonic() + 20
    while ray_workers():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    assert (tmp_path / "out").read_bytes() == local(corpus, ["<|e|>"], tmp_path / "local")


@pytest.mark.shared_data
@pytest.mark.parametrize("seed", first_and_slow(range(3)))
def test_workers_killed_at_random_moments(ray_cluster, shared_data, tmp_path, seed):
    files = sorted((shared_data / "corpora").glob("*.txt"))
    expected = local(files, SPECIALS, tmp_path / "local")
    killed = 0
    for attempt in range(8):  # a run ends correctly when a shard loses its worker three times
        killer = _Killer(seed + 100 * attempt, 6)
        killer.start()
        try:
            with connect_to_ray() as executor:
                found = distributed(files, SPECIALS, tmp_path, executor=executor)
            break
        except ShardFailedError:
            time.sleep(0.1)
        finally:
            killer.ended.set()
            killer.join()
            killed += killer.killed
    assert killed >= 3
    assert found == expected
    assert (tmp_path / "out").stat().st_size == len(expected)
    assert Path(tmp_path / "run" / "run.json").exists()


@pytest.mark.shared_data
@pytest.mark.parametrize("seed", first_and_slow(range(3)))
def test_encoders_killed_at_random_moments(ray_cluster, shared_data, tmp_path, seed):
    tokenizer = Tokenizer.from_tokenizer_json(shared_data / "vocab/gpt2.tokenizer.json")
    files = sorted((shared_data / "corpora").glob("*.txt"))
    plan = plan_token_files(tokenizer, end_of_document="<|endoftext|>", seed=seed)
    how = {"corpus_format": CorpusFormat(separator="\n"), "validation_share": 0.1}
    encode_corpus(tokenizer, files, tmp_path / "expected", plan, workers=2, **how)
    options = {"storage": tmp_path / "run", "shard_bytes": 4 << 20, "resume": True, **how}
    killed = 0
    for attempt in range(8):  # as above
        killer = _Killer(seed + 100 * attempt, 6)
        killer.start()
        try:
            with connect_to_ray() as executor:
                encode_distributed(
                    tokenizer, files, tmp_path / "tokens", plan, executor=executor, **options
                )
            break
        except ShardFailedError:
            time.sleep(0.1)
        finally:
            killer.ended.set()
            killer.join()
            killed += killer.killed
    assert killed >= 3
    assert content(tmp_path / "tokens") == content(tmp_path / "expected")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.2:1", "ray://127.0.0.2:1", "127.0.0.2:port"]
)
def test_where_no_cluster_is(address, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests' connection stays
    with (
        pytest.raises(WorkerProcessError, match=r"no Ray cluster could be reached at .*ray status"),
        connect_to_ray(address),
    ):
        pass


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(WorkerProcessError, match=r"tokenizer-service\[ray\]"),
        connect_to_ray("auto"),
    ):
        pass


def test_only_this_module_imports_ray():
    package = Path(__file__).resolve().parents[4] / "tokenizer_core"
    found = [p.name for p in package.rglob("*.py") if "import ray\n" in p.read_text("utf-8")]
    assert found == ["ray_cluster.py"]
