"""The training routes: which requests they accept and refuse, and how they return a job."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_service.jobs.conftest import Fields, Service
from tokenizer_client.schemas.jobs import TrainRequest


@pytest.fixture
def refusing(shared_service: Service) -> Iterator[Service]:
    """A service that must refuse the request and store nothing."""
    yield shared_service
    assert shared_service.jobs.latest() == []
    assert not (shared_service.settings.artifacts_dir / "jobs").exists()


def problem(answer: Any, status: int, code: str) -> Fields:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: Fields = answer.json()
    assert body["code"] == code, body
    assert len(answer.content) < 4096
    return body


WRONG_BODIES: list[tuple[Fields, str]] = [
    ({}, ""),
    ({"input_paths": ["small.txt"], "documents": ["x"]}, ""),
    ({"input_paths": []}, "/input_paths"),
    ({"input_paths": [1]}, "/input_paths/0"),
    ({"documents": ["", ""]}, ""),
    ({"input_urls": ["http://127.0.0.1/"], "storage_options": {}}, "/storage_options"),
    ({"corpus_ids": ["a"], "input_urls": ["http://127.0.0.1/"]}, ""),
    ({"corpus_ids": ["A"]}, "/corpus_ids/0"),
    ({"documents": ["x"], "vocab_size": 256}, ""),
    ({"documents": ["x"], "vocab_size": 2**20 + 1}, "/vocab_size"),
    ({"documents": ["x"], "vocab_size": "300"}, "/vocab_size"),
    ({"documents": ["x"], "special_tokens": ["<|a|>", "<|a|>"]}, "/special_tokens"),
    ({"documents": ["x"], "min_frequency": 0}, "/min_frequency"),
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
    ({"documents": ["x"], "name": "x" * 65}, "/name"),
    ({"documents": ["x"], "name": "active"}, "/name"),
    ({"documents": ["x"], "pattern": r"\S+|\s+"}, "/pattern"),
    ({"documents": ["x"], "pattern": "(a+)+$"}, "/pattern"),
    ({"documents": ["x"], "promote": "now"}, "/promote"),
    ({"documents": ["x"], "limits": {"seconds": 0}}, "/limits/seconds"),
    ({"documents": ["x"], "limits": {"memory_bytes": 1}}, "/limits/memory_bytes"),
]


@pytest.mark.row(26, 27)
def test_a_wrong_request_is_422_and_names_the_field(refusing: Service) -> None:
    for body, pointer in WRONG_BODIES:
        found = problem(refusing.train(body), 422, "invalid_request")
        assert pointer in [error["pointer"] for error in found["errors"]], (body, found)


def test_text_has_no_field(refusing: Service) -> None:
    for inputs in (
        {"input_paths": ["small.txt"]},
        {"input_paths": ["small.txt"], "format": "txt.gz"},
        {"input_urls": ["http://127.0.0.1/small"]},
    ):
        found = problem(refusing.train({**inputs, "field": "story"}), 422, "corpus_field")
        assert found["errors"][0]["pointer"] == "/field"


def test_only_text_has_a_separator(refusing: Service) -> None:
    for name in ("small.jsonl.gz", "small.parquet"):
        (refusing.corpus / name).write_bytes(b"anything")
    for inputs in (
        {"input_paths": ["small.txt"], "format": "jsonl"},
        {"input_paths": ["small.jsonl.gz", "small.parquet"]},
        {"input_urls": ["http://127.0.0.1/small.jsonl?x.txt"]},
    ):
        found = problem(refusing.train({**inputs, "separator": "END"}), 422, "corpus_separator")
        assert found["errors"][0]["pointer"] == "/separator"
        assert "END" not in found["detail"]


@pytest.mark.row(24)
def test_a_path_that_is_no_file_under_a_root_is_422(refusing: Service, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (refusing.corpus / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(refusing.corpus / "pipe")
    for path in ("../secret.txt", "/etc/passwd", "small.txt\0", "link.txt", "pipe", "none"):
        answer = refusing.train({"input_paths": ["small.txt", path], "vocab_size": 300})
        found = problem(answer, 422, "invalid_corpus_path")
        assert found["errors"][0]["pointer"] == "/input_paths/1"
        assert str(refusing.corpus) not in answer.text


def test_a_wrong_key_is_422(refusing: Service) -> None:
    for key in ("", " ", "x" * 201, "a b", "caf\xe9"):
        answer = refusing.client.post(
            "/train",
            content=json.dumps({"documents": ["x"]}),
            headers=[
                (b"Idempotency-Key", key.encode("latin-1")),
                (b"Content-Type", b"application/json"),
            ],
        )
        problem(answer, 422, "invalid_idempotency_key")


def test_an_unknown_job_is_404(refusing: Service) -> None:
    for job_id in ("nope", "..%2F..%2Fx", "20260101T000000Z-000000000000", "%00"):
        for method in ("GET", "DELETE"):
            assert refusing.client.request(method, f"/train/{job_id}").status_code == 404


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


def test_every_option_changes_the_digest_of_a_request() -> None:
    request = {"documents": ["x"], "vocab_size": 300}
    plain = TrainRequest.model_validate(request).digest()
    assert TrainRequest.model_validate(request).digest() == plain
    for option in ({"reserved": 1}, {"min_frequency": 2}, {"seed_tokens": ["ab"]}):
        assert TrainRequest.model_validate(request | option).digest() != plain


@pytest.fixture
def held(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service whose jobs stay queued."""
    monkeypatch.setattr(service.services.jobs, "claim_next", lambda owner: None)
    return service


ROUTES = ("/train", "/corpora/c/encode")


def body_for(service: Service, route: str) -> Fields:
    if route == "/train":
        return {"documents": ["low lower"], "vocab_size": 300}
    service.client.put(
        "/corpora/c", content=b"low lower", headers={"Content-Type": "text/plain"}
    ).raise_for_status()
    return {}


@pytest.mark.parametrize("route", ROUTES)
def test_a_request_can_wait_for_the_end_of_its_job(held: Service, route: str) -> None:
    body, key = body_for(held, route), {"Idempotency-Key": "k"}
    early = held.client.post(f"{route}?wait=0.01", json=body, headers=key)
    assert (early.status_code, early.json()["state"]) == (202, "queued")
    job_id = early.json()["id"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(held.client.post, f"{route}?wait=60", json=body, headers=key)
        while held.services.job_watch.n_listeners == 0:
            assert not waiting.done(), waiting.result().text
        held.jobs.request_cancel(job_id)
        late = waiting.result()
    assert (late.status_code, late.json()["state"]) == (200, "cancelled")
    assert late.json()["id"] == job_id
    assert late.headers["Location"] == early.headers["Location"]
    assert held.services.job_watch.n_listeners == 0
    again = held.client.post(route, json=body, headers=key)
    assert (again.status_code, again.json()["state"]) == (202, "cancelled")


def test_with_too_many_waiting_requests_a_job_is_returned_at_once(held: Service) -> None:
    held.services.job_watch._max_listeners = 0
    answer = held.client.post("/train?wait=60", json={"documents": ["x y"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")


def test_no_request_waits_longer_than_five_minutes(refusing: Service) -> None:
    for wait in ("-1", "301", "nan", "long"):
        answer = refusing.client.post(f"/train?wait={wait}", json={"documents": ["x y"]})
        problem(answer, 422, "invalid_request")
