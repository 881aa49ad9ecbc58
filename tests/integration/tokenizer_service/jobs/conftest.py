"""The service of tests/tokenizer_service/jobs, and job databases on PostgreSQL."""

import itertools

import pytest

from tests.integration.postgres_server import run_postgres
from tests.tokenizer_service.jobs.conftest import (
    corpus,
    process_service,
    service,
    shared_service,
    start_service,
)
from tokenizer_service.jobs.queue import JobStore

__all__ = ["corpus", "process_service", "service", "shared_service", "start_service"]


@pytest.fixture(scope="session")
def postgres_server():
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def own_server():
    """A server that a test may stop."""
    with run_postgres() as server:
        yield server


_numbers = itertools.count()


@pytest.fixture
def postgres_jobs(postgres_server):
    """On a new database for the test."""
    from tokenizer_service.jobs.database.postgres import PostgresDatabase

    address = postgres_server.make(f"jobs_{next(_numbers)}")
    databases = []

    def open_jobs(folder="the folder"):
        databases.append(PostgresDatabase(address))
        return JobStore(databases[-1], folder=folder)

    yield open_jobs
    for database in databases:
        database.close()
