"""Files in stores: as they are on the disk, and an error for what stores do beside that."""

import gzip
import hashlib
import io
import re
import sys

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tests.tokenizer_core.documents.store_server import serve_store
from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents import (
    FORMATS,
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
from tokenizer_core.training import train_bpe

DOCUMENTS = ["one\r\n", "", "zwei é 🙂", " three ", "x" * 50]
LONG = b"".join(b"line %d\n" % number for number in range(20_000))


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.pipe({f"/corpora/{name}": name.encode() for name in ("b.txt", "a.txt", "deep/c.txt")})
    store.pipe({"/corpora/.hidden.txt": b"", "/corpora/[1].txt": b"1", "/corpora/.d/e.txt": b""})
    yield store
    store.rm("/corpora", recursive=True)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(remote_files, "REQUEST_BYTES", 1 << 14)
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", 1 << 12)
    with serve_store() as server:
        server.files["/long.txt"] = LONG
        yield server


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ("a.txt", ["a.txt"]),
        ("*.txt", ["[1].txt", "a.txt", "b.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("[1].txt", ["[1].txt"]),
        ("?.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["[1].txt", "a.txt", "b.txt", "deep/c.txt"]),
        (".d/*", [".d/e.txt"]),
    ],
)
def test_addresses_and_patterns(memory, paths, found):
    assert find_corpus_files(f"memory://corpora/{paths}") == [
        f"memory://corpora/{name}" for name in found
    ]


class HostedStore(MemoryFileSystem):
    """Names in it have neither host nor user, and a box that the address has elsewhere."""

    protocol = "hosted"

    @classmethod
    def _strip_protocol(cls, path):
        match = re.fullmatch(r"hosted://(\w+)@[^/]*(/.*)?", path)
        return f"/{match[1]}{match[2] or ''}" if match else super()._strip_protocol(path)


def test_what_a_pattern_finds_has_its_host_and_user(memory):
    fsspec.register_implementation("hosted", HostedStore, clobber=True)
    pattern = "hosted://corpora@host/**/c.*"
    assert find_corpus_files(pattern) == ["hosted://corpora@host/deep/c.txt"]
    assert list(read_documents("hosted://corpora@host/deep/c.txt")) == ["deep/c.txt"]


def test_addresses_beside_paths_come_once_and_sorted(memory, tmp_path):
    (tmp_path / "z.txt").write_text("")
    path = str(tmp_path / "z.txt")
    named = ["memory://corpora/b.txt", path, "memory://corpora/?.txt"]
    assert find_corpus_files(named) == [path, "memory://corpora/a.txt", "memory://corpora/b.txt"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (
            "memory://corpora/none.txt",
            r"'memory://corpora/none.txt' .* \(FileNotFoundError\); check",
        ),
        ("memory://corpora/none*", "no file matches the pattern 'memory://corpora/none*"),
        ("memory://corpora", "'memory://corpora' is a folder; name the files"),
        ("memory://corpora/dee*", "'memory://corpora/deep' is a folder"),
        ("nowhere://some.txt", "no kind of store is known as nowhere://; check"),
        ("gs://bucket/some.txt", "gs:// needs another package .*gcsfs"),
        ("https://u:SECRET@127.0.0.1:1/x.txt?sig=SECRET", r"'https://127.0.0.1:1/x.txt' .*Connect"),
        ("reference://SECRET", "cannot be opened|needs another package"),
    ],
)
def test_what_is_no_file_is_an_error_without_secrets(memory, path, told):
    for use in (
        find_corpus_files,
        corpus_file_size,
        lambda path: open_documents(path, format="txt"),
    ):
        if "*" in path and use is not find_corpus_files:
            continue
        with pytest.raises(CorpusError, match=told) as error:
            use(path)
        assert "SECRET" not in str(error.value).replace("reference://SECRET", "")
        assert error.value.__cause__ is None


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("scheme", ["memory", "http"])
def test_any_format_is_read_as_from_the_disk(tmp_path, memory, server, scheme, format_name):
    data = write_corpus(tmp_path / f"some.{format_name}", DOCUMENTS, format_name).read_bytes()
    memory.pipe(f"/corpora/some.{format_name}", data)
    server.files[f"/some.{format_name}"] = data
    path = f"memory://corpora/some.{format_name}"
    if scheme == "http":
        path = f"{server.address}/some.{format_name}?signature=SECRET"
    assert find_corpus_files(path) == [path]
    assert (corpus_file_size(path), corpus_file_name(path)) == (len(data), f"some.{format_name}")
    with open_documents(path, separator=SEPARATOR, hash_source=True) as reader:
        assert (reader.path, reader.format) == (path.partition("?")[0], format_name)
        assert join(list(reader)) == DOCUMENTS
        assert reader.position_bytes == reader.size_bytes == len(data)
        assert reader.sha256 == hashlib.sha256(data).hexdigest()


def test_a_web_server_is_asked_for_parts_and_its_list_for_patterns(server):
    server.files |= {"/d/a.txt": b"a", "/d/b.txt": b"b", "/d/c.md": b"c"}
    assert find_corpus_files(f"{server.address}/d/*.txt") == [
        f"{server.address}/d/a.txt",
        f"{server.address}/d/b.txt",
    ]
    assert list(read_documents(f"{server.address}/long.txt")) == [LONG.decode()]
    parts = [part for method, path, part in server.requests if path == "/long.txt" and part]
    assert len(parts) > len(LONG) // (3 << 14)
    assert all(part is not None for part in parts)


def test_a_web_server_that_gives_no_parts(server):
    server.gives_parts = False
    server.files["/short.txt"] = b"short"
    assert list(read_documents(f"{server.address}/short.txt")) == ["short"]
    with pytest.raises(CorpusError, match=r"at byte \d+ \(the server gives no part of a file\)"):
        list(read_documents(f"{server.address}/long.txt"))


def test_a_size_that_is_not_told_is_an_error(server):
    server.gives_size = False
    with pytest.raises(CorpusError, match=r"the size of the corpus file .*long.txt' is not told"):
        open_corpus_file(f"{server.address}/long.txt")


@pytest.mark.parametrize("breaks_at", [0, 5, 50_000, len(LONG) - 1])
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


def test_a_file_of_memory_that_is_written_anew_is_an_error(memory, monkeypatch):
    memory.pipe("/corpora/some.txt", b"abc")
    reader = open_documents("memory://corpora/some.txt")
    memory.pipe("/corpora/some.txt", b"abd")
    with pytest.raises(CorpusError, match=r"'memory://corpora/some.txt' changed while it was read"):
        list(reader)


def test_roots_hold_before_anything_is_asked_and_against_redirects(memory, server):
    server.files["/open/a.txt"] = server.files["/secret/b.txt"] = b"some"
    server.redirects["/open/on.txt"] = f"{server.address}/secret/b.txt"
    roots = [f"{server.address}/open", "memory://corpora/deep"]
    for path in (f"{server.address}/secret/*.txt", f"{server.address}/secret/b.txt"):
        for use in (find_corpus_files, open_documents):
            with pytest.raises(CorpusError, match="is not below an allowed root"):
                use(path, allowed_roots=roots)
    assert server.requests == []
    for use in (find_corpus_files, open_documents):
        with pytest.raises(CorpusError, match="sends on to another address"):
            use(f"{server.address}/open/on.txt", allowed_roots=roots)
    assert {path for _, path, _ in server.requests} == {"/open/on.txt"}
    assert list(read_documents(f"{server.address}/open/on.txt")) == ["some"]
    assert find_corpus_files(f"{server.address}/open/*.txt", allowed_roots=roots)
    with open_documents(f"{server.address}/open/a.txt", allowed_roots=roots) as reader:
        assert [piece.text for piece in reader] == ["some"]
    assert find_corpus_files("memory://corpora/deep/*", allowed_roots=roots) == [
        "memory://corpora/deep/c.txt"
    ]


def test_a_list_that_leads_out_of_the_roots_is_refused(server):
    server.files["/open/a.txt"] = server.files["/open/../secret.txt"] = b"some"
    pattern, roots = f"{server.address}/open/**", [f"{server.address}/open"]
    assert find_corpus_files(pattern, allowed_roots=roots) == [f"{server.address}/open/a.txt"]
    server.files["/open/%2e%2e/hidden.txt"] = b"some"
    with pytest.raises(CorpusError, match=r"has \. or \.\. between slashes"):
        find_corpus_files(pattern, allowed_roots=roots)


def test_what_needs_the_disk_says_so(memory):
    with pytest.raises(CorpusError, match=r"'memory://corpora/a.txt' is not on the disk"):
        train_bpe("memory://corpora/a.txt", 300, [])


def test_it_is_a_file_as_others_are(server):
    with open_corpus_file(f"{server.address}/long.txt").file as file:
        assert file.readable()
        assert file.seekable()
        assert (file.read(3), file.tell()) == (LONG[:3], 3)
        assert (file.seek(-4, io.SEEK_END), file.read(9)) == (len(LONG) - 4, LONG[-4:])
        assert file.read(1) == b""
    assert file.closed
    file.close()


def test_without_fsspec_only_addresses_fail(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    (tmp_path / "some.txt.gz").write_bytes(gzip.compress(b"some"))
    assert list(read_documents(tmp_path / "some.txt.gz")) == ["some"]
    with pytest.raises(CorpusError, match=r"pip install 'tokenizer-service\[remote\]'"):
        find_corpus_files("memory://some.txt")
