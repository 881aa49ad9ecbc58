"""The training routes with real child processes: results, failures, keys, queues."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.tokenizer_service.jobs.conftest import SLOW, Service
from tokenizer_client.schemas.jobs import TrainRequest
from tokenizer_core.training import TrainingOptions, VocabularyOptions, train
from tokenizer_service.jobs.worker.context import vocabulary_options


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["code"] == code
    return found


def test_a_run_over_files_goes_live_and_answers_at_once(service: Service) -> None:
    answer = service.train({"input_paths": ["small.txt"], "vocab_size": 300, "name": "news"})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/train/{job['id']}"
    assert job["state"] in ("queued", "running")
    done = service.wait(job["id"])
    assert done["state"] == "live", done
    assert (done["progress"], done["phase"], done["error"]) == (1.0, "live", None)
    result = done["result"]
    version = f"{result['name']}@{result['version']}"
    encoded = service.client.post("/encode", json={"text": "lowest"})
    assert encoded.headers["tokenizer-version"] == version
    assert encoded.headers["tokenizer-digest"] == result["digest"]
    assert encoded.json()["count"] < 6
    assert any("published" in line for line in done["log_tail"])
    listed = service.client.get("/train").json()["jobs"]
    assert [entry["id"] for entry in listed] == [job["id"]]
    manifest = service.store.read_manifest(service.store.resolve(version))
    assert [source["name"] for source in manifest.provenance] == ["small.txt"]
    assert manifest.training is not None
    assert job["id"] in str(manifest.command)


def test_a_vocabulary_smaller_than_requested_is_in_the_log(service: Service) -> None:
    job = {"documents": ["low lower lowest"], "vocab_size": 5000, "name": "low"}
    answer = service.client.post("/v1/train", json=job)
    assert answer.headers["location"] == f"/v1/train/{answer.json()['id']}"
    done = service.wait(answer.json()["id"])
    assert done["state"] == "live", done
    [line] = [line for line in done["log_tail"] if "ended early" in line]
    assert f"with {done['result']['vocab_size']} of 5000 entries: no pair" in line


def test_documents_train_as_their_file_would(service: Service) -> None:
    """A separate document is a boundary: nothing merges across it."""
    documents = ["low low lower newest newest", "widest widest widest", ""]
    job = service.wait(service.start(input_paths=None, documents=documents, vocab_size=262))
    assert job["state"] == "live", job
    ref = service.store.resolve(f"n@{job['result']['version']}")
    (service.corpus / "same.txt").write_text("<|endoftext|>".join(documents))
    again = service.wait(service.start(input_paths=["same.txt"], vocab_size=262, name="other"))
    assert again["result"]["digest"] == ref.digest
    # The job removes its texts and keeps its log.
    folder = service.settings.artifacts_dir / "jobs" / job["id"]
    assert not (folder / "documents").exists()
    assert (folder / "train.log").exists()


def test_the_options_of_the_vocabulary_are_those_of_the_trainer(service: Service) -> None:
    options = {
        "min_frequency": 2,
        "max_token_length": 4,
        "seed_tokens": ["qua"],
        "reserved": 6,
        "pad_to_multiple": 5,
    }
    text = "low low lower newest newest widest widest"
    asked = {"input_paths": None, "documents": [text], "vocab_size": 281}
    job = service.wait(service.start(**asked, **options))
    assert job["state"] == "live", job
    file = service.corpus / "options.txt"
    file.write_text(text)
    wanted = VocabularyOptions(
        min_frequency=2, max_token_length=4, seed_tokens=("qua",), n_reserved=6, pad_to_multiple=5
    )
    trained = train(
        [file], TrainingOptions(vocab_size=281, special_tokens=["<|endoftext|>"], vocabulary=wanted)
    )
    assert len(trained.vocab) % 5 == 0
    assert job["result"]["digest"] == trained.spec.fingerprint
    defaults = TrainRequest(documents=[text]).model_dump()
    # Each option changes the result, so that the test detects a lost one.
    for name in options:
        fewer = train(
            [file],
            TrainingOptions(
                vocab_size=281,
                special_tokens=["<|endoftext|>"],
                vocabulary=vocabulary_options({**options, name: defaults[name]}),
            ),
        )
        assert fewer.spec.fingerprint != trained.spec.fingerprint, name


def test_documents_without_a_token_that_separates_them(service: Service) -> None:
    """With "bc" between them, "qa" and "qa" would read q, the special token "ab", c q a."""
    asked = {"documents": ["qa"] * 5, "special_tokens": ["bc", "ab"], "vocab_size": 260}
    job = service.wait(service.start(input_paths=None, **asked))
    assert job["state"] == "live", job
    spec = service.store.open(service.store.resolve(f"n@{job['result']['version']}"))
    assert spec.merges == ((b"q", b"a"),)  # and never a, q across two documents


@pytest.mark.row(26)
def test_an_empty_corpus_is_422_and_a_wrong_one_a_failed_job(service: Service) -> None:
    problem(service.train({"input_paths": ["empty.txt"]}), 422, "empty_corpus")
    job = service.wait(service.start(input_paths=["latin.txt"]))
    assert (job["state"], job["error"]["code"]) == ("failed", "invalid_corpus")
    assert "latin.txt" in job["error"]["detail"]
    assert "byte 7" in job["error"]["detail"]
    assert "iconv" in job["error"]["detail"]
    assert "errors=" not in job["error"]["detail"]  # a request has no such field
    assert "/proc" not in job["error"]["detail"]
    assert job["log_tail"][-1].endswith(f"invalid_corpus: {job['error']['detail']}")
    assert "Traceback" not in str(job["log_tail"])
    assert str(service.settings.artifacts_dir) not in str(job["log_tail"])


@pytest.mark.row(26)
def test_a_corpus_that_changed_since_the_request_fails_the_job(service: Service) -> None:
    first = service.start(**SLOW)
    service.wait_for_child(first)
    second = service.start()
    (service.corpus / "small.txt").write_text("something else")
    service.client.delete(f"/train/{first}")
    job = service.wait(second)
    assert (job["state"], job["error"]["code"]) == ("failed", "corpus_changed")


@pytest.mark.row(32)
def test_the_same_key_and_body_is_the_same_job(service: Service) -> None:
    body = {"input_paths": ["small.txt"], "vocab_size": 300, "name": "n"}
    first = service.train(body, **{"Idempotency-Key": "k1"})
    again = service.train(dict(reversed(body.items())), **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    service.wait(first.json()["id"])
    later = service.train(body | {"promote": "auto"}, **{"Idempotency-Key": "k1"})
    assert later.json()["id"] == first.json()["id"]
    other = service.train(body | {"vocab_size": 301}, **{"Idempotency-Key": "k1"})
    problem(other, 422, "idempotency_key_reused")
    assert len(service.jobs.latest()) == 1
    assert len(list((service.settings.artifacts_dir / "jobs").iterdir())) == 1


@pytest.mark.row(32)
def test_the_same_key_many_times_at_once_is_one_job(service: Service) -> None:
    body = {"input_paths": ["small.txt"], "vocab_size": 300, "name": "n"}
    at_once = threading.Barrier(8)

    def train(number: int) -> Any:
        at_once.wait(60)
        # One of them means another run with the same key: the first request decides.
        changed = body | {"vocab_size": 301} if number == 7 else body
        return service.train(changed, **{"Idempotency-Key": "k"})

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(train, range(8)))
    accepted = [answer for answer in answers if answer.status_code == 202]
    assert len({answer.json()["id"] for answer in accepted}) == 1
    assert len(service.jobs.latest()) == 1
    assert len(accepted) in (1, 7)
    for answer in answers:
        if answer not in accepted:
            problem(answer, 422, "idempotency_key_reused")


@pytest.mark.promise(18)
def test_the_order_of_the_files_changes_no_digest(service: Service) -> None:
    digests = set()
    # As often as the words of the other file: the tie rule decides which pair comes first.
    (service.corpus / "other.txt").write_text("wide wider widest quick quicker quickest " * 50)
    for paths in (["small.txt", "other.txt"], ["other.txt", "small.txt"]):
        job = service.wait(service.start(input_paths=paths, promote="manual"))
        assert job["state"] == "succeeded", job
        digests.add(job["result"]["digest"])
    assert len(digests) == 1


@pytest.mark.row(32)
def test_a_full_queue_refuses_until_a_job_leaves_it(start_service: Callable[..., Service]) -> None:
    service = start_service(train_queue=1)
    running = service.start(**SLOW)
    waiting = service.start()
    full = service.train({"documents": ["x x"]})
    found = problem(full, 409, "training_queue_full")
    assert (found["limit"], found["actual"]) == (1, 1)
    assert full.headers["retry-after"]
    assert service.client.delete(f"/train/{waiting}").json()["state"] == "cancelled"
    service.start()
    service.client.delete(f"/train/{running}")


@pytest.mark.row(36)
def test_an_unusable_job_database_is_503_and_encoding_goes_on(service: Service) -> None:
    database = service.settings.artifacts_dir / "jobs.sqlite3"
    database.rename(database.with_suffix(".aside"))
    database.mkdir()
    try:
        problem(service.client.get("/train"), 503, "job_database_unusable")
        problem(service.train({"documents": ["x x"]}), 503, "job_database_unusable")
        assert service.client.post("/encode", json={"text": "a"}).status_code == 200
    finally:
        database.rmdir()
        database.with_suffix(".aside").rename(database)
    assert service.client.get("/train").status_code == 200
