"""The service and its tokenizers: versions, readiness, files, promotions."""

import httpx
import pytest

from tests.tokenizer_client.both_clients import problem
from tests.tokenizer_client.calls.test_exchange import JOB, TOKENIZER, promoted
from tokenizer_client import (
    ConnectionLostError,
    DeadlineExceededError,
    UnexpectedResponseError,
)
from tokenizer_client.schemas.tokens import PromoteResponse

READY = httpx.Response(200, json={"status": "ok"})


def test_readiness_is_requested_once(play, clock):
    for failure in (problem(503), httpx.ConnectError("refused")):
        client, service = play(failure, READY)
        assert client.is_ready() is False
        assert len(service.requests) == 1
    assert clock.slept == []


def test_the_client_waits_for_a_starting_service(play, clock):
    client, service = play(httpx.ConnectError("refused"), problem(503), READY)
    client.wait_until_ready()
    assert len(service.requests) == 3
    client, service = play(*[httpx.ConnectError("refused")] * 100)
    with pytest.raises(DeadlineExceededError) as told:
        client.wait_until_ready(deadline_seconds=5)
    assert isinstance(told.value.__cause__, ConnectionLostError)
    assert "within 5 s" in str(told.value)
    assert sum(clock.slept) <= 6


def test_a_roll_back_undoes_one_promotion_and_no_other(play):
    now, before = ({"name": name, "version": "v", "digest": name * 2} for name in "ab")
    client, service = play(promoted("b"))
    client.tokenizers.roll_back(PromoteResponse.model_validate({"active": now, "previous": before}))
    (request,) = service.requests
    assert request.headers["If-Match"] == '"aa"'
    with pytest.raises(ValueError, match="no tokenizer was active before"):
        client.tokenizers.roll_back(
            PromoteResponse.model_validate({"active": now, "previous": None})
        )


def test_a_name_is_escaped_in_the_path(play):
    client, service = play(httpx.Response(204))
    client.tokenizers.remove("a/b@../c")
    assert service.requests[0].url.raw_path == b"/tokenizers/a%2Fb/..%2Fc"


PAGE = httpx.Response(200, html="<p>Log in first")
VERSION = {**TOKENIZER, "active": True, "created_at": ""}
CORPUS = httpx.Response(
    200, json={"id": "x", "bytes": 3, "sha256": "", "format": "txt", "uploaded_at": ""}
)
OTHER_JOB = httpx.Response(200, json={**JOB, "id": "x"})
JOBS = httpx.Response(200, json={"jobs": [JOB]})
EVENT = httpx.Response(
    200,
    content=b"id: 1\ndata: %b\n\n" % OTHER_JOB.content,
    headers={"Content-Type": "text/event-stream; charset=utf-8"},
)


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


def test_jobs_of_another_kind_are_an_error(play):
    client, _ = play(JOBS, JOBS)
    assert [job.id for job in client.jobs.list(kind="train")] == ["j"]
    with pytest.raises(UnexpectedResponseError, match="kind"):
        client.jobs.list(kind="encode")
