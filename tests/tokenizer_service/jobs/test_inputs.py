"""Training by corpus id: a job keeps the files it was created for."""

from __future__ import annotations

from tests.tokenizer_service.jobs.conftest import Service

TEXT = b"low lower lowest<|endoftext|>new newer newest " * 50


def put(service: Service, corpus_id: str, text: bytes | str = TEXT) -> None:
    assert service.client.put(f"/corpora/{corpus_id}", content=text).status_code in (200, 201)


def test_unknown_and_empty_corpora_are_422(shared_service: Service) -> None:
    service = shared_service
    put(service, "news")
    put(service, "empty", b"")
    answer = service.train({"corpus_ids": ["news", "gone", "other"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["code"]) == (422, "corpus_not_found")
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert pointers == ["/corpus_ids/1", "/corpus_ids/2"]
    assert "gone" not in answer.text
    answer = service.train({"corpus_ids": ["../news"], "vocab_size": 300})
    assert answer.json()["errors"][0]["pointer"] == "/corpus_ids/0"
    answer = service.train({"corpus_ids": ["empty"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["code"]) == (422, "empty_corpus")
    assert service.jobs.latest() == []


def test_a_job_reads_each_corpus_once_and_keeps_the_separator(service: Service) -> None:
    put(service, "news")
    put(service, "lines.jsonl", '{"text": "low lower"}\n')
    ids = ["news", "lines.jsonl", "news"]
    body = {"corpus_ids": ids, "vocab_size": 300, "separator": "new"}
    assert service.train(body).status_code == 202
    [job] = service.jobs.latest()
    assert [file["label"] for file in job.request["inputs"]] == ["news", "lines.jsonl"]
    assert job.request["corpus_format"]["separator"] == "new"
