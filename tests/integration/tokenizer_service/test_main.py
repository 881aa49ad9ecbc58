"""The service on a real server: HEAD, SIGTERM, unfinished requests."""

import json
import os
import signal
import time

import httpx
import pytest

from tests.integration.running_server import RunningServer, run_server
from tests.integration.server_watch import wait_for_in_flight
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core.registry import ArtifactStore


def test_head_answers_as_get_without_the_body(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url) as client:  # one connection: no body may remain in it
        paths = [path for path, operations in _paths(client) if "get" in operations]
        assert len(paths) > 8
        for path in (*paths, "/docs", "/v1/info", "/nope", "/encode", "/tokenizers/UPPER"):
            path = path.replace("{name}", "starter").replace("{job_id}", "nope")
            head, get = client.head(path), client.get(path)
            assert head.status_code == get.status_code, path
            assert head.content == b"", path
            for name in ("content-type", "etag", "tokenizer-digest", "allow"):
                assert head.headers.get(name) == get.headers.get(name), (path, name)
            assert int(head.headers["content-length"]) > 0
        assert client.post("/info").headers["Allow"] == "GET, HEAD"
        counted = 'http_requests_total{handler="/info",method="HEAD",status="200"}'
        assert counted in client.get("/metrics").text


def _paths(client: httpx.Client) -> list[tuple[str, dict[str, object]]]:
    return list(client.get("/openapi.json").json()["paths"].items())


@pytest.mark.promise(9)
def test_sigterm_lets_a_request_finish(store: ArtifactStore) -> None:
    with run_server(store.root) as server:
        with RawRequest(server.host, server.port, "/encode_stream") as raw:
            raw.send_chunk(b"the quick ")
            first = raw.read_chunk()
            started = time.monotonic()
            os.kill(server.process.pid, signal.SIGTERM)
            time.sleep(0.3)
            raw.send_chunk(b"brown fox")
            raw.end()
            lines = (first + raw.read_body()).splitlines()
        assert json.loads(lines[-1])["done"]
        server.process.wait(30)
        assert time.monotonic() - started < 7
        assert "Traceback" not in server.log.read_text()


@pytest.mark.promise(9)
def test_what_is_not_done_when_the_server_ends_is_told_so(store: ArtifactStore) -> None:
    with run_server(store.root, "--timeout-graceful-shutdown", "1") as server:
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
            wait_for_in_flight(server, 4)  # all are accepted; one is this request itself
            os.kill(server.process.pid, signal.SIGTERM)
            lines = (first + started.read_body()).splitlines()
            answers = [json.loads(raw.read_body()) for raw in (silent, half_sent)]
            assert [raw.status for raw in (silent, half_sent)] == [503, 503]
            assert all(int(raw.headers["retry-after"]) for raw in (silent, half_sent))
        assert [answer["code"] for answer in answers] == ["shutting_down"] * 2
        assert json.loads(lines[0])["tokens"]
        assert json.loads(lines[-1])["error"]["code"] == "shutting_down"
        server.process.wait(30)
        assert "Traceback" not in server.log.read_text()
