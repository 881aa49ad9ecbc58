"""Training jobs counted on a cluster: the same tokenizer, and no leftovers of the run."""

import contextlib
import gzip
import threading
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest

from tests.tokenizer_core.corpus.small_corpora import content
from tokenizer_client.schemas.jobs import TrainRequest
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import CorpusFormat, TokenFilesWriter, encode_corpus, plan_token_files
from tokenizer_core.errors import VocabSizeError
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.parallel import ray_cluster as ray_module
from tokenizer_core.training import TrainingOptions, train
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.input_files import InputChangedError, find_input_file
from tokenizer_service.jobs.worker.cluster import (
    cluster_encoder,
    cluster_settings,
    remove_run_of,
    train_on_cluster,
)
from tokenizer_service.jobs.worker.context import WorkerJob
from tokenizer_service.jobs.worker.encode import _encode
from tokenizer_service.settings import Settings

ASKED = TrainRequest(documents=["low"], vocab_size=300).model_dump()
ID = "20261121T041500Z-0123456789ab"


@pytest.fixture
def job(tmp_path, corpus, monkeypatch):
    """A job in this process, which is its own cluster as well."""

    @contextlib.contextmanager
    def connect(address):
        assert address == "head:6379"
        yield LocalExecutor(1)

    monkeypatch.setattr(ray_module, "connect_to_ray", connect)
    settings = Settings(executor="ray", ray_address="head:6379")
    folder = JobFolder.of(tmp_path / "artifacts", ID)
    folder.write_request(ASKED | {"corpus_format": {}} | cluster_settings(settings, ID))
    return WorkerJob(folder, folder.read_request(), Mock(), threading.Event())


def test_a_cluster_trains_the_same_tokenizer(job, corpus):
    lines, more = corpus / "news.jsonl.gz", corpus / "more.jsonl"
    lines.write_bytes(gzip.compress(b'{"body": "low lower", "text": "x"}\n' * 40))
    more.write_bytes(b'{"text": "lowest newest", "body": "y"}\n' * 40)
    job.request["corpus_format"]["field"] = {lines.name: "body", more.name: "text"}
    how = CorpusFormat(field={str(lines): "body", str(more): "text"})
    seen = []
    files = [find_input_file([corpus], path.name) for path in (lines, more)]
    result = train_on_cluster(job, files, "auto", seen.append)
    options = TrainingOptions(vocab_size=300, special_tokens=["<|endoftext|>"], corpus_format=how)
    expected = train([lines, more], options)
    assert result.spec.fingerprint == expected.spec.fingerprint
    assert result.report.seconds_counting > 0
    assert result.counts.n_bytes == expected.counts.n_bytes == 40 * len("low lowerlowest newest")
    source, _ = result.counts.sources
    assert (source.path, source.sha256) == (lines.name, expected.counts.sources[0].sha256)
    assert {progress.phase for progress in seen} >= {"count", "merge"}
    assert (job.folder.path / "run" / "run.json").exists()
    job.folder.remove_inputs()
    assert not (job.folder.path / "run").exists()


def test_a_wrong_size_and_a_file_that_was_replaced_are_refused(job, corpus):
    file = find_input_file([corpus], "small.txt")
    wrong = replace(job, request={**job.request, "vocab_size": 10})
    with pytest.raises(VocabSizeError):
        train_on_cluster(wrong, [file], "auto", Mock())
    (corpus / "small.txt").rename(corpus / "away.txt")
    (corpus / "small.txt").symlink_to(corpus / "slow.txt")
    with pytest.raises(InputChangedError, match=r"small\.txt was replaced"):
        train_on_cluster(job, [file], "auto", Mock())
    with (
        pytest.raises(InputChangedError, match=r"small\.txt was replaced"),
        cluster_encoder(job, [file]),
    ):
        pass
    assert not (job.folder.path / "run").exists()  # before counting


def test_the_run_storage_is_removed_with_the_job(tmp_path, caplog):
    settings = Settings(executor="ray", run_storage=f"{tmp_path}/runs/")
    asked = cluster_settings(settings, ID)
    assert asked == {"ray_address": "auto", "run_storage": f"{tmp_path}/runs/{ID}"}
    assert cluster_settings(Settings(), ID) == {}
    folder = JobFolder.of(tmp_path, ID)
    remove_run_of(folder)  # of a job that never started
    folder.write_request(asked)
    kept, others = tmp_path / "runs" / ID / "x" / "y", tmp_path / "runs" / "another" / "z"
    for path in (kept, others):
        path.parent.mkdir(parents=True)
        path.touch()
    remove_run_of(folder)
    assert not kept.exists()
    assert others.exists()
    folder.write_request({"run_storage": "gs://bucket/runs"})
    remove_run_of(folder)  # the job ends although the storage cannot be reached
    assert "could not be removed" in caplog.text


def test_a_cluster_writes_the_same_token_files(job, corpus, tmp_path):
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    plan = plan_token_files(tokenizer, end_of_document="<|endoftext|>", seed=1)
    how = {"corpus_format": CorpusFormat("txt", separator="\n"), "validation_share": 0.2}
    encode_corpus(tokenizer, [corpus / "small.txt"], tmp_path / "here", plan, **how)
    file = find_input_file([corpus], "small.txt")
    with cluster_encoder(job, [file]) as encode:
        encode(tokenizer, folder=tmp_path / "there", plan=plan, **how)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert job.names[str(corpus / "small.txt")] == "small.txt"


def test_token_files_of_another_executor_are_started_again(job, corpus, tmp_path):
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    plan, growing = plan_token_files(tokenizer, end_of_document=""), tmp_path / "growing"
    how = {"corpus_format": {"format": "txt"}, "validation_share": 0.0, "shuffle": False}
    inputs = [asdict(find_input_file([corpus], "small.txt"))]
    job.request.update(how | {"inputs": inputs, "num_workers": 1})
    job.folder.scratch_path.mkdir(exist_ok=True)
    with TokenFilesWriter(growing, plan) as writer:
        writer.append([1])
        writer.checkpoint({"settings": {"run": "another's"}, "n_tokens": 1, "place": {}})
    manifest = _encode(job, tokenizer, plan, growing, None)
    assert manifest.split("train").n_bytes == (corpus / "small.txt").stat().st_size
