"""Corpus files, addresses and files in object stores: each once, in order, only below the roots."""

import gzip
import os
import socket
import sys

import fsspec
import pytest

from tokenizer_core.documents import (
    CorpusFormat,
    corpus_file_size,
    corpus_files,
    find_corpus_files,
    open_documents,
    read_documents,
)
from tokenizer_core.documents.corpus_addresses import check_allowed, is_address, parse_address
from tokenizer_core.documents.corpus_files import open_corpus_file
from tokenizer_core.errors import CorpusError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "deep/c.txt", "deep/er/d.txt", ".hidden.txt", "[1].txt", "n.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ("b.txt", ["b.txt"]),
        (["b.txt", "a.txt", "b.txt"], ["a.txt", "b.txt"]),
        ("*.txt", ["[1].txt", "a.txt", "b.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("[1].txt", ["[1].txt"]),
        ("deep/*.txt", ["deep/c.txt"]),
        ("deep/**/*.txt", ["deep/c.txt", "deep/er/d.txt"]),
        ("*/**/d.txt", ["deep/er/d.txt"]),
        (["*.txt", "./a.txt", "deep/../b.txt"], ["./a.txt", "[1].txt", "b.txt"]),
        (".hidden.txt", [".hidden.txt"]),
    ],
)
def test_paths_and_patterns_find_files(folder, paths, found):
    assert find_corpus_files(paths) == found


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/0-a.metadata.json", "Iceberg"),
    ],
)
@pytest.mark.parametrize("where", ["{}/table", "memory:/{}/table"])
def test_a_pattern_does_not_read_the_deleted_rows_of_a_table(tmp_path, where, log, kind):
    table = where.format(tmp_path)
    for name in (log, "data/lang=en/0.parquet", "data/lang=en/notes.txt"):
        with fsspec.open(f"{table}/{name}", "w") as file:
            file.write(name)
    with pytest.raises(CorpusError, match=f"table' is a table of {kind}, .* write its rows to"):
        find_corpus_files(f"{table}/**/*.parquet")
    assert find_corpus_files(f"{table}/data/lang=en/0.parquet")
    assert find_corpus_files(f"{table}/**/*.txt")


def test_a_file_with_several_names_comes_once(folder):
    (folder / "link.txt").symlink_to("a.txt")
    (folder / "hard.txt").hardlink_to("b.txt")
    assert find_corpus_files(["*.txt"]) == ["[1].txt", "a.txt", "b.txt"]
    assert find_corpus_files(["link.txt", "hard.txt"]) == ["hard.txt", "link.txt"]


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        ([], "no corpus files are named; give"),
        ("none.txt", "'none.txt' does not exist; check the path"),
        (["a.txt", "none.txt"], "'none.txt' does not exist"),
        ("none*.txt", r"no file matches the pattern 'none\*.txt'; check"),
        ("deep/", r"'deep/' is a folder; name the files in it, .*'deep/\*\*/\*.jsonl'"),
        ("deep/**", "'deep/' is a folder"),
        ("a.txt/b.txt", "'a.txt/b.txt' cannot be read: Not a directory"),
        ("a\0*.txt", "cannot be read: .*embedded null"),
        ("dangling*", "'dangling' does not exist"),
        ("pipe", "'pipe' is not a regular file; write what it gives to a file"),
        ("/dev/zero", "'/dev/zero' is not a regular file"),
        ("socket", "'socket' cannot be read"),
        ("loop", "'loop' cannot be read"),
        ("\n\udcff", r"'\\n\\udcff' does not exist"),
    ],
)
@pytest.mark.row(24)
def test_a_path_that_is_not_a_file_is_an_error(folder, paths, told):
    os.mkfifo("pipe")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(CorpusError, match=told) as caught:
            find_corpus_files(paths)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("pattern", ["**/*.txt", "*/er/*.txt", "d*/[e]*/d.txt"])
def test_unreadable_files_and_folders_are_errors(folder, monkeypatch, pattern):
    # root may read everything, so the test simulates the refusal.
    def refusing(given, part):
        def refuse(path, **options):
            if part in f"{os.fspath(path)}|":
                raise PermissionError(13, "Permission denied", path)
            return given(path, **options)

        return refuse

    monkeypatch.setattr(corpus_files.os, "scandir", refusing(os.scandir, "er|"))
    monkeypatch.setattr(corpus_files.os, "stat", refusing(os.stat, "er/"))
    match = r"folder '(\./)?deep/er' cannot be read: Permission denied"
    with pytest.raises(CorpusError, match=match):
        find_corpus_files(pattern)


def test_a_disk_that_fails_is_an_error(folder):
    class BadDisk:
        def read(self, n_bytes):
            raise OSError(5, "Input/output error")

    source = open_corpus_file("b.txt")
    source.file.close()
    source.file = BadDisk()
    with pytest.raises(CorpusError, match=r"'b\.txt' cannot be read: .*Input/output error"):
        list(source.blocks())
    for path in ("none.txt", "a.txt/b.txt", "a\0.txt"):
        with pytest.raises(CorpusError, match=r"does not exist|cannot be read: .*; check the path"):
            corpus_file_size(path)


