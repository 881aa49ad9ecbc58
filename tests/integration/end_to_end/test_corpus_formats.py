"""The journey of a data engineer: JSONL.gz and Parquet over HTTP, to merges and token files that
equal those of the same documents as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.end_to_end.test_encode_jobs import download, wait
from tests.integration.server_process import publish_bytes, serve
from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import TokenDataset, TokenFiles, verify_token_files
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.training import TrainingOptions, train_from_iterator

STORIES = [f'"{n}" said: {{"text": 1}}, low lower lowest 東京 {n % 7}\n' for n in range(300)]
MORE = ["", "newer newest", "widest" * 40]
END = "<|endoftext|>"


def merges_of(artifacts: Path, result: dict[str, Any]) -> list[Any]:
    store = ArtifactStore(artifacts)
    return list(store.open(store.resolve(f"{result['name']}@{result['version']}")).merges)


@pytest.mark.parametrize("path", ["corpus_ids", "input_paths"])
def test_a_data_engineer_uploads_trains_and_encodes(tmp_path: Path, path: str) -> None:
    artifacts, roots = tmp_path / "artifacts", tmp_path / "corpora"
    roots.mkdir()
    publish_bytes(artifacts, "starter")
    packed = write_corpus(roots / "stories.jsonl.gz", STORIES, "jsonl.gz")
    parquet = write_corpus(roots / "more.parquet", MORE, "parquet")
    expected = train_from_iterator([*STORIES, *MORE], TrainingOptions(350, [END]))
    with (
        serve(artifacts, corpus_roots=str(roots)) as server,
        server.client() as client,
    ):
        for file in (packed, parquet):
            stored = client.put(f"/corpora/{file.name}", content=file.read_bytes())
            assert stored.raise_for_status().json()["format"] == file.name.partition(".")[2]
        asked = {path: [packed.name, parquet.name], "vocab_size": 350, "name": "learned"}
        started = client.post("/train", json=asked)
        assert started.status_code == 202, started.text
        job = wait(client, f"/jobs/{started.json()['id']}")
        while job["state"] == "succeeded":  # until every process serves it
            job = wait(client, f"/jobs/{job['id']}")
        assert (job["state"], job["error"]) == ("live", None)
        assert merges_of(artifacts, job["result"]) == expected.merges
        provenance = client.get("/tokenizers/active").json()["manifest"]["provenance"]
        assert [source["name"] for source in provenance] == [packed.name, parquet.name]

        body = {"further_corpora": [parquet.name], "token_files_id": "stories"}
        answer = client.post(f"/corpora/{packed.name}/encode", json=body).raise_for_status()
        job = wait(client, answer.headers["location"])
        assert (job["state"], job["counters"]["documents"]) == ("succeeded", 303)
        folder = download(client, "stories", tmp_path / "downloaded")

    tokenizer = Tokenizer.from_spec(expected.spec)
    files = TokenFiles.open(folder, tokenizer)
    ids = [[*tokenizer.encode(text), 256] for text in [*STORIES, *MORE]]
    assert [files.document(n).tolist() for n in range(303)] == ids
    assert len(TokenDataset.open(folder, tokenizer)) == sum(map(len, ids))
    verify_token_files(folder, tokenizer=tokenizer)


def test_corpora_of_several_formats_and_fields(tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    publish_bytes(artifacts, "starter")
    lines = "".join(f'{{"story": "{n} low"}}\n' for n in range(50)).encode()

    def state_of(client: httpx.Client, **asked: Any) -> tuple[str, str]:
        started = client.post("/train", json={"promote": "manual", "vocab_size": 262, **asked})
        job = wait(client, f"/jobs/{started.raise_for_status().json()['id']}")
        return job["state"], (job["error"] or {}).get("detail", "")

    with serve(artifacts) as server, server.client() as client:
        client.put("/corpora/text", content=b"low lower " * 50).raise_for_status()
        client.put("/corpora/lines?format=jsonl&field=story", content=lines).raise_for_status()
        client.put("/corpora/others?format=jsonl", content=lines).raise_for_status()
        client.put("/corpora/as-text?format=txt", content=lines).raise_for_status()
        assert state_of(client, corpus_ids=["text", "lines"], name="a") == ("succeeded", "")
        assert state_of(client, corpus_ids=["others"], field="story", name="b")[0] == "succeeded"
        state, detail = state_of(client, corpus_ids=["others"])
        assert state == "failed"
        assert "line 1" in detail
        assert "others" in detail
        assert state_of(client, corpus_ids=["as-text"], name="c") == ("succeeded", "")
        refused = client.post("/train", json={"corpus_ids": ["lines", "others"]})
        assert (refused.status_code, refused.json()["code"]) == (422, "corpus_field")
        encoded = client.post("/corpora/lines/encode", json={}).raise_for_status()
        job = wait(client, encoded.headers["location"])
        assert (job["state"], job["counters"]["documents"]) == ("succeeded", 50)
    store = ArtifactStore(artifacts)
    documents = [f"{n} low" for n in range(50)]
    expected = train_from_iterator(documents, TrainingOptions(262, [END]))
    assert list(store.open(store.resolve("b")).merges) == expected.merges
