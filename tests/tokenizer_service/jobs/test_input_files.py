"""Row 24: the service opens a caller's path below a corpus root, or refuses it."""

import os
import socket
from pathlib import Path

import pytest

from tokenizer_service.jobs.input_files import (
    InputChangedError,
    InputPathError,
    find_input_file,
    open_under_root,
    readable_path,
    reopen_input_file,
    split_input_path,
)

pytestmark = pytest.mark.row(24)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "corpora"
    (folder / "news").mkdir(parents=True)
    (folder / "news" / "a.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    return folder


def test_a_file_under_the_root_is_found_with_its_identity(root, tmp_path):
    found = find_input_file([root], "news/a.txt")
    status = (root / "news" / "a.txt").stat()
    assert (found.version.inode, found.version.device) == (status.st_ino, status.st_dev)
    descriptor = reopen_input_file(found)
    try:
        assert readable_path(descriptor).read_text() == "inside"
    finally:
        os.close(descriptor)
    for name in ("..a", "a..b", "100%.txt", "häuser 東京.txt", "-rf", "..."):
        (root / name).write_text("x")
        found = find_input_file([tmp_path / "absent", tmp_path / "news", root], name)
        assert (found.root, found.size_bytes) == (str(root), 1)
    with pytest.raises(InputPathError, match="TOKENIZER_CORPUS_ROOTS"):
        find_input_file([root], "news/none.txt")
    with pytest.raises(InputPathError):
        find_input_file([root], "news/a.txt/b")


LEAVING_PATHS = [
    "", "../secret.txt", "news/../../secret.txt", "./news/a.txt", "news/", "/etc/passwd",
    "\\etc\\passwd", "%2e%2e/secret.txt", "news%2fa.txt", "news/a.txt\0", "news\r\n/a.txt",
    "news/\x7fa.txt", "file:///etc/passwd", "s3://bucket/key", "a" * 300, "a/" * 3000 + "a",
    "\ud800",
]  # fmt: skip


def test_a_path_that_could_leave_the_root_is_refused_before_the_disk(root):
    for path in LEAVING_PATHS:
        with pytest.raises(InputPathError):
            split_input_path(path)
        with pytest.raises(InputPathError):
            find_input_file([root], path)


def test_a_symbolic_link_below_the_root_is_refused(root, tmp_path):
    (root / "inside.txt").symlink_to(root / "news/a.txt")
    (root / "outside.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    for path in ("inside.txt", "outside.txt", "up/secret.txt"):
        with pytest.raises(InputPathError, match="symbolic link"):
            find_input_file([root], path)
    (tmp_path / "linked").symlink_to(root)  # the operator's choice
    assert find_input_file([tmp_path / "linked"], "news/a.txt").size_bytes == 6


def test_a_file_that_is_not_regular_is_refused_without_waiting(root, monkeypatch):
    monkeypatch.chdir(root)  # socket paths have a short limit
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        for path in ("pipe", "sock"):
            with pytest.raises(InputPathError, match="not a regular file"):
                find_input_file([root], path)
    with pytest.raises(InputPathError, match="is a folder"):
        find_input_file([root], "news")
    with pytest.raises(InputPathError, match="not a regular file"):
        find_input_file([Path("/dev")], "zero")


def test_a_fifo_or_link_that_replaces_the_file_is_refused(root):
    """Between the check and the opening: O_NONBLOCK, and a second check of the opened file."""
    real_stat = os.stat
    regular = real_stat(root / "news" / "a.txt")
    os.mkfifo(root / "news" / "p")
    (root / "news" / "link").symlink_to("a.txt")

    def stat_a_regular_file(path, *args, **kwargs):
        return regular if path in ("p", "link") else real_stat(path, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", stat_a_regular_file)
        with pytest.raises(InputPathError, match="not a regular file"):
            open_under_root(root, ["news", "p"])
        with pytest.raises(InputPathError, match="cannot be opened"):
            open_under_root(root, ["news", "link"])


def test_a_file_or_folder_that_changed_after_the_request_is_refused(root, tmp_path):
    found = find_input_file([root], "news/a.txt")
    with (root / "news" / "a.txt").open("a") as file:
        file.write("more")
    with pytest.raises(InputChangedError, match="post the request again"):
        reopen_input_file(found)
    (root / "news" / "a.txt").unlink()
    (root / "news" / "a.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InputChangedError, match="symbolic link"):
        reopen_input_file(found)
    (root / "news").rename(tmp_path / "moved")
    (root / "news").symlink_to(tmp_path / "moved")
    with pytest.raises(InputChangedError):
        reopen_input_file(found)
