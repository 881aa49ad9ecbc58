"""Training by corpus id: a job keeps the files it was created for."""

from __future__ import annotations

from tests.tokenizer_service.jobs.conftest import Service

TEXT = b"low lower lowest<|endoftext|>new newer newest " * 50


def put(service: Service, corpus_id: str, text: bytes | str = TEXT) -> None:
    assert service.client.put(f"/corpora/{corpus_id}", content=text).status_code in (200, 201)


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


def test_a_corpus_that_is_named_twice_is_read_once(service: Service) -> None:
    put(service, "news")
    put(service, "more")
    asked = {"corpus_ids": ["news", "more", "news"], "vocab_size": 300}
    assert service.train(asked).status_code == 202
    [job] = service.jobs.latest()
    assert [file["label"] for file in job.request["inputs"]] == ["news", "more"]


def test_a_separator_of_some_corpora_is_kept(service: Service) -> None:
    put(service, "news")
    put(service, "lines.jsonl", '{"text": "low lower"}\n')
    asked = {"corpus_ids": ["news", "lines.jsonl"], "vocab_size": 300, "separator": "new"}
    assert service.train(asked).status_code == 202
    [job] = service.jobs.latest()
    assert job.request["corpus_format"]["separator"] == "new"
