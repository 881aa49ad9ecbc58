"""The layout of token files: published by rename, unfinished ones hidden, valid names only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenizer_service.jobs.token_files import TokenFilesFolder, TokenFilesTakenError

JOB = "20261121T041500Z-0123456789ab"
OTHER = "20261121T041500Z-ba9876543210"


@pytest.fixture
def folder(tmp_path: Path) -> TokenFilesFolder:
    return TokenFilesFolder.of(tmp_path)


def grow(folder: TokenFilesFolder, job_id: str, text: str = "x") -> Path:
    growing = folder.growing(job_id)
    growing.mkdir(parents=True)
    (growing / "train.bin").write_text(text)
    return growing


def test_published_token_files_are_moved_and_listed(
    folder: TokenFilesFolder,
) -> None:
    assert folder.names() == []
    growing = grow(folder, JOB)
    grow(folder, OTHER)
    assert folder.names() == []
    folder.publish(folder.growing(JOB), "stories")
    assert folder.names() == ["stories"]
    assert not growing.exists()
    assert [path.name for path in folder.path("stories").iterdir()] == ["train.bin"]


def test_existing_token_files_are_never_replaced(folder: TokenFilesFolder) -> None:
    growing = grow(folder, JOB)
    folder.path("stories").mkdir()
    (folder.path("stories") / "mine").touch()
    folder.path("file").touch()
    for name in ("stories", "file"):
        with pytest.raises(TokenFilesTakenError, match="DELETE"):
            folder.publish(folder.growing(JOB), name)
        assert growing.exists()
        assert folder.path(name).exists()


def test_a_wrong_id_is_refused(folder: TokenFilesFolder) -> None:
    for name in ("", ".", "..", "../x", "a/b", ".unfinished", "A", "x" * 65):
        with pytest.raises(ValueError, match="not an id"):
            folder.path(name)
        with pytest.raises(ValueError, match="not a job id"):
            folder.growing(name)


def test_dropping_a_job_removes_only_its_files(folder: TokenFilesFolder) -> None:
    growing = grow(folder, JOB)
    partial = growing.with_name(f".{JOB}.partial")
    (partial / "files").mkdir(parents=True)
    other = grow(folder, OTHER)
    for _ in range(2):
        folder.drop(JOB)
        assert not growing.exists()
        assert not partial.exists()
    assert other.exists()


def test_removing_token_files_keeps_other_names(
    folder: TokenFilesFolder,
) -> None:
    for job_id, name in ((JOB, "one"), (OTHER, "two")):
        grow(folder, job_id)
        folder.publish(folder.growing(job_id), name)
    with (folder.path("one") / "train.bin").open() as reader:
        folder.remove("one")
        assert reader.read() == "x"
    assert folder.names() == ["two"]
    assert folder.left_over() == []
    with pytest.raises(FileNotFoundError):
        folder.remove("one")


def test_a_sweep_keeps_the_files_of_unfinished_jobs(folder: TokenFilesFolder) -> None:
    kept, gone = grow(folder, JOB), grow(folder, OTHER)
    partial = kept.with_name(f".{JOB}.partial")
    partial.mkdir()
    removed = kept.with_name("removed-0123")
    removed.mkdir()
    names = folder.left_over()
    late = kept.with_name(OTHER.replace("ba", "bb"))
    late.mkdir()  # started after the listing: its job may be newer than the known jobs
    folder.sweep(names, {JOB})
    assert kept.exists()
    assert partial.exists()
    assert late.exists()
    assert not gone.exists()
    assert not removed.exists()
