"""Token files are whole or absent wherever the writer dies, and wherever the disk refuses.

`tests/integration/power_loss` checks what a disk loses with its power.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES, NARROW, write_texts
from tokenizer_core.corpus import TokenFilesWriter, plan_token_files, verify_token_files

# Forks once for each operation k: the child writes and dies at its k-th call, the parent checks the
# files and writes again, or resumes from the last checkpoint. It forks in a separate process,
# because pytest's may have threads. Other tests check the syncing: here, where only the process
# dies, it would only take time.
DRIVER = """
import json, os, sys
from pathlib import Path
from tests.dying_calls import die_at
from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_core.corpus.small_corpora import NARROW, TEXTS, encode_all
from tokenizer_core.corpus import TokenFilesWriter, plan_token_files, verify_token_files
from tokenizer_core.errors import TokenFilesError

layout, when, base = sys.argv[1], sys.argv[2], Path(sys.argv[3])
plan = plan_token_files(NARROW, layout=layout, tokens_per_shard=7)
started = []

def write_whole(folder):
    with TokenFilesWriter(folder, plan) as writer:
        for split, document in documents:
            writer.append(document, split=split)
        writer.finish()

def write(folder):
    with TokenFilesWriter(folder, plan, resume=True) as writer:
        started.append((writer.position or {"done": 0})["done"])
        for done in range(started[-1], len(documents)):
            split, document = documents[done]
            writer.append(document, split=split)
            if done % 2:
                writer.checkpoint({"done": done + 1})
        writer.finish()

documents = [("train", ids) for ids in encode_all(NARROW, TEXTS)] + [("validation", [104, 105])]
documents.insert(2, ("validation", [1, 2, 3]))
os.fsync = lambda descriptor: None
write_whole(base / "expected")
expected = content(base / "expected")
found = []
k = 0
while True:
    k += 1
    folder = base / str(k) / "tokens"
    folder.parent.mkdir()
    code = die_at(k, when, lambda: write(folder))
    is_there = folder.exists()
    is_whole = is_there and content(folder) == expected
    left = [path.name for path in folder.parent.iterdir() if path != folder]
    started.clear()
    try:
        write(folder)
        assert not is_there
    except TokenFilesError as error:
        assert is_there and "is there already" in str(error)
    verify_token_files(folder)
    found.append({"code": code, "is_there": is_there, "is_whole": is_whole, "left": left,
                  "started": started[:],
                  "after": [path.name for path in folder.parent.iterdir()],
                  "is_equal": content(folder) == expected})
    if code == 0:
        break
print(json.dumps(found))
"""


@pytest.mark.parametrize(("layout", "when"), [("megatron", "after"), ("npy", "torn")])
def test_a_writer_that_dies_leaves_all_files_or_none(layout, when, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, layout, when, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[4],
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [entry["code"] for entry in found] == [9] * (len(found) - 1) + [0]
    assert len(found) > 40
    there = [entry["is_there"] for entry in found]
    assert there == sorted(there), "once there, it must stay"
    assert False in there
    assert all(entry["is_whole"] for entry in found if entry["is_there"])
    assert any(entry["left"] == [".tokens.partial"] for entry in found), "nothing was staged"
    last = next(entry for entry in found if entry["is_there"])
    assert last["left"] == [".tokens.partial"], "no crash between the rename and the clearing away"
    starts = [entry["started"][0] for entry in found if not entry["is_there"]]
    assert starts == sorted(starts), "a checkpoint was lost"
    assert set(starts) == {0, 2, 4, 6}
    assert all(entry["is_equal"] and entry["after"] == ["tokens"] for entry in found)


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


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_everything_is_synced_before_the_rename_and_the_folder_after(layout, tmp_path, events):
    write_texts(tmp_path / "t", layout)
    written = {path.name for path in (tmp_path / "t").iterdir()}
    assert events[:2] == [tmp_path.name, ".t.partial"]  # the new folders
    assert set(events[2:-4]) == written - {"manifest.json"}
    assert events[-4:] == ["manifest.json", "files", "rename to t", tmp_path.name]


def test_a_checkpoint_is_written_after_its_files_are_synced(tmp_path, events):
    with TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW)) as writer:
        writer.append([1])
        events.clear()
        writer.checkpoint({})
        found = events.copy()
    files = ["train.document-ends.u64", "train.bin", "files", ".checkpoint.json.new"]
    assert found == [*files, ".t.partial"]


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
        if folder.exists():  # only the folder's entry may not be on the disk
            assert function in ("fsync", "open")
            break
        assert not folder.parent.exists() or list(folder.parent.iterdir()) == []
        at += 1
        assert at < 200
    assert at >= least
    verify_token_files(folder)
