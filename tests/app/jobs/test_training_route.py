"""The training routes: what is taken, what is refused, and how a job is answered."""

import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.app.jobs.conftest import READ_KEY, SLOW, Fields, Service
from tokenizer_client.schemas.jobs import TrainRequest, vocabulary_options
from tokenizer_core.training import VocabularyOptions, train


def problem(answer: Any, status: int, code: str) -> Fields:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: Fields = answer.json()
    assert body["code"] == code, body
    assert len(answer.content) < 4096
    return body


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


def test_location_keeps_the_prefix(service: Service) -> None:
    answer = service.client.post("/v1/train", json={"documents": ["ab ab"], "vocab_size": 258})
    assert answer.headers["location"] == f"/v1/train/{answer.json()['id']}"
    assert service.client.get(answer.headers["location"]).status_code == 200


def test_documents_train_as_their_file_would(service: Service) -> None:
    """A separate document is a boundary: nothing merges across it."""
    documents = ["low low lower newest newest", "widest widest widest", ""]
    job = service.wait(service.start(input_paths=None, documents=documents, vocab_size=262))
    assert job["state"] == "live", job
    ref = service.store.resolve(f"n@{job['result']['version']}")
    (service.corpus / "same.txt").write_text("<|endoftext|>".join(documents))
    again = service.wait(service.start(input_paths=["same.txt"], vocab_size=262, name="other"))
    assert again["result"]["digest"] == ref.digest
    # The texts are gone with the job; its log stays.
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
    trained = train([file], vocab_size=281, special_tokens=["<|endoftext|>"], options=wanted)
    assert len(trained.vocab) % 5 == 0
    assert job["result"]["digest"] == trained.spec.fingerprint
    # Each one changes the result, so that none can be lost on the way unseen.
    for name in options:
        fewer = train(
            [file],
            vocab_size=281,
            special_tokens=["<|endoftext|>"],
            options=vocabulary_options({k: v for k, v in options.items() if k != name}),
        )
        assert fewer.spec.fingerprint != trained.spec.fingerprint, name


@pytest.mark.parametrize("special_tokens", [[], ["bc", "ab"]])
def test_documents_without_a_token_to_stand_between_them(
    service: Service, special_tokens: list[str]
) -> None:
    """With "bc" between them, "qa" and "qa" would read q, the special token "ab", c q a."""
    job = service.wait(
        service.start(
            input_paths=None,
            documents=["qa"] * 5,
            special_tokens=special_tokens,
            vocab_size=256 + len(special_tokens) + 2,
        )
    )
    assert job["state"] == "live", job
    spec = service.store.open(service.store.resolve(f"n@{job['result']['version']}"))
    assert spec.merges == ((b"q", b"a"),)  # and never a, q across two documents


def test_promote_manual_publishes_and_serves_what_it_served(service: Service) -> None:
    job = service.wait(service.start(promote="manual"))
    assert job["state"] == "succeeded"
    assert job["result"]["name"] == "n"
    encoded = service.client.post("/encode", json={"text": "lowest"})
    assert encoded.headers["tokenizer-version"].startswith("starter@")


