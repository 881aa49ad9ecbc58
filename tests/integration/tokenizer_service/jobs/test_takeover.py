"""Takeover of a job from its owner, and an owner that resumes late: storage refuses it, too."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.server_process import wait_until
from tests.tokenizer_service.jobs.conftest import Service
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.workers import ProcessIdentity

OTHER = ProcessIdentity(1, 0.5)

pytestmark = pytest.mark.promise(15)


def interrupt_promotion(service: Service, then: Callable[[], Any]) -> None:
    """Do something once, when a runner is about to move the pointer and its lease was confirmed."""
    store, pending = service.services.store, [then]
    real = store.promote

    def promote(*arguments: Any, **options: Any) -> Any:
        if pending:
            pending.pop()()
        return real(*arguments, **options)

    store.promote = promote  # type: ignore[method-assign]


def test_an_owner_that_lost_its_job_moves_no_pointer(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def take_over() -> None:
        (held,) = service.jobs.running()
        taken = service.jobs.take_over(held, OTHER, if_lease_ended=False)
        assert taken is not None
        service.store.fence()
        assert service.jobs.finish(taken, "failed", error_code="runner_died")

    before = service.wait(service.start(name="before"))["result"]
    interrupt_promotion(service, take_over)
    job_id = service.start(name="late", vocab_size=280)
    assert service.wait(job_id)["error"]["code"] == "runner_died"
    after = service.wait(service.start(name="after", promote="manual", vocab_size=270))
    assert after["state"] == "succeeded"  # the late attempt has ended by then
    active = service.store.active()
    assert active is not None
    assert active.digest == before["digest"]
    assert "late" in service.store.names()  # a version that no process serves
    (said,) = [line for line in caplog.messages if "is not promoted" in line]
    assert f"job {job_id}: late@" in said
    assert service.client.get("/readyz").json()["status"] == "ok"


def test_another_promotion_does_not_stop_that_of_a_job(service: Service) -> None:
    """The last one wins, as it does without jobs."""
    other = service.wait(service.start(name="other", promote="manual", vocab_size=280))["result"]
    ref = service.store.resolve(f"{other['name']}@{other['version']}")
    interrupt_promotion(service, lambda: service.store.promote(ref))
    job = service.wait(service.start(name="mine"))
    assert job["state"] == "live"
    active = service.store.active()
    assert active is not None
    assert active.digest == job["result"]["digest"]


def test_a_job_is_not_begun_again_before_the_pointer_is_fenced(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences: list[int] = []

    def fence(store: ArtifactStore) -> None:
        fences.append(1)
        if len(fences) < 3:
            raise OSError(5, "the storage is away")
        (job,) = service.jobs.running()
        assert job.owner == ProcessIdentity.of_this_process()  # taken, and held meanwhile

    assert service.client.portal is not None
    service.client.portal.call(service.services.runner.stop)
    job_id = service.start()
    claimed = service.jobs.claim_next(OTHER)
    assert claimed is not None
    with service.jobs.database.transaction() as run:
        run("UPDATE jobs SET owner_host = 'elsewhere', lease_ends_at = 1.0", ())
    monkeypatch.setattr(ArtifactStore, "fence", fence)
    runner = service.services.runner
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            runner._reap()
        assert service.job(job_id)["state"] == "running"
    runner._reap()
    waiting = service.jobs.get(job_id)
    assert waiting is not None
    assert (waiting.state, waiting.deaths, waiting.takeovers) == ("queued", 1, 1)


def test_after_an_outage_owners_may_renew_before_they_are_judged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.client.portal is not None
    service.client.portal.call(service.services.runner.stop)
    service.start()
    claimed = service.jobs.claim_next(OTHER)
    assert claimed is not None
    with service.jobs.database.transaction() as run:
        run("UPDATE jobs SET owner_host = 'elsewhere', lease_ends_at = 1.0", ())
    runner = service.services.runner
    kind = type(service.jobs.database)
    for seconds, state in ((9.0, "running"), (11.0, "queued")):  # renewals are 5 s apart
        monkeypatch.setattr(kind, "answers_for_seconds", property(lambda self, s=seconds: s))
        runner._reap()
        assert service.job(claimed.id)["state"] == state


def test_an_attempt_after_a_takeover_writes_to_its_own_folder(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder has the takeover's number, and the job's removal removes all of them."""
    assert service.client.portal is not None
    service.client.portal.call(service.services.runner.stop)
    job_id = service.start()
    with service.jobs.database.transaction() as run:
        run("UPDATE jobs SET takeovers = 2 WHERE id = ?", (job_id,))
    seen: list[list[str]] = []
    real = JobStore.allow_publishing
    folder = service.settings.artifacts_dir / "jobs" / job_id

    def look(store: JobStore, job: Any) -> bool:
        seen.append(sorted(path.name for path in folder.iterdir()))
        return real(store, job)

    monkeypatch.setattr(JobStore, "allow_publishing", look)
    service.services.runner._stop.clear()
    service.client.portal.call(service.services.runner.start)
    assert service.wait(job_id)["state"] == "live"
    assert seen == [["again-2", "train.log"]]
    wait_until(lambda: not (folder / "again-2").exists())
