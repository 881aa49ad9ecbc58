"""Files read from a real web server, with its faults."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import pytest

from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tests.tokenizer_core.documents.test_corpus_files import memory
from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents import (
    FORMATS,
    CorpusFormat,
    corpus_file_identity,
    corpus_file_name,
    corpus_file_size,
    corpus_files,
    find_corpus_files,
    open_documents,
    read_documents,
    remote_files,
)
from tokenizer_core.documents.corpus_files import open_corpus_file
from tokenizer_core.errors import CorpusError

__all__ = ["memory"]


DOCUMENTS = ["one\r\n", "", "zwei é 🙂", " three ", "x" * 50]
LONG = b"".join(b"line %d\n" % number for number in range(20_000))


class StoreServer(ThreadingHTTPServer):
    """Files in memory: ranges, versions, and the faults of real servers."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.files = {"/long.txt": LONG}
        self.redirects = {}
        self.asked = set()
        self.gives_parts = self.gives_size = True
        self.breaks_at = None
        """The byte of a file at which the connection ends."""
        self.version = 1

    def handle_error(self, *_):
        """Silent: a test that closes the connection does so on purpose."""


class Handler(BaseHTTPRequestHandler):
    server: StoreServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server, path = self.server, self.path.partition("?")[0]
        server.asked.add(path)
        if path in server.redirects:
            self._send(302, b"", {"Location": server.redirects[path]})
        elif path.endswith("/"):
            links = "".join(f'<a href="{name}">' for name in server.files if name.startswith(path))
            self._send(200, links.encode(), {"Content-Type": "text/html"})
        elif path not in server.files:
            self._send(404, b"", {})
        else:
            self._send_file(server.files[path], {"ETag": f'"{server.version}"'})

    def do_HEAD(self):
        self.do_GET()

    def _send_file(self, data, headers):
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        if not part or not self.server.gives_parts:
            return self._send(200, data, headers)
        start, end = int(part[1]), min(int(part[2]) + 1, len(data))
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return self._send(206, data[start:end], headers, start)

    def _send(self, status, data, headers, start=0):
        self.send_response(status)
        if self.server.gives_size:
            headers["Content-Length"] = str(len(data))
        else:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        breaks_at = self.server.breaks_at
        if self.command == "GET":
            whole = breaks_at is None or breaks_at >= start + len(data)
            self.wfile.write(data if whole else data[: max(breaks_at - start, 0)])
            self.close_connection = not whole or not self.server.gives_size


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(remote_files, "REQUEST_BYTES", 1 << 14)
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", 1 << 12)
    server = StoreServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("scheme", "format_name"),
    [*(("http", name) for name in FORMATS), ("memory", "txt"), ("memory", "parquet")],
)
def test_any_format_is_read_as_from_the_disk(tmp_path, memory, server, scheme, format_name):
    data = write_corpus(tmp_path / f"some.{format_name}", DOCUMENTS, format_name).read_bytes()
    memory.pipe(f"/corpora/some.{format_name}", data)
    server.files[f"/some.{format_name}"] = data
    path = f"memory://corpora/some.{format_name}"
    if scheme == "http":
        path = f"{server.address}/some.{format_name}?signature=SECRET"
    assert find_corpus_files(path) == [path]
    assert (corpus_file_size(path), corpus_file_name(path)) == (len(data), f"some.{format_name}")
    with open_documents(path, CorpusFormat(separator=SEPARATOR), hash_source=True) as reader:
        assert (reader.path, reader.format) == (path.partition("?")[0], format_name)
        assert join(list(reader)) == DOCUMENTS
        assert reader.position_bytes == reader.size_bytes == len(data)
        assert reader.sha256 == hashlib.sha256(data).hexdigest()


def test_a_file_of_a_bucket_has_one_identity_before_and_after_it_was_listed(s3_bucket):
    store = fsspec.filesystem("s3")
    store.pipe(f"{s3_bucket}/a.txt", b"some text")
    path = f"{s3_bucket}/a.txt"
    before = corpus_file_identity(path)
    assert find_corpus_files(f"{s3_bucket}/*.txt") == [path]
    assert corpus_file_identity(path) == before
    with open_documents(path) as reader:
        assert [text for text, _ in reader] == ["some text"]
        assert reader.identity == before
    store.pipe(f"{s3_bucket}/a.txt", b"more text")
    assert corpus_file_identity(path) != before


