"""Corpora and token files over HTTP from a real server: uploaded, encoded, downloaded, opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.integration.server_process import publish_bytes, serve, wait_for_job
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import TokenDataset, verify_token_files
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.training import TrainingOptions, train_from_iterator

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs") / "artifacts"
    publish_bytes(folder, "starter")
    return folder


@pytest.fixture(scope="module")
def client(artifacts: Path) -> Iterator[httpx.Client]:
    with serve(artifacts) as server, server.client() as client:
        yield client


def download(client: httpx.Client, token_files_id: str, folder: Path) -> Path:
    """Every file in two parts, like a download that broke off."""
    folder.mkdir()
    described = client.get(f"/token-files/{token_files_id}").raise_for_status().json()
    for file in described["files"]:
        url, middle = f"/token-files/{token_files_id}/{file['name']}", file["bytes"] // 2
        tag = {"If-Range": f'"{file["sha256"]}"'}
        first = client.get(url, headers={"Range": f"bytes=0-{middle - 1}", **tag})
        rest = client.get(url, headers={"Range": f"bytes={middle}-", **tag})
        assert (first.status_code, rest.status_code) == (206, 206)
        (folder / file["name"]).write_bytes(first.content + rest.content)
    return folder


def test_what_is_downloaded_opens_and_holds_the_ids(
    client: httpx.Client, artifacts: Path, tmp_path: Path
) -> None:
    texts = [f"Document {n}: 東京, {'low lower lowest ' * (n % 9)}\n" for n in range(500)]
    client.put("/corpora/news", content=END.join(texts).encode()).raise_for_status()
    asked = {"token_files_id": "news-bytes", "tokenizer": "starter"}
    answer = client.post("/corpora/news/encode", json=asked).raise_for_status()
    with client.stream("GET", f"{answer.headers['location']}/events") as events:
        last = [line for line in events.iter_lines() if line.startswith("data: ")][-1]
    assert '"state":"succeeded"' in last
    job = client.get(answer.headers["location"]).json()
    assert job["counters"]["documents"] == len(texts)
    folder = download(client, "news-bytes", tmp_path / "downloaded")
    store = ArtifactStore(artifacts)
    tokenizer = Tokenizer.from_spec(store.open(store.resolve("starter")))
    verify_token_files(folder, tokenizer=tokenizer, texts={"train": texts})
    dataset = TokenDataset.open(folder, tokenizer)
    ids = np.concatenate([tokenizer.encode(text + END) for text in texts])
    (inputs, targets), *_ = dataset.windows(1, len(ids) - 1)
    assert (inputs[0] == ids[:-1]).all()
    assert (targets[0] == ids[1:]).all()


def test_trainings_read_corpora_of_several_formats_and_fields(
    client: httpx.Client, artifacts: Path
) -> None:
    lines = "".join(f'{{"story": "{n} low"}}\n' for n in range(50)).encode()

    def train(**asked: Any) -> tuple[str, str]:
        started = client.post("/train", json={"promote": "manual", "vocab_size": 262, **asked})
        job = wait_for_job(client, started.raise_for_status().json()["id"])
        return job["state"], (job["error"] or {}).get("detail", "")

    client.put("/corpora/text", content=b"low lower " * 50).raise_for_status()
    client.put("/corpora/lines?format=jsonl&field=story", content=lines).raise_for_status()
    client.put("/corpora/others?format=jsonl", content=lines).raise_for_status()
    assert train(corpus_ids=["text", "lines"], name="a") == ("succeeded", "")
    assert train(corpus_ids=["others"], field="story", name="b") == ("succeeded", "")
    state, detail = train(corpus_ids=["others"])
    assert state == "failed"
    assert "line 1" in detail
    assert "others" in detail
    refused = client.post("/train", json={"corpus_ids": ["lines", "others"]})
    assert (refused.status_code, refused.json()["code"]) == (422, "corpus_field")
    store = ArtifactStore(artifacts)
    documents = [f"{n} low" for n in range(50)]
    expected = train_from_iterator(documents, TrainingOptions(262, [END]))
    assert list(store.open(store.resolve("b")).merges) == expected.merges
