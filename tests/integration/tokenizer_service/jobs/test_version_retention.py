"""Versions that a job's publication removes, that `DELETE` removes, and that stay."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.tokenizer_service.jobs.conftest import READ_KEY, Service
from tokenizer_core.registry import ArtifactRef


def train(service: Service, vocab_size: int, **body: object) -> ArtifactRef:
    job = service.wait(service.start(vocab_size=vocab_size, **body))
    assert job["state"] in ("live", "succeeded"), job
    result = job["result"]
    return ArtifactRef(result["name"], result["version"], result["digest"])


def wait_for_versions(service: Service, expected: list[ArtifactRef]) -> None:
    """The job records its result before old versions are removed; the next claim follows that."""
    done = service.start(
        input_paths=None, documents=["aa"], vocab_size=258, name="after", promote="manual"
    )
    service.wait(done)
    assert service.store.versions("n") == expected


def test_by_default_all_versions_stay(service: Service) -> None:
    refs = [train(service, size) for size in (258, 260, 262)]
    wait_for_versions(service, refs)


def test_the_newest_stay_and_what_is_in_use(start_service: Callable[..., Service]) -> None:
    service = start_service(keep_versions=1)
    first = train(service, 258)
    second = train(service, 260)
    # It was active before, and a rollback would return to it.
    assert service.store.versions("n") == [first, second]
    third = train(service, 262, promote="manual")
    # No promotion followed: the second is active, and a rollback returns to the first.
    fourth = train(service, 264, promote="manual")
    wait_for_versions(service, [first, second, fourth])
    fifth = train(service, 266)
    wait_for_versions(service, [second, fifth])
    assert service.client.get(f"/tokenizers/n/{third.version}/vocab.pkl").status_code == 404
    assert service.store.versions("starter")  # another name's, and the default


def test_delete_removes_what_is_not_in_use(service: Service) -> None:
    old, served, newest = (
        train(service, size, promote=promote)
        for size, promote in ((258, "manual"), (260, "auto"), (262, "manual"))
    )

    def delete(ref: ArtifactRef, key: str | None = None) -> int:
        headers = {} if key is None else {"X-API-Key": key}
        path = f"/tokenizers/{ref.name}/{ref.version}"
        status: int = service.client.delete(path, headers=headers).status_code
        return status

    assert delete(old, READ_KEY) == 403
    assert [delete(old), delete(old)] == [204, 404]
    pinned = service.client.post("/encode", json={"text": "a", "tokenizer": str(newest)})
    assert pinned.status_code == 200
    default = service.store.resolve("starter")
    for ref in (served, newest, default):
        assert delete(ref) == 409
    assert service.store.versions("n") == [served, newest]
    assert delete(ArtifactRef("n", "..%2Fx", "")) in (404, 405, 422)
    assert delete(ArtifactRef("n", "newest", "")) == 422
    assert service.client.post("/encode", json={"text": "a"}).status_code == 200


def test_what_a_job_is_about_to_promote_stays(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = train(service, 258, promote="manual")
    result = {"name": ref.name, "version": ref.version, "digest": ref.digest}
    job = SimpleNamespace(kind="train", result=result, request={})
    monkeypatch.setattr(type(service.jobs), "unfinished", lambda self: [job])
    path = f"/tokenizers/{ref.name}/{ref.version}"
    assert service.client.delete(path).json()["code"] == "tokenizer_in_use"
    monkeypatch.undo()
    assert service.client.delete(path).status_code == 204


def test_old_versions_that_cannot_be_removed_fail_no_job(
    start_service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = start_service(keep_versions=1)

    def refuse(self: object, name: str, version: str) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(type(service.store), "remove", refuse)
    refs = [train(service, size, promote="manual") for size in (258, 260)]
    wait_for_versions(service, refs)
    assert "old versions of n cannot be removed: " in caplog.text
    assert "defect" not in caplog.text
