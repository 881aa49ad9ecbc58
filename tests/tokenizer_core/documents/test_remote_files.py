"""Files in object stores: read like local files, with errors for the faults of stores."""

import gzip
import sys

import fsspec
import pytest

from tokenizer_core.documents import (
    corpus_file_size,
    find_corpus_files,
    open_documents,
    read_documents,
)
from tokenizer_core.errors import CorpusError


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.pipe({f"/corpora/{name}": name.encode() for name in ("b.txt", "a.txt", "deep/c.txt")})
    store.pipe({"/corpora/.hidden.txt": b"", "/corpora/[1].txt": b"1", "/corpora/.d/e.txt": b""})
    yield store
    store.rm("/corpora", recursive=True)


def test_addresses_and_patterns_find_remote_files(memory):
    for paths, found in (
        ("a.txt", ["a.txt"]),
        ("*.txt", ["[1].txt", "a.txt", "b.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("[1].txt", ["[1].txt"]),
        ("**/*.txt", ["[1].txt", "a.txt", "b.txt", "deep/c.txt"]),
        (".d/*", [".d/e.txt"]),
    ):
        expected = [f"memory://corpora/{name}" for name in found]
        assert find_corpus_files(f"memory://corpora/{paths}") == expected


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
def test_a_missing_remote_file_is_an_error_without_secrets(memory, path, told):
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


def test_a_file_of_memory_that_is_written_anew_is_an_error(memory, monkeypatch):
    memory.pipe("/corpora/some.txt", b"abc")
    reader = open_documents("memory://corpora/some.txt")
    memory.pipe("/corpora/some.txt", b"abd")
    with pytest.raises(CorpusError, match=r"'memory://corpora/some.txt' changed while it was read"):
        list(reader)


def test_without_fsspec_only_addresses_fail(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    (tmp_path / "some.txt.gz").write_bytes(gzip.compress(b"some"))
    assert list(read_documents(tmp_path / "some.txt.gz")) == ["some"]
    with pytest.raises(CorpusError, match=r"pip install 'tokenizer-service\[remote\]'"):
        find_corpus_files("memory://some.txt")
