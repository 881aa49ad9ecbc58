"""The class for `transformers`, checked in a process of its own, as all that imports transformers.

`transformers_checks.py` holds the checks; they need the packages of `.venv/transformers`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.integration.parity.transformers_reader import FOLDER, TransformersReader

CHECKS = Path(__file__).with_name("transformers_checks.py")


@pytest.mark.skipif(
    not TransformersReader.is_there(), reason="make test-integration installs transformers"
)
def test_the_class_for_transformers():
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", CHECKS],
        cwd=REPOSITORY,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(FOLDER), str(REPOSITORY)]),
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]
