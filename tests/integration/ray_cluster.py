"""One small Ray cluster for the tests of a module, in processes of this machine.

A module gets it by importing the fixture; its tests are skipped where Ray is not installed.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.integration.s3_server import aws_environment

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ray_cluster(s3_server):
    """Connected, with two processors; yields its address, for other processes to connect to.

    Its workers know the S3 server of the tests.
    """
    ray = pytest.importorskip("ray")
    # A short path: Ray puts sockets below it, whose names may have 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name, value in aws_environment(s3_server).items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(REPOSITORY))  # what the workers import
        patch.syspath_prepend(str(REPOSITORY))
        context = ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        try:
            yield context.address_info["gcs_address"]
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def ray_workers():
    """The processes of the cluster that currently run a task."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "".join(process.cmdline()).startswith("ray::_call"):
                found.append(process)
    return found