@pytest.mark.row(26, 27)
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"input_paths": ["small.txt"], "documents": ["x"]}, ""),
        ({"input_paths": []}, "/input_paths"),
        ({"input_paths": "small.txt"}, "/input_paths"),
        ({"input_paths": [1]}, "/input_paths/0"),
        ({"documents": []}, "/documents"),
        ({"documents": ["", ""]}, ""),
        ({"input_urls": []}, "/input_urls"),
        ({"input_urls": ["http://127.0.0.1/"], "storage_options": {}}, "/storage_options"),
        ({"corpus_ids": ["a"], "documents": ["x"]}, ""),
        ({"corpus_ids": ["a"], "input_urls": ["http://127.0.0.1/"]}, ""),
        ({"corpus_ids": ["A"]}, "/corpus_ids/0"),
        ({"documents": ["x"], "vocab_size": 256}, ""),
        ({"documents": ["x"], "vocab_size": 2**20 + 1}, "/vocab_size"),
        ({"documents": ["x"], "vocab_size": "300"}, "/vocab_size"),
        ({"documents": ["x"], "vocab_size": True}, "/vocab_size"),
        ({"documents": ["x"], "vocab_size": 300.0}, "/vocab_size"),
        ({"documents": ["x"], "special_tokens": ["<|a|>", "<|a|>"]}, "/special_tokens"),
        ({"documents": ["x"], "special_tokens": [""]}, "/special_tokens/0"),
        ({"documents": ["x"], "special_tokens": ["a"]}, "/special_tokens"),
        ({"documents": ["x"], "min_frequency": 0}, "/min_frequency"),
        ({"documents": ["x"], "max_token_length": 1}, "/max_token_length"),
        ({"documents": ["x"], "seed_tokens": "the"}, "/seed_tokens"),
        ({"documents": ["x"], "seed_tokens": ["ab", "ab"]}, "/seed_tokens"),
        ({"documents": ["x"], "seed_tokens": ["ab", "a b"]}, "/seed_tokens"),
        ({"documents": ["x"], "seed_tokens": ["b" * 33]}, "/seed_tokens/0"),
        ({"documents": ["x"], "seed_tokens": ["abc"], "max_token_length": 2}, "/seed_tokens"),
        ({"documents": ["x"], "seed_tokens": [f"x{'ab' * n}" for n in range(501)]}, "/seed_tokens"),
        ({"documents": ["x"], "reserved": 1 << 15}, "/reserved"),
        ({"documents": ["x"], "pad_to_multiple": 0}, "/pad_to_multiple"),
        ({"documents": ["x"], "vocab_size": 260, "reserved": 4}, ""),
        ({"documents": ["x"], "vocab_size": 258, "seed_tokens": ["abc"]}, ""),
        ({"documents": ["x"], "vocab_size": 2**20, "pad_to_multiple": 1000}, ""),
        (
            {
                "documents": ["x"],
                "special_tokens": ["<|reserved_special_token_0|>"],
                "reserved": 1,
            },
            "",
        ),
        ({"documents": ["x"], "name": "../x"}, "/name"),
        ({"documents": ["x"], "name": "News"}, "/name"),
        ({"documents": ["x"], "name": "x" * 65}, "/name"),
        ({"documents": ["x"], "name": "x\n"}, "/name"),
        ({"documents": ["x"], "name": "active"}, "/name"),
        ({"documents": ["x"], "pattern": r"\S+|\s+"}, "/pattern"),
        ({"documents": ["x"], "pattern": "(a+)+$"}, "/pattern"),
        ({"documents": ["x"], "pattern": "gpt5"}, "/pattern"),
        ({"documents": ["x"], "promote": "now"}, "/promote"),
        ({"documents": ["x"], "limits": {"seconds": 0}}, "/limits/seconds"),
        ({"documents": ["x"], "limits": {"memory_bytes": 1}}, "/limits/memory_bytes"),
        ({"documents": ["x"], "limits": {"cpu": 1}}, "/limits/cpu"),
    ],
)
def test_a_wrong_request_is_422_and_names_the_field(
    service: Service, body: Fields, pointer: str
) -> None:
    found = problem(service.train(body), 422, "invalid_request")
    assert pointer in [error["pointer"] for error in found["errors"]], found
    assert service.jobs.latest() == []
    assert not (service.settings.artifacts_dir / "jobs").exists()


