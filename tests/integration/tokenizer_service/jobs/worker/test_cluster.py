"""Training jobs on a real Ray cluster."""

import json

import httpx
import psutil
import pytest

from tests.integration.ray_cluster import ray_cluster, ray_workers
from tests.integration.s3_server import aws_environment
from tests.integration.server_process import wait_until
from tests.tokenizer_service.jobs.conftest import start_child
from tokenizer_core.training import TrainingOptions, train
from tokenizer_service.jobs.folder import JobFolder

__all__ = ["ray_cluster"]

pytestmark = pytest.mark.slow


def test_a_training_job_on_a_real_cluster(ray_cluster, start_service, s3_server, monkeypatch):
    """Its run is in a bucket; `test_a_cancelled_job_leaves_no_task` has its own in a folder."""
    import s3fs

    for name, value in aws_environment(s3_server).items():
        monkeypatch.setenv(name, value)
    httpx.put(f"{s3_server.endpoint}/runs-of-jobs", timeout=30).raise_for_status()
    service = start_service(
        start_process=start_child,
        executor="ray",
        ray_address=ray_cluster,
        run_storage="s3://runs-of-jobs/some",
    )
    asked = {"input_paths": ["small.txt", "slow.txt"], "vocab_size": 500}
    ended = service.wait(service.start(name="there", **asked))
    assert ended["state"] == "live", json.dumps(ended)
    folder = JobFolder.of(service.settings.artifacts_dir, ended["id"])
    assert sorted(path.name for path in folder.path.iterdir()) == ["request.json", "train.log"]
    assert s3fs.S3FileSystem(skip_instance_cache=True).find("runs-of-jobs") == []
    here = train(
        [service.corpus / name for name in asked["input_paths"]],
        TrainingOptions(vocab_size=500, special_tokens=["<|endoftext|>"]),
    )
    ref = service.store.resolve("there")
    assert service.store.open(ref).fingerprint == here.spec.fingerprint
    manifest = service.client.get("/tokenizers/there").json()
    assert "/proc/" not in json.dumps(manifest)


def test_a_cancelled_job_leaves_no_task(ray_cluster, start_service):
    service = start_service(start_process=start_child, executor="ray", ray_address=ray_cluster)
    large = service.corpus / "large.txt"
    large.write_bytes(b"\n".join([(service.corpus / "slow.txt").read_bytes()] * 60))
    job_id = service.start(input_paths=["large.txt"], name="large", vocab_size=400)
    wait_until(ray_workers, seconds=120)
    busy = ray_workers()
    service.client.delete(f"/train/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
    _, left = psutil.wait_procs(busy, timeout=60)
    assert not left
    wait_until(lambda: not ray_workers())
    folder = JobFolder.of(service.settings.artifacts_dir, job_id)
    assert not folder.run_path.exists()
