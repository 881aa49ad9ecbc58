"""The tests of tests/app/jobs/test_queue.py, repeated on PostgreSQL."""

import pytest

from tests.app.jobs.conftest import OpenJobs
from tests.app.jobs.test_queue import *  # noqa: F403 -- all tests of the module


@pytest.fixture
def open_jobs(postgres_jobs: OpenJobs) -> OpenJobs:
    return postgres_jobs
