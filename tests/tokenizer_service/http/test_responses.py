"""FileBody and ranges: exactly the requested bytes, even if the file changes or disappears."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from tokenizer_service.http import responses
from tokenizer_service.http.problem import Problem
from tokenizer_service.http.responses import FileBody, requested_span

TAG = '"tag"'


def span(n_bytes: int = 100, **headers: str) -> tuple[int, int]:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    request: Any = SimpleNamespace(scope={"headers": raw})
    return requested_span(request, n_bytes, TAG)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("bytes=0-", (0, 100)),
        ("bytes=0-0", (0, 1)),
        ("bytes=10-19", (10, 20)),
        ("bytes=99-", (99, 100)),
        ("bytes=90-1000", (90, 100)),
        ("bytes=-1", (99, 100)),
        ("bytes=-1000", (0, 100)),
    ],
)
def test_a_range(wanted: str, expected: tuple[int, int]) -> None:
    assert span(range=wanted) == expected
    assert span(range=wanted, if_range=TAG) == expected
    assert span(range=wanted, if_range='"another"') == (0, 100)
    assert span(range=wanted, if_range=f"W/{TAG}") == (0, 100)


def test_another_range_means_all() -> None:
    for wanted in ("", "bytes=", "bytes=-", "bytes=2-1", "lines=1-2", "bytes=0-1,3-4", "bytes=a-b",
                   "bytes=٣-٤", f"bytes={'9' * 19}-", "bytes= 1-2"):  # fmt: skip
        assert span(range=wanted) == (0, 100), wanted


def test_a_range_after_the_end_is_refused() -> None:
    for wanted in ("bytes=100-", "bytes=100-200", "bytes=-0", f"bytes={'9' * 18}-"):
        with pytest.raises(Problem) as caught:
            span(range=wanted)
        assert (caught.value.status, caught.value.limit) == (416, 100)
        assert caught.value.headers == {"Content-Range": "bytes */100"}


def answer(path: Path, start: int, stop: int, **options: Any) -> tuple[FileBody, int]:
    descriptor = os.open(path, os.O_RDONLY)
    body = FileBody(
        descriptor,
        (start, stop),
        path.stat().st_size,
        headers={"ETag": TAG},
        media_type="application/octet-stream",
        **options,
    )
    return body, descriptor


def is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


async def receive() -> Any:
    raise AssertionError("nothing is read")


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (0, 7), (3, 998)])
def test_the_bytes_come_in_pieces_after_the_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, stop: int
) -> None:
    monkeypatch.setattr(responses, "_PIECE_BYTES", 7)
    data = random.Random(1).randbytes(1000)
    path = tmp_path / "ids"
    path.write_bytes(data)
    body, descriptor = answer(path, start, stop)
    path.unlink()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(body({"type": "http"}, receive, send))
    head, *parts = sent
    headers = dict(head["headers"])
    whole = (start, stop) == (0, 1000)
    assert head["status"] == (200 if whole else 206)
    assert headers[b"content-length"] == b"%d" % (stop - start)
    expected = None if whole else b"bytes %d-%d/1000" % (start, stop - 1)
    assert headers.get(b"content-range") == expected
    assert b"".join(part["body"] for part in parts) == data[start:stop]
    assert [part["more_body"] for part in parts] == [True] * (len(parts) - 1) + [False]
    assert max(len(part["body"]) for part in parts) <= 7
    assert is_closed(descriptor)


def test_a_client_that_reads_nothing_closes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_bytes(b"ids")
    body, descriptor = answer(path, 0, 3, idle_seconds=0.05)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(3600)

    with pytest.raises(ClientDisconnect):
        asyncio.run(body({"type": "http"}, receive, send))
    assert is_closed(descriptor)


def test_a_file_that_becomes_shorter_ends_the_response(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_bytes(b"ids")
    body, descriptor = answer(path, 0, 3)
    os.truncate(path, 1)

    async def send(message: Any) -> None:
        assert message["type"] == "http.response.start"

    with pytest.raises(OSError, match="shorter"):
        asyncio.run(body({"type": "http"}, receive, send))
    assert is_closed(descriptor)
