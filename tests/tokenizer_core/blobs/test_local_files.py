"""Reading and writing at a position, with the calls of POSIX and without them."""

import os

import pytest

from tokenizer_core.blobs.local_files import BINARY, open_to_read, read_at, system_file, write_at


@pytest.fixture(params=["posix", "windows"])
def without(request, monkeypatch):
    if request.param == "windows":
        monkeypatch.delattr(os, "pread")
        monkeypatch.delattr(os, "pwrite")


@pytest.mark.usefixtures("without")
def test_reading_and_writing_at_a_position(tmp_path):
    path = tmp_path / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | BINARY)
    assert write_at(descriptor, memoryview(b"0123456789"), 0) == 10
    assert write_at(descriptor, memoryview(b"xy"), 4) == 2
    os.close(descriptor)
    descriptor = open_to_read(path)
    try:
        assert read_at(descriptor, 4, 3) == b"3xy6"
        assert read_at(descriptor, 9, 8) == b"89"
        assert read_at(descriptor, 9, 10) == b""
        assert system_file(descriptor) == descriptor
    finally:
        os.close(descriptor)
