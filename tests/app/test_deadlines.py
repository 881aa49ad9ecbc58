"""Pace: how long to wait for whom."""

from __future__ import annotations

import pytest

from app.deadlines import Pace


def pace() -> Pace:
    return Pace(grace_seconds=10, most_seconds=300, bytes_per_second=1024)


def test_a_byte_now_and_then_uses_the_time_up() -> None:
    slow = pace()
    for _ in range(10):
        slow.note(waited_seconds=1, n_bytes=1)
    assert 0 < slow.seconds_left < 0.1


def test_who_keeps_the_rate_may_go_on_for_ever() -> None:
    steady = pace()
    for _ in range(1000):
        steady.note(waited_seconds=5, n_bytes=5 * 1024)
    assert steady.seconds_left == pytest.approx(10)


def test_who_was_quick_may_pause_but_not_for_hours() -> None:
    quick = pace()
    quick.note(waited_seconds=0, n_bytes=1 << 30)
    assert quick.seconds_left == 300


def test_the_grace_is_never_taken_back() -> None:
    generous = Pace(grace_seconds=10, most_seconds=1, bytes_per_second=1024)
    generous.note(waited_seconds=0, n_bytes=1)
    assert generous.seconds_left == 10
