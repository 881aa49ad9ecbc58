"""tiktoken's own tests, run on its replacement.

TOKENIZER_TIKTOKEN_SOURCE names an unpacked source archive of tiktoken. Its tests import the module
`tiktoken` from a folder that holds the replacement alone. A test whose vocabulary is not on this
machine counts as skipped, by name.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import REPOSITORY
from tokenizer_core.presets import PRESETS, own_cache_path

REPLACEMENT = "from tokenizer_core.compat.tiktoken import *"
PLUGIN = """
import pytest
from tokenizer_core.errors import PresetError

@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    try:
        return (yield)
    except PresetError as error:
        pytest.skip(str(error).partition(".")[0])
"""


def test_tiktokens_own_tests_pass(tmp_path, shared_data, monkeypatch):
    source = os.environ.get("TOKENIZER_TIKTOKEN_SOURCE")
    if not source:
        pytest.skip("TOKENIZER_TIKTOKEN_SOURCE names no source archive of tiktoken")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for preset in PRESETS.values():
        published = shared_data / "vocab" / preset.file_name
        if published.is_file():
            cached = own_cache_path(preset)
            cached.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(published, cached)
    (tmp_path / "tiktoken.py").write_text(REPLACEMENT)
    (tmp_path / "absent_vocabularies.py").write_text(PLUGIN)
    shutil.copytree(Path(source, "tests"), tmp_path / "tests")
    report = tmp_path / "report.xml"
    options = ["-p", "absent_vocabularies", "-p", "no:xdist", f"--junitxml={report}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, tmp_path / "tests"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        capture_output=True,
        text=True,
        check=False,
    )
    suite = next(ElementTree.parse(report).iter("testsuite"))
    skipped = [found.get("message") for found in suite.iter("skipped")]
    assert run.returncode == 0, run.stdout
    assert int(suite.get("tests", 0)) - len(skipped) >= 20, run.stdout
    assert all("p50k" in str(message) for message in skipped), skipped
