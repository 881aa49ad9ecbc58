"""Training by corpus id with real child processes: a job keeps the files it was created for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tokenizer_service.jobs.conftest import SLOW, SLOW_VOCAB_SIZE, Service
from tests.tokenizer_service.jobs.test_inputs import TEXT, put


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
