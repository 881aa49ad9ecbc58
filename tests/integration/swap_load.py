"""Swaps under continuous load.

Two tokenizers without a common id alternate, while clients encode and stream without a pause. Each
response must be complete, and all its ids must be of the tokenizer that its header names.
"""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.tokenizer_service.raw_http import RawRequest

SECOND_FIRST_ID = 10_000
"""The second tokenizer's ids begin here; those of the first end far below."""

_TEXT = "The answers must be told apart, héllo 世界, by a glance at any id. " * 20
_LARGE_TIMES = 10
_CLIENTS = 3
_PIECE_BYTES = 120
_PAUSE_SECONDS = 0.01
_CHECKS_AFTER_SWAP = 4


class SwapLoad:
    """The load, and what it saw. `run` raises what a client meets.

    `first` has ids below SECOND_FIRST_ID (single bytes), `second` the same from there on.
    """

    def __init__(self, server, first, second):
        self._server, self._refs = server, (first, second)
        self._ids = {
            str(ref): [first_id + byte for byte in _TEXT.encode()]
            for ref, first_id in ((first, 0), (second, SECOND_FIRST_ID))
        }
        self._digests = {str(ref): ref.digest for ref in self._refs}
        self._stop = threading.Event()
        self.n_swaps = 0
        self.answers = []
        """`encode`, `stream` or `stream across a swap`, and the version that the header names."""

    def run(self, n_swaps):
        with ThreadPoolExecutor(2 * _CLIENTS) as threads:
            load = [threads.submit(self._encode) for _ in range(_CLIENTS)]
            load += [threads.submit(self._stream) for _ in range(_CLIENTS)]
            try:
                for number in range(n_swaps):
                    self._swap(self._refs[(number + 1) % 2])
            finally:
                self._stop.set()
        for client in load:
            client.result()

    def _swap(self, ref):
        with self._server.client() as client:
            client.put("/tokenizers/active", json={"tokenizer": str(ref)}).raise_for_status()
        self.n_swaps += 1
        for _ in range(_CHECKS_AFTER_SWAP):
            after = self._server.encode_on_new_connection("a")
            assert after.headers["tokenizer-version"] == str(ref)

    def _encode(self):
        with self._server.client() as client:
            # A thread processes large requests: a swap can come between two reads of the version.
            for n_times in itertools.cycle((1, _LARGE_TIMES)):
                if self._stop.is_set():
                    return
                answer = client.post("/encode", json={"text": _TEXT * n_times}).raise_for_status()
                body = answer.json()
                named = f"{body['tokenizer']['name']}@{body['tokenizer']['version']}"
                assert named == answer.headers["tokenizer-version"]
                self._check("encode", answer.headers, body["tokens"], n_times)

    def _stream(self):
        data, kind = _TEXT.encode(), "Content-Type: text/plain; charset=utf-8"
        while not self._stop.is_set():
            swaps_before = self.n_swaps
            with RawRequest("127.0.0.1", self._server.port, "/encode_stream", kind) as request:
                for start in range(0, len(data), _PIECE_BYTES):
                    request.send_chunk(data[start : start + _PIECE_BYTES])
                    time.sleep(_PAUSE_SECONDS)
                request.end()
                *parts, end = map(json.loads, request.read_body().splitlines())
            assert (request.status, end["done"]) == (200, True)
            assert end["digest"] == request.headers["tokenizer-digest"]
            is_across = self.n_swaps != swaps_before
            ids = [id_ for part in parts for id_ in part["tokens"]]
            self._check("stream across a swap" if is_across else "stream", request.headers, ids)

    def _check(self, what, headers, ids, times=1):
        version = headers["tokenizer-version"]
        assert self._digests[version] == headers["tokenizer-digest"]
        assert ids == self._ids[version] * times
        self.answers.append((what, version))
