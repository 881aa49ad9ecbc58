"""The service behind nginx with `deploy/nginx.conf`: proxied routes, and limits of the proxy.

A real nginx process serves the shipped configuration, adapted to this machine.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time

import httpx
import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import ADMIN, free_port, publish_bytes, serve
from tests.reliability.socket_client import connect, exchange, head, read_one, send
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_service.jobs.process import JobLock
from tokenizer_service.settings import Settings

SHIPPED = (REPOSITORY / "deploy" / "nginx.conf").read_text(encoding="utf-8")
# Debian's path, which not every user has on PATH.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
START_SECONDS = 20.0
BODY_LIMIT = 1 << 20
CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
(PER_ADDRESS,) = map(int, re.findall(r"limit_conn per_address (\d+);", SHIPPED))
(LARGEST_BODY,) = map(int, re.findall(r"client_max_body_size (\d{2,});", SHIPPED))
# nginx creates these folders at start; the package's belong to the system.
TEMPORARY = "".join(
    f"{kind}_temp_path temporary_{kind}; "
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class Nginx:
    """One running nginx, for requests to `127.0.0.1:port`, with its files in `folder`."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, request_line, *headers, body=b"", **options):
        """Send one request on a connection of its own; return the response."""
        return exchange(self.port, head(f"{request_line} HTTP/1.1", *headers, **options) + body)


