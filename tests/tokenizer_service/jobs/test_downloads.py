"""input_urls: which URLs a job downloads, and which it refuses (row 25)."""

import asyncio
import contextlib
import ipaddress
import itertools
import socket
import socketserver
import threading

import pytest

from tokenizer_service.egress import CorpusUrl, ListedHost
from tokenizer_service.jobs import downloads as corpus_download
from tokenizer_service.jobs.downloads import download_corpora, resolve_once
from tokenizer_service.jobs.errors import InvalidInputsError

TEXT = b"low lower lowest new newer newest " * 50
OK = b"HTTP/1.1 200 OK\r\n"


class Origin(socketserver.ThreadingTCPServer):
    """A server on the loopback that sends the bytes that a test sets."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.port = self.server_address[1]
        self.requests = []
        self.answers = {}
        self.stays_open = threading.Event()

    def answer(self, path, *parts):
        """Set the parts of the response; an empty part waits for the end of the test."""
        self.answers[path] = list(parts)
        return f"http://127.0.0.1:{self.port}{path}"


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        head = b"".join(itertools.takewhile(bytes.strip, self.rfile))
        if not head:
            return
        self.server.requests.append(head)
        with contextlib.suppress(OSError):
            for part in self.server.answers[head.split()[1].decode()]:
                if not part:
                    self.server.stays_open.wait(60)
                self.request.sendall(part)


@pytest.fixture
def origin():
    with Origin() as origin:
        threading.Thread(target=origin.serve_forever, args=(0.01,), daemon=True).start()
        yield origin
        origin.stays_open.set()
        origin.shutdown()


def whole(text):
    return OK + b"Content-Length: %d\r\n\r\n" % len(text) + text


def fetch(folder, entry, *urls, **options):
    options = {"max_bytes": 1_000_000, **options}
    parsed = [CorpusUrl.parse(url, [ListedHost.parse(entry)]) for url in urls]
    files = asyncio.run(download_corpora(parsed, folder / "fetched", **options))
    assert [file.name for file in files] == [url.shown for url in dict.fromkeys(parsed)]
    return [(folder / "fetched" / file.path).read_bytes() for file in files]


def refusal(folder, entry, *urls, **options):
    with pytest.raises(InvalidInputsError) as raised:
        fetch(folder, entry, *urls, **options)
    assert str(folder) not in str(raised.value)
    return raised.value


def answering(*answers):
    """A resolver that returns another address each time, and records the names it resolved."""
    asked = []

    async def resolve(host, port):
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return resolve, asked


@pytest.mark.row(25)
def test_files_are_fetched_once_each_in_order_and_without_proxies(origin, tmp_path, monkeypatch):
    for variable in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    urls = [
        origin.answer("/a?b=%2F", whole(b"one")),
        origin.answer("/c", OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"),
        origin.answer("/d", OK + b"\r\nuntil the end"),
    ]
    told = []
    entry = f"127.0.0.1:{origin.port}"
    texts = fetch(tmp_path, entry, *urls, urls[0], report=lambda *now: told.append(now))
    assert texts == [b"one", b"two", b"until the end"]
    assert len(origin.requests) == 3
    assert (told[0], told[-1]) == ((3, 3), (19, 0))
    assert b"Host: 127.0.0.1:%d\r\n" % origin.port in origin.requests[0]
    assert b"authorization" not in origin.requests[0].lower()
    assert b"cookie" not in origin.requests[0].lower()
    assert b"Accept-Encoding: identity" in origin.requests[0]


@pytest.mark.row(25)
def test_a_name_is_resolved_once_and_connected_to_where_it_led(origin, tmp_path):
    """Rebinding: a second look-up would return another address."""
    origin.answer("/a", whole(TEXT))
    resolve, asked = answering(["127.0.0.1"], ["169.254.169.254"])
    url = f"http://data.example.org:{origin.port}/a"
    entry = f"data.example.org:{origin.port}=127.0.0.1"
    assert fetch(tmp_path, entry, url, resolve=resolve) == [TEXT]
    assert asked == ["data.example.org"]
    assert b"Host: data.example.org:%d\r\n" % origin.port in origin.requests[0]
    # The next URL is resolved again, and its new address is refused.
    assert refusal(tmp_path, entry, url, resolve=resolve).code == "download_refused"
    assert len(origin.requests) == 1


@pytest.mark.row(25)
def test_a_name_that_resolves_to_an_internal_address_is_refused(origin, tmp_path):
    port = origin.port
    for addresses in (["1.1.1.1", "127.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1%lo"]):
        resolve, _ = answering(addresses)
        found = refusal(tmp_path, f"a.org:{port}", f"http://a.org:{port}/a", resolve=resolve)
        assert found.code == "download_refused"
        assert "TOKENIZER_CORPUS_URL_HOSTS" in str(found)
    assert not ListedHost.parse("localhost").allows(ipaddress.ip_address("127.0.0.1"))
    # The system takes a number for an address, also when the operator lists it as a name.
    entry = f"2130706433:{port}"
    assert asyncio.run(resolve_once("2130706433", port)) == ["127.0.0.1"]
    assert refusal(tmp_path, entry, f"http://{entry}/a").code == "download_refused"
    assert origin.requests == []


WRONG_RESPONSES = [
    ((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",), "download_failed"),
    ((b"HTTP/1.1 300 Moved\r\nLocation: /c\r\nContent-Length: 0\r\n\r\n",), "download_refused"),
    ((b"HTTP/1.1 308 Moved\r\nLocation: /c\r\nContent-Length: 0\r\n\r\n",), "download_refused"),
    ((b"HTTP/1.1 206 Partial\r\nContent-Length: 1\r\n\r\nx",), "download_failed"),
    ((OK + b"Content-Length: 10\r\n\r\nshort",), "download_failed"),
    ((OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhalf",), "download_failed"),
    ((b"no HTTP at all\r\n\r\n",), "download_failed"),
    ((OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",), "download_refused"),
    ((OK + b"Content-Length: 1000001\r\n\r\nx", b""), "download_too_large"),
    ((OK + b"\r\n" + b"x" * 1_000_001, b""), "download_too_large"),
]


@pytest.mark.row(25)
def test_a_redirect_or_wrong_response_is_an_error_of_its_url(origin, tmp_path):
    origin.answer("/c", whole(b"secret"))
    for parts, code in WRONG_RESPONSES:
        url = origin.answer("/a", *parts)
        found = refusal(tmp_path, f"127.0.0.1:{origin.port}", url)
        assert found.code == code, parts
        assert str(found).startswith("input_urls[0] ")
    assert len(origin.requests) == len(WRONG_RESPONSES)


def test_the_limit_is_for_all_files_together(origin, tmp_path):
    urls = [origin.answer(f"/{name}", whole(b"x" * 400)) for name in "abc"]
    entry = f"127.0.0.1:{origin.port}"
    assert len(fetch(tmp_path, entry, *urls, max_bytes=1200)) == 3
    found = refusal(tmp_path, entry, *urls, max_bytes=1199)
    assert str(found).startswith("input_urls[2] ")


def test_a_silent_server_times_out_before_the_head_and_in_the_body(origin, tmp_path, monkeypatch):
    url = origin.answer("/a", b"HTTP/1.1 200", b"")
    entry = f"127.0.0.1:{origin.port}"
    assert refusal(tmp_path, entry, url, head_seconds=0.2).code == "download_too_slow"
    monkeypatch.setattr(corpus_download, "PAUSE_SECONDS", 0.2)
    url = origin.answer("/b", OK + b"Content-Length: 9\r\n\r\nx", b"")
    assert refusal(tmp_path, entry, url).code == "download_too_slow"


def test_addresses_are_tried_in_turn_until_none_is_left(origin, tmp_path):
    origin.answer("/a", whole(TEXT))
    port = origin.port  # where nobody listens on 127.0.0.2
    entry, url = f"a.org:{port}=127.0.0.0/8", f"http://a.org:{port}/a"
    resolve, _ = answering(["127.0.0.2", "127.0.0.1"])
    assert fetch(tmp_path, entry, url, resolve=resolve) == [TEXT]
    for addresses in (["127.0.0.2"], []):  # a closed port, and an unknown name
        resolve, _ = answering(addresses)
        assert refusal(tmp_path, entry, url, resolve=resolve).code == "download_failed"


def test_tls_names_the_host_of_the_url(origin, tmp_path):
    """The first message of TLS names the host; the connection goes to the address."""
    resolve, _ = answering(["127.0.0.1"])
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def listen():
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(4096))

        thread = threading.Thread(target=listen)
        thread.start()
        entry = f"data.example.org:{port}=127.0.0.1"
        url = f"https://data.example.org:{port}/a"
        assert refusal(tmp_path, entry, url, resolve=resolve).code == "download_failed"
        thread.join()
    assert b"data.example.org" in heard[0]
