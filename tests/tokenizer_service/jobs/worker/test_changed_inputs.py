"""Input files that change while a job reads them: the job fails with `corpus_changed`. Token files
of an earlier attempt that do not fit are started again."""

import threading
from dataclasses import asdict
from dataclasses import replace as replaced
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.tokenizer_core.documents.file_changes import CHANGES, add_name, remove, replace, rewrite
from tokenizer_client.schemas.jobs import TrainRequest
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import TokenFilesWriter, plan_token_files
from tokenizer_core.errors import CorpusError, TokenizerCoreError
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.input_files import InputChangedError, find_input_file
from tokenizer_service.jobs.worker.child import describe_failure
from tokenizer_service.jobs.worker.context import WorkerJob, check_inputs, open_inputs
from tokenizer_service.jobs.worker.encode import _encode
from tokenizer_service.jobs.worker.train import train_and_publish

ID = "20261121T041500Z-0123456789ab"


def make_job(tmp_path, file, change, **fields):
    """A job whose first report of progress changes the file; it may publish."""
    events, allowed = Mock(), threading.Event()
    allowed.set()
    changes = [change]

    def report(*_):
        if changes:
            changes.pop()(Path(file.root, file.path))

    events.report.side_effect = report
    asked = TrainRequest(documents=["low"], name="n", vocab_size=258, special_tokens=[])
    request = {
        **asked.model_dump(),
        "artifacts_dir": str(tmp_path / "artifacts"),
        "job_id": ID,
        "store": None,
        "inputs": [asdict(file)],
        "corpus_format": {"format": "txt"},
        "engine": "auto",
        "num_workers": 1,
        **fields,
    }
    folder = JobFolder.of(tmp_path / "artifacts", ID)
    folder.write_request(request)
    return WorkerJob(folder, folder.read_request(), events, allowed)


@pytest.mark.row(26)
@pytest.mark.parametrize("change", [rewrite, remove], ids=lambda change: change.__name__)
def test_a_corpus_that_changes_while_it_is_counted(tmp_path, corpus, change):
    job = make_job(tmp_path, find_input_file([corpus], "small.txt"), change)
    with pytest.raises((InputChangedError, TokenizerCoreError)) as raised:
        train_and_publish(job)
    assert describe_failure(raised.value)[0] == "corpus_changed"


@pytest.mark.row(26)
def test_a_corpus_that_changes_while_it_is_encoded(tmp_path, corpus):
    file = replaced(find_input_file([corpus], "small.txt"), label="small")
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    how = {"validation_share": 0.0, "shuffle": False}
    job = make_job(tmp_path, file, rewrite, **how)
    plan = plan_token_files(tokenizer, end_of_document="")
    with pytest.raises((InputChangedError, TokenizerCoreError)) as raised:
        _encode(job, tokenizer, plan, tmp_path / "growing", None)
    assert describe_failure(raised.value)[0] == "corpus_changed"


def test_token_files_of_other_settings_are_started_again(tmp_path, corpus):
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    plan, growing = plan_token_files(tokenizer, end_of_document=""), tmp_path / "growing"
    file = find_input_file([corpus], "small.txt")
    how = {"validation_share": 0.0, "shuffle": False}
    job = make_job(tmp_path, file, lambda path: None, **how)
    with TokenFilesWriter(growing, plan) as writer:
        writer.append([1])
        writer.checkpoint({"settings": {"run": "another's"}, "n_tokens": 1, "place": {}})
    manifest = _encode(job, tokenizer, plan, growing, None)
    assert manifest.split("train").n_bytes == file.size_bytes


def test_open_inputs_are_compared_with_the_request(corpus):
    for change in CHANGES:
        (corpus / "small.txt").unlink(missing_ok=True)
        (corpus / "small.txt").write_text("low lower")
        file = find_input_file([corpus], "small.txt")
        uploaded = replaced(file, label="news")
        with open_inputs([file]) as descriptors:
            check_inputs([file], descriptors)
            change(corpus / "small.txt")
            with pytest.raises(InputChangedError, match=r"small\.txt"):
                check_inputs([file], descriptors)
            if change in (replace, add_name):  # an upload is read as it was
                check_inputs([uploaded], descriptors)


def test_an_error_in_a_file_that_changed_is_the_change(corpus):
    def read(name, change=None):
        with open_inputs([find_input_file([corpus], name)]):
            if change is not None:
                change(corpus / name)
            raise CorpusError("a corpus file is not UTF-8")

    with pytest.raises(InputChangedError, match=r"small\.txt"):
        read("small.txt", rewrite)
    with pytest.raises(CorpusError, match="not UTF-8"):
        read("latin.txt")
