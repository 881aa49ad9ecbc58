"""Run the public tests of CS336's first assignment (v1.0.6) against this project.

    make test-course COURSE=../assignment1-basics

The folder is a checkout of the assignment. The suite runs in a copy, with `adapters.py` of this
folder in place of its own. A test whose fixture the folder lacks is skipped and names the file;
the model's weights and the larger sample are kept by Git LFS, so that a plain checkout has only
their pointers.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "language_model"
LFS_POINTER = b"version https://git-lfs"
TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"


def main(arguments):
    """Run the suite of the folder named first; pass the other arguments on to pytest."""
    if not arguments or not (Path(arguments[0]) / "tests" / "test_tokenizer.py").is_file():
        print(
            "give the folder of the assignment: make test-course COURSE=../assignment1-basics\n"
            "(git clone https://github.com/stanford-cs336/assignment1-basics)",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        suite = Path(temporary).resolve()
        shutil.copytree(Path(arguments[0]) / "tests", suite / "tests")
        shutil.copy(HERE / "adapters.py", suite / "tests" / "adapters.py")
        (suite / "pytest.ini").write_text("[pytest]\n")
        remove_pointers(suite / "tests")
        offer_files_of_tiktoken(suite)
        os.chdir(suite)  # the suite's snapshots are relative to it
        sys.path[:0] = [str(suite), str(EXAMPLE)]
        options = ["-c", "pytest.ini", "-p", "no:cacheprovider", "-v", "-rs", *arguments[1:]]
        return int(pytest.main([*options, "tests"], plugins=[SkipMissingFixtures(suite)]))


def remove_pointers(folder):
    """Remove the pointers that stand for files of Git LFS: a pointer is a missing file."""
    for path in folder.rglob("*"):
        is_small = path.is_file() and path.stat().st_size < 1000
        if is_small and path.read_bytes().startswith(LFS_POINTER):
            path.unlink()


def offer_files_of_tiktoken(suite):
    """Put GPT-2's two files into tiktoken's cache, so that it downloads nothing.

    The suite's fixtures are these files, the merges without their first line. tiktoken checks their
    digests.
    """
    fixtures, cache = suite / "tests" / "fixtures", suite / "tiktoken"
    cache.mkdir()
    for name, fixture, first in (
        ("vocab.bpe", "gpt2_merges.txt", b"#version: 0.2\n"),
        ("encoder.json", "gpt2_vocab.json", b""),
    ):
        key = hashlib.sha1((TIKTOKEN_URL + name).encode()).hexdigest()
        (cache / key).write_bytes(first + (fixtures / fixture).read_bytes())
    os.environ["TIKTOKEN_CACHE_DIR"] = str(cache)


class SkipMissingFixtures:
    """Skips a test that fails because the suite's folder lacks a file, and names the file."""

    def __init__(self, suite):
        self._suite = suite

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        error = call.excinfo and call.excinfo.value
        if error is not None and not isinstance(error, FileNotFoundError):
            error = error.__context__  # ours name the file and the remedy instead
        if isinstance(error, FileNotFoundError) and error.filename is not None:
            missing = (Path.cwd() / os.fsdecode(error.filename)).resolve()
            if missing.is_relative_to(self._suite / "tests") and not missing.exists():
                name = missing.relative_to(self._suite)
                report.outcome = "skipped"
                report.longrepr = (str(item.path), 0, f"Skipped: the folder has no {name}")
        return report


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
