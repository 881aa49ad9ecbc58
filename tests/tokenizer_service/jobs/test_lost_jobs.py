"""Jobs whose server is gone or was taken for gone: who takes them over, who may still write."""

import subprocess
import sys
import time
from signal import SIGKILL

import pytest

from tests.tokenizer_service.jobs.fake_process import FakeRunner, error_of, publish_starter
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.restarts import MAX_DEATHS
from tokenizer_service.jobs.token_files import TokenFilesFolder
from tokenizer_service.serving.workers import ProcessIdentity, this_host

pytestmark = pytest.mark.anyio

OTHER = ProcessIdentity(1, 0.5)
HOLD_THE_LOCK = """
import sys
from pathlib import Path
from tokenizer_service.jobs.process import JobLock
assert JobLock(Path(sys.argv[1])).acquire(timeout_seconds=60)
print("held", flush=True)
input()
"""


@pytest.fixture
def idle(tmp_path):
    """A runner that looks at lost jobs only when the test says so."""
    publish_starter(tmp_path)
    return FakeRunner(tmp_path)


@pytest.fixture
def sleeper():
    """Some process of this host."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def give(idle, job_id, owner, *, host=None, child=None, lease_seconds=300):
    with idle.jobs.database.transaction() as statement:
        statement(
            "UPDATE jobs SET state = 'running', attempt = 9, owner = ?, owner_host = ?, child = ?,"
            " lease_ends_at = ? WHERE id = ?",
            (
                owner.to_json(),
                host or this_host(),
                child and child.to_json(),
                time.time() + lease_seconds,
                job_id,
            ),
        )


def identity(process):
    return ProcessIdentity.of(process.pid)


@pytest.mark.promise(2, 15)
def test_a_job_of_a_killed_server_fails_once_its_trainer_has_ended(idle, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path.absolute())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as trainer:
        assert trainer.stdout.readline() == b"held\n"
        job_id, gone = idle.add(), ProcessIdentity(trainer.pid, started=1.0)
        # Its server was killed before it recorded the pid: only the lock shows that it runs.
        give(idle, job_id, gone)
        for _ in range(2):
            idle.runner._reap()
            assert idle.jobs.get(job_id).state == "running"
        give(idle, job_id, gone, child=identity(trainer))
        idle.runner._reap()
        assert trainer.wait(60) == -SIGKILL
    idle.runner._reap()
    assert error_of(idle.jobs.get(job_id)) == ("failed", "runner_died")


@pytest.mark.promise(16)
def test_only_a_job_of_another_host_is_judged_by_its_lease(idle, sleeper):
    """A process of this host has the same marks; that does not matter."""
    job_id, mark = idle.add(), identity(sleeper)
    give(idle, job_id, mark, host="elsewhere", child=mark)
    idle.runner._reap()
    assert idle.jobs.get(job_id).state == "running"
    for deaths in range(1, MAX_DEATHS + 1):
        give(idle, job_id, mark, host="elsewhere", child=mark, lease_seconds=-0.1)
        for _ in range(2):  # the second time there is nothing to do
            idle.runner._reap()
        job = idle.jobs.get(job_id)
        assert (job.state, job.attempt) == ("queued", 10)
        assert (job.deaths, job.takeovers) == (deaths, deaths)
    give(idle, job_id, mark, host="elsewhere", child=mark, lease_seconds=-0.1)
    idle.runner._reap()
    assert error_of(idle.jobs.get(job_id)) == ("failed", "runner_died")
    # On this host the lease ended a day ago, by a clock that jumped, but the owner still runs.
    give(idle, idle.add(), mark, lease_seconds=-86_400)
    idle.runner._reap()
    (job,) = idle.jobs.running()
    # A stranger with the pid of owner and trainer is neither of them, and is left alone.
    stranger = ProcessIdentity(sleeper.pid, started=1.0)
    give(idle, job.id, stranger, child=stranger)
    idle.runner._reap()
    assert error_of(idle.jobs.get(job.id)) == ("failed", "runner_died")
    assert sleeper.poll() is None


@pytest.mark.promise(15)
def test_a_job_is_not_begun_again_before_its_owner_could_renew_and_the_pointer_is_fenced(
    idle, monkeypatch
):
    fences = []

    def fence(store):
        fences.append(1)
        if len(fences) < 3:
            raise OSError(5, "the storage is away")
        (job,) = idle.jobs.running()
        assert job.owner == ProcessIdentity.of_this_process()  # taken, and held meanwhile

    monkeypatch.setattr(ArtifactStore, "fence", fence)
    job_id = idle.add()
    give(idle, job_id, OTHER, host="elsewhere", lease_seconds=-1)
    database = type(idle.jobs.database)
    # After an outage of the database; renewals are 5 s apart.
    monkeypatch.setattr(database, "answers_for_seconds", property(lambda self: 9.0))
    idle.runner._reap()
    assert fences == []
    monkeypatch.setattr(database, "answers_for_seconds", property(lambda self: 11.0))
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            idle.runner._reap()
        assert idle.jobs.get(job_id).state == "running"
    idle.runner._reap()
    job = idle.jobs.get(job_id)
    assert (job.state, job.deaths, job.takeovers) == ("queued", 1, 1)


@pytest.mark.promise(15)
async def test_an_attempt_after_a_takeover_writes_to_its_own_folder(fake, tmp_path):
    first, job_id = fake.add(), fake.add()
    with fake.jobs.database.transaction() as statement:
        statement("UPDATE jobs SET takeovers = 2 WHERE id = ?", (job_id,))
    await fake.succeed(await fake.next_child())
    await fake.wait(first)
    child = await fake.next_child()
    folder = tmp_path / "jobs" / job_id
    assert sorted(path.name for path in folder.iterdir()) == ["again-2", "train.log"]
    await fake.succeed(child)
    await fake.wait(job_id)
    assert [path.name for path in folder.iterdir()] == ["train.log"]


async def test_a_server_that_lost_its_job_leaves_its_files_to_the_next(fake, tmp_path):
    job_id = fake.add(kind="encode")
    growing = TokenFilesFolder.of(tmp_path).growing(job_id)
    late = await fake.next_child()
    growing.mkdir(parents=True)
    assert fake.jobs.requeue(fake.jobs.get(job_id), died=True)  # as a server of another host does
    child = await fake.next_child()
    assert late.has_ended
    assert growing.exists()
    taken = fake.jobs.take_over(fake.jobs.get(job_id), OTHER, if_lease_ended=False)
    assert fake.jobs.finish(taken, "failed", error_code="runner_died")
    fake.add()
    await fake.next_child()
    assert child.has_ended
    assert not growing.exists()  # nobody needs them now


@pytest.mark.promise(15)
async def test_an_owner_that_lost_its_job_moves_no_pointer(fake):
    real, pending = fake.store.promote, [True]

    def promote(*arguments, **options):
        """Its lease was confirmed; now another server takes the job over."""
        if pending:
            pending.clear()
            (held,) = fake.jobs.running()
            taken = fake.jobs.take_over(held, OTHER, if_lease_ended=False)
            fake.store.fence()
            assert fake.jobs.finish(taken, "failed", error_code="runner_died")
        return real(*arguments, **options)

    job_id = fake.add(name="before")
    before = await fake.succeed(await fake.next_child())
    await fake.wait(job_id)
    fake.store.promote = promote
    late = fake.add(name="late")
    await fake.succeed(await fake.next_child())
    assert error_of(await fake.wait(late)) == ("failed", "runner_died")
    after = fake.add(name="after", promote="manual")
    await fake.succeed(await fake.next_child())
    assert (await fake.wait(after)).state == "succeeded"  # the late attempt has ended by then
    assert fake.store.active() == fake.live.require_active().ref == before
    assert "late" in fake.store.names()  # a version that no process serves
