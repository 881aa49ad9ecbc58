"""A file that grows: all of it on the disk when it is closed, and what its record says."""

import hashlib

import pytest

from tokenizer_core.corpus.staged_file import StagedFile
from tokenizer_core.errors import TokenFilesCorruptError
from tokenizer_core.store import FileRecord


def test_its_record_is_of_what_it_holds(tmp_path):
    file = StagedFile(tmp_path / "a")
    parts = [bytes([index % 256]) * 3000 for index in range(1000)]
    for part in parts:
        file.write(part)
    assert (tmp_path / "a").stat().st_size > 2 << 20, "it waits for too much"
    record = file.close(b"header")
    data = b"header" + b"".join(parts)[6:]
    assert (tmp_path / "a").read_bytes() == data
    assert record == FileRecord(hashlib.sha256(data).hexdigest(), len(data))
    file.discard()


def test_what_is_flushed_can_be_read(tmp_path):
    file = StagedFile(tmp_path / "a")
    file.write(b"abc")
    assert (tmp_path / "a").read_bytes() == b""
    file.flush()
    assert (tmp_path / "a").read_bytes() == b"abc"
    file.discard()
    file.discard()


def test_one_that_is_there_goes_on_where_it_is_told_to(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abcdef")
    for too_long in (tmp_path / "absent", path):
        with pytest.raises(TokenFilesCorruptError, match=f"{too_long.name} is missing or shorter"):
            StagedFile(too_long, keep_bytes=7)
    assert path.read_bytes() == b"abcdef"
    file = StagedFile(path, keep_bytes=3)
    file.write(b"X")
    assert file.close(b"_").size_bytes == 4
    assert path.read_bytes() == b"_bcX"
    with pytest.raises(FileExistsError):
        StagedFile(path)