@pytest.mark.row(1, 6, 7)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 422),
        (b"[]", 422),
        (b'{"documents": ["\\ud800"]}', 422),
        (b'{"special_tokens": ["\\udfff"], "documents": ["x"]}', 422),
        (b'{"limits": {"seconds": NaN}, "documents": ["x"]}', 422),
        (b'{"documents": ["x"], "documents": ["y"]}', 400),
        (b"\xff\xfe{\x00}\x00", 400),
        (b'{"documents": ["\xff"]}', 400),
    ],
)
def test_a_malformed_body_gets_what_every_route_says(
    service: Service, body: bytes, status: int
) -> None:
    answer = service.client.post(
        "/train", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    assert service.jobs.latest() == []


@pytest.mark.row(8, 20)
def test_a_form_is_415(service: Service) -> None:
    answer = service.client.post("/train", data={"documents": "x"})
    problem(answer, 415, "json_required")


@pytest.mark.row(24)
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "/etc/passwd",
        "%2e%2e/secret.txt",
        "small.txt\0",
        "link.txt",
        "pipe",
        "none",
    ],
)
def test_a_path_that_is_no_file_under_a_root_is_422(
    service: Service, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (service.corpus / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(service.corpus / "pipe")
    answer = service.train({"input_paths": ["small.txt", path], "vocab_size": 300})
    found = problem(answer, 422, "invalid_corpus_path")
    assert found["errors"][0]["pointer"] == "/input_paths/1"
    assert str(tmp_path) not in answer.text
    assert service.jobs.latest() == []


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


@pytest.mark.row(26)
def test_a_corpus_that_changed_since_the_request_fails_the_job(service: Service) -> None:
    first = service.start(**SLOW)
    service.wait_for_child(first)
    second = service.start()
    (service.corpus / "small.txt").write_text("something else")
    service.client.delete(f"/train/{first}")
    job = service.wait(second)
    assert (job["state"], job["error"]["code"]) == ("failed", "corpus_changed")


@pytest.mark.row(26)
def test_a_corpus_written_to_while_it_is_read_fails_the_job(
    service: Service, slow_text: str
) -> None:
    large = service.corpus / "large.txt"
    large.write_text("\n".join([slow_text] * 60))
    job_id = service.start(input_paths=["large.txt"])
    service.wait_for_child(job_id, phases=("count",))
    with large.open("a") as file:
        file.write("more")
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "invalid_corpus"), job
    assert "large.txt changed" in job["error"]["detail"]
    assert service.store.names() == ["starter"]


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
    new = service.train(body, **{"Idempotency-Key": "k2"})
    assert new.json()["id"] != first.json()["id"]
    assert len(service.jobs.latest()) == 2
    folders = list((service.settings.artifacts_dir / "jobs").iterdir())
    assert len(folders) <= 2


@pytest.mark.row(32)
def test_the_same_key_many_times_at_once_is_one_job(service: Service) -> None:
    body = {"input_paths": ["small.txt"], "vocab_size": 300, "name": "n"}
    at_once = threading.Barrier(8)

    def train(number: int) -> Any:
        at_once.wait(10)
        # One of them means another run by the same key: who comes first decides.
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
    for paths in (["small.txt", "other.txt"], ["other.txt", "small.txt"]):
        # As often as the words of the other file: which pair comes first is for the tie rule.
        (service.corpus / "other.txt").write_text("wide wider widest quick quicker quickest " * 50)
        job = service.wait(service.start(input_paths=paths, promote="manual"))
        assert job["state"] == "succeeded", job
        digests.add(job["result"]["digest"])
    alone = service.wait(service.start(promote="manual"))
    assert len(digests) == 1
    assert alone["result"]["digest"] not in digests  # the second file counted


@pytest.mark.promise(18)
def test_the_order_of_the_documents_changes_no_digest(service: Service) -> None:
    documents = ["low low lower newest newest", "widest widest widest", "", "naïve naïve 中文 中文"]
    digests = set()
    for order in (documents, documents[::-1], documents[2:] + documents[:2]):
        job = service.wait(
            service.start(input_paths=None, documents=order, vocab_size=270, promote="manual")
        )
        assert job["state"] == "succeeded", job
        digests.add(job["result"]["digest"])
    assert len(digests) == 1


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a b", "caf\xe9"])
def test_a_key_that_is_none_is_422(service: Service, key: str) -> None:
    answer = service.client.post(
        "/train",
        content=json.dumps({"documents": ["x"]}),
        headers=[
            (b"Idempotency-Key", key.encode("latin-1")),
            (b"Content-Type", b"application/json"),
        ],
    )
    problem(answer, 422, "invalid_idempotency_key")


@pytest.mark.row(32)
def test_the_queue_is_full(start_service: Callable[..., Service]) -> None:
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


@pytest.mark.row(32)
def test_without_a_queue_a_busy_trainer_is_409(start_service: Callable[..., Service]) -> None:
    service = start_service(train_queue=0)
    running = service.start(**SLOW)
    problem(service.train({"documents": ["x x"]}), 409, "training_busy")
    service.client.delete(f"/train/{running}")
    service.wait(running, "cancelled")
    assert service.wait(service.start())["state"] == "live"


@pytest.mark.parametrize("job_id", ["nope", "..%2F..%2Fx", "20260101T000000Z-000000000000", "%00"])
def test_an_unknown_job_is_404(service: Service, job_id: str) -> None:
    for method in ("GET", "DELETE"):
        assert service.client.request(method, f"/train/{job_id}").status_code == 404


def test_every_training_route_wants_an_admin_key(service: Service) -> None:
    job_id = service.start()
    for method, path in [
        ("POST", "/train"),
        ("GET", "/train"),
        ("GET", f"/train/{job_id}"),
        ("DELETE", f"/train/{job_id}"),
    ]:
        for prefix in ("", "/v1"):
            none = service.client.request(method, prefix + path, headers={"X-API-Key": ""})
            assert none.status_code == 401
            reader = service.client.request(method, prefix + path, headers={"X-API-Key": READ_KEY})
            assert reader.status_code == 403


@pytest.mark.row(36)
def test_a_full_disk_is_507_and_leaves_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        problem(service.train({"documents": ["x x"]}), 507, "disk_full")
    assert service.jobs.latest() == []
    assert list((service.settings.artifacts_dir / "jobs").iterdir()) == []
    assert service.client.post("/encode", json={"text": "a"}).status_code == 200


@pytest.mark.row(36)
def test_an_unusable_job_database_is_503_and_encoding_goes_on(service: Service) -> None:
    database = service.settings.artifacts_dir / "jobs.sqlite3"
    database.rename(database.with_suffix(".aside"))
    database.mkdir()
    try:
        problem(service.client.get("/train"), 503, "job_store_unavailable")
        problem(service.train({"documents": ["x x"]}), 503, "job_store_unavailable")
        assert service.client.post("/encode", json={"text": "a"}).status_code == 200
    finally:
        database.rmdir()
        database.with_suffix(".aside").rename(database)
    assert service.wait(service.start())["state"] == "live"


def test_openapi_describes_the_request(service: Service) -> None:
    document = service.client.get("/openapi.json").json()
    operation = document["paths"]["/train"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert set(schema["properties"]) >= {"input_paths", "documents", "limits", "promote"}
    assert "application/problem+json" in operation["responses"]["422"]["content"]


def test_a_key_from_before_there_were_options_stays_good() -> None:
    request = {"documents": ["x"], "vocab_size": 300}
    before = "87c8338f1073ab07e2b12d4766363a117de1d38a5691c0df942115bc3bc7f9a8"
    assert TrainRequest.model_validate(request).digest() == before
    for option in ({"reserved": 1}, {"min_frequency": 2}, {"seed_tokens": ["ab"]}):
        assert TrainRequest.model_validate(request | option).digest() != before
