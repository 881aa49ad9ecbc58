"""A client that leaves in the middle of its body is a 499 in the metrics on every route."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.tokenizer_service.conftest import ADMIN_KEY

ROUTES = [
    ("POST", "/encode", "application/json"),
    ("POST", "/tokenize", "application/json"),
    ("POST", "/encode_stream", "text/plain"),
    ("POST", "/decode_stream", "application/x-ndjson"),
    ("PUT", "/corpora/one", "text/plain"),
    ("POST", "/train", "application/json"),
    ("PUT", "/tokenizers/active", "application/json"),
]


async def leave(app: FastAPI, method: str, path: str, content_type: str) -> None:
    messages = [
        {"type": "http.request", "body": b'{"te', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Any) -> None:
        pass

    headers = {"content-type": content_type, "x-api-key": ADMIN_KEY, "host": "x"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("x", 80),
        "state": {},
    }
    async with asyncio.timeout(30):
        await app(scope, receive, send)


def test_a_client_that_leaves_is_counted_as_499_on_every_route(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.portal is not None
    for method, path, content_type in ROUTES:
        client.portal.call(leave, client.app, method, path, content_type)
    lines = client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("http_requests_total{")]
    counted = [line for line in counted if not line.endswith(" 0.0") and "/metrics" not in line]
    assert len(counted) == len(ROUTES)
    assert all('status="499"' in line and line.endswith(" 1.0") for line in counted), counted
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
