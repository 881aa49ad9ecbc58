"""Files: complete reads up to a size limit, and atomic writes."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from tokenizer_core.blobs.atomic_files import (
    create_synced,
    read_whole_file,
    remove_synced,
    replace_synced,
    replacing,
    write_synced,
    write_whole_file,
)
from tokenizer_core.errors import FormatError


def test_the_cap_is_inclusive(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_whole_file(tmp_path / "x", max_bytes=5) == b"12345"
    with pytest.raises(FormatError, match="larger than 4 bytes"):
        read_whole_file(tmp_path / "x", max_bytes=4)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero"):
        with pytest.raises(FormatError, match="not a regular file"):
            read_whole_file(path, max_bytes=100)
    with pytest.raises(FormatError, match=f"{tmp_path.name}' is a folder; give the path of a file"):
        read_whole_file(tmp_path, max_bytes=100)
    with pytest.raises(FileNotFoundError):
        read_whole_file(tmp_path / "missing", max_bytes=100)


@pytest.mark.parametrize("write", [write_whole_file, replace_synced])
def test_a_failure_leaves_the_old_file_and_nothing_else(write, tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_whole_file(path, b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "full")

    for function in ("open", "write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(OSError, match="full"):
                write(path, b"new")
        assert [p.name for p in tmp_path.iterdir()] == ["x"]
        assert path.read_bytes() == b"old"


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to("real")
    for content in (b"old", b"new"):
        write_whole_file(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == content


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    write_synced(tmp_path / "x", b"ten bytes.")
    assert (tmp_path / "x").read_bytes() == b"ten bytes."
    with pytest.raises(FileExistsError):
        write_synced(tmp_path / "x", b"")


def test_create_synced_never_replaces_and_leaves_nothing_else(tmp_path):
    assert create_synced(tmp_path / "x", b"first")
    assert not create_synced(tmp_path / "x", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"first")]


def test_remove_synced_may_find_nothing(tmp_path):
    remove_synced(tmp_path / "no folder" / "x")
    (tmp_path / "x").touch()
    remove_synced(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "x").write_bytes(b"old")

    def fail_halfway():
        with replacing(tmp_path / "x") as staged:
            staged.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_halfway()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x": b"old"}


def test_a_pipe_is_written_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_bytes)
        write_whole_file(tmp_path / "pipe", [b"one ", b"two"])
        assert read.result(timeout=10) == b"one two"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
