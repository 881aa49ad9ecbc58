"""Responses as ASGI applications: whole and in ranges; clients that stall."""

import os
import random
from types import SimpleNamespace

import pytest
from starlette.requests import ClientDisconnect

from tests.tokenizer_service.http.clients import Client
from tokenizer_service.access.limits import ByteBudget
from tokenizer_service.http import responses
from tokenizer_service.http.id_formats import OCTETS
from tokenizer_service.http.problem import Problem
from tokenizer_service.http.responses import ChunkedBody, FileBody, requested_span

TAG = '"tag"'


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
        *((other, (0, 100)) for other in ("", "bytes=-", "bytes=2-1", "lines=1-2", "bytes=٣-٤")),
        *((other, (0, 100)) for other in ("bytes=0-1,3-4", f"bytes={'9' * 19}-", "bytes= 1-2")),
        *((none, None) for none in ("bytes=100-", "bytes=100-200", "bytes=-0")),
        (f"bytes={'9' * 18}-", None),
    ],
)
def test_a_range_is_of_the_same_file_and_within_it(wanted, expected):
    def span(**headers):
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        request = SimpleNamespace(scope={"headers": raw})
        return requested_span(request, 100, TAG)

    for other in ('"another"', f"W/{TAG}"):
        assert span(range=wanted, if_range=other) == (0, 100)
    for same in ({}, {"if_range": TAG}):
        if expected is not None:
            assert span(range=wanted, **same) == expected
            continue
        with pytest.raises(Problem) as caught:
            span(range=wanted, **same)
        assert (caught.value.status, caught.value.limit) == (416, 100)
        assert caught.value.headers == {"Content-Range": "bytes */100"}


def response_of(path, start, stop, **options):
    descriptor = os.open(path, os.O_RDONLY)
    options = {"headers": {"ETag": TAG}, "media_type": OCTETS, "idle_seconds": 60, **options}
    body = FileBody(descriptor, (start, stop), path.stat().st_size, **options)
    return body, descriptor


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (0, 7), (3, 998)])
def test_the_bytes_come_in_pieces_after_the_file_is_removed(tmp_path, monkeypatch, start, stop):
    monkeypatch.setattr(responses, "_PIECE_BYTES", 7)
    data = random.Random(1).randbytes(1000)
    path = tmp_path / "ids"
    path.write_bytes(data)
    body, descriptor = response_of(path, start, stop)
    path.unlink()
    client = Client()
    assert client.ask(body) == data[start:stop]
    head, *parts = client.taken
    headers = dict(head["headers"])
    whole = (start, stop) == (0, 1000)
    assert head["status"] == (200 if whole else 206)
    assert headers[b"content-length"] == b"%d" % (stop - start)
    expected = None if whole else b"bytes %d-%d/1000" % (start, stop - 1)
    assert headers.get(b"content-range") == expected
    assert [part["more_body"] for part in parts] == [True] * (len(parts) - 1) + [False]
    assert max(len(part["body"]) for part in parts) <= 7
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_a_response_that_fails_closes_its_file(tmp_path):
    path = tmp_path / "ids"
    path.write_bytes(b"ids")
    unread, first = response_of(path, 0, 3, idle_seconds=0.05)
    with pytest.raises(ClientDisconnect):
        Client(patience=1).ask(unread)
    shorter, second = response_of(path, 0, 3)
    os.truncate(path, 1)
    client = Client()
    with pytest.raises(OSError, match="shorter"):
        client.ask(shorter)
    assert [message["type"] for message in client.taken] == ["http.response.start"]
    for descriptor in (first, second):
        with pytest.raises(OSError):
            os.fstat(descriptor)


@pytest.mark.parametrize("sizes", [[], [0], [300_000], [200_000] * 5, [1] * 9])
def test_an_answer_in_chunks_is_whole(sizes):
    chunks = [bytes([index]) * size for index, size in enumerate(sizes)]
    client = Client()
    assert client.ask(ChunkedBody(chunks, idle_seconds=60)) == b"".join(chunks)
    start, *bodies = client.taken
    assert [message["more_body"] for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert dict(start["headers"])[b"content-length"] == str(sum(sizes)).encode()


@pytest.mark.row(16)
def test_a_response_without_a_reader_frees_its_memory():
    budget = ByteBudget(100)
    lease = budget.lease()
    lease.reserve(60)
    answer = ChunkedBody([b"x" * 10], idle_seconds=0.05)
    answer.charge_to(lease)
    assert budget.used == 10
    with pytest.raises(ClientDisconnect):
        Client(patience=1).ask(answer)
    assert budget.used == 0
