"""The promises of both kinds of storage, through the same tests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.s3_server import open_with_shared_client
from tokenizer_core.blobs.addresses import is_store_address, open_storage
from tokenizer_core.errors import StorageError, StorageMissingError, StorageTooLargeError
from tokenizer_core.registry import open_artifacts


@pytest.fixture
def place(tmp_path):
    """A folder; `tests/integration` runs the same tests on object storage."""
    return str(tmp_path / "storage")


@pytest.fixture
def storage(place):
    return open_with_shared_client(place) if place.startswith("s3:") else open_storage(place)


def test_put_bytes_and_files_are_read_back(storage, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(bytes(range(256)) * 8192)
    storage.put("a", b"")
    storage.put("runs/one.json", b"{}")
    storage.put("runs/1@x=y_z/big", big)
    storage.put("runs/one.json", b"[1]")
    assert storage.read("a", max_bytes=0) == b""
    assert storage.read("runs/one.json", max_bytes=3) == b"[1]"
    assert storage.read("runs/1@x=y_z/big", max_bytes=1 << 21) == big.read_bytes()
    copy = tmp_path / "copy"
    copy.write_bytes(b"longer than the new content" * 200_000)
    storage.fetch("runs/1@x=y_z/big", copy)
    assert copy.read_bytes() == big.read_bytes()
    sizes = [storage.size(name) for name in ("a", "runs/one.json", "runs/1@x=y_z/big", "b")]
    assert sizes == [0, 3, 1 << 21, None]


def test_a_name_larger_than_max_bytes_is_refused(storage):
    storage.put("a", b"x" * 10)
    assert storage.read("a", max_bytes=10) == b"x" * 10
    for read in (storage.read, storage.read_versioned):
        with pytest.raises(StorageTooLargeError, match="larger than 9 bytes") as refused:
            read("a", max_bytes=9)
        assert storage.swap("a", b"x" * 10, expected=refused.value.version)


def test_a_missing_name(storage, tmp_path):
    with pytest.raises(StorageMissingError, match="no a/b in"):
        storage.read("a/b", max_bytes=1)
    with pytest.raises(StorageMissingError):
        storage.fetch("a/b", tmp_path / "copy")
    assert storage.read_versioned("a/b", max_bytes=1) is None
    assert storage.size("a/b") is None
    assert storage.names() == storage.names("a/") == []
    assert not storage.swap("a/b", b"x", expected="0" * 64)
    assert storage.size("a/b") is None
    storage.remove("a/b")
    storage.put("a/b", b"x")
    storage.remove("a/b")
    assert storage.size("a/b") is None


def test_names_lists_the_names_with_a_prefix(storage):
    for name in ("map/2", "map/10", "mapped/1", "map0", "reduce/a/b"):
        storage.put(name, b"")
    assert storage.names("map/") == ["map/10", "map/2"]
    assert storage.names("map/1") == ["map/10"]
    assert storage.names("mapp") == ["mapped/1"]
    assert storage.names("reduce/a") == storage.names("reduce/") == ["reduce/a/b"]
    assert storage.names("none") == []
    assert len(storage.names()) == 5


WRONG_NAMES = ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a b", "a\0", "a\n"]
WRONG_NAMES += ["ä", "a?b", "-a"]


def test_a_malformed_name_is_refused(storage, tmp_path):
    for name in WRONG_NAMES:
        for call in (
            lambda name: storage.read(name, max_bytes=1),
            lambda name: storage.read_versioned(name, max_bytes=1),
            lambda name: storage.fetch(name, tmp_path / "copy"),
            lambda name: storage.put(name, b""),
            lambda name: storage.create(name, b""),
            lambda name: storage.swap(name, b"", expected=None),
            lambda name: storage.swap(name, b"", expected="x"),
            storage.size,
            storage.remove,
        ):
            with pytest.raises(ValueError, match="not a valid name"):
                call(name)
        if name not in ("", "a/"):
            with pytest.raises(ValueError, match="not a valid prefix"):
                storage.names(name)


def test_one_create_succeeds_and_later_ones_change_nothing(storage):
    assert storage.create("a/b", b"first")
    assert not storage.create("a/b", b"first")
    assert not storage.swap("a/b", b"other", expected=None)
    assert storage.read("a/b", max_bytes=99) == b"first"
    storage.remove("a/b")
    assert storage.swap("a/b", b"again", expected=None)


def test_a_swap_needs_the_version_that_was_read(storage):
    storage.put("a", b"one")
    one = storage.read_versioned("a", max_bytes=9)
    assert one is not None
    assert one.data == b"one"
    assert storage.swap("a", b"two", expected=one.version)
    assert not storage.swap("a", b"three", expected=one.version)
    two = storage.read_versioned("a", max_bytes=9)
    assert two is not None
    assert (two.data, two.version != one.version) == (b"two", True)
    storage.remove("a")
    assert not storage.swap("a", b"three", expected=two.version)


def test_threads_that_swap_lose_no_update(storage):
    storage.put("sum", b"0")
    barrier = threading.Barrier(4)

    def add(_):
        barrier.wait()
        n_added = 0
        while n_added < 4:
            found = storage.read_versioned("sum", max_bytes=9)
            assert found is not None
            more = b"%d" % (int(found.data) + 1)
            n_added += storage.swap("sum", more, expected=found.version)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert storage.read("sum", max_bytes=9) == b"16"


def test_an_address_of_another_kind_is_refused_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address in (
        "gs://bucket/x",
        "s3://",
        "s3://user:hidden-word@bucket/x",
        "s3://bucket/x?versionId=hidden-word",
        "s3://bucket/../hidden-word",
        "https://hidden-word@host/x",
        "s3:/bucket/runs",  # one slash names no folder
    ):
        with pytest.raises(StorageError, match="s3://") as caught:
            open_storage(address)
        assert "hidden-word" not in str(caught.value)
    with pytest.raises(StorageError, match="write s3://"):
        open_artifacts("s3:/bucket/store", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not any(map(is_store_address, ["./s3:/runs", "C:/runs", "C:\\runs", "runs", "a:b"]))
