"""Token files are synced in order, and leave nothing where the disk refuses.

`tests/integration/power_loss` checks what a disk loses with its power.
"""

import errno
import os
from pathlib import Path

import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, write_texts
from tests.tokenizer_core.registry.test_disk_faults import Fault
from tokenizer_core.corpus import TokenFilesWriter, plan_token_files, verify_token_files


@pytest.fixture
def events(monkeypatch):
    """The names of synced files and of renamed ones, in order."""
    found, names = [], {}
    real_open, real_fsync, real_rename = os.open, os.fsync, os.rename

    def opened(path, flags, *args, **kwargs):
        descriptor = real_open(path, flags, *args, **kwargs)
        names[descriptor] = Path(path).name
        return descriptor

    def synced(descriptor):
        real_fsync(descriptor)
        found.append(names[descriptor])

    def renamed(source, target, *args, **kwargs):
        real_rename(source, target, *args, **kwargs)
        found.append(f"rename to {Path(target).name}")

    for name, function in (("open", opened), ("fsync", synced), ("rename", renamed)):
        monkeypatch.setattr(os, name, function)
    return found


def test_everything_is_synced_before_the_rename_and_the_folder_after(tmp_path, events):
    with TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW)) as writer:
        writer.append([1])
        assert events == [tmp_path.name, ".t.partial"]  # the new folders
        events.clear()
        writer.checkpoint({})
        files = ["train.document-ends.u64", "train.bin", "files", ".checkpoint.json.new"]
        assert events == [*files, ".t.partial"]
        events.clear()
        writer.append([2])
        writer.finish()
    written = {path.name for path in (tmp_path / "t").iterdir()}
    assert set(events[:-4]) == written - {"manifest.json"}
    assert events[-4:] == ["manifest.json", "files", "rename to t", tmp_path.name]


@pytest.mark.parametrize(
    ("function", "number", "least"),
    [
        ("open", errno.EMFILE, 10),
        ("write", errno.ENOSPC, 1),
        ("pwrite", errno.EIO, 10),
        ("fsync", errno.EIO, 8),
        ("mkdir", errno.EROFS, 2),
        ("rename", errno.ENOSPC, 1),
    ],
)
def test_a_failing_disk_leaves_nothing(function, number, least, tmp_path):
    folder = tmp_path / "a" / "t"
    for at in range(200):
        with pytest.MonkeyPatch.context() as patch:
            Fault(patch, function, at, number)
            try:
                write_texts(folder, "llmc")
                break
            except OSError as error:
                failed = error
        assert failed.errno == number
        if folder.exists():  # only the folder's entry may not be on the disk
            assert function in ("fsync", "open")
            break
        assert not folder.parent.exists() or list(folder.parent.iterdir()) == []
    assert least <= at < 199
    verify_token_files(folder)
