from __future__ import annotations

import resource

import pytest

from tokenizer_service.http.connections import ConnectionGuard, raise_open_files
from tokenizer_service.http.problem import Problem
from tokenizer_service.observability.metrics import REJECT_REASONS


class Connection:
    def __init__(self) -> None:
        self.told: list[Problem] = []

    def turn_away(self, problem: Problem) -> None:
        self.told.append(problem)


def test_the_reserve_keeps_the_newest_connections_until_one_ends() -> None:
    guard = ConnectionGuard(max_connections=3)
    within = [Connection() for _ in range(3)]
    beyond = [Connection() for _ in range(100)]
    for connection in within + beyond:
        guard.admit(connection)
    assert all(guard.is_admitted(connection) for connection in within)
    assert not any(guard.is_admitted(connection) for connection in beyond)
    assert not any(connection.told for connection in within + beyond[-64:])
    for connection in beyond[:-64]:
        (problem,) = connection.told
        assert (problem.status, problem.headers["Retry-After"]) == (503, "1")
    assert guard.n_connections == 3 + 64
    first, second = within[0], beyond[-1]
    guard.admit(second)  # asked again while it is full
    assert not guard.is_admitted(second)
    guard.release(first)
    guard.admit(second)
    assert guard.is_admitted(second)
    for connection in [*within, *beyond, second]:
        guard.release(connection)
    assert guard.n_connections == 0


def test_each_refusal_is_counted_and_one_a_minute_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[str] = []
    guard = ConnectionGuard(count=counted.append)
    for _ in range(100):
        guard.note(Problem(400, "bad_http", ""))
    assert counted == ["bad_http"] * 100
    assert len(caplog.records) == 1
    assert counted[0] in REJECT_REASONS


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[0]), before[1]))
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
