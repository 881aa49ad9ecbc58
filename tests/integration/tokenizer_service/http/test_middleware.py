"""Request ids on a real connection; tests/tokenizer_service/http has the other headers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.running_server import RunningServer


@pytest.mark.parametrize(
    ("method", "path", "arguments", "status"),
    [
        ("POST", "/encode", {"json": {"text": "a b"}}, 200),
        ("POST", "/decode", {"json": {"tokens": [97]}}, 200),
        ("POST", "/encode_stream", {"content": b"a b"}, 200),
        ("GET", "/livez", {}, 200),
        ("HEAD", "/info", {}, 200),
        ("GET", "/openapi.json", {}, 200),
        ("GET", "/nowhere", {}, 404),
        ("PATCH", "/encode", {}, 405),
        ("POST", "/train", {"json": {}}, 401),
        ("POST", "/encode", {"json": {"text": 1}}, 422),
    ],
)
def test_every_answer_carries_the_id_of_its_request_once(
    server: RunningServer, method: str, path: str, arguments: dict[str, Any], status: int
) -> None:
    made = []
    for headers, expected in (({"X-Request-Id": "mine.1"}, ["mine.1"]), ({}, None), ({}, None)):
        answer = httpx.request(method, server.url + path, headers=headers, **arguments)
        assert answer.status_code == status
        found = answer.headers.get_list("X-Request-Id")
        if expected is None:
            made += found
        else:
            assert found == expected
    assert len(made) == 2
    assert made[0] != made[1]
