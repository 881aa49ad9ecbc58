"""The corpora of jobs: a job keeps the files it was created for, and the size of token files."""

import pytest

from tokenizer_core.corpus import encode_corpus, plan_token_files
from tokenizer_service.jobs.errors import CorpusReplacedError
from tokenizer_service.jobs.input_files import find_input_file
from tokenizer_service.jobs.inputs import estimate_bytes


def test_unknown_repeated_and_empty_corpora_are_422(shared_service):
    service = shared_service
    service.put("news", "low lower")
    service.put("empty", b"")
    answer = service.train({"corpus_ids": ["news", "gone", "other", "news"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["code"]) == (422, "corpus_not_found")
    errors = answer.json()["errors"]
    assert [error["pointer"] for error in errors] == [f"/corpus_ids/{n}" for n in (1, 2, 3)]
    assert "gone" not in answer.text
    assert errors[2]["detail"].startswith("it is named twice")
    answer = service.train({"corpus_ids": ["../news"], "vocab_size": 300})
    assert answer.json()["errors"][0]["pointer"] == "/corpus_ids/0"
    answer = service.train({"corpus_ids": ["empty"], "vocab_size": 300})
    assert (answer.status_code, answer.json()["code"]) == (422, "empty_corpus")
    assert service.jobs.latest() == []


def test_a_job_keeps_the_order_the_fields_and_the_separator(service):
    service.put("news", "low lower")
    service.put("lines.jsonl", '{"text": "low lower"}\n')
    service.put("more.jsonl?field=body", '{"body": "low lower"}\n')
    ids = ["news", "lines.jsonl", "more.jsonl"]
    service.start(input_paths=None, corpus_ids=ids, separator="new")
    [job] = service.jobs.latest()
    labels = [file["label"] for file in job.request["inputs"]]
    assert labels == ids
    assert job.request["corpus_format"]["separator"] == "new"
    own = {"news": "text", "lines.jsonl": "text", "more.jsonl": "body"}
    assert job.request["corpus_format"]["field"] == own


def write(folder, name, text):
    (folder / name).write_text(text)
    return find_input_file([folder], name)


def test_the_estimate_is_within_a_tenth_of_the_size(tmp_path, small_tokenizer):
    texts = [
        "the quick brown fox " * 5_000,
        "x" + "中" * 30_000,  # the sample ends inside a character
        "",
        *["low lower " * 500] * 5,
    ]
    files = [write(tmp_path, f"{n}.txt", text) for n, text in enumerate(texts)]
    paths = [tmp_path / file.path for file in files]
    for dtype in ("uint16", "uint32"):
        plan = plan_token_files(small_tokenizer, end_of_document="", dtype=dtype)
        estimate = estimate_bytes(files, small_tokenizer, plan)
        encode_corpus(small_tokenizer, paths, tmp_path / dtype, plan)
        written = (tmp_path / dtype / "train.bin").stat().st_size
        assert abs(estimate - written) < 0.1 * written
    write(tmp_path, "0.txt", "another")
    with pytest.raises(CorpusReplacedError):
        estimate_bytes(files, small_tokenizer, plan)
