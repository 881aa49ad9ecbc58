"""Hosts and pages of other sites, on a real server that listens on a loopback address."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.running_server import RunningServer, run_server
from tests.reliability.socket_client import exchange, head
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import TokenizerSpec

CLOSE = "Connection: close"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.:8000",
        "tokens.localhost",
        "127.0.0.1",
        "127.1.2.3:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]",
    ],
)
def test_a_loopback_name_is_served(server: RunningServer, host: str) -> None:
    sent = head("GET /info HTTP/1.1", CLOSE, host=f"Host: {host}")
    assert exchange(server.port, sent).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example.com", "evil.example.com:8000", "localhost.evil.com", "192.168.1.2", "[fe80::1]"],
)
@pytest.mark.parametrize("path", ["/encode", "/info", "/", "/nowhere"])
def test_another_name_is_refused(server: RunningServer, host: str, path: str) -> None:
    answer = exchange(server.port, head(f"GET {path} HTTP/1.1", host=f"Host: {host}"))
    assert (answer.status, answer.end) == (421, "closed")
    problem = answer.problem()
    assert problem["code"] == "host_not_allowed"
    assert "TOKENIZER_ALLOWED_HOSTS" in problem["detail"]
    assert host.encode() not in answer.body


def test_probes_name_any_host(server: RunningServer) -> None:
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
def test_the_target_may_name_a_host_too(
    server: RunningServer, line: str, host: str, status: int
) -> None:
    sent = head(line, CLOSE, host=f"Host: {host}" if host else "")
    assert exchange(server.port, sent).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_page_of_another_site_changes_nothing(server: RunningServer, method: str) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
    answer = httpx.request(method, f"{server.url}/encode_stream", headers=headers, content=b"a")
    assert answer.status_code == 403
    assert answer.json()["code"] == "cross_site_request"


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none", None])
def test_own_pages_and_programs_are_served(server: RunningServer, site: str | None) -> None:
    headers = {} if site is None else {"Sec-Fetch-Site": site}
    answer = httpx.post(f"{server.url}/encode", headers=headers, json={"text": "a"})
    assert answer.status_code == 200


def test_a_link_of_another_site_opens_the_page(server: RunningServer) -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert httpx.get(f"{server.url}/", headers=headers).status_code == 200


def test_the_operator_names_the_hosts(
    tmp_path_factory: pytest.TempPathFactory, small_spec: TokenizerSpec
) -> None:
    root = tmp_path_factory.mktemp("hosts") / "artifacts"
    ArtifactStore(root).publish(small_spec, name="starter")
    hosts = "tokens.example.org, *.internal"
    with run_server(root, TOKENIZER_ALLOWED_HOSTS=hosts) as server:  # probes name 127.0.0.1
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
