"""URLs that a corpus may come from: parsing, the operator's list, and the addresses behind them."""

import ipaddress

import pytest

from tokenizer_service.egress import CorpusUrl, CorpusUrlError, ListedHost, parse_corpus_url

pytestmark = pytest.mark.row(25)

PUBLIC, INNER, LITERAL, _ = HOSTS = [
    ListedHost.parse("data.example.org"),
    ListedHost.parse("store.internal:9000=10.0.0.0/8"),
    ListedHost.parse("127.0.0.1:8080"),
    ListedHost.parse("[::1]:81"),
]


def test_a_listed_url_is_taken_apart():
    for url, *parts in (
        ("https://data.example.org/a/b.txt?c=%20d", "data.example.org", 443, "/a/b.txt?c=%20d"),
        ("http://DATA.example.org", "data.example.org", 80, "/"),
        ("http://data.example.org:80?a", "data.example.org", 80, "/?a"),
        ("http://store.internal:9000/x", "store.internal", 9000, "/x"),
        ("http://[0:0::1]:81/", "::1", 81, "/"),
    ):
        found = CorpusUrl.parse(url, HOSTS)
        assert [found.host, found.port, found.target] == parts
    signed = CorpusUrl.parse("https://data.example.org/a.txt?signature=secret", HOSTS)
    assert signed.shown == "https://data.example.org/a.txt"
    assert CorpusUrl.parse("http://[::1]:81/", HOSTS).origin == "[::1]:81"


REFUSED = [
    "", "file:///etc/passwd", "HTTP://data.example.org/a",
    "simplecache::https://data.example.org/a", "https://user:password@data.example.org/a",
    "https://data.example.org@169.254.169.254/a", "https://data.example.org\\@169.254.169.254/a",
    "https://169.254.169.254\\.data.example.org/a", "https://data.example.org#@169.254.169.254/",
    "https://data.example.org./a", "https://data.example.org:0/a",
    "https://sub.data.example.org/a", "http://2130706433:8080/", "http://[::ffff:127.0.0.1]:8080/",
    "http://[::1%25lo]:81/", "http://[data.example.org]/", "https://data.example.org/a b",
    "https://data.example.org/a\r\nX: y", "https://data.example.org/\u00e9",
    "https://d\u0430ta.example.org/", "https://data.example.org/" + "a" * 2000,
]  # fmt: skip


def test_another_url_is_refused_and_not_repeated():
    for url in REFUSED:
        with pytest.raises(CorpusUrlError) as raised:
            CorpusUrl.parse(url, HOSTS)
        assert "169.254" not in str(raised.value)
        assert "password@" not in str(raised.value)


def test_an_object_is_below_a_listed_prefix_by_whole_names():
    listed = ["s3://bucket/data/", "s3://whole"]
    for url in ("s3://bucket/data/a.txt", "s3://bucket/data/b c/é=1.jsonl", "s3://whole/a"):
        assert parse_corpus_url(url, [], listed).shown == url
    for url in ("s3://bucket/data2/a", "s3://bucket/a", "s3://whole2/a", "s3://bucket/Data/a"):
        with pytest.raises(CorpusUrlError, match="TOKENIZER_CORPUS_S3_PREFIXES"):
            parse_corpus_url(url, [], listed)
    for name in ("../a", "data/../a", "data/./a", "data//a", "data/*", "data/a?b", "data/a#b",
                 "a::b", "data/%2e%2e/a", "data\\a", "data/a\n"):  # fmt: skip
        with pytest.raises(CorpusUrlError, match="it must be s3://"):
            parse_corpus_url(f"s3://bucket/{name}", [], listed)
    for url in ("S3://whole/a", "s3://a:b@whole/a", "s3a://whole/a", "simplecache::s3://whole/a"):
        with pytest.raises(CorpusUrlError):
            parse_corpus_url(url, [], listed)


PRIVATE = """
127.0.0.1 10.1.2.3 172.16.0.1 192.168.0.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1
255.255.255.255 240.0.0.1 192.0.0.1 ::1 :: fe80::1 fc00::1 ff02::1 ::ffff:127.0.0.1
::ffff:169.254.169.254 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001:0:7f00:1::
"""


def test_only_listed_or_public_addresses_are_reached():
    public = "1.1.1.1 93.184.216.34 2606:4700::1 ::ffff:1.1.1.1"
    for entry, allowed, refused in (
        (PUBLIC, public, PRIVATE),
        (INNER, "10.9.9.9 ::ffff:10.9.9.9", "127.0.0.1 1.1.1.1 169.254.169.254"),
        (LITERAL, "127.0.0.1", "127.0.0.2"),
    ):
        for address in allowed.split():
            assert entry.allows(ipaddress.ip_address(address)), address
        for address in refused.split():
            assert not entry.allows(ipaddress.ip_address(address)), address


def test_a_wrong_entry_is_refused():
    for entry in ("", "http://a.org", "a.org/x", "a.org:0", "a.org:99999", "a.org=b.org",
                  "a.org=10.0.0.1/8", "*", "*.a.org", "a.org=", "[a.org]", "a@b"):  # fmt: skip
        with pytest.raises(CorpusUrlError):
            ListedHost.parse(entry)
