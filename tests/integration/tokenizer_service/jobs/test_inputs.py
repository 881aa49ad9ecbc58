"""Training by corpus id with real child processes: a job keeps the files it was created for."""

from __future__ import annotations

from typing import Any

from tests.tokenizer_service.jobs.conftest import SLOW, Service

TEXT = b"low lower lowest<|endoftext|>new newer newest " * 50


def put(service: Service, corpus_id: str, text: bytes = TEXT) -> None:
    assert service.client.put(f"/corpora/{corpus_id}", content=text).is_success


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


def test_a_corpus_of_a_waiting_job_can_be_replaced_and_not_removed(service: Service) -> None:
    put(service, "news")
    first = service.start(**SLOW)
    waiting = service.start(**by_id("news"))
    answer = service.client.delete("/corpora/news")
    assert (answer.status_code, answer.json()["code"]) == (409, "corpus_in_use")
    assert waiting in answer.json()["detail"]
    put(service, "news", TEXT)  # the same text is another upload
    service.client.delete(f"/train/{first}")
    job = service.wait(waiting)
    assert (job["state"], job["error"]["code"]) == ("failed", "corpus_changed")
    assert job["error"]["detail"].startswith("news was replaced")
    assert service.client.delete("/corpora/news").status_code == 204
