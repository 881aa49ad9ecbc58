"""Row 36: the disk refuses at each operation; nothing changes, no partial version is visible."""

import errno
import os

import pytest

from tests.tokenizer_core.registry.test_folder_store import A, B
from tokenizer_core.errors import ArtifactError, ArtifactStorageError
from tokenizer_core.registry import ArtifactStore

pytestmark = pytest.mark.row(36)

PUBLISHING = {
    "open": errno.EMFILE,
    "write": errno.ENOSPC,
    "fsync": errno.EIO,
    "mkdir": errno.EROFS,
    "rename": errno.ENOSPC,
}
PROMOTING = {"write": errno.ENOSPC, "fsync": errno.EIO, "replace": errno.EROFS}


class Fault:
    """Makes the `at`-th call (from 0) of an `os` function fail; counts the calls."""

    def __init__(self, monkeypatch, function, at, number):
        self.calls = 0
        real = getattr(os, function)

        def faulty(*args, **kwargs):
            self.calls += 1
            if self.calls == at + 1:
                raise OSError(number, os.strerror(number))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, function, faulty)


@pytest.fixture
def store(tmp_path):
    store = ArtifactStore(tmp_path)
    store.promote(store.publish(A, name="t"))
    return store


def state_of(store):
    return store.list(), store.active(), store.damaged()


@pytest.mark.parametrize(("function", "number"), PUBLISHING.items())
def test_publishing_on_a_failing_disk(function, number, store):
    before = state_of(store)
    at = hits = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, function, at, number)
            try:
                store.publish(B, name="u")
                failed = None
            except ArtifactError as error:
                failed = error
        if failed is None:
            break
        hits += 1
        assert isinstance(failed, ArtifactStorageError)
        assert failed.errno == number
        assert os.strerror(number) in str(failed)
        assert state_of(store) == before
        assert not (store.root / "tokenizers" / "u").exists()
        assert list((store.root / "tokenizers" / ".staging").iterdir()) == []
        at += 1
        assert at < 200
    assert fault.calls <= at, "a fault was passed over in silence"
    assert hits >= {"open": 8, "write": 3, "fsync": 6, "mkdir": 2, "rename": 1}[function]
    assert store.open(store.resolve("u")) == B
    assert list((store.root / "tokenizers" / ".staging").iterdir()) == []


@pytest.mark.parametrize(("function", "number"), PROMOTING.items())
def test_promoting_on_a_failing_disk(function, number, store):
    ref = store.publish(B, name="u")
    before = state_of(store)
    at = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            Fault(patch, function, at, number)
            try:
                store.promote(ref)
                break
            except ArtifactStorageError as error:
                failed = error
        assert failed.errno == number
        if function == "fsync" and at == 1:
            # The new pointer is in place, and only the folder's entry may not be on the disk:
            # either pointer is valid.
            assert store.active() in (before[1], ref)
        else:
            assert state_of(store) == before
        at += 1
    assert at == {"write": 1, "fsync": 2, "replace": 1}[function]
    assert store.active() == ref
    assert [p.name for p in store.root.iterdir() if p.name.endswith(".new")] == []