def test_a_web_server_without_parts_or_sizes_is_refused(server):
    server.gives_parts = False
    server.files["/short.txt"] = b"short"
    assert list(read_documents(f"{server.address}/short.txt")) == ["short"]
    with pytest.raises(CorpusError, match=r"at byte \d+ \(the server gives no part of a file\)"):
        list(read_documents(f"{server.address}/long.txt"))
    server.gives_size = False
    with pytest.raises(CorpusError, match=r"the size of the corpus file .*long.txt' is unknown"):
        open_corpus_file(f"{server.address}/long.txt")


@pytest.mark.parametrize("breaks_at", [0, 50_000, len(LONG) - 1])
def test_a_connection_that_breaks_is_an_error_that_names_the_byte(server, breaks_at):
    source = open_corpus_file(f"{server.address}/long.txt?signature=SECRET")
    server.breaks_at = breaks_at
    blocks = []
    with source.file, pytest.raises(CorpusError, match=r"127.0.0.1:\d+/long.txt' .*at byte") as e:
        blocks.extend(source.blocks())
    got = b"".join(blocks)
    assert LONG.startswith(got)
    assert f"at byte {len(got)} (" in str(e.value)
    assert "SECRET" not in str(e.value)
    assert e.value.__cause__ is None


@pytest.mark.parametrize("change", ["version", "longer", "shorter", "gone"])
def test_a_file_that_changes_while_it_is_read_is_an_error(server, change):
    reader = open_documents(f"{server.address}/long.txt", max_piece_chars=1_000)
    next(reader)
    if change == "gone":
        del server.files["/long.txt"]
    else:
        server.version += 1
        server.files["/long.txt"] = {"longer": LONG * 2, "shorter": LONG[:-9]}.get(change, LONG)
    told = "changed while it was read; read a copy|cannot be (read|opened)"
    with reader, pytest.raises(CorpusError, match=told):
        list(reader)


def test_roots_hold_before_anything_is_asked_and_against_redirects(memory, server):
    server.files["/open/a.txt"] = server.files["/secret/b.txt"] = b"some"
    server.redirects["/open/on.txt"] = f"{server.address}/secret/b.txt"
    roots = [f"{server.address}/open", "memory://corpora/deep"]
    for path in (f"{server.address}/secret/*.txt", f"{server.address}/secret/b.txt"):
        for use in (find_corpus_files, open_documents):
            with pytest.raises(CorpusError, match="is not below an allowed root"):
                use(path, allowed_roots=roots)
    assert server.asked == set()
    for use in (find_corpus_files, open_documents):
        with pytest.raises(CorpusError, match="sends on to another address"):
            use(f"{server.address}/open/on.txt", allowed_roots=roots)
    assert server.asked == {"/open/on.txt"}
    assert list(read_documents(f"{server.address}/open/on.txt")) == ["some"]
    assert find_corpus_files(f"{server.address}/open/*.txt", allowed_roots=roots)
    with open_documents(f"{server.address}/open/a.txt", allowed_roots=roots) as reader:
        assert [piece.text for piece in reader] == ["some"]
    found = find_corpus_files("memory://corpora/deep/*", allowed_roots=roots)
    assert found == ["memory://corpora/deep/c.txt"]
    del server.files["/secret/b.txt"], server.redirects["/open/on.txt"]
    server.files["/open/../secret.txt"] = b"some"
    pattern, roots = f"{server.address}/open/**", [f"{server.address}/open"]
    assert find_corpus_files(pattern, allowed_roots=roots) == [f"{server.address}/open/a.txt"]
    server.files["/open/%2e%2e/hidden.txt"] = b"some"
    with pytest.raises(CorpusError, match=r"has \. or \.\. between slashes"):
        find_corpus_files(pattern, allowed_roots=roots)
