"""The training routes: which requests they accept and refuse, and how they return a job."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_service.jobs.conftest import Fields, Service
from tokenizer_client.schemas.jobs import TrainRequest


def problem(answer: Any, status: int, code: str) -> Fields:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: Fields = answer.json()
    assert body["code"] == code, body
    assert len(answer.content) < 4096
    return body


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


@pytest.mark.parametrize("asked", [{}, {"format": "text"}, {"format": "txt.gz"}])
def test_text_has_no_field(service: Service, asked: Fields) -> None:
    body = {"input_paths": ["small.txt"], "field": "story", **asked}
    found = problem(service.train(body), 422, "corpus_field")
    assert found["errors"][0]["pointer"] == "/field"
    assert service.jobs.latest() == []


@pytest.mark.parametrize(
    "asked",
    [
        {"input_paths": ["small.txt"], "format": "jsonl"},
        {"input_paths": ["small.txt"], "format": "parquet"},
        {"input_paths": ["small.jsonl.gz", "small.parquet"]},
        {"input_urls": ["http://127.0.0.1/small.jsonl?x.txt"]},
    ],
)
def test_only_text_has_a_separator(
    start_service: Callable[..., Service], corpus: Path, asked: Fields
) -> None:
    for name in ("small.jsonl.gz", "small.parquet"):
        (corpus / name).write_bytes(b"anything")
    service = start_service(corpus_url_hosts="127.0.0.1")
    found = problem(service.train({**asked, "separator": "END"}), 422, "corpus_separator")
    assert found["errors"][0]["pointer"] == "/separator"
    assert "END" not in found["detail"]
    assert service.jobs.latest() == []


def test_text_at_a_url_has_no_field(start_service: Callable[..., Service]) -> None:
    service = start_service(corpus_url_hosts="127.0.0.1")
    body = {"input_urls": ["http://127.0.0.1/small"], "field": "story"}
    problem(service.train(body), 422, "corpus_field")


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


@pytest.mark.parametrize("job_id", ["nope", "..%2F..%2Fx", "20260101T000000Z-000000000000", "%00"])
def test_an_unknown_job_is_404(service: Service, job_id: str) -> None:
    for method in ("GET", "DELETE"):
        assert service.client.request(method, f"/train/{job_id}").status_code == 404


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


def test_a_job_is_named_at_once_where_too_many_wait(held: Service) -> None:
    held.services.job_watch._max_listeners = 0
    answer = held.client.post("/train?wait=60", json={"documents": ["x y"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")


@pytest.mark.parametrize("wait", ["-1", "301", "nan", "inf", "long"])
def test_nobody_waits_longer_than_five_minutes(service: Service, wait: str) -> None:
    answer = service.client.post(f"/train?wait={wait}", json={"documents": ["x y"]})
    problem(answer, 422, "invalid_request")
    assert service.jobs.latest() == []
