import errno
import fcntl
import hashlib
import os
import random

import pytest

from tokenizer_core.corpus.staged_file import StagedFile
from tokenizer_core.errors import TokenFilesCorruptError

MEGABYTE = 1 << 20


def refuse_to_open(monkeypatch):
    """Like an in-memory file system of an older kernel."""
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
@pytest.mark.parametrize("seed", range(4))
def test_a_file_has_what_was_written(tmp_path, monkeypatch, seed, way):
    if way is not None:
        way(monkeypatch)
    source = random.Random(seed)
    path, written = tmp_path / "file", b""
    file = StagedFile(path, hash_on_the_way=True)
    for _ in range(30):
        data = source.randbytes(source.choice([0, 1, 4096, 5000, 300_000, MEGABYTE, 1_500_000]))
        file.write(data)
        written += data
        if source.random() < 0.2:
            source.choice([file.flush, file.sync])()
            assert path.read_bytes() == written
    record = file.close()
    assert path.read_bytes() == written
    assert (record.sha256, record.size_bytes) == (hashlib.sha256(written).hexdigest(), len(written))


@pytest.mark.parametrize("kept", [0, 1, 4095, 4096, 4097, 70_000, MEGABYTE, 3 * MEGABYTE + 5])
def test_an_existing_file_is_continued_after_the_kept_bytes(tmp_path, kept):
    data = random.Random(kept).randbytes(4 * MEGABYTE)
    path = tmp_path / "file"
    path.write_bytes(data)
    file = StagedFile(path, keep_bytes=kept)
    more = random.Random(1).randbytes(2 * MEGABYTE + 77)
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


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="no direct writes on this system")
def test_full_blocks_bypass_the_page_cache(tmp_path, monkeypatch):
    real, direct = os.pwrite, []

    def watch(descriptor, data, place):
        direct.append(bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT))
        return real(descriptor, data, place)

    monkeypatch.setattr(os, "pwrite", watch)
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system knows no direct writes")
    file = StagedFile(tmp_path / "file")
    file.write(bytes(2 * MEGABYTE + 5))
    file.close()
    assert direct == [True, True, False]
