"""Faults of storages: disks that refuse, lost responses, and buckets that cannot be opened."""

import errno
import os
import sys
from pathlib import Path

import pytest

from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.errors import StorageError


def test_a_disk_that_refuses_is_an_error_and_nothing_is_left(tmp_path, monkeypatch):
    storage = open_storage(tmp_path)
    storage.put("a", b"old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for function, work in (
        ("fsync", lambda: storage.put("a", b"new")),
        ("fsync", lambda: storage.create("b", b"new")),
        ("fsync", lambda: storage.swap("c", b"new", expected=None)),
        ("scandir", storage.names),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, full)
            with pytest.raises(StorageError, match="No space left"):
                work()
    assert storage.names() == ["a"]
    assert storage.read("a", max_bytes=9) == b"old"
    assert [path.name for path in (tmp_path / ".staging").iterdir()] in ([], ["lock"])


def test_a_writer_recognises_its_link_after_a_lost_response(tmp_path, monkeypatch):
    storage = open_storage(tmp_path)
    link = Path.hardlink_to

    def linked_twice(path, target):
        link(path, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(Path, "hardlink_to", linked_twice)
    assert storage.create("a", b"mine")


def test_without_the_package_or_credentials_the_remedy_is_named(monkeypatch, tmp_path):
    pytest.importorskip("botocore", reason="the extra s3 is not installed")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    message = r"\(NoCredentialsError\); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    with pytest.raises(StorageError, match=message):
        open_storage(f"s3://bucket/{tmp_path.name}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(StorageError, match=r"check the address, the network, the credentials"):
        open_storage(f"s3://bucket/{tmp_path.name}-again")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(StorageError, match=r"pip install 'tokenizer-service\[s3\]'"):
        open_storage("s3://bucket/x")
