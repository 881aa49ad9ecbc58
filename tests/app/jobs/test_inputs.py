"""Training by corpus id: what a job is bound to when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.jobs.conftest import SLOW, SLOW_VOCAB_SIZE, Service

TEXT = b"low lower lowest<|endoftext|>new newer newest " * 50


def put(service: Service, corpus_id: str, text: bytes | str = TEXT) -> None:
    assert service.client.put(f"/corpora/{corpus_id}", content=text).status_code in (200, 201)


def by_id(*corpus_ids: str, **fields: Any) -> dict[str, Any]:
    return {"input_paths": None, "corpus_ids": list(corpus_ids), **fields}


def test_an_uploaded_corpus_trains_as_its_file_would(service: Service) -> None:
    put(service, "news")
    job = service.wait(service.start(**by_id("news")))
    assert job["state"] == "live", job
    result = job["result"]
    ref = service.store.resolve(f"n@{result['version']}")
    (source,) = service.store.read_manifest(ref).provenance
    sha256 = service.client.get("/corpora/news").json()["sha256"]
    assert (source["name"], source["sha256"]) == ("news", sha256)
    (service.corpus / "same.txt").write_bytes(TEXT)
    same = service.wait(service.start(input_paths=["same.txt"], name="same"))
    assert same["result"]["digest"] == result["digest"]


def test_ids_that_are_none_are_422_and_pointed_at(service: Service) -> None:
    put(service, "news")
    answer = service.train({"corpus_ids": ["news", "gone", "other"], "vocab_size": 300})
    assert answer.status_code == 422
    assert answer.json()["code"] == "corpus_not_found"
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert pointers == ["/corpus_ids/1", "/corpus_ids/2"]
    assert "gone" not in answer.text
    answer = service.train({"corpus_ids": ["../news"], "vocab_size": 300})
    assert answer.json()["errors"][0]["pointer"] == "/corpus_ids/0"
    assert service.jobs.latest() == []


def test_an_empty_corpus_is_422(service: Service) -> None:
    put(service, "empty", b"")
    answer = service.train({"corpus_ids": ["empty"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["code"]) == (422, "empty_corpus")


@pytest.mark.parametrize("text", [b"other text", TEXT])
def test_a_corpus_that_is_replaced_before_its_job_began_fails_it(
    service: Service, text: bytes
) -> None:
    put(service, "news")
    first = service.start(**SLOW)
    service.wait_for_child(first)
    waiting = service.start(**by_id("news"))
    put(service, "news", text)
    service.client.delete(f"/train/{first}")
    job = service.wait(waiting)
    assert (job["state"], job["error"]["code"]) == ("failed", "corpus_changed")
    assert job["error"]["detail"].startswith("news was replaced")


def test_a_run_goes_on_with_the_text_it_began_with(service: Service, slow_text: str) -> None:
    put(service, "slow", slow_text)
    job_id = service.start(**by_id("slow", vocab_size=SLOW_VOCAB_SIZE - 4000))
    service.wait_for_child(job_id, phases=("learn",))
    put(service, "slow", "x")
    assert service.wait(job_id)["state"] == "live"


def test_what_a_job_is_to_read_is_not_removed(service: Service) -> None:
    put(service, "news")
    first = service.start(**SLOW)
    waiting = service.start(**by_id("news"))
    answer = service.client.delete("/corpora/news")
    assert (answer.status_code, answer.json()["code"]) == (409, "corpus_in_use")
    assert waiting in answer.json()["detail"]
    for job_id in (waiting, first):
        service.client.delete(f"/train/{job_id}")
    service.wait(waiting)
    assert service.client.delete("/corpora/news").status_code == 204
