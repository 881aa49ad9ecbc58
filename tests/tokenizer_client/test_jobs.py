"""Jobs: start, follow through lost connections, wait, cancel."""

import json

import httpx
import pytest

from tests.tokenizer_client.conftest import JOB, problem
from tokenizer_client import ConnectionLostError, DeadlineExceededError, JobFailedError


def job(state="running", progress=0.0, **fields):
    return JOB | {"state": state, "phase": state, "progress": progress} | fields


def events(*jobs):
    content = b"retry: 2000\n\n"
    for fields in jobs:
        sent = json.dumps(fields).encode()
        content += b"id: %d\ndata: %b\n\n:\n\n" % (fields["progress"] * 100, sent)
    headers = {"Content-Type": "text/event-stream; charset=utf-8"}
    return httpx.Response(200, content=content, headers=headers)


def test_a_follower_reconnects_and_sees_nothing_twice(play, clock):
    client, service = play(
        events(job("queued"), job(progress=0.25)),  # the service ends
        httpx.ConnectError("refused"),
        problem(503, headers={"Retry-After": "4"}),
        events(job(progress=0.5), job("live", 1.0)),
    )
    seen = [(view.state, view.progress) for view in client.jobs.follow("j")]
    assert seen == [("queued", 0.0), ("running", 0.25), ("running", 0.5), ("live", 1.0)]
    assert [r.headers.get("Last-Event-ID") for r in service.requests] == [None, "25", "25", "25"]
    assert clock.slept == [0.5, 1.0, 4.0]
    assert {request.url.path for request in service.requests} == {"/jobs/j/events"}


def test_with_too_many_listeners_the_job_is_polled(play, clock):
    full = problem(503, "too_many_listeners", headers={"Retry-After": "5"})
    view = httpx.Response(200, json=job(progress=0.5))
    client, _ = play(full, view, full, view, events(job("live", 1.0)))
    assert [seen.progress for seen in client.jobs.follow("j")] == [0.5, 0.5, 1.0]
    assert clock.slept == [5.0, 5.0]
    client, _ = play(full, httpx.Response(200, json=job("failed", 1.0)))
    assert [seen.state for seen in client.jobs.follow("j")] == ["failed"]


def test_every_event_or_heartbeat_restarts_the_patience(play, clock):
    for heard, lost in (
        (events(job()), httpx.ConnectError("refused")),
        (events(), httpx.ReadTimeout("nothing came")),
    ):
        client, _ = play(*[heard, lost] * 30, events(job("live", 1.0)))
        clock.slept.clear()
        assert client.jobs.wait("j", patience_seconds=10).state == "live"
        assert clock.slept == [0.5, 1.0] * 30


def test_waiting_ends_with_the_patience_or_the_deadline(play, clock):
    client, _ = play(events(job()), *[httpx.ConnectError("refused")] * 100)
    seen = []
    with pytest.raises(ConnectionLostError):
        client.jobs.wait("j", on_progress=seen.append, patience_seconds=100)
    assert len(seen) == 1
    assert 100 < sum(clock.slept) <= 140
    clock.slept.clear()
    client, _ = play(*[events(job())] * 100)
    with pytest.raises(DeadlineExceededError):
        client.jobs.wait("j", deadline_seconds=30)
    assert sum(clock.slept) <= 30


def test_a_job_that_failed_or_was_cancelled_is_an_error(play):
    error = {"code": "corpus_changed", "detail": "Upload it again."}
    client, _ = play(events(job("failed", error=error)), events(job("cancelled")))
    for code, message in (("corpus_changed", "Upload it again"), ("cancelled", "")):
        with pytest.raises(JobFailedError, match=f".*{message}") as told:
            client.jobs.wait("j")
        assert told.value.code == code


def test_training_can_wait_for_its_end(play):
    started = httpx.Response(202, json=job("queued"))
    done = {"name": "n", "version": "v", "digest": "d", "vocab_size": 1}
    seen = []
    client, service = play(started, events(job(progress=0.5), job("live", 1.0, result=done)))
    ended = client.train(
        documents=["a"], wait=True, on_progress=lambda view: seen.append(view.state)
    )
    assert (ended.state, ended.result.version, seen) == ("live", "v", ["running", "live"])
    assert [request.url.path for request in service.requests] == ["/train", "/jobs/j/events"]
    client, _ = play(started, events(job("failed", error={"code": "c", "detail": "d"})))
    with pytest.raises(JobFailedError):
        client.train(documents=["a"], wait=True)
