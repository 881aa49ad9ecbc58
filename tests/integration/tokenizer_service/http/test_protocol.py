"""Hosts and pages of other sites, on a real server that listens on a loopback address."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.server_process import Server, serve
from tests.reliability.socket_client import exchange, head
from tokenizer_core.registry import ArtifactStore

CLOSE = "Connection: close"


def test_a_loopback_name_is_served(server: Server) -> None:
    for host in ("LOCALHOST:1", "localhost.:8000", "tokens.localhost", "127.1.2.3:80", "[::1]:80"):
        sent = head("GET /info HTTP/1.1", CLOSE, host=f"Host: {host}")
        assert exchange(server.port, sent).status == 200, host


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("evil.example.com:8000", "/encode"),
        ("localhost.evil.com", "/"),
        ("192.168.1.2", "/info"),
        ("[fe80::1]", "/nowhere"),
    ],
)
def test_another_name_is_refused(server: Server, host: str, path: str) -> None:
    answer = exchange(server.port, head(f"GET {path} HTTP/1.1", host=f"Host: {host}"))
    assert (answer.status, answer.end) == (421, "closed")
    problem = answer.problem()
    assert problem["code"] == "host_not_allowed"
    assert "TOKENIZER_ALLOWED_HOSTS" in problem["detail"]
    assert host.encode() not in answer.body


def test_probes_name_any_host(server: Server) -> None:
    for path in ("/livez", "/v1/readyz", "/health?a=b"):
        sent = head(f"GET {path} HTTP/1.1", CLOSE, host="Host: 10.4.3.2:8000")
        assert exchange(server.port, sent).status == 200


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET http://localhost:80/info HTTP/1.1", "localhost", 200),
        ("GET http://evil.example.com/info HTTP/1.1", "localhost", 421),
        ("GET http://localhost/info HTTP/1.1", "evil.example.com", 421),
        ("GET http://localhost@evil.example.com/info HTTP/1.1", "localhost", 400),
        ("GET http://localhost:80@evil.example.com/info HTTP/1.1", "localhost", 400),
        ("GET /info HTTP/1.0", "", 200),
        ("GET http://evil.example.com/info HTTP/1.0", "", 421),
        ("OPTIONS * HTTP/1.1", "localhost", 404),
        ("OPTIONS * HTTP/1.1", "evil.example.com", 421),
    ],
)
def test_the_target_may_name_a_host_too(server: Server, line: str, host: str, status: int) -> None:
    sent = head(line, CLOSE, host=f"Host: {host}" if host else "")
    assert exchange(server.port, sent).status == status


def test_a_page_of_another_site_changes_nothing(server: Server) -> None:
    url, headers = f"{server.url}/encode_stream", {"Sec-Fetch-Site": "cross-site"}
    for method in ("POST", "PUT", "DELETE"):
        answer = httpx.request(method, url, headers=headers, content=b"a")
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_request")
    # A link of another site may open the page.
    assert httpx.get(f"{server.url}/", headers=headers).status_code == 200


def test_own_pages_and_programs_are_served(server: Server) -> None:
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
        answer = httpx.post(f"{server.url}/encode", headers=headers, json={"text": "a"})
        assert answer.status_code == 200


def test_the_operator_names_the_hosts(store: ArtifactStore) -> None:
    with serve(store.root, allowed_hosts="tokens.example.org, *.internal") as server:
        for host, status in (
            ("tokens.example.org", 200),
            ("a.internal:8000", 200),
            ("localhost", 421),
            ("evil.example.com", 421),
        ):
            headers = {"Host": host}
            assert httpx.get(f"{server.url}/info", headers=headers).status_code == status
        counted = 'tokenizer_rejected_total{reason="host_not_allowed"} 2.0'
        metrics = httpx.get(f"{server.url}/metrics", headers={"Host": "a.internal"}).text
        assert counted in metrics