def test_an_address_is_normalized_and_shows_no_secret():
    for path, text, shown in (
        ("S3://Bucket/a b@c.txt", "s3://Bucket/a b@c.txt", "s3://Bucket/a b@c.txt"),
        ("s3://b/x.txt?versionId=3", "s3://b/x.txt?versionId=3", "s3://b/x.txt"),
        ("s3://KEY:SECRET@b/x", "s3://KEY:SECRET@b/x", "s3://b/x"),
        ("sftp://u:p?w=1@h/x", "sftp://u:p?w=1@h/x", "sftp://h/x"),
        ("https://H:443/X?sig=a/b@c", "https://h/X?sig=a/b@c", "https://h/X"),
        ("http://TOKEN@h/x", "http://TOKEN@h/x", "http://h/x"),
        ("http://u:p@[::1]:80/x", "http://u:p@[::1]/x", "http://[::1]/x"),
        ("https://h?sig=SECRET@TAIL", "https://h?sig=SECRET@TAIL", "https://h"),
    ):
        assert is_address(path)
        address = parse_address(path)
        assert (address.text, address.shown) == (text, shown)
        assert parse_address(text) == address
    for path in ("/data/some.txt", "a::b.txt", "C://some.txt", ""):
        assert not is_address(path)


def test_an_ambiguous_address_is_refused():
    for path, told in (
        ("simplecache::s3://SECRET/x", "a chain of stores"),
        ("zip://SECRET.txt::s3://b/x.zip", "a chain of stores"),
        ("file:///SECRET", "on the disk; give the path itself"),
        ("s3://b/SECRET/../y", r"has \. or \.\. between slashes"),
        ("s3://b/SECRET/.", r"has \. or \.\. between slashes"),
        ("https://h/a/%2e%2E/SECRET", r"has \. or \.\. between slashes"),
        ("https://h/a/..\\SECRET", r"has \. or \.\. between slashes"),
        ("s3://b/SECRET\n", "control character"),
        ("https://u:SECRET/w@h/x", "host in a web address is malformed"),
        ("https://h\\@SECRET/x", "host in a web address is malformed"),
        ("https:///SECRET", "host in a web address is malformed"),
        ("https://SECRET h/x", "host in a web address is malformed"),
        ("https://SECRET\uff0fh/x", "host in a web address is malformed"),
    ):
        assert is_address(path)
        with pytest.raises(CorpusError, match=told) as error:
            parse_address(path)
        assert "SECRET" not in str(error.value)
        with pytest.raises(CorpusError, match=told):
            check_allowed(path, [path])


ROOTS = ("s3://bucket/news/", "https://host:443/data", "memory://", "folder")


def test_only_paths_below_a_root_are_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "out").symlink_to("/etc")
    for path, is_allowed in (
        ("s3://bucket/news", True),
        ("s3://bucket/news/*.txt", True),
        ("s3://bucket/newspapers", False),
        ("s3://bucket/*/b.txt", False),
        ("s3://bucket", False),
        ("HTTPS://HOST/data/b.txt", True),
        ("http://host/data/b.txt", False),
        ("https://host:444/data/b.txt", False),
        ("https://user@host/data/b.txt", False),
        ("https://host.evil/data/b.txt", False),
        ("https://host@evil/data/b.txt", False),
        ("memory://anything/b.txt", True),
        ("folder/b.txt", True),
        ("folder/deep/../b.txt", True),
        ("folder/../b.txt", False),
        ("folder/out/b.txt", False),
        ("/etc/passwd", False),
    ):
        check_allowed(path, None)
        for roots in (ROOTS, []) if not is_allowed else ([],):
            with pytest.raises(CorpusError, match="is not below an allowed root"):
                check_allowed(path, roots)
        if is_allowed:
            check_allowed(path, ROOTS)


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.pipe({f"/corpora/{name}": name.encode() for name in ("b.txt", "a.txt", "deep/c.txt")})
    store.pipe({"/corpora/.hidden.txt": b"", "/corpora/[1].txt": b"1", "/corpora/.d/e.txt": b""})
    yield store
    store.rm("/corpora", recursive=True)


def test_addresses_and_patterns_find_remote_files(memory, tmp_path):
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
    (tmp_path / "z.txt").write_text("")
    named = ["memory://corpora/b.txt", str(tmp_path / "z.txt"), "memory://corpora/?.txt"]
    found = ["memory://corpora/a.txt", "memory://corpora/b.txt"]
    assert find_corpus_files(named) == [str(tmp_path / "z.txt"), *found]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("memory://corpora/none.txt", r"corpora/none.txt' .* \(FileNotFoundError\); check"),
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
        lambda path: open_documents(path, CorpusFormat("txt")),
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
