"""The hot swap in one process and across several, and errors of the disk."""

import asyncio
import dataclasses
import errno
import fcntl
import gc
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.native_module import native_module
from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.routes.exchanges import wait_for_job
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactStorageError,
)
from tokenizer_core.registry import ArtifactRef, ArtifactStore
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import SplitPattern
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.errors import VersionInUseError
from tokenizer_service.jobs.version_retention import VersionRetention
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.serving import live_tokenizers
from tokenizer_service.serving.errors import (
    NoTokenizerError,
    PromotionInProgressError,
    SwapFailedError,
    SwapTimeoutError,
)
from tokenizer_service.serving.live_tokenizer import identity_of
from tokenizer_service.serving.live_tokenizers import LiveTokenizers, PinnedTokenizers
from tokenizer_service.serving.workers import ProcessIdentity, WorkerState, WorkerStates

pytestmark = pytest.mark.anyio


def promote(client, name):
    headers = {"X-API-Key": ADMIN_KEY}
    return client.put("/tokenizers/active", json={"tokenizer": name}, headers=headers)


@pytest.mark.row(36)
@pytest.mark.promise(14)
def test_a_disk_that_fails_under_a_promotion_is_reported(client, starter, other, monkeypatch):
    def check(owner, name, number, status, code):
        original = getattr(owner, name)

        def fail(first, *arguments, **options):
            if owner is fcntl or str(first).endswith(("run", "promotion.lock", "workers")):
                raise OSError(number, os.strerror(number), "/some/path")
            return original(first, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            answer = promote(client, "other")
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert "/some/path" not in answer.text
        assert client.get("/tokenizers/active").json()["digest"] == starter.digest

    check(Path, "mkdir", errno.EIO, 503, "storage_failed")
    check(Path, "open", errno.ENOSPC, 507, "disk_full")
    check(fcntl, "flock", errno.EIO, 503, "storage_failed")
    check(Path, "glob", errno.EMFILE, 503, "storage_failed")
    assert promote(client, "other").status_code == 200


@pytest.mark.row(36)
@pytest.mark.promise(14)
@pytest.mark.parametrize("function", ["write_text", "replace"])
def test_serving_needs_no_state_files(make_client, starter, other, monkeypatch, function):
    n_failed = 0

    def fail(path, *arguments, **options):
        nonlocal n_failed
        if "last_good" in path.name or path.parent.name == "workers":
            n_failed += 1
            raise OSError(errno.ENOSPC, "no space", "/some/path")
        return original(path, *arguments, **options)

    original = getattr(Path, function)
    with monkeypatch.context() as patch:
        patch.setattr(Path, function, fail)
        with make_client() as client:
            served = client.post("/encode", json={"text": "a"})
            assert served.headers["Tokenizer-Version"] == str(starter)
            assert promote(client, "other").status_code == 200
            after = client.post("/encode", json={"text": "a"})
            assert after.headers["Tokenizer-Version"] == str(other)
            assert client.get("/readyz").status_code == 200
    assert n_failed >= 4


@asynccontextmanager
async def started(settings, store, *, swap_timeout_seconds=30):
    live = LiveTokenizers(
        settings, store, ServiceMetrics(), swap_timeout_seconds=swap_timeout_seconds
    )
    await live.start()
    try:
        yield live
    finally:
        await live.stop()


@pytest.fixture
def other(store, other_spec):
    return store.publish(other_spec, name="other")


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage(store, ref):
    flip_a_bit(store.root / "tokenizers" / ref.name / ref.version / "vocab.pkl")


def wait_until(condition, *arguments):
    deadline = time.monotonic() + 60
    while not condition(*arguments):
        assert time.monotonic() < deadline
        time.sleep(0.02)


class FakePeer(AbstractContextManager):
    """The state file of another process of this host: a child that only sleeps."""

    def __init__(self, store):
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        mark = ProcessIdentity.of(self.process.pid)
        self.state = WorkerState(mark.pid, mark.started)
        self.path = WorkerStates(store.root / "run" / "workers")._file_of(mark.pid)

    def write(self, **fields):
        state = dataclasses.replace(self.state, **fields)
        self.path.write_text(json.dumps(dataclasses.asdict(state)))

    def end(self):
        self.process.kill()
        self.process.wait()

    def __exit__(self, *raised):
        self.end()


async def test_the_versions_that_requests_name_are_known_to_every_process(
    settings, store, starter, other
):
    store.promote(starter)

    async with started(settings, store) as live:
        states = WorkerStates(store.root / "run" / "workers")
        with FakePeer(store) as peer:
            peer.write()
            peer.path.with_suffix(".pinned").write_text('["third@1"]')
            assert states.read_pinned() == {"third@1"}
            await asyncio.to_thread(live.get, "other")
            assert live.pinned_on_host() == {"third@1", str(other)}
            damaged = SimpleNamespace(kind="encode", request={})  # it names no version
            jobs = SimpleNamespace(unfinished=lambda: [damaged])
            with pytest.raises(VersionInUseError, match="has it in memory for requests"):
                VersionRetention(settings, store, live, jobs).remove("third", "1")
        assert live.pinned_on_host() == {str(other)}
        assert not peer.path.with_suffix(".pinned").exists()
        await live.promote(other)  # from now on its state says so
        assert live.pinned_on_host() == set()
        await asyncio.to_thread(live.get, str(starter))
        assert states.read_pinned() == {str(starter)}
    folder = store.root / "run" / "workers"
    assert list(folder.iterdir()) == []
    store.publish(store.open(other), name="late")
    live.get("late")  # as a thread does that was still loading
    assert list(folder.iterdir()) == []
    WorkerStates(folder).write_pinned(["left@1"])  # by a killed process of the same number
    async with started(settings, store) as live:
        assert live.pinned_on_host() == set()


def test_the_version_that_an_alias_follows_is_in_use(settings, store, starter, other, caplog):
    newest, unused = (store.publish(store.open(ref), name="other") for ref in (starter, other))
    for ref in (other, starter, newest, store.publish(store.open(other), name="late"), starter):
        store.promote(ref)
    live = SimpleNamespace(loaded=list, served_rows=list, pinned_on_host=set)
    jobs = SimpleNamespace(unfinished=list)
    kept = settings.model_copy(update={"keep_versions": 1})
    retention = VersionRetention(kept, store, live, jobs)
    retention.keep_newest("other")
    assert store.versions("other") == [newest, unused]

    def fail():
        raise JobDatabaseError("database is locked")

    failing = VersionRetention(kept, store, live, SimpleNamespace(unfinished=fail))
    failing.keep_newest("other")  # logs it: the import or the job before it has succeeded
    assert "old versions of other cannot be removed: database is locked" in caplog.text
    store.add_alias("qwen", "other")
    with pytest.raises(VersionInUseError, match="an alias follows it"):
        retention.remove("other", newest.version)
    retention.remove("other", unused.version)
    store.remove_alias("qwen")
    retention.remove("other", newest.version)
    assert store.versions("other") == []


async def test_a_retired_tokenizer_is_freed(settings, store, other):
    async with started(settings, store) as live:
        held = live.require_active()
        held.tokenizer.encode("warm the cache")
        retired, tokenizer = weakref.ref(held), weakref.ref(held.tokenizer)
        await live.promote(other)
        gc.collect()
        assert retired() is held  # an earlier request keeps its reference
        del held
        gc.collect()
        assert retired() is None
        assert tokenizer() is None


async def test_pinned_versions_are_bounded_and_loaded_once(settings, store, small_spec):
    refs = [
        store.publish(
            TokenizerSpec.from_merges(small_spec.vocab, small_spec.merges[:-n]), name=f"t{n}"
        )
        for n in range(1, 8)
    ]

    async with started(settings, store) as live:
        loads = []
        load = live._load

        def counted(ref):
            loads.append(str(ref))
            time.sleep(0.05)
            return load(ref)

        live._load = counted
        same = str(refs[0])
        found = await asyncio.gather(*(asyncio.to_thread(live.get, same) for _ in range(6)))
        assert len({id(one) for one in found}) == 1
        assert loads == [same]
        for ref in refs:
            assert live.get(ref.name).ref == ref
        assert len(live.loaded()) == 5
        assert live.peek(str(refs[-1])) is not None
        assert live.peek(str(refs[0])) is None
        kept = [str(ref) for ref in refs if live.peek(str(ref)) is not None]
        for name in (kept[0], same):
            live.get(name)
        assert live.peek(kept[0]) is not None, "it was used last"
        assert live.peek(kept[1]) is None


def test_a_load_that_fails_leaves_the_version_in_use_for_the_next():
    pinned = PinnedTokenizers()
    entered, leave = threading.Event(), threading.Event()

    def load_next():
        with pinned.loading("a@1"):
            entered.set()
            leave.wait(10)

    following = threading.Thread(target=load_next)

    def fail_while_it_waits():
        with pinned.loading("a@1"):
            following.start()
            assert not entered.wait(0.1)
            raise OSError

    with pytest.raises(OSError) as caught:
        fail_while_it_waits()
    assert entered.wait(10)
    assert pinned.names() == ["a@1"]
    leave.set()
    following.join()
    assert caught.tb is not None  # the error is kept, and not the lock
    assert pinned.names() == []


@pytest.mark.row(30)
async def test_a_version_that_does_not_load_changes_nothing(settings, store, starter, other):
    damage(store, other)

    async with started(settings, store) as live:
        in_use = []
        load = live._load
        live._load = lambda ref: in_use.append(live.pinned_on_host()) or load(ref)
        with pytest.raises(ArtifactCorruptError):
            await live.promote(other)
        assert in_use == [{str(other)}]  # while it was loaded
        assert live.pinned_on_host() == set()
        missing = ArtifactRef("nope", "20200101T000000Z-00000000", "0" * 64)
        with pytest.raises(ArtifactNotFoundError):
            await live.promote(missing)
        assert live.require_active().ref == starter
        assert live.reason is None
        assert store.active() is None


def test_the_round_trip_check_finds_a_tokenizer_that_loses_text(small_spec):
    letters = SplitPattern("custom", r"[a-z]+", unmatched="drop")
    check_round_trip(Tokenizer.from_spec(dataclasses.replace(small_spec, pattern=letters)))

    class Lossy(Tokenizer):
        lost = ""

        def decode(self, *arguments, **options):
            return super().decode(*arguments, **options).replace(self.lost, "?")

    own = TokenizerSpec.from_merges({byte: bytes([byte]) for byte in range(256)}, [], ["<|own|>"])
    for lost, told in (("中", "golden text"), ("<|own|>", "special token with id 256")):
        Lossy.lost = lost
        with pytest.raises(ArtifactCorruptError, match=told):
            check_round_trip(Lossy.from_spec(own))


@pytest.mark.row(31)
@pytest.mark.parametrize(
    "pointer", ["garbage", '{"active": "gone@20200101T000000Z-00000000", "digest": "0"}']
)
def test_a_bad_pointer_leaves_the_last_good_version_and_degrades(
    settings, store, starter, other, make_client, pointer
):
    def check(client, wanted):
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["status"] == "degraded"
        assert "cannot be loaded" in ready.json()["reason"]
        assert str(store.root) not in ready.text
        answer = client.post("/encode", json={"text": "a"}).json()
        assert answer["tokenizer"]["digest"] == wanted.digest
        refused = client.get("/v1/models")
        assert refused.status_code == 409
        assert refused.json()["detail"].startswith("active.json fails its verification")

    with make_client() as client:
        assert promote(client, "other").status_code == 200
        (store.root / "active.json").write_text(pointer)
        wait_until(lambda: client.get("/readyz").json()["status"] != "ok")
        check(client, other)  # the active version stays
        assert 'swaps_total{result="failed"} 1.0' in client.get("/metrics").text
    with make_client() as client:
        check(client, other)  # and starts with the last good one
        assert promote(client, "starter").status_code == 200
        assert client.get("/readyz").json()["status"] == "ok"
        assert store.active() == starter


def test_a_lost_pointer_leaves_the_last_good_version(store, other, make_client):
    with make_client() as client:
        assert client.get("/readyz").json()["source"] == "default"
        assert promote(client, "other").status_code == 200
        assert client.get("/readyz").json()["source"] == "promoted"
    (store.root / "active.json").unlink()
    with make_client() as client:
        ready = client.get("/readyz").json()
        assert (ready["status"], ready["source"]) == ("degraded", "last_good")
        assert ready["tokenizer"]["digest"] == other.digest


@pytest.mark.row(37)
@pytest.mark.parametrize("has_pointer", [True, False])
def test_a_missing_active_version_is_not_replaced_by_another(
    store, starter, other, make_client, has_pointer
):
    """Nor by the default, nor by the one that was active before."""
    with make_client() as client:
        assert promote(client, "starter" if has_pointer else "other").status_code == 200
    if has_pointer:
        store.promote(other)  # while no server runs
    else:
        (store.root / "active.json").unlink()
    shutil.rmtree(store.root / "tokenizers" / "other")
    with make_client() as client:
        answer = client.post("/encode", json={"text": "a"})
        assert (answer.status_code, answer.json()["code"]) == (503, "no_tokenizer")
        lost = f"{other}, the active tokenizer," if has_pointer else "The active pointer cannot"
        assert answer.json()["detail"].startswith(lost)
        assert ("restore its folder from a backup" in answer.json()["detail"]) == has_pointer
    elsewhere = store.root / "elsewhere"  # nothing was promoted there
    ref = ArtifactStore(elsewhere).publish(store.open(starter), name="starter")
    with make_client(store=str(elsewhere)) as client:
        served = client.post("/encode", json={"text": "a"})
        assert served.headers["Tokenizer-Version"] == str(ref)


@pytest.mark.row(37)
@pytest.mark.parametrize(
    ("file", "harm", "is_promoted"),
    [
        ("vocab.pkl", flip_a_bit, True),
        ("merges.pkl", Path.unlink, False),
        ("manifest.json", lambda path: path.write_text("{}"), True),
    ],
)
def test_a_damaged_active_version_is_not_replaced_by_another(
    store, starter, other, make_client, monkeypatch, file, harm, is_promoted
):
    monkeypatch.setattr(live_tokenizers, "RETRY_SECONDS", 0.1)
    with make_client(default="starter" if is_promoted else "other") as client:
        assert not is_promoted or promote(client, "other").status_code == 200
    path = store.root / "tokenizers" / "other" / other.version / file
    sound = path.read_bytes()
    harm(path)
    with make_client(default="starter" if is_promoted else "other") as client:
        for answer in (client.post("/encode", json={"text": "a"}), client.get("/readyz")):
            assert (answer.status_code, answer.json()["code"]) == (503, "no_tokenizer")
            detail = answer.json()["detail"]
            assert f"{other}, the {'active tokenizer' if is_promoted else 'default'}," in detail
            assert f"({file}: artifact_corrupt)" in detail
            assert f"Remedy: restore {file} from a backup" in detail
            assert ("TOKENIZER_FALLBACK=previous" in detail) == is_promoted
            assert str(store.root) not in answer.text
        pinned = {"text": "a", "tokenizer": str(starter)}
        assert client.post("/encode", json=pinned).status_code == 200
        refused = client.post("/encode", json={**pinned, "tokenizer": "other"})
        assert refused.status_code == 409
        assert refused.json()["detail"].startswith(f"{other} ({file}) fails its verification")
        path.write_bytes(sound)
        wait_until(lambda: client.get("/readyz").status_code != 503)
        ready = client.get("/readyz").json()
        assert (ready["status"], ready["tokenizer"]["digest"]) == ("ok", other.digest)


@pytest.mark.row(37)
def test_a_fallback_is_the_latest_sound_version_that_was_active(store, starter, other, make_client):
    third = store.publish(store.open(other), name="third")
    for ref in (starter, other, third):
        store.promote(ref)
    for ref in (other, third):
        damage(store, ref)
    store.publish(store.open(starter), name="newer")  # it was never active
    with FakePeer(store) as peer:
        for _ in range(2):
            with make_client(fallback="previous", default="newer") as client:
                ready = client.get("/readyz").json()
                assert (ready["status"], ready["source"]) == ("degraded", "previous")
                failed = f"{third}, the active tokenizer, cannot be loaded (vocab.pkl"
                assert failed in ready["reason"]
                served = client.post("/encode", json={"text": "a"})
                assert served.headers["Tokenizer-Version"] == str(starter)
            peer.write(**identity_of(starter))  # now another process serves it already
    with make_client(fallback="previous") as client:
        shown = client.get("/tokenizers/active").headers["ETag"]
        headers = {"X-API-Key": ADMIN_KEY, "If-Match": shown}
        answer = client.put("/tokenizers/active", json={"tokenizer": "newer"}, headers=headers)
        assert answer.status_code == 200


@pytest.mark.row(37)
def test_a_process_never_differs_from_those_that_serve_the_active_version(
    settings, store, starter, other, monkeypatch
):
    store.promote(other)
    pointer = (store.root / "active.json").read_bytes()
    store.promote(starter)
    damage(store, other)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(pid=1))
    signals = []

    async def until(condition):
        for _ in range(3000):
            if condition():
                return
            await asyncio.sleep(0.02)
        pytest.fail("the condition did not come true")

    async def run():
        with FakePeer(store) as peer:
            async with started(settings, store) as live:
                assert live.require_active().ref == starter
                (store.root / "active.json").write_bytes(pointer)
                await until(lambda: live.reason is not None)
                # No process serves it: all keep the version that was active.
                assert (live.require_active().ref, live.source) == (starter, "last_good")
                peer.write(**identity_of(other), server=2)
                await until(lambda: live.active is None)
                with pytest.raises(NoTokenizerError, match="other processes of this host serve it"):
                    live.require_active()
                assert live.get("starter").ref == starter
                assert signals == []
                # The peer accepts the connections of this process.
                peer.write(**identity_of(other), server=1)
                live._retry_at = 1.0
                await until(lambda: signals == [signal.SIGTERM])
            live = LiveTokenizers(settings, store, ServiceMetrics())
            starting = asyncio.create_task(live.start())
            await until(lambda: signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
            peer.end()
            await starting
            assert signal.getsignal(signal.SIGTERM) == note
            assert live.active is None
            assert "no other tokenizer" in (live.reason or "")
            await live.stop()
            with FakePeer(store) as peer:
                peer.write(**identity_of(starter), failed=str(other), reason="It is damaged.")
                async with started(settings, store) as live:
                    assert (live.require_active().ref, live.source) == (starter, "last_good")
                    await live.promote(starter)
                    assert live.reason is None
                    assert live.trouble() == "Another process of this host reports: It is damaged."

    def note(number, frame):
        signals.append(number)

    before = signal.signal(signal.SIGTERM, note)
    try:
        asyncio.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_a_process_that_cannot_read_the_store_serves_what_the_others_serve(
    settings, store, starter, other, monkeypatch
):
    def fail(*_):
        raise OSError(errno.EIO, "away")

    async with started(settings, store) as live:
        assert live.require_active().ref == starter  # the last good one
    monkeypatch.setattr(store, "pointer_mark", fail)
    with FakePeer(store) as peer:
        peer.write(**identity_of(other))
        async with started(settings, store) as live:
            assert (live.require_active().ref, live.source) == (other, "last_good")
    monkeypatch.undo()
    monkeypatch.setattr(store, "resolve", fail)
    async with started(settings.model_copy(update={"default": "absent"}), store) as live:
        assert live.reason.endswith("Remedy: let this service read the store of tokenizers.")


def test_a_server_without_a_tokenizer_is_not_ready(settings, make_client, caplog):
    with make_client(default="absent") as client:
        [line] = [line for line in caplog.messages if "cannot be served" in line]
        assert (
            "Remedy: import one (`tokenizer import starter --name starter --promote`, with" in line
        )
        assert client.get("/livez").status_code == 200
        for path in ("/readyz", "/info", "/tokenizers/active"):
            assert client.get(path).status_code == 503
        for path, body in (("/encode", {"text": "a"}), ("/decode", {"tokens": [1]})):
            response = client.post(path, json=body)
            assert (response.status_code, response.json()["code"]) == (503, "no_tokenizer")
            assert int(response.headers["Retry-After"]) > 0
            assert "TOKENIZER_DEFAULT" in response.json()["detail"]
        assert client.post("/encode_stream", content=b"a").status_code == 503
        llama = client.get("/health")
        assert (llama.status_code, llama.json()["error"]["type"]) == (503, "unavailable_error")
        # Requests can still name a version, and an operator can promote one.
        named = client.post("/encode", json={"text": "a", "tokenizer": "starter"})
        assert named.status_code == 200
        assert promote(client, "starter").status_code == 200
        assert client.get("/readyz").status_code == 200


@pytest.mark.promise(7)
async def test_a_promotion_follows_the_states_of_the_other_processes(
    settings, store, starter, other, small_spec
):
    chat = ChatTemplates({"default": "{{ messages }}"})
    talking = store.publish(small_spec.with_chat(chat), name="talking")
    assert talking.digest == starter.digest

    async with started(settings, store, swap_timeout_seconds=0) as live:
        with FakePeer(store) as peer:
            # It still serves the other version of the same digest.
            peer.write(**identity_of(starter))
            with pytest.raises(SwapTimeoutError):
                await live.promote(talking)
            assert live.require_active().ref == store.active() == starter
            peer.write(**identity_of(talking))
            await live.promote(talking)
            assert (live.require_active().ref, live.previous) == (talking, starter)
            assert live.require_active().tokenizer.spec.chat == chat
            live._swap._timeout_seconds = 200
            # It fails there: the promotion need not wait for the timeout.
            peer.write(**identity_of(talking), failed=str(other), reason="damaged")
            with pytest.raises(SwapFailedError, match="damaged"):
                await asyncio.wait_for(live.promote(other), 60)
            assert store.active() == talking
            # That process follows a little later.
            peer.write(**identity_of(talking))
            promotion = asyncio.create_task(live.promote(other))
            await asyncio.sleep(0.4)
            assert not promotion.done()
            peer.write(**identity_of(other))
            await asyncio.wait_for(promotion, 60)
            assert (live.require_active().ref, live.previous) == (other, talking)
            # That process dies, so no process waits for it.
            peer.end()
            await asyncio.wait_for(live.promote(starter), 60)
            assert not peer.path.exists()


async def test_a_default_is_not_replaced_by_a_newer_version_that_nobody_promoted(
    settings, store, starter, small_spec, tmp_path
):
    async with started(settings, store):
        pass
    spec = TokenizerSpec.from_merges(small_spec.vocab, small_spec.merges[:-3])
    newer = store.publish(spec, name="starter")
    copy = ArtifactStore(tmp_path / "restored")
    shutil.copytree(store.root / "tokenizers", copy.root / "tokenizers")
    shutil.copy(store.root / "active.json", copy.root)

    for host in (store, copy):
        settings = settings.model_copy(update={"artifacts_dir": host.root})
        async with started(settings, host) as live:
            assert (live.require_active().ref, live.source) == (starter, "default")
        assert (host.active(), host.resolve_default("starter")) == (None, starter)
    (copy.root / "active.json").unlink()
    async with started(settings, copy) as live:
        assert live.require_active().ref == starter  # this host served it last
    copy.remove(starter.name, starter.version)
    async with started(settings, copy) as live:
        assert (live.active, live.failed) == (None, "starter")
        assert "the default, cannot be loaded" in live.reason
    assert newer in copy.list()


async def test_a_default_that_the_store_cannot_record_is_logged(
    settings, store, starter, small_spec, monkeypatch, caplog
):
    def fail(ref):
        raise ArtifactStorageError(errno.EROFS, "read-only")

    monkeypatch.setattr(store, "record_default", fail)
    async with started(settings, store):
        assert "TOKENIZER_DEFAULT" not in caplog.text  # it has one version
    spec = TokenizerSpec.from_merges(small_spec.vocab, small_spec.merges[:-3])
    store.publish(spec, name="starter")
    async with started(settings, store) as live:
        assert live.require_active().ref == starter
        assert "TOKENIZER_DEFAULT=starter has several versions" in caplog.text


async def test_promotions_run_one_at_a_time(settings, store, starter, other):
    third = store.publish(store.open(other), name="third")

    async with started(settings, store) as live:
        held = live.require_active()
        await asyncio.gather(*(live.promote(ref) for ref in [other, starter] * 5))
        assert live.require_active().ref == store.active()
        await live.promote(starter)
        assert live.previous == other

        def check(present):
            if present != starter:
                raise NoTokenizerError("It is not the one that the caller saw.")

        wanted = [live.promote(ref, check=check) for ref in (other, third)]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, NoTokenizerError)]
        assert len(refused) == 1
        assert live.previous == starter
        promoted = live.require_active()
        assert promoted.tokenizer.encode("a") != held.tokenizer.encode("a")
    async with started(settings, store, swap_timeout_seconds=0.4) as live:
        before = live.require_active().ref
        assert before == promoted.ref == store.active()  # also after the restart
        # Another process is in the middle of a promotion.
        with (store.root / "run" / "promotion.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(PromotionInProgressError):
                await live.promote(starter)
            assert live.require_active().ref == before
        await live.promote(starter)
        assert live.previous == before


def test_an_unmounted_store_is_degraded_and_not_empty(client, store, other):
    def is_ready(status):
        answer = client.get("/readyz")
        assert answer.status_code == 200
        found = (answer.json()["status"], answer.json()["tokenizer"]["name"])
        away = f"\ntokenizer_store_away {float(status == 'degraded')}\n"
        return found == (status, "other") and away in client.get("/metrics").text

    store.promote(other)
    wait_until(is_ready, "ok")
    pointer, gone = store.root / "active.json", store.root / "gone"
    pointer.rename(gone)
    wait_until(is_ready, "degraded")
    gone.rename(pointer)
    wait_until(is_ready, "ok")


def test_an_unmounted_store_refuses_what_is_not_in_memory(make_client, store, starter, other):
    job = {"documents": ["aa bb"], "vocab_size": 258, "name": "next", "promote": "always"}
    form = {"files": {"vocab.json": b"{}", "merges.txt": b""}, "params": {"no_special": "true"}}
    with make_client() as client:
        client.headers["X-API-Key"] = ADMIN_KEY
        mount = shutil.move(store.root / "tokenizers", store.root.with_name("mount"))
        for method, path, options in (
            ("GET", "/tokenizers", {}),
            ("GET", "/tokenizers/starter", {}),
            ("GET", "/v1/models", {}),
            ("POST", "/encode", {"json": {"text": "a", "tokenizer": "other"}}),
            ("PUT", "/tokenizers/active", {"json": {"tokenizer": str(other)}}),
            ("POST", "/rollback", {}),
            ("POST", "/tokenizers/mine", form),
            ("PUT", "/corpora/mine", {"content": b"text"}),
            ("GET", "/corpora", {}),
            ("GET", "/token-files/mine", {}),
            ("DELETE", f"/tokenizers/other/{other.version}", {}),
        ):
            answer = client.request(method, path, **options)
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_failed"), path
        borrowed = client.post("/tokenize", json={"prompt": "a", "model": "other"})
        assert borrowed.status_code == 503
        failed = wait_for_job(client, client.post("/train", json=job).json()["id"])
        assert (failed["state"], failed["error"]["code"]) == ("failed", "storage_failed")
        assert not (store.root / "tokenizers").exists()
        assert not (store.root / "corpora" / "mine").exists()
        for named in ({}, {"tokenizer": str(starter)}):
            assert client.post("/encode", json={"text": "a", **named}).status_code == 200
        shutil.move(mount, store.root / "tokenizers")
        assert client.post("/encode", json={"text": "a", "tokenizer": "other"}).status_code == 200


async def test_processes_load_a_published_version_without_its_vocabulary(
    settings, other_spec, monkeypatch, tmp_path
):
    native_module()
    monkeypatch.setenv("TOKENIZER_COMPILED", "on")
    tmp_path.chmod(0o700)
    store = ArtifactStore(settings.artifacts_dir)
    ref = store.publish(other_spec, name="compiled")
    async with started(settings, store) as live, started(settings, store) as again:
        found = [await asyncio.to_thread(one.get, str(ref)) for one in (live, again)]
        for one in found:
            assert one.tokenizer.encode("low") == Tokenizer.from_spec(other_spec).encode("low")
            assert "vocab" not in vars(one.tokenizer.spec)
        told = partial((settings.artifacts_dir / "run" / "compiled").glob, f"*-{os.getpid()}")
        assert list(told())
    assert not list(told()), "a worker ends without finalizers"
    assert found
