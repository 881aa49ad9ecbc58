"""The service behind nginx with `deploy/nginx.conf`: proxied routes, and limits of the proxy."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.nginx_process import (
    NGINX,
    SHIPPED,
    Nginx,
    free_port,
    proxy,
    replace_once,
    take_in,
)
from tests.integration.server_process import ADMIN, Server, publish_bytes, serve
from tests.reliability.socket_client import Answer, connect, exchange, head, read_one, send
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_service.jobs.process import JobLock
from tokenizer_service.settings import Settings

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

BODY_LIMIT = 1 << 20
CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
(PER_ADDRESS,) = map(int, re.findall(r"limit_conn per_address (\d+);", SHIPPED))
(LARGEST_BODY,) = map(int, re.findall(r"client_max_body_size (\d{2,});", SHIPPED))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that accepts smaller bodies than its proxy, and whose jobs stay in the queue."""
    artifacts = tmp_path_factory.mktemp("service") / "artifacts"
    publish_bytes(artifacts, "starter")
    assert JobLock(artifacts).acquire(timeout_seconds=0)
    with serve(artifacts, max_body_bytes=str(BODY_LIMIT), header_seconds="1") as server:
        yield server


@pytest.fixture(scope="module")
def nginx(service: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    folder = tmp_path_factory.mktemp("nginx")
    with proxy(folder, service.port) as running:
        yield running


@pytest.fixture(params=["its configuration", "the answer's header"])
def packing(request: pytest.FixtureRequest, service: Server, tmp_path: Path) -> Iterator[Nginx]:
    """nginx that compresses all responses and so buffers them, with a single setting that turns
    buffering off: either must be enough. (Without compression it passes chunks anyway.)"""
    lines, configuration = "gzip on; gzip_types *; gzip_min_length 0;", SHIPPED
    if request.param == "its configuration":
        lines += " proxy_ignore_headers X-Accel-Buffering;"
    else:
        configuration = SHIPPED.replace("proxy_buffering off;", "")
    changes = {"server_tokens off;": lines}
    with proxy(tmp_path, service.port, configuration=configuration, changes=changes) as running:
        yield running


@pytest.fixture
def client(nginx: Nginx) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=nginx.url, headers=ADMIN, timeout=30) as client:
        yield client


@contextlib.contextmanager
def waiting_job(client: httpx.Client) -> Iterator[str]:
    """The path of a job that does not end before the block does."""
    request = {"documents": ["aa bb"], "vocab_size": 258, "name": "waits", "promote": "manual"}
    accepted = client.post("/train", json=request)
    assert accepted.status_code == 202
    path = accepted.headers["location"]
    try:
        yield path
    finally:
        assert client.delete(path).status_code in (200, 202)


def own_problem(answer: Answer, code: str) -> dict[str, Any]:
    """The document of an error response from nginx itself; checks that it looks like any other."""
    problem = answer.problem()
    assert problem["code"] == problem["error"]["code"] == code
    assert problem["detail"] == problem["error"]["message"]
    assert problem["type"].endswith(":" + code)
    assert problem["instance"].endswith(":" + answer.headers["x-request-id"])
    assert "limit" not in problem  # the service's own would name it
    return problem


# Requests that nginx passes


def test_what_the_file_repeats_of_the_settings_is_their_default() -> None:
    settings = Settings.model_fields
    assert settings["max_body_bytes"].default == LARGEST_BODY
    assert f"client_header_timeout {settings['header_seconds'].default:g}s;" in SHIPPED
    assert f"send_timeout {settings['send_seconds'].default:g}s;" in SHIPPED
    (reads,) = map(int, re.findall(r"proxy_read_timeout (\d+)s;", SHIPPED))
    assert reads > settings["stream_idle_seconds"].default
    assert SHIPPED.count("# yours\n") + SHIPPED.count("# yours;") == 4


def test_an_answer_is_the_one_of_the_service(service: Server, client: httpx.Client) -> None:
    request = {"text": "naïve café 🙂 " * 5_000}
    direct = httpx.post(f"{service.url}/encode", json=request).raise_for_status()
    through = client.post("/encode", json=request)
    assert (through.status_code, through.content) == (200, direct.content)
    back = client.post("/v1/decode", json={"tokens": through.json()["tokens"]})
    assert back.json()["text"] == request["text"]
    for name in ("tokenizer-version", "tokenizer-digest", "content-type"):
        assert through.headers[name] == direct.headers[name]
    for path in ("/", "/docs", "/openapi.json"):
        direct, through = httpx.get(f"{service.url}{path}"), client.get(path)
        assert (through.status_code, through.content) == (direct.status_code, direct.content)
        for name in ("content-type", "content-security-policy", "cache-control", "etag"):
            assert through.headers.get(name) == direct.headers.get(name)


