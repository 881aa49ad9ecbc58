"""Files of this machine: whole reads, atomic writes, reads at a position, locks of processes."""

import errno
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tokenizer_core.blobs.atomic_files import (
    create_synced,
    read_whole_file,
    remove_synced,
    replace_synced,
    write_synced,
    write_whole_file,
)
from tokenizer_core.blobs.local_files import open_to_read, read_at, system_file
from tokenizer_core.blobs.locks import hold_lock, locked_folder, try_lock, try_record_lock
from tokenizer_core.errors import FormatError


@pytest.fixture(params=["posix", "windows"])
def without(request, monkeypatch):
    if request.param == "windows":
        monkeypatch.delattr(os, "pread")


@pytest.mark.usefixtures("without")
def test_reading_at_a_position(tmp_path):
    (tmp_path / "file").write_bytes(b"0123xy6789")
    descriptor = open_to_read(tmp_path / "file")
    try:
        assert read_at(descriptor, 4, 3) == b"3xy6"
        assert read_at(descriptor, 9, 8) == b"89"
        assert read_at(descriptor, 9, 10) == b""
        assert system_file(descriptor) == descriptor
    finally:
        os.close(descriptor)


def test_only_regular_files_up_to_the_cap_are_read(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_whole_file(tmp_path / "x", max_bytes=5) == b"12345"
    with pytest.raises(FormatError, match="larger than 4 bytes"):
        read_whole_file(tmp_path / "x", max_bytes=4)
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

    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))

    for function in ("open", "replace"):  # name the file, not the one that is to replace it
        with monkeypatch.context() as patch:
            patch.setattr(os, function, refuse)
            with pytest.raises(PermissionError) as refused:
                write(path, b"new")
        assert str(refused.value) == f"[Errno {errno.EACCES}] Permission denied: '{path}'"


def test_a_link_and_a_pipe_are_written_and_stay(tmp_path):
    (tmp_path / "link").symlink_to("real")
    for content in (b"old", b"new"):
        write_whole_file(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == content
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_bytes)
        write_whole_file(tmp_path / "pipe", [b"one ", b"two"])
        assert read.result(timeout=60) == b"one two"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    write_synced(tmp_path / "x", b"ten bytes.")
    assert (tmp_path / "x").read_bytes() == b"ten bytes."
    with pytest.raises(FileExistsError):
        write_synced(tmp_path / "x", b"")


def test_create_synced_never_replaces_and_remove_synced_may_find_nothing(tmp_path):
    assert create_synced(tmp_path / "x", b"first")
    assert not create_synced(tmp_path / "x", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"first")]
    for path in (tmp_path / "x", tmp_path / "x", tmp_path / "no folder" / "x"):
        remove_synced(path)
    assert list(tmp_path.iterdir()) == []


class BusyError(Exception):
    pass


def test_one_holder_at_a_time(tmp_path):
    path = tmp_path / "lock"
    with hold_lock(path, timeout_seconds=1, refusal=BusyError()):
        began = time.monotonic()
        with (
            pytest.raises(BusyError),
            hold_lock(path, timeout_seconds=0.1, refusal=BusyError()),
        ):
            raise AssertionError
        assert time.monotonic() - began >= 0.1
    with hold_lock(path, timeout_seconds=0, refusal=BusyError()):
        pass


def test_the_kernel_frees_the_lock_of_a_process_that_dies(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from tokenizer_core.blobs import locks; file = open(sys.argv[1]);"
            "locks.try_lock(file); print('held', flush=True); time.sleep(60)",
            str(path),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with path.open() as file:
            assert not try_lock(file)
    finally:
        holder.kill()
        holder.wait()
    with path.open() as file:
        assert try_lock(file)


def test_a_folder_is_locked(tmp_path):
    with locked_folder(tmp_path):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        assert not try_lock(descriptor)
        os.close(descriptor)
        with pytest.raises(BlockingIOError), locked_folder(tmp_path, wait=False):
            raise AssertionError
    with locked_folder(tmp_path, wait=False):
        pass


def test_one_process_holds_a_record_lock(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        assert try_record_lock(file)
        check = "import sys; from tokenizer_core.blobs.locks import try_record_lock;"
        check += "sys.exit(try_record_lock(open(sys.argv[1], 'a')))"
        arguments = [sys.executable, "-c", check, str(tmp_path / "lock")]
        assert subprocess.run(arguments, check=False).returncode == 0
    assert subprocess.run(arguments, check=False).returncode == 1
