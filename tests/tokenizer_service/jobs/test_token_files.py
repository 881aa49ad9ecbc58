"""The layout of token files: published by rename, unfinished ones hidden, valid names only."""

import pytest

from tokenizer_service.jobs.token_files import TokenFilesFolder, TokenFilesTakenError

JOB = "20261121T041500Z-0123456789ab"
OTHER = "20261121T041500Z-ba9876543210"


@pytest.fixture
def folder(tmp_path):
    return TokenFilesFolder.of(tmp_path)


def grow(folder, job_id, text="x"):
    growing = folder.growing(job_id)
    growing.mkdir(parents=True)
    (growing / "train.bin").write_text(text)
    return growing


def test_existing_token_files_are_never_replaced(folder):
    growing = grow(folder, JOB)
    folder.path("stories").mkdir()
    (folder.path("stories") / "mine").touch()
    folder.path("file").touch()
    for name in ("stories", "file"):
        with pytest.raises(TokenFilesTakenError, match="DELETE"):
            folder.publish(folder.growing(JOB), name)
        assert growing.exists()
        assert folder.path(name).exists()


def test_a_wrong_id_is_refused(folder):
    for name in ("", ".", "..", "../x", "a/b", ".unfinished", "A", "x" * 65):
        with pytest.raises(ValueError, match="not an id"):
            folder.path(name)
        with pytest.raises(ValueError, match="not a job id"):
            folder.growing(name)


def test_token_files_are_published_by_rename_and_removed_by_name(folder):
    assert folder.names() == []
    growing = [grow(folder, job_id) for job_id in (JOB, OTHER)]
    assert folder.names() == []
    for path, name in zip(growing, ("one", "two"), strict=True):
        folder.publish(path, name)
        assert not path.exists()
    assert folder.names() == ["one", "two"]
    with (folder.path("one") / "train.bin").open() as reader:
        folder.remove("one")
        assert reader.read() == "x"
    assert folder.names() == ["two"]
    assert [path.name for path in folder.path("two").iterdir()] == ["train.bin"]
    assert folder.left_over() == []
    with pytest.raises(FileNotFoundError):
        folder.remove("one")


def test_a_sweep_keeps_the_files_of_unfinished_jobs(folder):
    kept, gone = grow(folder, JOB), grow(folder, OTHER)
    partial = kept.with_name(f".{JOB}.partial")
    (partial / "files").mkdir(parents=True)
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
    for _ in range(2):
        folder.drop(JOB)  # the files of this job alone
        assert not kept.exists()
        assert not partial.exists()
    assert late.exists()
