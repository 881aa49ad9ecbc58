"""The service on a real server: HEAD, SIGTERM, unfinished requests."""

import json
import signal
import sys

import httpx
import pytest

from tests.integration.server_process import serve
from tests.tokenizer_service.raw_http import RawRequest

END_AFTER_A_SECOND = """
import sys
from tokenizer_service.cli import main
from tokenizer_service.commands import serving

serving.GRACEFUL_SECONDS = 1
sys.exit(main(["serve"]))
"""


def test_head_answers_as_get_without_the_body(server):
    with httpx.Client(base_url=server.url) as client:  # one connection: no body may remain in it
        for path in ("/info", "/tokenizers/starter", "/docs", "/v1/livez", "/nope", "/encode"):
            head, get = client.head(path), client.get(path)
            assert head.status_code == get.status_code, path
            assert head.content == b"", path
            for name in ("content-type", "etag", "tokenizer-digest", "allow"):
                assert head.headers.get(name) == get.headers.get(name), (path, name)
            assert int(head.headers["content-length"]) > 0
        assert client.post("/info").headers["Allow"] == "GET, HEAD"
        counted = 'http_requests_total{handler="/info",method="HEAD",status="200"}'
        assert counted in client.get("/metrics").text


@pytest.mark.promise(9)
def test_sigterm_lets_a_request_finish(store):
    with serve(store.root) as server:
        with RawRequest(server.host, server.port, "/encode_stream") as raw:
            raw.send_chunk(b"the quick ")
            first = raw.read_chunk()
            server.process.send_signal(signal.SIGTERM)
            raw.send_chunk(b"brown fox")
            raw.end()
            lines = (first + raw.read_body()).splitlines()
        assert json.loads(lines[-1])["done"]
        server.terminate()
        assert "Traceback" not in server.output


@pytest.mark.promise(9)
def test_requests_that_the_end_of_the_server_cuts_off_are_told_so(store):
    with serve(store.root, command=(sys.executable, "-c", END_AFTER_A_SECOND)) as server:
        target = (server.host, server.port)
        with (
            RawRequest(*target, "/encode_stream") as silent,
            RawRequest(*target, "/encode_stream") as started,
            RawRequest(*target, "/encode", "Content-Type: application/json") as half_sent,
        ):
            silent.send_chunk(b"the")
            started.send_chunk(b"the quick ")
            first = started.read_chunk()
            half_sent.send_chunk(b'{"text": "a')
            server.wait_for_in_flight(3)
            server.process.send_signal(signal.SIGTERM)
            lines = (first + started.read_body()).splitlines()
            answers = [json.loads(raw.read_body()) for raw in (silent, half_sent)]
            assert [raw.status for raw in (silent, half_sent)] == [503, 503]
            assert all(int(raw.headers["retry-after"]) for raw in (silent, half_sent))
        assert [answer["code"] for answer in answers] == ["shutting_down"] * 2
        assert json.loads(lines[0])["tokens"]
        assert json.loads(lines[-1])["error"]["code"] == "shutting_down"
        server.process.wait(60)
        assert "Traceback" not in server.output
