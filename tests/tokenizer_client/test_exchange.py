"""Failed requests: which ones the client retries, when, and the error the caller gets."""

import copy
import email.utils
import json
import time
from unittest.mock import Mock

import httpx
import pytest

from tests.tokenizer_client.conftest import JOB, counted, octets, problem, promoted
from tokenizer_client import (
    AuthenticationError,
    ConflictError,
    ConnectionLostError,
    DeadlineExceededError,
    DigestMismatchError,
    InvalidRequestError,
    NotFoundError,
    PreconditionFailedError,
    ProblemError,
    RetryPolicy,
    TooLargeError,
    UnavailableError,
)
from tokenizer_client.errors import problem_of


def test_a_failure_that_may_pass_is_repeated(play, clock):
    for failure in (
        problem(503), problem(429), problem(502), httpx.ConnectError("refused"),
        httpx.ReadError("reset"), httpx.RemoteProtocolError("closed"), httpx.ReadTimeout("slow"),
    ):  # fmt: skip
        client, service = play(failure, failure, counted())
        clock.slept.clear()
        assert client.count("a") == 3
        assert clock.slept == [0.5, 1.0]
        assert service.answers == []
        assert len({request.content for request in service.requests}) == 1


def test_waits_double_up_to_a_bound_and_follow_retry_after(play, clock):
    client, _ = play(*[problem(503)] * 5, counted(), retries=RetryPolicy(longest_wait_seconds=3))
    assert client.count("a") == 3
    assert clock.slept == [0.5, 1.0, 2.0, 3.0, 3.0]
    clock.slept.clear()
    busy = problem(503, "too_busy", headers={"Retry-After": "7"})
    client, service = play(*[busy] * 3, retries=RetryPolicy(max_attempts=3))
    with pytest.raises(UnavailableError, match="503 too_busy: The remedy") as told:
        client.count("a")
    assert told.value.retry_after_seconds == 7
    assert (clock.slept, service.answers) == ([7.0, 7.0], [])
    client, service = play(*[httpx.ReadError("reset")] * 6)
    with pytest.raises(ConnectionLostError) as lost:
        client.count("a")
    assert (lost.value.was_sent, service.answers) == (True, [])


def _refused(*others):
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = OSError("All connection attempts failed")
    causes = [ConnectionRefusedError(111, "v6"), ConnectionRefusedError(111, "v4"), *others]
    error.__cause__.__cause__ = ExceptionGroup("both", causes)
    return error


REFUSED = r"^connection refused at http://service\.example; is the service running\?$"


def test_a_service_that_never_responded_and_refuses_is_reported_at_once(play, clock):
    client, service = play(_refused(), counted())
    with pytest.raises(ConnectionLostError, match=REFUSED):
        client.count("a")
    assert clock.slept == []
    assert len(service.answers) == 1
    client, _ = play(_refused(OSError("another address fails otherwise")), counted())
    assert client.count("a") == 3


def test_a_service_that_responded_before_may_restart(play, clock):
    client, _ = play(problem(404), _refused(), _refused(), counted())
    with pytest.raises(NotFoundError):
        client.count("a")
    assert client.pinned("a").count("a") == 3
    assert clock.slept == [0.5, 1.0]
    client, _ = play(counted(), *[_refused()] * 9, deadline_seconds=3.0)
    client.count("a")
    with pytest.raises(ConnectionLostError, match=REFUSED):
        client.count("a")


def test_nothing_begins_after_the_deadline(play, clock):
    client, service = play(*[problem(503)] * 9, deadline_seconds=3.0)
    with pytest.raises(DeadlineExceededError, match="within 3 s") as told:
        client.count("a")
    assert isinstance(told.value.__cause__, UnavailableError)
    assert clock.slept == [0.5, 1.0]
    timeouts = [request.extensions["timeout"]["read"] for request in service.requests]
    assert timeouts == [3.0, 2.5, 1.5]
    client, service = play(problem(503, headers={"Retry-After": "30"}), deadline_seconds=20.0)
    with pytest.raises(DeadlineExceededError):
        client.count("a")
    assert len(service.requests) == 1

    def respond_late(_):
        clock.now += 4.0
        return counted()

    client, service = play(deadline_seconds=3.0)
    service.answers = Mock(pop=respond_late)
    with pytest.raises(DeadlineExceededError):
        client.count("a")


REFUSALS = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    413: TooLargeError,
    422: InvalidRequestError,
    500: ProblemError,
    507: ProblemError,
}


def test_a_refusal_is_raised_at_once(play, clock):
    errors = [{"pointer": "/text", "detail": "wrong"}]
    fields = {"limit": 10, "actual": 20, "byte_offset": 4, "errors": errors}
    for status, kind in REFUSALS.items():
        client, service = play(problem(status, "why", headers={"X-Request-Id": "r1"}, **fields))
        with pytest.raises(ProblemError) as told:
            client.count("a")
        error = told.value
        assert (type(error), str(error)) == (kind, f"{status} why: The remedy.")
        assert (error.status, error.code, error.title) == (status, "why", "A title")
        assert (error.limit, error.actual, error.byte_offset) == (10, 20, 4)
        assert (error.errors, error.request_id) == ([("/text", "wrong")], "r1")
        assert len(service.requests) == 1
    assert clock.slept == []


