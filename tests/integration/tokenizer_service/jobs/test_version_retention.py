"""Versions that a job's publication removes, that `DELETE` removes, and that stay."""

from types import SimpleNamespace

from tests.integration.server_process import wait_until
from tokenizer_core import TokenizerSpec
from tokenizer_core.registry import ArtifactRef


def publish(service, first_id):
    vocab = {first_id + byte: bytes([byte]) for byte in range(256)}
    return service.store.publish(TokenizerSpec.from_merges(vocab, [], []), name="n")


def promote(service, ref):
    answer = service.client.put("/tokenizers/active", json={"tokenizer": str(ref)})
    assert answer.status_code == 200, answer.text


def train(service, name="n"):
    job = service.wait(service.start(vocab_size=258, name=name, promote="manual"))
    assert job["state"] == "succeeded", job
    return service.store.resolve(f"{name}@{job['result']['version']}")


def test_the_newest_versions_and_those_in_use_are_kept(start_service, monkeypatch, caplog):
    every = start_service()
    before, served, *unused = (publish(every, number * 1000) for number in range(4))
    kept = train(every)
    train(every, "after")  # claimed after the versions of the job before were looked at
    assert every.store.versions("n") == [before, served, *unused, kept]
    every.client.__exit__(None, None, None)

    def refuse(self, name, version):
        raise OSError(5, "the disk fails")

    service = start_service(keep_versions=1)
    promote(service, before)  # a rollback would return to it
    promote(service, served)
    with monkeypatch.context() as patch:
        patch.setattr(type(service.store), "remove", refuse)
        train(service)  # no failed job
        wait_until(lambda: "old versions of n cannot be removed: " in caplog.text)
    assert {*unused, kept} < set(service.store.versions("n"))
    newest = train(service)
    wait_until(lambda: service.store.versions("n") == [before, served, newest])
    for ref in unused:
        path = f"/tokenizers/n/{ref.version}/vocab.pkl"
        assert service.client.get(path).status_code == 404
    assert service.store.versions("starter")  # another name's, and the default


def test_delete_removes_what_is_not_in_use(service, monkeypatch):
    old, served, newest = (publish(service, number * 1000) for number in range(3))
    promote(service, served)

    def delete(ref):
        return service.client.delete(f"/tokenizers/{ref.name}/{ref.version}").status_code

    assert [delete(old), delete(old)] == [204, 404]
    pinned = service.client.post("/encode", json={"text": "a", "tokenizer": str(newest)})
    assert pinned.status_code == 200
    for ref in (served, newest, service.store.resolve("starter")):
        assert delete(ref) == 409
    assert service.store.versions("n") == [served, newest]
    assert delete(ArtifactRef("n", "..%2Fx", "")) in (404, 405, 422)
    assert delete(ArtifactRef("n", "newest", "")) == 422
    # One that a job is about to promote.
    another = publish(service, 5000)
    result = {"name": another.name, "version": another.version, "digest": another.digest}
    job = SimpleNamespace(id="j", kind="train", result=result, request={})
    with monkeypatch.context() as patch:
        patch.setattr(type(service.jobs), "unfinished", lambda self: [job])
        assert delete(another) == 409
    assert delete(another) == 204
