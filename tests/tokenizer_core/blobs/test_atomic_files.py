"""Files read whole under a cap, and written whole or not at all."""

import errno
import os
import stat

import pytest

from tokenizer_core.blobs.atomic_files import read_whole_file, write_whole_file
from tokenizer_core.errors import FormatError


def test_the_cap_is_inclusive(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_whole_file(tmp_path / "x", max_bytes=5) == b"12345"
    with pytest.raises(FormatError, match="larger than 4 bytes"):
        read_whole_file(tmp_path / "x", max_bytes=4)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        with pytest.raises((FormatError, IsADirectoryError)):
            read_whole_file(path, max_bytes=100)
    with pytest.raises(FileNotFoundError):
        read_whole_file(tmp_path / "missing", max_bytes=100)


@pytest.mark.parametrize("function", ["fsync", "replace", "rename"])
def test_a_failure_leaves_the_old_file_and_nothing_else(function, tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_whole_file(path, b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, function, fail)
    if function == "rename":  # not used: replacing is what must not fail halfway
        write_whole_file(path, b"old")
    else:
        with pytest.raises(OSError, match="full"):
            write_whole_file(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert path.read_bytes() == b"old"


def test_others_may_read_what_is_written(tmp_path):
    old = os.umask(0o022)
    try:
        write_whole_file(tmp_path / "x", b"1")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644


def test_an_interrupt_as_the_file_is_made_leaves_nothing(tmp_path, monkeypatch):
    make = os.open

    def interrupted(*arguments, **options):
        os.close(make(*arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole_file(tmp_path / "some", b"text")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
