"""The staged folder: one process at a time, whole checkpoints, and no leftovers after
publishing."""

import pytest

from tokenizer_core.corpus.staged_folder import StagedFolder
from tokenizer_core.errors import TokenFilesError


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
