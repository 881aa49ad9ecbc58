"""The service and its tokenizers: versions, readiness, files, promotions."""

import httpx
import pytest

from tests.tokenizer_client.conftest import problem
from tests.tokenizer_client.test_exchange import JOB, TOKENIZER, promoted
from tokenizer_client import (
    ConnectionLostError,
    DeadlineExceededError,
    UnexpectedResponseError,
)
from tokenizer_client.schemas.tokens import PromoteResponse

READY = httpx.Response(200, json={"status": "ok"})
MODEL = httpx.Response(
    200, json={"id": "org/M:b?", "object": "model", "created": 0, "owned_by": "", "root": "n@v"}
)


def test_readiness_is_requested_once_or_waited_for(play, clock):
    failures = [httpx.ConnectError("refused"), problem(503)]
    for failure in failures:
        client, service = play(failure, READY)
        assert client.is_ready() is False
        assert len(service.requests) == 1
    assert clock.slept == []
    client, service = play(*failures, READY)
    client.wait_until_ready()
    assert len(service.requests) == 3
    clock.slept.clear()
    client, service = play(*failures[:1] * 100)
    with pytest.raises(DeadlineExceededError, match="within 5 s") as told:
        client.wait_until_ready(deadline_seconds=5)
    assert isinstance(told.value.__cause__, ConnectionLostError)
    assert sum(clock.slept) <= 5


def test_a_roll_back_undoes_one_promotion_and_no_other(play):
    now, before = ({"name": name, "version": "v", "digest": name * 2} for name in "ab")
    client, service = play(promoted("b"))
    client.tokenizers.roll_back(PromoteResponse(active=now, previous=before))
    assert [request.headers["If-Match"] for request in service.requests] == ['"aa"']
    with pytest.raises(ValueError, match="no tokenizer was active before"):
        client.tokenizers.roll_back(PromoteResponse(active=now, previous=None))


def test_a_name_is_escaped_in_the_path(play):
    client, service = play(httpx.Response(204))
    client.tokenizers.remove("a/b@../c")
    assert service.requests[0].url.raw_path == b"/tokenizers/a%2Fb/..%2Fc"
    client, service = play(MODEL, httpx.Response(204))
    assert client.tokenizers.add_alias("org/M:b?", "n").root == "n@v"
    client.tokenizers.remove_alias("org/M:b?")
    assert {request.url.raw_path for request in service.requests} == {b"/models/org%2FM%3Ab%3F"}


PAGE = httpx.Response(200, html="<p>Log in first")
CORPUS = httpx.Response(
    200, json={"id": "x", "bytes": 3, "sha256": "", "format": "txt", "uploaded_at": ""}
)
OTHER_JOB = httpx.Response(200, json={**JOB, "id": "x"})
EVENT = httpx.Response(
    200,
    content=b"id: 1\ndata: %b\n\n" % OTHER_JOB.content,
    headers={"Content-Type": "text/event-stream; charset=utf-8"},
)
VERSION = {**TOKENIZER, "active": True, "created_at": ""}
VERSIONS = httpx.Response(200, json={"tokenizers": [VERSION], "active": None})


def test_a_response_about_another_thing_is_an_error(play):
    for answer, call in (
        (PAGE, lambda client: client.is_ready()),
        (PAGE, lambda client: client.wait_until_ready()),
        (PAGE, lambda client: client.info()),
        (PAGE, lambda client: client.tokenizers.file("n@v", "vocab.pkl")),
        (PAGE, lambda client: client.tokenizers.file("n@v", "tokenizer.json")),
        (VERSIONS, lambda client: client.tokenizers.versions("m")),
        (promoted("n"), lambda client: client.tokenizers.promote("m")),
        (promoted("n"), lambda client: client.tokenizers.promote("n@w")),
        (MODEL, lambda client: client.tokenizers.add_alias("m", "n")),
        (OTHER_JOB, lambda client: client.jobs.get("j")),
        (OTHER_JOB, lambda client: client.jobs.cancel("j")),
        (EVENT, lambda client: client.jobs.wait("j")),
        (CORPUS, lambda client: client.corpora.get("c")),
        (CORPUS, lambda client: client.corpora.upload("c", b"abc")),
        (PAGE, lambda client: client.corpora.upload("c", b"abc")),
    ):
        client, _ = play(answer)
        with pytest.raises(UnexpectedResponseError, match="check the address"):
            call(client)
    jobs = httpx.Response(200, json={"jobs": [JOB]})
    client, _ = play(jobs, jobs)
    assert [job.id for job in client.jobs.list(kind="train")] == ["j"]
    with pytest.raises(UnexpectedResponseError, match="kind"):
        client.jobs.list(kind="encode")
