"""The load of a soak: requests of many kinds, right and wrong, whole and broken off.

Each method named in `KINDS` does one round of its kind on its own client. It compares responses
with the same tokenizers in this process, by the version that the response names.
"""

import functools
import itertools
import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.reliability.socket_client import connect, head
from tests.tokenizer_service.routes.exchanges import wait_for_job
from tokenizer_core import Tokenizer
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.registry import ArtifactStore

KINDS = {"encode": 3, "streams": 2, "wrong": 1, "hang_up": 1, "swap": 1, "train": 1, "look": 1}
"""Each kind, with the number of clients that do it at once."""

MAX_BODY_BYTES = 4 << 20
_LETTERS = bytes(ord("a") + byte % 26 for byte in range(256))
_JSON = "Content-Type: application/json"
_RAW = {"Content-Type": "application/octet-stream"}
_ACCEPT_RAW = {"Accept": "application/octet-stream"}


def words(source, n):
    """Words that never repeat, so that caches fill, of nine letters and a space; then some that are
    not ASCII."""
    letters = bytearray(source.randbytes(10 * n).translate(_LETTERS))
    letters[9::10] = b" " * n
    return letters.decode() + "é 世界"


class SoakLoad:
    """The load on one server, whose artifacts are in `artifacts_dir`. `done` counts the requests,
    `failures` has the broken promises."""

    def __init__(self, server, artifacts_dir, versions):
        self.server, self.versions = server, versions
        self.done = Counter()
        self.failures = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._round = itertools.count()
        store = ArtifactStore(artifacts_dir)

        @functools.lru_cache(maxsize=8)
        def reference(name, version):
            refs = store.versions(name)
            return Tokenizer.from_spec(store.open(next(r for r in refs if r.version == version)))

        self._reference = reference

    def run(self, seconds):
        """Keep every kind running for this long; all connections are closed when it returns."""
        self._stop.clear()
        names = [name for name, n_clients in KINDS.items() for _ in range(n_clients)]
        threads = [threading.Thread(target=self._repeat, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        try:
            self._stop.wait(seconds)
        finally:  # also when a person interrupts it
            self._stop.set()
        for thread in threads:
            thread.join(120)
            if thread.is_alive():
                self._fail("a client did not come to its end")

    def warm(self):
        """Enough new text that caches of words reach their bounds, and enough requests at once that
        every pool starts its threads: each thread adds some megabytes."""
        self._stop.set()

        def send(number):
            text = words(random.Random(f"warm {number}"), 100_000)
            with self.server.client() as client:  # each connection may reach another process
                self.ask(client, "POST", "/encode", json={"text": text}, headers=_ACCEPT_RAW)
                self._look(client, random.Random(number))

        with ThreadPoolExecutor(32) as clients:
            list(clients.map(send, range(64)))

    def drop_caches(self):
        """Swap until every tokenizer, active or pinned, has been replaced.

        A full cache of words is emptied, so that its size does not reveal a leak.
        """
        with self.server.client() as client:
            other, starter = self.versions
            for version in (starter, other, starter):  # the first may exist already
                self._promote(client, version)

    def _repeat(self, name):
        with self._lock:
            source = random.Random(f"{name} {next(self._round)}")
        with self.server.client() as client:
            while not self._stop.is_set():
                try:
                    getattr(self, f"_{name}")(client, source)
                except Exception as error:  # the report shows it, and fails
                    self._fail(f"{name}: {error!r}")
                    self._stop.wait(0.1)

    def _fail(self, what):
        with self._lock:
            self.failures.append(what[:300])

    def _count(self, what):
        with self._lock:
            self.done[what] += 1

    def ask(self, client, method, path, *statuses, **sent):
        """One request; a status other than these (200) is a failure."""
        answer = client.request(method, path, **sent)
        self._count("requests")
        if answer.status_code not in (statuses or (200,)):
            self._fail(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer

    def check(self, what, answer, text, ids):
        """The ids must be those of the version that the response names."""
        name, _, version = answer.headers["tokenizer-version"].partition("@")
        try:
            reference = self._reference(name, version)
        except (TokenizerCoreError, StopIteration):
            return  # trained here, and removed since
        if not np.array_equal(reference.encode_to_numpy(text), np.asarray(ids, np.uint32)):
            self._fail(f"{what}: ids not those of {name}@{version}")
        self._count("checked")

    # The kinds

    def _encode(self, client, source):
        """Several texts with more than ids, and one in binary form."""
        texts = [words(source, source.randrange(60)) for _ in range(32)]
        wanted = source.choice([["ids"], ["ids", "pieces"], ["ids", "offsets"]])
        answer = self.ask(client, "POST", "/encode", json={"text": texts, "return": wanted})
        for text, ids in zip(texts, answer.json()["tokens"], strict=True):
            self.check("batch", answer, text, ids)
        text = words(source, source.choice([10, 5000, 100_000]))
        answer = self.ask(client, "POST", "/encode", json={"text": text}, headers=_ACCEPT_RAW)
        self.check("raw ids", answer, text, np.frombuffer(answer.content, "<u4"))
        self._stop.wait(0.05)

    def _streams(self, client, source):
        text = words(source, 5000)
        data = text.encode()
        pieces = (data[at : at + 3001] for at in range(0, len(data), 3001))
        answer = self.ask(client, "POST", "/encode_stream", content=pieces)
        *records, end = map(json.loads, answer.content.splitlines())
        ids = list(itertools.chain.from_iterable(record["tokens"] for record in records))
        self.check("encode_stream", answer, text, ids)
        ref = source.choice(self.versions)
        data = self._reference(ref.name, ref.version).encode_to_numpy(text).tobytes()
        pieces = (data[at : at + 5003] for at in range(0, len(data), 5003))
        answer = self.ask(
            client,
            "POST",
            "/decode_stream",
            content=pieces,
            params={"tokenizer": str(ref)},
            headers=_RAW,
        )
        *records, end_of_text = map(json.loads, answer.content.splitlines())
        is_same = "".join(record["text"] for record in records) == text
        if not (end.get("done") and end_of_text.get("done") and is_same):
            self._fail(f"streams: {str(end)[:100]}, {str(end_of_text)[:100]}")
        self._stop.wait(0.05)

    def _wrong(self, client, source):
        too_many = [source.randrange(1 << 22, 1 << 30) for _ in range(2000)]
        for path, content, status in (
            ("/encode", b'{"text": ' + words(source, 5).encode(), 400),
            ("/encode", b'{"text": "a", "tokenizer": "none"}', 404),
            ("/decode", json.dumps({"tokens": too_many}).encode(), 422),
            ("/encode", b" " * (MAX_BODY_BYTES + 1), 413),
        ):
            headers = {"Content-Type": "application/json"}
            self.ask(client, "POST", path, status, content=content, headers=headers)
        self.ask(client, "POST", "/encode_stream", 400, content=b"ab\xff")

    def _hang_up(self, client, source):
        """In the headers, the body or the stream, or with most of the response unread."""
        body = json.dumps({"text": words(source, 20_000)}).encode()
        whole = head("POST /encode HTTP/1.1", _JSON, f"Content-Length: {len(body)}") + body
        stream = head("POST /encode_stream HTTP/1.1", f"Content-Length: {10 * len(body)}") + body
        for data, n_read in ((whole[:30], 0), (whole[:-1], 0), (whole, 1000), (stream, 1000)):
            with connect(self.server.port) as connection:
                connection.sendall(data)
                if n_read:
                    connection.recv(n_read)
            self._count("hung up")
        self._stop.wait(0.05)

    def _swap(self, client, source):
        """Sometimes many at once, sometimes one that the caches keep."""
        for _ in range(source.choice([1, 5])):
            self._promote(client, source.choice(self.versions))
        self._stop.wait(source.uniform(0.5, 4))

    def _promote(self, client, version):
        # The server gives up after 30 s, and says why.
        asked = {"tokenizer": str(version)}
        self.ask(client, "PUT", "/tokenizers/active", json=asked, timeout=60)
        self._count("swaps")

    def _train(self, client, source):
        """Watched, cancelled or not, promoted or not."""
        documents = [words(source, 200) for _ in range(5)]
        promote = source.choice(["auto", "manual", "manual"])
        asked = {"documents": documents, "vocab_size": 300, "name": "soak", "promote": promote}
        path = f"/train/{self.ask(client, 'POST', '/train', 202, json=asked).json()['id']}"
        if is_cancelled := source.random() < 0.3:
            self._stop.wait(source.choice([0, 0.3, 1]))
            self.ask(client, "DELETE", path, 200, 202)
            self._count("cancelled")
        with client.stream("GET", f"{path}/events") as events:
            for _ in events.iter_lines():
                if source.random() < 0.3:
                    break
        job = wait_for_job(client, path.removeprefix("/train/"), seconds=90)
        if job["state"] not in ("live", "succeeded", *(["cancelled"] if is_cancelled else [])):
            self._fail(f"training: {job['state']} {job['error']}")
        self._count("jobs")

    def _look(self, client, source):
        """Pages, on a connection that then stays idle for a while."""
        folder = f"/tokenizers/{self.versions[0].name}/{self.versions[0].version}"
        for path in ("/metrics", "/readyz", "/tokenizers", "/jobs", f"{folder}/tokenizer.json"):
            self.ask(client, "GET", path)
        self._stop.wait(source.uniform(0, 2))