@pytest.mark.parametrize(
    ("path", "headers"), [("/encode_stream", ["Accept-Encoding: gzip"]), ("/v1/encode_stream", [])]
)
def test_ids_come_back_before_the_next_text_is_sent(
    nginx: Nginx, path: str, headers: list[str]
) -> None:
    with RawRequest("127.0.0.1", nginx.port, path, *headers) as request:
        for text in (b"one two three ", b"four five six "):
            request.send_chunk(text)
            assert text[0] in json.loads(request.read_chunk())["tokens"]
        request.end()
        assert b'"done":true' in request.read_body()
        assert "content-encoding" not in request.headers


def test_a_stream_may_be_longer_than_any_body(nginx: Nginx) -> None:
    request = head("POST /encode_stream HTTP/1.1", f"Content-Length: {LARGEST_BODY + 1}")
    with connect(nginx.port) as connection:
        send(connection, request + b"one two three ")
        data = b""
        while b'"tokens"' not in data:
            piece = connection.recv(1 << 16)
            assert piece
            data += piece
    assert data.startswith(b"HTTP/1.1 200 ")


def test_events_arrive_before_the_job_has_ended(packing: Nginx) -> None:
    def state(event: str) -> str:
        found: str = json.loads(event.removeprefix("data:"))["state"]
        return found

    with (
        httpx.Client(base_url=packing.url, headers=ADMIN, timeout=30) as client,
        waiting_job(client) as earlier,
        waiting_job(client) as path,
        client.stream("GET", f"{path}/events") as stream,
    ):
        events = (line for line in stream.iter_lines() if line.startswith("data:"))
        assert state(next(events)) == "queued"
        client.delete(earlier)
        # Later parts pass at once as well, not only those that came with the headers.
        assert state(next(events)) == "running"
        client.delete(path)
        assert state(list(events)[-1]) == "cancelled"


def test_errors_of_the_service_pass_as_they_are(nginx: Nginx, client: httpx.Client) -> None:
    too_large = client.post("/encode", json={"text": "x" * 2 * BODY_LIMIT})
    assert (too_large.status_code, too_large.json()["limit"]) == (413, BODY_LIMIT)
    assert too_large.headers["content-type"] == "application/problem+json"
    # On a new connection: nginx may have closed the one whose body was not read to its end.
    other = httpx.post(f"{nginx.url}/encode", json={"text": "a"}, headers={"If-Match": '"another"'})
    assert (other.status_code, other.headers["tokenizer-version"][:8]) == (412, "starter@")
    assert httpx.get(f"{nginx.url}/train").status_code == 401
    # nginx does not buffer it: the service reports that the body comes too slowly.
    request = head("POST /encode HTTP/1.1", JSON, "Content-Length: 5000")
    slow = exchange(nginx.port, request + b"{")
    assert (slow.status, slow.problem()["status"]) == (408, 408)


@pytest.mark.parametrize("given", ["mine-1.2_3", "two words", None])
def test_a_request_has_one_id_everywhere(
    nginx: Nginx, client: httpx.Client, given: str | None
) -> None:
    answer = client.get("/vocab/99999", headers={} if given is None else {"X-Request-Id": given})
    request_id = answer.headers["x-request-id"]
    assert answer.json()["instance"].endswith(f":{request_id}")
    if given == "mine-1.2_3":
        assert request_id == given
    else:
        assert re.fullmatch("[0-9a-f]{32}", request_id)
    client.get("/livez")  # on the same connection: the previous request's line is written
    logged = [line for line in nginx.requests_logged() if "/vocab/99999 404 " in line]
    assert logged[-1].endswith(f" request_id={request_id}")


# Requests that nginx refuses


def test_more_requests_than_one_address_may_have(nginx: Nginx) -> None:
    encode = head("POST /encode HTTP/1.1", JSON, CLOSE, "Content-Length: 12") + b'{"text":"a"}'
    with contextlib.ExitStack() as held:
        for _ in range(PER_ADDRESS):
            one = held.enter_context(RawRequest("127.0.0.1", nginx.port, "/encode_stream"))
            one.send_chunk(b"one two three ")
            assert one.read_chunk()
        refused = exchange(nginx.port, encode)
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        own_problem(refused, "too_many_connections")
        for path in ("/livez", "/readyz", "/health", "/v1/livez"):
            assert exchange(nginx.port, head(f"GET {path} HTTP/1.1", CLOSE)).status == 200
        one.end()
        assert one.read_body()
        # The place is free after nginx sees the end, which may be a moment later.
        deadline = time.monotonic() + 60
        while (answer := exchange(nginx.port, encode)).status == 429:
            assert time.monotonic() < deadline
        assert answer.status == 200


