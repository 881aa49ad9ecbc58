"""The service of tests/tokenizer_service/jobs, and job databases on PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.integration.postgres_server import PostgresServer, run_postgres
from tests.tokenizer_service.jobs.conftest import (
    OpenJobs,
    corpus,
    process_service,
    service,
    shared_service,
    start_service,
)
from tokenizer_service.jobs.queue import JobStore

__all__ = ["corpus", "process_service", "service", "shared_service", "start_service"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with run_postgres() as server:
        yield server


_numbers = itertools.count()


@pytest.fixture
def postgres_jobs(postgres_server: PostgresServer) -> Iterator[OpenJobs]:
    """On a new database for the test."""
    from tokenizer_service.jobs.database.postgres import PostgresDatabase

    address = postgres_server.make(f"jobs_{next(_numbers)}")
    databases = []

    def open_jobs(folder: str = "the folder") -> JobStore:
        databases.append(PostgresDatabase(address))
        return JobStore(databases[-1], folder=folder)

    yield open_jobs
    for database in databases:
        database.close()
