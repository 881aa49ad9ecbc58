"""Ray as an executor, and runs on it: results, dead workers, errors, cancelling, no leftovers."""

import sys
from operator import mul

import psutil
import pytest

from tests.integration.ray_cluster import ray_cluster, ray_workers
from tests.tokenizer_core.corpus.small_corpora import NARROW, content
from tests.tokenizer_core.distributed import shard_work
from tests.tokenizer_core.distributed.test_counting import corpus
from tests.tokenizer_core.distributed.test_encoding import SEPARATED, write_corpora
from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.corpus import encode_corpus, plan_token_files
from tokenizer_core.distributed import Run, Stage, encode_distributed
from tokenizer_core.errors import WorkerProcessError
from tokenizer_core.parallel.ray_cluster import connect_to_ray

__all__ = ["corpus", "ray_cluster"]


def test_every_task_has_one_result(ray_cluster):
    with connect_to_ray() as executor:
        assert sorted(executor.run(mul, range(20), state=3)) == [(n, 3 * n) for n in range(20)]


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
        dying = shard_work.DyingExecutor(executor, tmp_path / "notes")
        options = {"storage": f"{s3_bucket}/run", "executor": dying, "shard_bytes": 10_000}
        encode_distributed(NARROW, addresses, tmp_path / "tokens", plan, **options, **how)
    assert content(tmp_path / "tokens") == content(tmp_path / "expected")
    assert len(list((tmp_path / "notes").iterdir())) == 2
    assert open_storage(f"{s3_bucket}/run").names() == []


def test_cancelling_a_run_ends_its_tasks(ray_cluster, tmp_path):
    class CancelledError(Exception):
        pass

    began = []

    def cancel():
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


def test_without_a_cluster_or_ray_the_remedy_is_named(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests' connection stays
    for address in ("127.0.0.1:1", "127.0.0.2:port"):
        message = r"no Ray cluster could be reached at .*ray status"
        with pytest.raises(WorkerProcessError, match=message), connect_to_ray(address):
            pass
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"tokenizer-service\[ray\]"
    with pytest.raises(WorkerProcessError, match=message), connect_to_ray("auto"):
        pass
