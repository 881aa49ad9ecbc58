"""A training job in its child process that extends a published tokenizer."""

import threading
from dataclasses import asdict
from unittest.mock import Mock

from tests.tokenizer_core.formats.small_specs import trained_spec
from tokenizer_client.schemas.jobs import TrainRequest
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.training import TrainingOptions, train_from_iterator
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.worker.context import WorkerJob
from tokenizer_service.jobs.worker.train import train_and_publish

ID = "20261121T041500Z-0123456789ab"
DOCUMENTS = ["zebra zebras", "zebra"]


def test_a_job_extends_a_published_tokenizer(tmp_path):
    store = ArtifactStore(tmp_path / "artifacts")
    base = trained_spec(special_tokens=["<|other|>"])
    ref = store.publish(base, name="base")
    size = len(base.vocab) + 3
    asked = TrainRequest(documents=DOCUMENTS, name="more", vocab_size=size, extend=str(ref))
    folder = JobFolder.of(tmp_path / "artifacts", ID)
    folder.make()
    files = folder.write_documents(DOCUMENTS, "<|endoftext|>")
    request = {
        **asked.model_dump(mode="json"),
        "artifacts_dir": str(tmp_path / "artifacts"),
        "job_id": ID,
        "store": None,
        "inputs": list(map(asdict, files)),
        "corpus_format": {"format": "txt", "separator": "<|endoftext|>"},
        "engine": "auto",
        "num_workers": 1,
    }
    folder.write_request(request)
    allowed = threading.Event()
    allowed.set()
    train_and_publish(WorkerJob(folder, folder.read_request(), Mock(), allowed))
    expected = train_from_iterator(DOCUMENTS, TrainingOptions(size, extend=base))
    assert store.load(store.resolve("more")).spec == expected.spec
