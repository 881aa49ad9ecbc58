"""Whole training jobs: what a request trains, how its job ends, keys, queues, downloads."""

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.s3_server import open_with_shared_client
from tests.tokenizer_service.jobs.test_downloads import TEXT, origin, whole
from tests.tokenizer_service.routes.exchanges import problem
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.training import TrainingOptions, VocabularyOptions, train

__all__ = ["origin"]

SPECIAL = "<|endoftext|>"


def trained_by_library(service, text, **options):
    file = service.corpus / "same.txt"
    file.write_text(text)
    return train([file], TrainingOptions(special_tokens=[SPECIAL], **options)).spec


def test_a_run_over_files_goes_live_and_answers_at_once(service):
    asked = {"input_paths": ["small.txt"], "vocab_size": 5000, "name": "news", "promote": "always"}
    answer = service.client.post("/v1/train", json=asked)
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/v1/train/{job['id']}"
    assert job["state"] in ("queued", "running")
    done = service.wait(job["id"])
    assert done["state"] == "live", done
    assert service.client.get(f"/train/{job['id']}").json() == done
    assert (done["progress"], done["phase"], done["error"]) == (1.0, "live", None)
    result = done["result"]
    version = f"{result['name']}@{result['version']}"
    encoded = service.client.post("/encode", json={"text": "lowest"})
    assert encoded.headers["tokenizer-version"] == version
    assert encoded.headers["tokenizer-digest"] == result["digest"]
    assert encoded.json()["count"] < 6
    [line] = [line for line in done["log_tail"] if "ended early" in line]
    assert f"with {result['vocab_size']} of 5000 entries: no pair" in line
    [warning] = result["warnings"]
    assert line.endswith(f"warning: {warning}")
    listed = service.client.get("/train").json()["jobs"]
    assert [entry["id"] for entry in listed] == [job["id"]]
    manifest = service.store.read_manifest(service.store.resolve(version))
    assert [source["name"] for source in manifest.provenance] == ["small.txt"]
    assert job["id"] in str(manifest.command)


@pytest.mark.parametrize("asked", ["auto", "python"])
def test_the_engine_asked_for_trains_with_the_threads_allowed(start_service, monkeypatch, asked):
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    counting = sys.modules["tokenizer_core.training.count_pretokens"]
    monkeypatch.setattr(counting, "SMALL_CORPUS_BYTES", 0)  # each corpus has use for all threads
    service = start_service(engine=asked, train_threads=3)
    job = service.wait(service.start(name="trained"), "live")
    engine = "python" if asked == "python" or native_unavailable_reason() else "native"
    training = service.store.read_manifest(service.store.resolve("trained")).training
    assert (training["engine"], training["counting_engine"]) == (engine, engine)
    assert training["num_workers"] == 3
    assert any(f"the {engine} engine trains" in line for line in job["log_tail"])


def test_documents_and_corpora_train_as_their_file_would(shared_service):
    """A separate document is a boundary: nothing merges across it."""
    service = shared_service
    documents = ["low low lower newest newest", "widest widest widest", ""]
    text = SPECIAL.join(documents)
    digest = trained_by_library(service, text, vocab_size=262).fingerprint
    job = service.wait(service.start(input_paths=None, documents=documents, vocab_size=262))
    assert (job["state"], job["result"]["digest"]) == ("live", digest)
    # The job removes its texts and keeps its log.
    folder = service.settings.artifacts_dir / "jobs" / job["id"]
    assert not (folder / "documents").exists()
    assert (folder / "train.log").exists()

    service.put("news", text)
    job = service.wait(service.start(input_paths=None, corpus_ids=["news"], vocab_size=262))
    assert (job["state"], job["result"]["digest"]) == ("live", digest)
    ref = service.store.resolve(f"n@{job['result']['version']}")
    (source,) = service.store.read_manifest(ref).provenance
    sha256 = service.client.get("/corpora/news").json()["sha256"]
    assert (source["name"], source["sha256"]) == ("news", sha256)

    # No token separates these. With "bc" between them, "qa" and "qa" would read q, the special
    # token "ab", c q a.
    asked = {"documents": ["qa"] * 5, "special_tokens": ["bc", "ab"], "vocab_size": 260}
    job = service.wait(service.start(input_paths=None, **asked))
    assert job["state"] == "live", job
    spec = service.store.open(service.store.resolve(f"n@{job['result']['version']}"))
    assert spec.merges == ((b"q", b"a"),)  # and never a, q across two documents


def test_the_options_of_the_vocabulary_are_those_of_the_trainer(shared_service):
    service, text = shared_service, "low low lower newest newest widest widest"
    options = {"min_frequency": 2, "max_token_length": 4, "superwords_from": 275}
    options["pad_to_multiple"] = 5
    asked = {"documents": [text], "vocab_size": 281, "reserved": 6, "seed_tokens": ["qua"]}
    job = service.wait(service.start(input_paths=None, **asked, **options))
    assert job["state"] == "live", job
    wanted = VocabularyOptions(**options, seed_tokens=("qua",), n_reserved=6)
    trained = trained_by_library(service, text, vocab_size=281, vocabulary=wanted)
    assert job["result"]["digest"] == trained.fingerprint
    # Each option changes the result, so that the test detects a lost one.
    for name in (*options, "seed_tokens", "n_reserved"):
        fewer = dataclasses.replace(wanted, **{name: getattr(VocabularyOptions(), name)})
        other = trained_by_library(service, text, vocab_size=281, vocabulary=fewer)
        assert other.fingerprint != trained.fingerprint, name


