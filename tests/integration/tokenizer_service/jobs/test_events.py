"""Jobs as server-sent events, to the end of a job and over a real socket."""

import json

import pytest

from tests.integration.server_process import publish_bytes, serve
from tests.tokenizer_service.jobs.test_events import JOB_ID, parse_events
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.workers import ProcessIdentity


def next_document(lines):
    return json.loads(next(line for line in lines if line.startswith("data: "))[6:])


def test_a_job_is_followed_to_its_end(service, monkeypatch):
    job_id = service.start()
    answer = service.client.get(f"/train/{job_id}/events")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Length" not in answer.headers
    assert answer.text.startswith("retry: 2000\n\n")
    events = parse_events(answer.text)
    assert len({id_ for id_, _ in events}) == len(events)
    assert events[-1][1]["state"] == "live"
    assert events[-1][1] == service.job(job_id)
    progress = [document["progress"] for _, document in events]
    assert progress == sorted(progress)
    last = events[-1][0]
    seen = service.client.get(f"/train/{job_id}/events", headers={"Last-Event-ID": last})
    assert (seen.status_code, seen.content) == (204, b"")
    again = service.client.get(f"/v1/train/{job_id}/events", headers={"Last-Event-ID": "other"})
    assert parse_events(again.text) == events[-1:]
    for unknown in (JOB_ID, "nope", "..%2Fx"):
        assert service.client.get(f"/train/{unknown}/events").status_code == 404
    monkeypatch.setattr(service.services.job_watch, "_max_listeners", 0)
    refused = service.client.get(f"/train/{job_id}/events")
    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_listeners")
    assert refused.headers["Retry-After"]


@pytest.mark.promise(9)
def test_over_a_socket_events_come_as_they_happen_and_sigterm_ends_them(tmp_path):
    artifacts = tmp_path / "artifacts"
    publish_bytes(artifacts, "starter")
    jobs = JobStore.open(artifacts)
    jobs.add(JOB_ID, {"name": "n"}, request_digest="d", idempotency_key=None, queue_limit=8)
    job = jobs.claim_next(ProcessIdentity.of_this_process())  # a server leaves it alone
    assert job is not None
    path = f"/train/{JOB_ID}/events"
    with serve(artifacts) as server, server.client() as client:
        with client.stream("GET", path) as answer:
            assert next_document(answer.iter_lines())["state"] == "running"
            server.wait_for_in_flight(1)
        server.wait_for_in_flight(0)  # a client that goes costs nothing
        assert client.head(path).status_code == 200  # and does not follow the job
        assert client.get("/livez").status_code == 200  # on the same connection
        with client.stream("GET", path) as answer:
            lines = answer.iter_lines()
            next_document(lines)
            jobs.set_progress(job, "learn", 0.6, {"learn_done": 1})
            assert next_document(lines)["counters"] == {"learn_done": 1}
            server.terminate()
            # Ended properly, not cut off: no error here.
            assert [line for line in lines if line.startswith("data: ")] == []
        assert server.process.returncode == 0