def replace_once(text, old, new):
    """`text` with its only `old` replaced; fails if `old` is missing."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


@contextlib.contextmanager
def proxy(folder, upstream_port, *, configuration=SHIPPED, changes=None):
    """nginx in front of `upstream_port`, as the user of the tests; the block's end stops it."""
    port = free_port()
    for old, new in {
        "listen 80 default_server;": f"listen 127.0.0.1:{port} default_server;",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{upstream_port};",
        "/var/log/nginx/access.log": str(folder / "access.log"),
        "http {\n": f"http {{ {TEMPORARY}\n",
        **(changes or {}),
    }.items():
        configuration = replace_once(configuration, old, new)
    (folder / "nginx.conf").write_text(configuration)
    # The package sets these; root's workers would run as another user, who has no access here.
    own = "daemon off; pid nginx.pid; error_log stderr;" + " user root;" * (os.geteuid() == 0)
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    with (folder / "error.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-g", own], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            told = (folder / "error.log").read_text()
            assert time.monotonic() < deadline, told
            assert process.poll() is None, told
            time.sleep(0.02)
        yield Nginx(folder, port)
    finally:
        process.terminate()  # the leader ends its workers at once
        process.wait(START_SECONDS)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service that accepts smaller bodies than its proxy, and whose jobs stay in the queue."""
    artifacts = tmp_path_factory.mktemp("service") / "artifacts"
    publish_bytes(artifacts, "starter")
    assert JobLock(artifacts).acquire(timeout_seconds=0)
    with serve(artifacts, max_body_bytes=str(BODY_LIMIT), header_seconds="1") as server:
        yield server


@pytest.fixture(scope="module")
def nginx(service, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nginx")
    with proxy(folder, service.port) as running:
        yield running


@pytest.fixture
def client(nginx):
    with httpx.Client(base_url=nginx.url, headers=ADMIN, timeout=30) as client:
        yield client


@contextlib.contextmanager
def waiting_job(client):
    """The path of a job that does not end before the block does."""
    request = {"documents": ["aa bb"], "vocab_size": 258, "name": "waits", "promote": "manual"}
    accepted = client.post("/train", json=request)
    assert accepted.status_code == 202
    path = accepted.headers["location"]
    try:
        yield path
    finally:
        assert client.delete(path).status_code in (200, 202)


def check_own_problem(answer, status, code):
    """An error response from nginx itself looks like any other."""
    problem = answer.problem()
    assert (answer.status, problem["code"], problem["error"]["code"]) == (status, code, code)
    assert problem["detail"] == problem["error"]["message"]
    assert problem["type"].endswith(":" + code)
    assert problem["instance"].endswith(":" + answer.headers["x-request-id"])
    assert "limit" not in problem  # the service's own would name it


def test_what_the_file_repeats_of_the_settings_is_their_default():
    settings = Settings.model_fields
    assert settings["max_body_bytes"].default == LARGEST_BODY
    assert f"client_header_timeout {settings['header_seconds'].default:g}s;" in SHIPPED
    assert f"send_timeout {settings['send_seconds'].default:g}s;" in SHIPPED
    (reads,) = map(int, re.findall(r"proxy_read_timeout (\d+)s;", SHIPPED))
    assert reads > settings["stream_idle_seconds"].default
    assert "proxy_next_upstream off;" in SHIPPED  # no request is sent twice
    assert SHIPPED.count("# yours\n") + SHIPPED.count("# yours;") == 4


def test_an_answer_is_the_one_of_the_service(service, client):
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


def test_ids_come_back_before_the_next_text_is_sent(nginx):
    for path, headers in (("/encode_stream", ["Accept-Encoding: gzip"]), ("/v1/encode_stream", [])):
        with RawRequest("127.0.0.1", nginx.port, path, *headers) as request:
            for text in (b"one two three ", b"four five six "):
                request.send_chunk(text)
                assert text[0] in json.loads(request.read_chunk())["tokens"]
            request.end()
            assert b'"done":true' in request.read_body()
            assert "content-encoding" not in request.headers


def test_a_stream_may_be_longer_than_any_body(nginx):
    request = head("POST /encode_stream HTTP/1.1", f"Content-Length: {LARGEST_BODY + 1}")
    with connect(nginx.port) as connection:
        send(connection, request + b"one two three ")
        data = b""
        while b'"tokens"' not in data:
            piece = connection.recv(1 << 16)
            assert piece
            data += piece
    assert data.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("ignores", "lacks"),
    [("proxy_ignore_headers X-Accel-Buffering;", ""), ("", "proxy_buffering off;")],
)
def test_events_arrive_before_the_job_has_ended(service, tmp_path, ignores, lacks):
    """Also through nginx that compresses responses, and so would buffer them: the configuration
    turns that off, and so does the header of the service."""
    packs = {"server_tokens off;": f"gzip on; gzip_types *; gzip_min_length 0; {ignores}"}
    shipped = SHIPPED.replace(lacks, "")
    with (
        proxy(tmp_path, service.port, configuration=shipped, changes=packs) as packing,
        httpx.Client(base_url=packing.url, headers=ADMIN, timeout=30) as client,
        waiting_job(client) as earlier,
        waiting_job(client) as path,
        client.stream("GET", f"{path}/events") as stream,
    ):
        lines = (line.partition("data:")[2] for line in stream.iter_lines())
        states = (json.loads(data)["state"] for data in lines if data)
        assert next(states) == "queued"
        client.delete(earlier)
        # Later parts pass at once as well, not only those that came with the headers.
        assert next(states) == "running"
        client.delete(path)
        assert list(states)[-1] == "cancelled"


def test_errors_of_the_service_pass_as_they_are(nginx, client):
    too_large = client.post("/encode", json={"text": "x" * 2 * BODY_LIMIT})
    assert (too_large.status_code, too_large.json()["limit"]) == (413, BODY_LIMIT)
    assert too_large.headers["content-type"] == "application/problem+json"
    # On a new connection: nginx may have closed the one whose body was not read to its end.
    other = httpx.post(f"{nginx.url}/encode", json={"text": "a"}, headers={"If-Match": '"another"'})
    assert (other.status_code, other.headers["tokenizer-version"][:8]) == (412, "starter@")
    assert httpx.get(f"{nginx.url}/train").status_code == 401
    # nginx does not buffer it: the service reports that the body comes too slowly.
    slow = nginx.ask("POST /encode", JSON, "Content-Length: 5000", body=b"{")
    assert (slow.status, slow.problem()["status"]) == (408, 408)


def test_a_request_has_one_id_everywhere(nginx, client):
    for given, expected in (
        ({"X-Request-Id": "mine-1.2_3"}, re.escape("mine-1.2_3")),
        ({"X-Request-Id": "two words"}, "[0-9a-f]{32}"),
        ({}, "[0-9a-f]{32}"),
    ):
        answer = client.get("/vocab/99999", headers=given)
        request_id = answer.headers["x-request-id"]
        assert re.fullmatch(expected, request_id)
        assert answer.json()["instance"].endswith(f":{request_id}")
        client.get("/livez")  # on the same connection: the previous request's line is written
        logged = (nginx.folder / "access.log").read_text().splitlines()
        of_this = [line for line in logged if "/vocab/99999 404 " in line]
        assert of_this[-1].endswith(f" request_id={request_id}")


def test_more_requests_than_one_address_may_have(nginx):
    def encode():
        return nginx.ask("POST /encode", JSON, CLOSE, "Content-Length: 12", body=b'{"text":"a"}')

    with contextlib.ExitStack() as held:
        for _ in range(PER_ADDRESS):
            one = held.enter_context(RawRequest("127.0.0.1", nginx.port, "/encode_stream"))
            one.send_chunk(b"one two three ")
            assert one.read_chunk()
        refused = encode()
        assert refused.headers["retry-after"] == "1"
        check_own_problem(refused, 429, "too_many_connections")
        for path in ("/livez", "/readyz", "/health", "/v1/livez"):
            assert nginx.ask(f"GET {path}", CLOSE).status == 200
        one.end()
        assert one.read_body()
        # The place is free after nginx sees the end, which may be a moment later.
        deadline = time.monotonic() + 60
        while (answer := encode()).status == 429:
            assert time.monotonic() < deadline
        assert answer.status == 200


def test_a_body_or_headers_larger_than_it_takes_are_refused_unread(nginx):
    request = head("POST /encode HTTP/1.1", JSON, CLOSE, f"Content-Length: {LARGEST_BODY + 1}")
    with connect(nginx.port) as connection:
        send(connection, request)
        connection.shutdown(socket.SHUT_WR)
        check_own_problem(read_one(connection), 413, "body_too_large")

    def ask(n_bytes, n_headers):
        headers = [f"X-{number}: {'x' * n_bytes}" for number in range(n_headers)]
        return nginx.ask("GET /livez", CLOSE, *headers)

    assert ask(31_000, 1).status == 200
    assert ask(20_000, 2).problem()["limit"] == 32 * 1024  # the service's
    long_line = nginx.ask(f"GET /livez?{'x' * 40_000}", CLOSE)
    for answer in (ask(40_000, 1), long_line):
        check_own_problem(answer, 431, "headers_too_large")


def test_the_service_decides_which_names_it_serves(nginx):
    for hosts, status, codes in (
        (["localhost:8443"], 200, ""),
        (["[::1]:80"], 200, ""),
        (["tokens.example"], 421, "host_not_allowed"),
        *((hosts, 400, "bad_http host_invalid") for hosts in ([], ["a", "b"], ["a b"], ["a/b"])),
    ):
        answer = nginx.ask("GET /info", CLOSE, *(f"Host: {host}" for host in hosts), host="")
        assert answer.status == status
        assert status == 200 or answer.problem()["code"] in codes.split()


def test_a_service_that_is_not_there_is_a_problem_too(tmp_path):
    with proxy(tmp_path, free_port()) as nginx:
        answer = nginx.ask("PUT /corpora/a%20b?field=mine", CLOSE)
        assert answer.headers["retry-after"] == "1"
        check_own_problem(answer, 502, "service_unreachable")
        nginx.ask("GET /livez", CLOSE)  # the line of the request before is written
        line = (nginx.folder / "access.log").read_text().splitlines()[0]
        assert " PUT /corpora/a%20b 502 " in line


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_and_the_lists_of_addresses_can_be_taken_in(service, tmp_path):
    chain, key = tmp_path / "fullchain.pem", tmp_path / "privkey.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-out", chain, "-keyout", key], check=True, capture_output=True)
    port = free_port()
    names = "listen|ssl_\\w+|location|limit_except|allow|deny|proxy_pass"
    directives = rf"^( +)# ( *(?:(?:{names}) .*[;{{}}]|}}))"
    taken_in = re.sub(directives, r"\1\2", SHIPPED, flags=re.MULTILINE)
    taken_in = replace_once(taken_in, "listen 443 ssl ", f"listen 127.0.0.1:{port} ssl ")
    for file in (chain, key):
        taken_in = replace_once(taken_in, f"/etc/nginx/tls/{file.name}", str(file))
    trusting = ssl.create_default_context(cafile=str(chain))
    trusting.check_hostname = False
    requests = [
        *(("GET", path, None, 403) for path in ("/train", "/v1/train", "/jobs", "/corpora")),
        *(("GET", path, None, 403) for path in ("/token-files", "/v1/corpora", "/metrics")),
        ("PUT", "/tokenizers/active", {"tokenizer": "starter"}, 403),
        ("POST", "/rollback", None, 403),
        ("PUT", "/models/mine", {"tokenizer": "starter"}, 403),
        ("GET", "/models/mine", None, 200),
        ("GET", "/tokenizers/active", None, 200),
        ("POST", "/encode", {"text": "a"}, 200),
    ]
    with proxy(tmp_path, service.port, configuration=taken_in):
        for address in ("127.0.0.1", "127.0.0.2"):
            transport = httpx.HTTPTransport(verify=trusting, local_address=address)
            url = f"https://127.0.0.1:{port}"
            with httpx.Client(base_url=url, transport=transport, headers=ADMIN) as client:
                for method, path, document, status_of_others in requests:
                    answer = client.request(method, path, json=document)
                    is_allowed = address == "127.0.0.1" or status_of_others == 200
                    served = 404 if path == "/rollback" else 200  # nothing was active before
                    assert answer.status_code == (served if is_allowed else 403), path
                    assert is_allowed or answer.json()["code"] == "address_not_allowed"
