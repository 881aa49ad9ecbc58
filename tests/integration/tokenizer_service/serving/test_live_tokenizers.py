"""Concurrent promotions on a real server; tests/integration/end_to_end swaps under load."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.integration.server_process import ADMIN, serve
from tokenizer_core import TokenizerSpec
from tokenizer_core.registry import ArtifactRef, ArtifactStore


def test_one_of_two_concurrent_promotions_is_refused(
    store: ArtifactStore, starter: ArtifactRef, small_spec: TokenizerSpec, other_spec: TokenizerSpec
) -> None:
    shorter = TokenizerSpec.from_merges(small_spec.vocab, small_spec.merges[:-1])
    other = store.publish(other_spec, name="other")
    refs = [starter, other, store.publish(shorter, name="third")]
    present = starter
    with serve(store.root, workers=2) as server, ThreadPoolExecutor(2) as threads:

        def put(ref: ArtifactRef) -> httpx.Response:
            return httpx.put(
                f"{server.url}/tokenizers/active",
                json={"tokenizer": str(ref)},
                headers=ADMIN | {"If-Match": f'"{present.digest}"'},
                timeout=60,
            )

        for _ in range(5):
            wanted = [ref for ref in refs if ref != present]
            answers = list(threads.map(put, wanted))
            assert sorted(answer.status_code for answer in answers) == [200, 412]
            present = wanted[[answer.status_code for answer in answers].index(200)]
            assert store.active() == present