def test_a_body_that_is_no_problem_document_is_still_an_error():
    for body in (b"", b"<html>", b"[]", b"{}", b'"code"', b"\xff", b"[" * 60_000):
        error = problem_of(404, {}, body)
        assert type(error) is NotFoundError
        assert str(error).startswith("404 http_404: no problem document")
        assert (error.limit, error.errors) == (None, [])
    # Fields of wrong types are left out.
    error = problem_of(418, {}, b'{"code": 1, "limit": "x", "actual": true, "errors": [1, {}]}')
    assert type(error) is ProblemError
    assert (error.code, error.limit, error.actual, error.errors) == ("1", None, None, [("", "")])


def test_a_pickled_error_keeps_its_message_and_fields():
    """One that cannot be read back breaks a pool of processes."""
    for error in (ConnectionLostError("reset", was_sent=True), problem_of(404, {}, b"")):
        again = copy.copy(error)  # by the same protocol
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_retry_after_is_seconds_or_a_date():
    past, later = (email.utils.formatdate(when, usegmt=True) for when in (0, time.time() + 1000))
    for value, expected in (("7", 7), ("0", 0), ("soon", None), ("-1", None), (past, 0)):
        assert problem_of(503, {"retry-after": value}, b"").retry_after_seconds == expected
    assert problem_of(503, {}, b"").retry_after_seconds is None
    seconds = problem_of(503, {"retry-after": later}, b"").retry_after_seconds
    assert seconds == pytest.approx(1000, abs=100)


def test_a_repeated_request_starts_one_job(play):
    lost = httpx.ReadError("reset")
    client, service = play(lost, httpx.Response(202, json=JOB), httpx.Response(202, json=JOB))
    client.train(documents=["a"])
    client.train(documents=["a"])
    keys = [request.headers["Idempotency-Key"] for request in service.requests]
    assert keys[0] == keys[1] != keys[2]
    encoding = httpx.Response(202, json=JOB | {"kind": "encode"})
    client, service = play(encoding, encoding)
    client.corpora.encode("c", idempotency_key="mine")
    client.corpora.encode("c", allowed_special="all")  # not the default of JSON lines
    assert service.requests[0].headers["Idempotency-Key"] == "mine"
    sent = [json.loads(request.content) for request in service.requests]
    assert sent == [{}, {"allowed_special": "all"}]


def test_a_guarded_promotion_is_repeated_only_if_it_cannot_have_happened(play):
    client, service = play(httpx.ConnectError("refused"), problem(503), promoted())
    client.tokenizers.promote("n", if_match="d")
    assert [r.headers["If-Match"] for r in service.requests] == ['"d"'] * 3
    client, service = play(httpx.ReadError("reset"))
    with pytest.raises(ConnectionLostError):
        client.tokenizers.promote("n", if_match="d")
    client, service = play(httpx.ReadError("reset"), promoted())
    client.tokenizers.promote("n")
    assert "If-Match" not in service.requests[1].headers


def test_not_found_after_a_lost_removal_is_success(play):
    client, _ = play(httpx.ReadError("reset"), problem(404))
    client.corpora.remove("c")
    for not_sent in ([], [httpx.ConnectError("refused")]):
        client, _ = play(*not_sent, problem(404))
        with pytest.raises(NotFoundError):
            client.corpora.remove("c")


def test_a_pin_is_in_every_request_that_uses_a_tokenizer(play):
    answers = (octets(b"", "dtype=u32"), octets(b""), promoted("m"))
    client, service = play(counted(), *answers, httpx.Response(202, json=JOB))
    pinned = client.pinned("n@v").pinned(digest="d")
    pinned.count("a")
    pinned.encode("a")
    pinned.decode([1])
    pinned.tokenizers.promote("m")
    pinned.train(documents=["a"])
    count, encode, decode, promote, train = service.requests
    assert json.loads(count.content) == {"text": "a", "tokenizer": "n@v"}
    assert json.loads(encode.content) == {"text": "a", "tokenizer": "n@v"}
    assert decode.url.params["tokenizer"] == "n@v"
    assert [r.headers.get("If-Match") for r in (count, encode, decode)] == ['"d"'] * 3
    assert promote.headers.get("If-Match") is train.headers.get("If-Match") is None
    assert json.loads(train.content) == {"documents": ["a"]}
    assert "pinned to n@v" in repr(pinned)
    assert "pinned" not in repr(client)


def test_ids_of_another_tokenizer_are_refused(play):
    client, _ = play(problem(412, "digest_mismatch", headers={"ETag": '"e"'}))
    with pytest.raises(DigestMismatchError) as told:
        client.pinned(digest="d").encode("a")
    assert told.value.present_digest == "e"
    # A proxy that drops If-Match.
    client, _ = play(httpx.Response(200, content=b"", headers={"Tokenizer-Digest": "e"}))
    with pytest.raises(DigestMismatchError):
        client.pinned(digest="d").encode("a")