@pytest.mark.row(26)
def test_an_empty_corpus_is_422_and_a_wrong_one_a_failed_job(shared_service):
    service = shared_service
    problem(service.train({"input_paths": ["empty.txt"]}), 422, "empty_corpus")
    job = service.wait(service.start(input_paths=["latin.txt"]))
    detail = job["error"]["detail"]
    assert (job["state"], job["error"]["code"]) == ("failed", "invalid_corpus")
    for said in ("latin.txt", "byte 7", "iconv"):
        assert said in detail
    assert "errors=" not in detail  # a request has no such field
    assert "/proc" not in detail
    assert "Traceback" not in str(job["log_tail"])


def test_bad_documents_are_left_out_up_to_a_share(shared_service):
    service = shared_service
    service.put("mixed?format=jsonl", '{"text": "low lower"}\n{"text": "\\ud800"}')
    asked = {"input_paths": None, "corpus_ids": ["mixed"], "vocab_size": 258}
    job = service.wait(service.start(**asked))
    assert job["error"]["code"] == "invalid_corpus"
    job = service.wait(service.start(**asked, skip_bad=True))
    assert job["error"]["code"] == "too_many_bad_documents"
    assert "(lone_surrogate 1: mixed line 2) of 2 documents" in job["error"]["detail"]
    job = service.wait(service.start(**asked, skip_bad=True, max_bad=0.5))
    assert job["state"] == "live", job
    ref = service.store.resolve(f"n@{job['result']['version']}")
    report = service.store.read_manifest(ref).training
    place = {"file": "mixed", "line": 2, "reason": "lone_surrogate"}
    assert report["bad_documents"] == {"reasons": {"lone_surrogate": 1}, "first": [place]}


@pytest.mark.row(26)
def test_files_and_corpora_that_change_before_their_turn_fail_the_job(service):
    service.stop_runner()
    service.put("news", "low lower")
    by_id = service.start(input_paths=None, corpus_ids=["news"])
    by_path = service.start()
    (service.corpus / "small.txt").write_text("something else")
    refused = problem(service.client.delete("/corpora/news"), 409, "corpus_in_use")
    assert by_id in refused["detail"]
    service.put("news", "low lower")  # the same text is another upload
    service.start_runner()
    for job_id, named in ((by_id, "news"), (by_path, "small.txt")):
        job = service.wait(job_id)
        assert (job["state"], job["error"]["code"]) == ("failed", "corpus_changed")
        assert job["error"]["detail"].startswith(named)
    assert service.client.delete("/corpora/news").status_code == 204


@pytest.mark.row(25)
def test_a_job_trains_on_what_it_fetched_or_fails_with_the_reason(start_service, origin):
    service = start_service(corpus_url_hosts=(f"127.0.0.1:{origin.port}",))

    def fetch(url):
        job = service.wait(service.start(input_paths=None, input_urls=[url]))
        folder = service.settings.artifacts_dir / "jobs" / job["id"]
        assert not (folder / "documents").exists()
        assert b"secret" not in (folder / "train.log").read_bytes()
        assert "secret" not in str(job)
        return job

    job = fetch(origin.answer("/a?key=secret", whole(TEXT)))
    assert job["state"] == "live", job
    assert job["counters"]["download_done"] == len(TEXT)
    ref = service.store.resolve(f"n@{job['result']['version']}")
    (source,) = service.store.read_manifest(ref).provenance
    assert source["name"] == f"http://127.0.0.1:{origin.port}/a"
    for answer, code in (
        (b"HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n", "download_refused"),
        (whole(b"caf\xe9"), "invalid_corpus"),
    ):
        job = fetch(origin.answer("/b?key=secret", answer))
        assert (job["state"], job["error"]["code"]) == ("failed", code), job


def test_a_job_trains_on_objects_below_a_listed_prefix(start_service, s3_bucket):
    storage = open_with_shared_client(f"{s3_bucket}/data")
    storage.put("a.jsonl", b'{"text": "low lower lowest"}\n')
    storage.put("wrong.txt", b"caf\xe9")
    service = start_service(corpus_s3_prefixes=(f"{s3_bucket}/data",), corpora_max_bytes=1024)

    def train_on(name):
        asked = {"input_paths": None, "input_urls": [f"{s3_bucket}/data/{name}"]}
        return service.wait(service.start(**asked))

    job = train_on("a.jsonl")
    assert job["state"] == "live", job
    assert job["counters"]["download_done"] == 29
    ref = service.store.resolve(f"n@{job['result']['version']}")
    (source,) = service.store.read_manifest(ref).provenance
    assert (source["name"], source["size_bytes"]) == (f"{s3_bucket}/data/a.jsonl", 29)
    storage.put("large.txt", bytes(1025))
    for name, code in (
        ("none.txt", "download_failed"),
        ("wrong.txt", "invalid_corpus"),
        ("large.txt", "download_too_large"),
    ):
        job = train_on(name)
        assert (job["state"], job["error"]["code"]) == ("failed", code), job
    refused = service.train({"input_urls": [f"{s3_bucket}/data2/a.jsonl"]})
    found = problem(refused, 422, "invalid_corpus_url")
    assert "TOKENIZER_CORPUS_S3_PREFIXES" in found["detail"]


@pytest.mark.row(32)
def test_the_same_key_many_times_at_once_is_one_job(service):
    body = {"input_paths": ["small.txt"], "vocab_size": 300, "name": "n"}
    key = {"Idempotency-Key": "k"}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: service.train(body, **key), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    (job_id,) = {answer.json()["id"] for answer in answers}
    service.wait(job_id)
    later = service.train(dict(reversed(body.items())) | {"promote": "auto"}, **key)
    assert later.json()["id"] == job_id
    problem(service.train(body | {"vocab_size": 302}, **key), 422, "idempotency_key_reused")
    assert len(service.jobs.latest()) == 1
    assert len(list((service.settings.artifacts_dir / "jobs").iterdir())) == 1
