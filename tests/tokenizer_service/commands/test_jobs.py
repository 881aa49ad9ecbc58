"""`tokenizer jobs`: lists the jobs of the job database, waits for them and cancels them."""

import json
from types import SimpleNamespace

import pytest

from tokenizer_service.commands import jobs
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.workers import ProcessIdentity

FIRST, SECOND = "20261121T041500Z-0123456789ab", "20261121T041501Z-0123456789ab"
ME = ProcessIdentity.of_this_process()


@pytest.fixture
def store(cli):
    store = JobStore.open(cli.folder / "artifacts")
    for job_id, name in ((FIRST, "news"), (SECOND, "later")):
        store.add(job_id, {"name": name}, request_digest="d", idempotency_key=None, queue_limit=8)
    return store


def run_first(store):
    job = store.claim_next(ME)
    assert store.set_progress(job, "learn", 0.41, {"merges": 7})
    return job


def test_no_database_has_no_jobs_and_a_damaged_one_is_refused(cli):
    assert b"no jobs" in cli.run("jobs", "list")[0]
    assert json.loads(cli.run("jobs", "list", "--json")[0]) == {"jobs": []}
    for command in ("show", "watch"):
        assert "no jobs" in cli.fail("jobs", command)
    assert "no job" in cli.fail("jobs", "cancel", FIRST)
    database = cli.folder / "artifacts" / DATABASE_NAME
    assert not database.exists()
    database.parent.mkdir(exist_ok=True)
    database.write_text("no database" * 100)
    assert "cannot be used" in cli.fail("jobs", "list")


def test_jobs_are_listed_and_shown(cli, store):
    run_first(store)
    newest, first = cli.run("jobs", "list")[0].decode().splitlines()
    assert newest.split() == [SECOND, "train", "queued", "later"]
    assert first.split() == [FIRST, "train", "running", "news", "41%", "learn"]
    (listed,) = json.loads(cli.run("jobs", "list", "--limit=1", "--json")[0])["jobs"]
    assert listed["id"] == SECOND
    shown = json.loads(cli.run("jobs", "show", "--json")[0])  # the running job
    assert (shown["id"], shown["counters"], shown["log_tail"]) == (FIRST, {"merges": 7}, [])
    _, *lines = cli.run("jobs", "show", FIRST)[0].decode().splitlines()
    assert [line.split()[0] for line in lines] == ["created", "started", "counters"]
    assert lines[-1] == "  counters     merges 7"
    for limit in ("0", str(10**30)):
        assert "from 1 to" in cli.fail("jobs", "list", f"--limit={limit}", code=2)
    assert "jobs list" in cli.fail("jobs", "show", "../x")
    assert f"did you mean {FIRST}?" in cli.fail("jobs", "watch", FIRST[:-1])


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 3)])
def test_watching_ends_with_the_job(cli, store, monkeypatch, state, code):
    job = run_first(store)
    polls = []

    def sleep(seconds):
        polls.append(seconds)
        if len(polls) == 2:
            assert store.finish(job, state, error_code=None, detail="")

    monkeypatch.setattr(jobs, "time", SimpleNamespace(sleep=sleep))
    out, error = cli.run("jobs", "watch", FIRST, code=code)
    assert out.split()[:4] == [FIRST.encode(), b"train", state.encode(), b"news"]
    assert (len(polls), error) == (2, "")
    shown = json.loads(cli.run("jobs", "watch", FIRST, "--json", code=code)[0])
    assert shown["state"] == state


def test_watching_says_why_a_version_is_not_promoted(cli, store):
    job = run_first(store)
    why = {"reason": "size_not_reached", "asked": 10_000, "got": 257}
    why |= {"replaces": "starter@v", "replaces_vocab_size": 32_000}
    result = {"name": "news", "version": "v", "digest": "d", "vocab_size": 257, "warnings": []}
    result["not_promoted"] = why
    assert store.set_result(job, result)
    assert store.finish(job, "succeeded", error_code=None, detail="")
    *_, published, said = cli.run("jobs", "watch", FIRST)[0].decode().splitlines()
    assert published == "  published    news@v, 257 tokens"
    assert said == (
        "  not promoted: it has 257 entries, not the 10000 asked for; "
        "serve it:  tokenizer promote news@v"
    )
    assert json.loads(cli.run("jobs", "watch", FIRST, "--json")[0])["result"] == result


def test_a_job_is_cancelled_as_the_service_does(cli, store):
    job = run_first(store)
    folder = cli.folder / "artifacts" / "jobs" / SECOND / "documents"
    folder.mkdir(parents=True)
    assert b"is being ended" in cli.run("jobs", "cancel", FIRST)[0]
    assert store.is_cancel_requested(job)
    assert b"is cancelled" in cli.run("jobs", "cancel", SECOND)[0]
    assert not folder.exists()
    assert b"had ended already: cancelled" in cli.run("jobs", "cancel", SECOND)[0]
    assert json.loads(cli.run("jobs", "cancel", SECOND, "--json")[0])["state"] == "cancelled"
