"""Hosts that clients may name: entries of the setting, and values of the Host header."""

import pytest

from tokenizer_service.ingress import LOOPBACK, AllowedHosts


@pytest.mark.parametrize(
    ("entry", "allowed", "refused"),
    [
        (
            "api.example.org",
            ["api.example.org", "API.Example.ORG:8000", "api.example.org.", "api.example.org.:80"],
            ["example.org", "a.api.example.org", "api.example.org.evil.com", "xapi.example.org"],
        ),
        ("API.example.org.", ["api.example.org"], ["example.org"]),
        (
            "*.example.org",
            ["a.example.org", "a.b.example.org:8000", "A.EXAMPLE.ORG."],
            ["example.org", ".example.org", "aexample.org", "a.example.org.evil.com"],
        ),
        (".example.org", ["example.org", "a.example.org"], ["aexample.org", ".example.org"]),
        ("10.1.2.3", ["10.1.2.3", "10.1.2.3:8000", "[::ffff:10.1.2.3]"], ["10.1.2.30", "a"]),
        ("10.0.0.0/8", ["10.1.2.3:80"], ["11.1.2.3", "10.evil.com", "10.1.2.3.evil.com"]),
        ("::1", ["[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]"], ["[::2]", "localhost"]),
        ("[fe80::1]", ["[FE80::1]:80"], ["[fe80::2]"]),
        ("fe80::/16", ["[fe80::9]"], ["[fe81::9]"]),
        ("*", ["evil.example.com", "[::1]", "a:1"], []),
        ("a_b", ["a_b:80"], ["a-b"]),
    ],
)
def test_an_entry_allows_its_hosts_only(entry, allowed, refused):
    hosts = AllowedHosts([entry])
    given = [*allowed, *refused]
    assert [host for host in given if hosts.allows(host.encode())] == allowed


def test_another_form_of_an_entry_is_refused():
    for entry in ("http://a", "a:8000", "[::1]:80", "10.0.0.1/8", "a b", "ä.de", "**.a", "a.*",
                  "*a", "", "1.2.3"):  # fmt: skip
        with pytest.raises(ValueError, match="leave out the scheme and the port"):
            AllowedHosts([entry])


def test_without_entries_the_address_decides():
    own = ("localhost:8000", "a.localhost", "127.0.0.1", "127.3.2.1:80", "[::1]:8000")
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "LocalHost"):
        hosts = AllowedHosts.of((), address)
        assert not hosts.allows(b"evil.example.com")
        assert all(hosts.allows(host.encode()) for host in own)
    # No browser reaches the last one.
    for address in ("0.0.0.0", "::", "192.168.1.5", "my-machine", "unix:/run/localhost"):
        hosts = AllowedHosts.of((), address)
        assert all(hosts.allows(host.encode()) for host in ("evil.example.com", *own))
    hosts = AllowedHosts.of(["a.example.org"], "127.0.0.1")
    assert hosts.allows(b"a.example.org")
    assert not hosts.allows(b"localhost")
    for host in ("localhost.evil.com", "127.0.0.1.evil.com", "0.0.0.0", "é"):
        assert not AllowedHosts(LOOPBACK).allows(host.encode())
