"""Addresses: normalized, without secrets in messages, and only below the roots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core.documents.corpus_addresses import check_allowed, is_address, parse_address
from tokenizer_core.errors import CorpusError


def test_an_address_is_told_from_a_path():
    for path, expected in (
        ("s3://bucket/some.txt", True),
        ("simplecache::s3://bucket/some.txt", True),
        ("zip://some.txt::/data/some.zip", True),
        ("/data/some.txt", False),
        ("a::b.txt", False),
        ("C://some.txt", False),
        ("", False),
    ):
        assert is_address(path) is expected


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
        address = parse_address(path)
        assert (address.text, address.shown) == (text, shown)
        assert parse_address(text) == address


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


@given(st.text("ab./\\:%2eE@?#[]*", max_size=20))
def test_allowed_addresses_begin_with_their_root(rest):
    path = f"https://host/data/{rest}"
    try:
        check_allowed(path, ["https://host/data"])
    except CorpusError:
        return
    text = parse_address(path).text
    assert text.startswith("https://host/data/")
    assert "/../" not in text
    assert not text.endswith("/..")
