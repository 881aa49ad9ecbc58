"""The staged folder and its files: whole checkpoints, one process, no leftovers."""

import errno
import fcntl
import hashlib
import os
import random

import pytest

from tokenizer_core.corpus.staged_file import StagedFile
from tokenizer_core.corpus.staged_folder import StagedFolder
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_are_published_and_nothing_else_is_left(tmp_path):
    staged = StagedFolder(tmp_path / "a" / "t")
    staged.clear()
    (staged.files / "file").write_bytes(b"x")
    staged.write_checkpoint(b"{}")
    assert names(tmp_path / "a") == [".t.partial"]
    staged.publish()
    assert names(tmp_path / "a") == ["t"]
    assert names(tmp_path / "a" / "t") == ["file"]
    assert not staged.is_held


def test_checkpoints_replace_each_other_and_stay(tmp_path):
    staged = StagedFolder(tmp_path / "t")
    assert staged.read_checkpoint() is None
    staged.clear()
    for data in (b"1", b"2"):
        staged.write_checkpoint(data)
    staged.release()
    staged.release()
    again = StagedFolder(tmp_path / "t")
    assert again.read_checkpoint() == b"2"
    again.clear()
    assert again.read_checkpoint() is None
    again.drop()
    assert names(tmp_path) == []


def test_one_process_at_a_time(tmp_path):
    staged = StagedFolder(tmp_path / "t")
    with pytest.raises(TokenFilesError, match="another process is writing 't'"):
        StagedFolder(tmp_path / "t")
    staged.release()
    StagedFolder(tmp_path / "t").drop()


def test_leftovers_of_a_published_folder_are_removed(tmp_path):
    StagedFolder(tmp_path / "t").release()
    (tmp_path / "t").mkdir()
    for _ in range(2):
        with pytest.raises(TokenFilesError, match="'t' is there already"):
            StagedFolder(tmp_path / "t")
        assert names(tmp_path) == ["t"]


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".t.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        StagedFolder(tmp_path / "t")
    assert names(tmp_path) == [".t.partial", "elsewhere"]


MEGABYTE = 1 << 20


def refuse_to_open(monkeypatch):
    real = os.open

    def refuse(path, flags, mode=0o777, **options):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes")
        return real(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", refuse)


def refuse_by_pwrite(monkeypatch):
    """Like a file system that accepts the flag, and then refuses every write."""
    real = os.pwrite

    def refuse(descriptor, data, place):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes")
        return real(descriptor, data, place)

    monkeypatch.setattr(os, "pwrite", refuse)


def write_some_bytes_of_a_block(monkeypatch):
    """Like a disk that is nearly full: the rest to write is not a multiple of the sector size."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: real(file, data[:700_001], place))


WAYS = [None, refuse_to_open, refuse_by_pwrite, write_some_bytes_of_a_block]


@pytest.mark.parametrize("way", WAYS)
def test_written_bytes_are_in_the_file(tmp_path, monkeypatch, way):
    if way is not None:
        way(monkeypatch)
    source = random.Random(WAYS.index(way))
    path, written = tmp_path / "file", b""
    file = StagedFile(path, hash_on_the_way=True)
    for _ in range(20):
        data = source.randbytes(source.choice([0, 1, 4096, 5000, 300_000, MEGABYTE, 1_500_000]))
        file.write(data)
        written += data
        if source.random() < 0.2:
            source.choice([file.flush, file.sync])()
            assert path.read_bytes() == written
    record = file.close()
    assert path.read_bytes() == written
    assert (record.sha256, record.size_bytes) == (hashlib.sha256(written).hexdigest(), len(written))


@pytest.mark.parametrize("kept", [0, 4095, 4096, 4097, MEGABYTE, MEGABYTE + 5])
def test_an_existing_file_is_continued_after_the_kept_bytes(tmp_path, kept):
    data = random.Random(kept).randbytes(2 * MEGABYTE)
    path = tmp_path / "file"
    path.write_bytes(data)
    file = StagedFile(path, keep_bytes=kept)
    more = random.Random(1).randbytes(MEGABYTE + 77)
    file.write(more[:9])
    file.flush()
    assert path.read_bytes() == data[:kept] + more[:9]
    file.write(more[9:])
    record = file.close(b"head")
    wanted = b"head" + (data[:kept] + more)[4:]
    assert path.read_bytes() == wanted
    assert record.sha256 == hashlib.sha256(wanted).hexdigest()


def test_a_file_shorter_than_keep_bytes_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    with pytest.raises(TokenFilesCorruptError, match="start anew"):
        StagedFile(tmp_path / "file", keep_bytes=4)
    with pytest.raises(TokenFilesCorruptError, match="start anew"):
        StagedFile(tmp_path / "none", keep_bytes=0)
