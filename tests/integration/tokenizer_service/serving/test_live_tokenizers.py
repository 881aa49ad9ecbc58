"""Promotions on real servers: concurrent ones, and swaps under load over two processes."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tokenizer_service.serving.workers import WorkerStates

from tests.integration.running_server import RunningServer, run_server
from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.raw_http import RawRequest
from tests.tokenizer_service.serving.test_live_tokenizers import other
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactRef, ArtifactStore

__all__ = ["other"]


def test_of_two_promotions_that_expect_the_same_one_is_refused(
    store: ArtifactStore, starter: ArtifactRef, other: ArtifactRef, small_spec: TokenizerSpec
) -> None:
    shorter = TokenizerSpec.from_merges(small_spec.vocab, small_spec.merges[:-1])
    refs = [starter, other, store.publish(shorter, name="third")]
    present = starter
    with run_server(store.root, "--workers", "2") as server, ThreadPoolExecutor(2) as threads:

        def put(ref: ArtifactRef) -> httpx.Response:
            return httpx.put(
                f"{server.url}/tokenizers/active",
                json={"tokenizer": str(ref)},
                headers={"X-API-Key": ADMIN_KEY, "If-Match": f'"{present.digest}"'},
                timeout=60,
            )

        for _ in range(5):
            wanted = [ref for ref in refs if ref != present]
            answers = list(threads.map(put, wanted))
            assert sorted(answer.status_code for answer in answers) == [200, 412]
            present = wanted[[answer.status_code for answer in answers].index(200)]
            assert store.active() == present


@pytest.mark.promise(6)
@pytest.mark.parametrize("n_swaps", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_swaps_under_load_over_two_processes(
    store: ArtifactStore, starter: ArtifactRef, other: ArtifactRef, n_swaps: int
) -> None:
    """Two vocabularies without a common id: no response mixes them, none fails, none is late."""
    answers: Counter[tuple[str, bool]] = Counter()
    tokenizers = {ref.digest: Tokenizer.from_spec(store.open(ref)) for ref in (starter, other)}
    text = "the quick brown fox " * 40
    expected = {digest: tok.encode(text) for digest, tok in tokenizers.items()}
    assert not set(expected[starter.digest]) & set(expected[other.digest])
    failures: list[str] = []
    stop = threading.Event()

    def encode(client: httpx.Client) -> tuple[list[int], str, str]:
        response = client.post("/encode", json={"text": text})
        assert response.status_code == 200, response.text
        answer = response.json()
        header = response.headers["Tokenizer-Digest"]
        return answer["tokens"], answer["tokenizer"]["digest"], header

    def stream(server: RunningServer) -> tuple[list[int], str, str]:
        """Duplex and slow: a swap happens in the middle of most streams."""
        with RawRequest(server.host, server.port, "/encode_stream") as raw:
            received = b""
            for start in range(0, len(text), 200):
                raw.send_chunk(text[start : start + 200].encode())
                received += raw.read_chunk()
                time.sleep(0.02)
            raw.end()
            lines = [json.loads(line) for line in (received + raw.read_body()).splitlines()]
        ids = [id_ for line in lines[:-1] for id_ in line["tokens"]]
        return ids, lines[-1]["digest"], raw.headers["tokenizer-digest"]

    def load(server: RunningServer, is_stream: bool) -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            while not stop.is_set():
                try:
                    ids, digest, header = stream(server) if is_stream else encode(client)
                    if digest != header or ids != expected[digest]:
                        failures.append(f"mixed: {ids[:5]} {digest} {header}")
                    answers[digest, is_stream] += 1
                except Exception as error:
                    failures.append(repr(error))

    with run_server(store.root, "--workers", "2") as server, contextlib.ExitStack() as ending:
        ending.callback(stop.set)  # else a failure below would leave the load running for ever
        threads = [
            threading.Thread(target=load, args=(server, is_stream)) for is_stream in (False, True)
        ]
        for thread in threads:
            thread.start()
        headers = {"X-API-Key": ADMIN_KEY}
        for index in range(n_swaps):
            wanted = (other, starter)[index % 2]
            response = httpx.put(
                f"{server.url}/tokenizers/active",
                json={"tokenizer": str(wanted)},
                headers=headers,
                timeout=60,
            )
            assert response.status_code == 200, response.text
            # New connections reach either process; neither may respond with the old version.
            for _ in range(8):
                answer = httpx.post(f"{server.url}/encode", json={"text": "a"})
                assert answer.status_code == 200, answer.text
                assert answer.headers["Tokenizer-Digest"] == wanted.digest
        stop.set()
        for thread in threads:
            thread.join()
        states = WorkerStates(store.root / "run" / "workers").read_alive()
        assert len({state.pid for state in states}) == 2
        assert os.getpid() not in {state.pid for state in states}
    assert not failures, failures[:3]
    assert len(answers) == 4, answers  # both versions, plain and streamed
