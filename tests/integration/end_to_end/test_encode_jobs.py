"""Token files over HTTP from a real server: downloaded and opened, and written despite kills."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.integration.server_process import publish_bytes, serve, wait_until_gone
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    CorpusFormat,
    TokenDataset,
    encode_corpus,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.queue import Job, JobStore

END = "<|endoftext|>"


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    publish_bytes(folder, "starter")
    return folder


def post(client: httpx.Client, text: bytes, **body: Any) -> str:
    client.put("/corpora/news", content=text).raise_for_status()
    answer = client.post("/corpora/news/encode", json=body).raise_for_status()
    location: str = answer.headers["location"]
    return location


def wait(client: httpx.Client, location: str) -> dict[str, Any]:
    deadline = time.monotonic() + 600
    while True:
        job: dict[str, Any] = client.get(location).raise_for_status().json()
        if job["state"] not in ("queued", "running"):
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.05)


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


def test_what_is_downloaded_opens_and_holds_the_ids(artifacts: Path, tmp_path: Path) -> None:
    texts = [f"Document {n}: 東京, {'low lower lowest ' * (n % 9)}\n" for n in range(500)]
    with serve(artifacts) as server, server.client() as client:
        location = post(client, END.join(texts).encode(), token_files_id="news-bytes")
        with client.stream("GET", f"{location}/events") as events:
            last = [line for line in events.iter_lines() if line.startswith("data: ")][-1]
        assert '"state":"succeeded"' in last
        assert wait(client, location)["counters"]["documents"] == len(texts)
        folder = download(client, "news-bytes", tmp_path / "downloaded")
        scraped = client.get("/metrics").text
        assert 'tokenizer_encode_jobs_total{status="succeeded"} 1.0' in scraped
        assert 'tokenizer_train_jobs_total{status="succeeded"} 0.0' in scraped
    store = ArtifactStore(artifacts)
    tokenizer = Tokenizer.from_spec(store.open(store.resolve("starter")))
    verify_token_files(folder, tokenizer=tokenizer, texts={"train": texts})
    dataset = TokenDataset.open(folder, tokenizer)
    ids = np.concatenate([tokenizer.encode(text + END) for text in texts])
    (inputs, targets), *_ = dataset.windows(1, len(ids) - 1)
    assert (inputs[0] == ids[:-1]).all()
    assert (targets[0] == ids[1:]).all()


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a child of niceness 19 gets the remaining time
@pytest.mark.promise(2, 10)
def test_kills_of_child_and_server_cost_nothing_but_time(artifacts: Path, tmp_path: Path) -> None:
    """The Python engine, which is slow enough to be interrupted midway."""
    generator = random.Random(5)
    words = ["".join(generator.choices("abcdefghij", k=6)) for _ in range(50_000)]
    lines = (" ".join(generator.choices(words, k=60)) for _ in range(60_000))
    source = tmp_path / "news"
    source.write_text(END.join(lines))
    jobs = JobStore.open(artifacts)
    settings = {"engine": "python", "train_threads": "1"}
    location = ""

    def reach(share: float) -> Job:
        """The running job, once this much of the corpus is done."""
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            job = jobs.get(location.rpartition("/")[2])
            assert job is not None
            assert not job.is_final, job
            done = job.counters.get("encode_done", 0) / job.counters.get("encode_total", 1)
            if job.child is not None and job.phase == "encode" and done >= share:
                return job
            time.sleep(0.02)
        raise AssertionError("it goes on too slowly")

    def kill_child(job: Job) -> None:
        assert job.child is not None
        os.kill(job.child.pid, signal.SIGKILL)

    ends: list[Callable[[Any], object]] = [
        lambda server: server.process.send_signal(signal.SIGKILL),
        lambda server: server.terminate(seconds=60),
        lambda server: None,
    ]
    for index, end in enumerate(ends):
        with serve(artifacts, **settings) as server, server.client() as client:
            if not location:
                location = post(
                    client, source.read_bytes(), token_files_id="a", validation_share=0.1
                )
                kill_child(reach(0.2))
            job = reach(0.4 + 0.2 * index)
            if index == 2:
                kill_child(job)
                assert wait(client, location)["state"] == "succeeded"
            end(server)
            assert job.child is not None
            wait_until_gone([job.child.pid], seconds=10)
    done = jobs.get(location.rpartition("/")[2])
    assert done is not None
    # Four claims after the first, and the takeover from the killed server.
    assert (done.deaths, done.attempt) == (3, 6)
    store = ArtifactStore(artifacts)
    ref = store.resolve("starter")
    tokenizer = Tokenizer.from_spec(store.open(ref))
    plan = plan_token_files(tokenizer, end_of_document=END, seed=0, ref=ref)
    form = CorpusFormat(format="txt", separator=END)
    expected = tmp_path / "expected"
    encode_corpus(tokenizer, [source], expected, plan, corpus_format=form, validation_share=0.1)
    written = artifacts / "token-files" / "a"
    assert {path.name for path in written.iterdir()} == {path.name for path in expected.iterdir()}
    for path in expected.iterdir():
        assert (written / path.name).read_bytes() == path.read_bytes(), path.name
    assert list((written.parent / ".unfinished").iterdir()) == []