def test_a_body_larger_than_it_takes_is_refused_unread(nginx: Nginx) -> None:
    request = head("POST /encode HTTP/1.1", JSON, CLOSE, f"Content-Length: {LARGEST_BODY + 1}")
    with connect(nginx.port) as connection:
        send(connection, request)
        connection.shutdown(socket.SHUT_WR)
        answer = read_one(connection)
    assert answer.status == 413
    own_problem(answer, "body_too_large")


def test_headers_up_to_the_limit_of_the_service_reach_it(nginx: Nginx) -> None:
    def ask(n_bytes: int, n_headers: int) -> Answer:
        headers = [f"X-{number}: {'x' * n_bytes}" for number in range(n_headers)]
        return exchange(nginx.port, head("GET /livez HTTP/1.1", CLOSE, *headers))

    assert ask(31_000, 1).status == 200
    assert ask(20_000, 2).problem()["limit"] == 32 * 1024  # the service's
    too_large = ask(40_000, 1)
    assert too_large.status == 431
    own_problem(too_large, "headers_too_large")
    line = exchange(nginx.port, head(f"GET /livez?{'x' * 40_000} HTTP/1.1", CLOSE))
    assert line.status == 431
    own_problem(line, "headers_too_large")


def test_the_service_decides_which_names_it_serves(nginx: Nginx) -> None:
    def ask(*hosts: str) -> Answer:
        lines = [f"Host: {host}" for host in hosts]
        return exchange(nginx.port, head("GET /info HTTP/1.1", CLOSE, *lines, host=""))

    for host in ("localhost:8443", "[::1]:80"):
        assert ask(host).status == 200
    answer = ask("tokens.example")
    assert (answer.status, answer.problem()["code"]) == (421, "host_not_allowed")
    for hosts in ([], ["a", "b"], ["a b"], ["a/b"]):
        answer = ask(*hosts)
        assert answer.status == 400
        assert answer.problem()["code"] in ("bad_http", "host_invalid")


def test_a_service_that_is_not_there_is_a_problem_too(tmp_path: Path) -> None:
    with proxy(tmp_path, free_port()) as nginx:
        answer = exchange(nginx.port, head("GET /livez HTTP/1.1", CLOSE))
        assert (answer.status, answer.headers["retry-after"]) == (502, "1")
        own_problem(answer, "service_unreachable")


def test_no_request_is_sent_twice(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def answer_once_a_connection(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    seen.append(connection.recv(1 << 16))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    seen.append(connection.recv(1 << 16))

    one_worker = {"worker_processes auto;": "worker_processes 1;"}  # each keeps its own
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_once_a_connection, args=[listener], daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        with proxy(tmp_path, port, changes=one_worker) as nginx, httpx.Client() as client:
            assert client.get(f"{nginx.url}/livez").status_code == 200
            assert client.delete(f"{nginx.url}/train/1").status_code == 502
            lines = [request.split(b"\r\n") for request in seen]
            assert [first for first, *_ in lines] == [
                b"GET /livez HTTP/1.1",
                b"DELETE /train/1 HTTP/1.1",
            ]
            assert b"Host: 127.0.0.1" in lines[0]  # the client's
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


# The options in its comments


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, which makes a certificate to try")
    chain, key = tmp_path / "fullchain.pem", tmp_path / "privkey.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-out", chain, "-keyout", key], check=True, capture_output=True)
    return chain, key


def test_tls_and_the_lists_of_addresses_can_be_taken_in(
    service: Server, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    port = free_port()
    taken_in = replace_once(take_in(SHIPPED), "listen 443 ssl ", f"listen 127.0.0.1:{port} ssl ")
    for file in certificate:
        taken_in = replace_once(taken_in, f"/etc/nginx/tls/{file.name}", str(file))
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    trusting.check_hostname = False

    def ask(method: str, path: str, address: str, **request: Any) -> int:
        transport = httpx.HTTPTransport(verify=trusting, local_address=address)
        with httpx.Client(transport=transport, headers=ADMIN, timeout=30) as client:
            answer = client.request(method, f"https://127.0.0.1:{port}{path}", **request)
        if answer.status_code == 403:
            assert answer.json()["code"] == "address_not_allowed"
        return answer.status_code

    starter = {"json": {"tokenizer": "starter"}}
    with proxy(tmp_path, service.port, configuration=taken_in):
        for address, status in (("127.0.0.1", 200), ("127.0.0.2", 403)):
            assert ask("GET", "/train", address) == status
            assert ask("GET", "/v1/train", address) == status
            for path in ("/jobs", "/corpora", "/token-files", "/v1/corpora"):
                assert ask("GET", path, address) == status
            assert ask("GET", "/metrics", address) == status
            assert ask("PUT", "/tokenizers/active", address, **starter) == status
            assert ask("GET", "/tokenizers/active", address) == 200
            assert ask("POST", "/encode", address, json={"text": "a"}) == 200
