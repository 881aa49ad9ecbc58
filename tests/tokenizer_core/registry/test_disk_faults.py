"""Row 36: the disk refuses at each operation; nothing changes, no partial version is visible."""

import errno
import os

import pytest

from tests.tokenizer_core.registry.test_folder_store import A, B
from tokenizer_core.errors import ArtifactError, ArtifactStorageError
from tokenizer_core.registry import ArtifactStore

pytestmark = pytest.mark.row(36)


class Fault:
    """Makes the `at`-th call (from 0) of an `os` function fail; counts the calls."""

    def __init__(self, monkeypatch, function, at, number):
        self.calls = 0
        real = getattr(os, function)

        def faulty(*args, **kwargs):
            self.calls += 1
            if self.calls == at + 1:
                raise OSError(number, os.strerror(number), args[0])
            return real(*args, **kwargs)

        monkeypatch.setattr(os, function, faulty)


@pytest.fixture
def store(tmp_path):
    store = ArtifactStore(tmp_path)
    store.promote(store.publish(A, name="t"))
    return store


def test_an_unreadable_file_is_named(store, monkeypatch):
    ref = store.active()
    Fault(monkeypatch, "open", 5, errno.EACCES)
    with pytest.raises(ArtifactStorageError, match=f"{ref}: 'vocab.pkl': Permission denied"):
        store.open(ref)


def state_of(store):
    return store.list(), store.active(), store.damaged()


@pytest.mark.parametrize(
    ("work", "function", "number", "least"),
    [
        ("publish", "open", errno.EMFILE, 8),
        ("publish", "write", errno.ENOSPC, 3),
        ("publish", "fsync", errno.EIO, 6),
        ("publish", "mkdir", errno.EROFS, 2),
        ("publish", "rename", errno.ENOSPC, 1),
        ("promote", "write", errno.ENOSPC, 1),
        ("promote", "fsync", errno.EIO, 2),
        ("promote", "replace", errno.EROFS, 1),
    ],
)
def test_a_failing_disk_changes_nothing(work, function, number, least, store):
    if work == "promote":
        store.publish(B, name="u")
    before = state_of(store)
    for at in range(200):
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, function, at, number)
            try:
                store.publish(B, name="u") if work == "publish" else store.promote(
                    store.resolve("u")
                )
                break
            except ArtifactError as error:
                failed = error
        assert isinstance(failed, ArtifactStorageError)
        assert failed.errno == number
        assert os.strerror(number) in str(failed)
        if (work, function, at) == ("promote", "fsync", 1):
            # The new pointer is in place, and only the folder's entry may not be on the disk:
            # either pointer is valid.
            assert store.active() in (before[1], store.resolve("u"))
        else:
            assert state_of(store) == before
    assert fault.calls <= at, "a fault was passed over in silence"
    assert least <= at < 199
    assert store.open(store.resolve("u")) == B
    assert list((store.root / "tokenizers" / ".staging").iterdir()) == []
    assert not list(store.root.glob("*.new"))
