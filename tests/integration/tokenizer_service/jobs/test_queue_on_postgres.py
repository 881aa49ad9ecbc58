"""The tests of tests/tokenizer_service/jobs/test_queue.py, repeated on PostgreSQL."""

import pytest

from tests.tokenizer_service.jobs.test_queue import *  # noqa: F403 -- all tests of the module

pytestmark = pytest.mark.slow


@pytest.fixture
def open_jobs(postgres_jobs):
    return postgres_jobs
