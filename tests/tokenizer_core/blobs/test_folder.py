"""Faults of a folder: disks that refuse, and responses that were lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tokenizer_core.blobs import open_storage
from tokenizer_core.blobs.addresses import is_store_address
from tokenizer_core.errors import StorageError
from tokenizer_core.registry import open_artifacts


def test_a_failed_fsync_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(tmp_path)
    storage.put("a", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for write in (
            lambda: storage.put("a", b"new"),
            lambda: storage.create("b", b"new"),
            lambda: storage.swap("c", b"new", expected=None),
        ):
            with pytest.raises(StorageError, match="No space left"):
                write()
    assert storage.names() == ["a"]
    assert storage.read("a", max_bytes=9) == b"old"
    assert [path.name for path in (tmp_path / ".staging").iterdir()] in ([], ["lock"])


def test_a_writer_recognises_its_link_after_a_lost_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(tmp_path)
    link = Path.hardlink_to

    def linked_twice(path: Path, target: Path) -> None:
        link(path, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(Path, "hardlink_to", linked_twice)
    assert storage.create("a", b"mine")


def test_an_address_with_one_slash_names_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="one slash after the colon; write s3://"):
        open_storage("s3:/bucket/runs")
    with pytest.raises(StorageError, match="write s3://"):
        open_artifacts("s3:/bucket/store", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not any(map(is_store_address, ["./s3:/runs", "C:/runs", "C:\\runs", "runs", "a:b"]))


def test_a_list_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(tmp_path)
    storage.put("a/b", b"")

    def fail(_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        storage.names()
