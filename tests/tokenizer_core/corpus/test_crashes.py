"""Token files are whole or absent wherever the writer dies, and wherever the disk refuses.

What this does not prove: what a disk loses with its power; the order of the calls to fsync is
checked instead.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES, content, write_texts
from tokenizer_core.corpus import verify_token_files

# Forks once for each operation k: the child writes and dies at its k-th call, the parent looks at
# what is left and writes again. A process of its own, because pytest's may have threads.
DRIVER = """
import json, os, sys
from pathlib import Path
from tests.tokenizer_core.corpus.small_corpora import content, write_texts
from tokenizer_core.corpus import verify_token_files

layout, when, base = sys.argv[1], sys.argv[2], Path(sys.argv[3])
FUNCTIONS = ["open", "write", "lseek", "fsync", "close", "mkdir", "rename"]

def die_at(k):
    calls = 0
    for name in FUNCTIONS:
        def wrapped(*args, real=getattr(os, name), **kwargs):
            nonlocal calls
            calls += 1
            if calls == k and when == "before":
                os._exit(9)
            result = real(*args, **kwargs)
            if calls == k:
                os._exit(9)
            return result
        setattr(os, name, wrapped)
    real_write = os.write
    def torn(descriptor, data):  # half of the bytes reach the file before the end
        if when == "torn" and calls + 1 == k:
            real_write(descriptor, data[: len(data) // 2])
            os._exit(9)
        return real_write(descriptor, data)
    os.write = torn

write_texts(base / "expected", layout)
expected = content(base / "expected")
found = []
k = 0
while True:
    k += 1
    folder = base / str(k) / "tokens"
    folder.parent.mkdir()
    child = os.fork()
    if child == 0:
        try:
            die_at(k)
            write_texts(folder, layout)
        finally:
            os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    is_there = folder.exists()
    is_whole = is_there and content(folder) == expected
    left = [path.name for path in folder.parent.iterdir() if path != folder]
    if not is_there:
        write_texts(folder, layout)
    verify_token_files(folder)
    found.append({"code": code, "is_there": is_there, "is_whole": is_whole, "left": left,
                  "after": [path.name for path in folder.parent.iterdir()],
                  "is_equal": content(folder) == expected})
    if code == 0:
        break
print(json.dumps(found))
"""


@pytest.mark.parametrize("when", ["before", "after", "torn"])
@pytest.mark.parametrize("layout", ["megatron", "npy"])
def test_a_writer_that_dies_leaves_all_files_or_none(layout, when, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, layout, when, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len([entry for entry in found if entry["code"] == 9]) >= 40
    there = [entry["is_there"] for entry in found]
    assert there == sorted(there), "once there, it must stay"
    assert False in there
    assert all(entry["is_whole"] for entry in found if entry["is_there"])
    assert any(entry["left"] == [".tokens.partial"] for entry in found), "nothing was staged"
    assert all(entry["left"] == [] for entry in found if entry["is_there"])
    assert all(entry["is_equal"] and entry["after"] == ["tokens"] for entry in found)


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_everything_is_synced_before_the_rename_and_the_folder_after(layout, tmp_path, monkeypatch):
    events, names = [], {}
    real_open, real_fsync, real_rename = os.open, os.fsync, os.rename

    def opened(path, flags, *args, **kwargs):
        descriptor = real_open(path, flags, *args, **kwargs)
        names[descriptor] = Path(path).name
        return descriptor

    def synced(descriptor):
        real_fsync(descriptor)
        events.append(names[descriptor])

    def renamed(source, target, *args, **kwargs):
        real_rename(source, target, *args, **kwargs)
        events.append(f"rename to {Path(target).name}")

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    write_texts(tmp_path / "t", layout)
    written = {path.name for path in (tmp_path / "t").iterdir()}
    assert set(events[:-4]) == written - {"manifest.json"}
    assert events[-4:] == ["manifest.json", ".t.partial", "rename to t", tmp_path.name]


ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE]


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("function", ["open", "write", "lseek", "fsync", "mkdir", "rename"])
def test_a_failing_disk(function, number, tmp_path):
    folder = tmp_path / "a" / "t"
    at = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            calls, real = 0, getattr(os, function)

            def faulty(*args, real=real, **kwargs):
                nonlocal calls
                calls += 1
                if calls == at + 1:  # noqa: B023 - called within this round
                    raise OSError(number, os.strerror(number))
                return real(*args, **kwargs)

            patch.setattr(os, function, faulty)
            try:
                write_texts(folder, "llmc")
                break
            except OSError as error:
                failed = error
        assert failed.errno == number
        if folder.exists():  # only the entry of the folder is not sure to be on the disk
            assert function in ("fsync", "open")
            break
        assert [path.name for path in folder.parent.glob("*")] == []
        at += 1
        assert at < 200
    assert (
        at >= {"open": 10, "write": 10, "lseek": 4, "fsync": 8, "mkdir": 2, "rename": 1}[function]
    )
    verify_token_files(folder)


def test_writes_that_take_a_few_bytes_at_a_time(tmp_path, monkeypatch):
    write_texts(tmp_path / "whole", "npy")
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    write_texts(tmp_path / "t", "npy")
    assert content(tmp_path / "t") == content(tmp_path / "whole")
