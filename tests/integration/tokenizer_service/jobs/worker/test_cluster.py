"""Training jobs on a real Ray cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.token_files import TokenFilesFolder

from tests.integration.ray_cluster import ray_cluster, ray_workers
from tests.integration.s3_server import S3Server, aws_environment
from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_service.jobs.conftest import Service
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    CorpusFormat,
    encode_corpus,
    plan_token_files,
)
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.training import TrainingOptions, train

__all__ = ["ray_cluster"]


@pytest.mark.parametrize("kept", ["here", "bucket"])
def test_a_job_on_a_real_cluster(
    ray_cluster: str,
    start_service: Callable[..., Service],
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    kept: str,
) -> None:
    for name, value in aws_environment(s3_server).items():
        monkeypatch.setenv(name, value)
    place = {"here": {}, "bucket": {"run_storage": "s3://runs-of-jobs/some"}}[kept]
    if place:
        httpx.put(f"{s3_server.endpoint}/runs-of-jobs", timeout=30).raise_for_status()
    service = start_service(executor="ray", ray_address=ray_cluster, **place)
    asked = {"input_paths": ["small.txt", "slow.txt"], "vocab_size": 500}
    ended = service.wait(service.start(name="there", **asked))
    assert ended["state"] == "live", json.dumps(ended)
    folder = JobFolder.of(service.settings.artifacts_dir, ended["id"])
    assert sorted(path.name for path in folder.path.iterdir()) == ["request.json", "train.log"]
    if place:
        import s3fs

        assert s3fs.S3FileSystem(skip_instance_cache=True).find("runs-of-jobs") == []
    here = train(
        [service.corpus / name for name in asked["input_paths"]],
        TrainingOptions(vocab_size=500, special_tokens=["<|endoftext|>"]),
    )
    ref = service.store.resolve("there")
    assert service.store.open(ref).fingerprint == here.spec.fingerprint
    manifest = service.client.get("/tokenizers/there").json()
    assert "/proc/" not in json.dumps(manifest)


def test_an_encoding_job_on_a_real_cluster(
    ray_cluster: str, start_service: Callable[..., Service], tmp_path: Path
) -> None:
    text = "<|endoftext|>".join(f"story {number}, " * (number % 7) for number in range(900))
    service = start_service(executor="ray", ray_address=ray_cluster)
    service.client.put("/corpora/news", content=text.encode()).raise_for_status()
    asked = {"tokenizer": "starter", "validation_share": 0.2, "shuffle": True, "seed": 3}
    answer = service.client.post("/corpora/news/encode", json=asked).raise_for_status()
    job_id = answer.json()["id"]
    deadline = time.monotonic() + 90
    while (job := service.client.get(f"/jobs/{job_id}").json())["state"] in ("queued", "running"):
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    artifacts_dir = service.settings.artifacts_dir
    folder = JobFolder.of(artifacts_dir, job_id)
    assert job["state"] == "succeeded", (job, folder.log_path.read_text())
    assert folder.read_request()["ray_address"] == ray_cluster
    assert not folder.run_path.exists()
    store = ArtifactStore(artifacts_dir)
    ref = store.resolve("starter")
    tokenizer = Tokenizer.from_spec(store.open(ref))
    (tmp_path / "news").write_text(text)
    encode_corpus(
        tokenizer,
        [tmp_path / "news"],
        tmp_path / "here",
        plan_token_files(tokenizer, end_of_document="<|endoftext|>", seed=3, ref=ref),
        corpus_format=CorpusFormat("txt", separator="<|endoftext|>"),
        validation_share=0.2,
        shuffle=True,
    )
    there = TokenFilesFolder.of(artifacts_dir).path(job["result"]["id"])
    assert content(there) == content(tmp_path / "here")


def test_a_cancelled_job_leaves_no_task(
    ray_cluster: str, start_service: Callable[..., Service]
) -> None:
    service = start_service(executor="ray", ray_address=ray_cluster)
    large = service.corpus / "large.txt"
    large.write_bytes(b"\n".join([(service.corpus / "slow.txt").read_bytes()] * 60))
    job_id = service.start(input_paths=["large.txt"], name="large", vocab_size=400)
    deadline = time.monotonic() + 90
    while not (busy := ray_workers()):
        assert time.monotonic() < deadline, service.job(job_id)
        time.sleep(0.02)
    service.client.delete(f"/train/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
    _, left = psutil.wait_procs(busy, timeout=15)
    assert not left
    assert not ray_workers()
    folder = JobFolder.of(service.settings.artifacts_dir, job_id)
    assert not folder.run_path.exists()
