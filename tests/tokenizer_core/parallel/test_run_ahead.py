"""Threads that work ahead: in order, bounded, and always joined."""

import threading

import pytest

from tokenizer_core.parallel import map_ahead, run_ahead


def test_items_come_in_order_and_no_more_are_made_than_are_to_wait():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    ahead = run_ahead(items(), n_ahead=3)
    assert not made, "nothing is done before the first is asked for"
    for number in range(20):
        assert next(ahead) == number
        assert len(made) <= number + 1 + 3
    assert next(ahead, None) is None


def test_results_come_in_order_whatever_thread_is_faster():
    others_are_done = threading.Event()
    n_under_way = n_most = 0
    lock = threading.Lock()

    def function(number):
        nonlocal n_under_way, n_most
        with lock:
            n_under_way += 1
            n_most = max(n_most, n_under_way)
        if number == 0:
            others_are_done.wait(60)
        elif number == 1:
            others_are_done.set()
        with lock:
            n_under_way -= 1
        return number * number

    assert list(map_ahead(function, range(9), num_threads=2)) == [n * n for n in range(9)]
    assert n_most == 2


def test_errors_are_raised_at_the_position_of_their_item():
    def items():
        yield 1
        raise ValueError("the second")

    ahead = run_ahead(items(), n_ahead=2)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="the second"):
        next(ahead)

    mapped = map_ahead(lambda number: 1 // number, [1, 0, 2], num_threads=2)
    assert next(mapped) == 1
    with pytest.raises(ZeroDivisionError):
        next(mapped)

    mapped = map_ahead(lambda number: 1 // number, items(), num_threads=2)
    assert next(mapped) == 1
    with pytest.raises(ValueError, match="the second"):
        next(mapped)


def test_closing_ends_the_thread_and_the_items():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    before = threading.active_count()
    ahead = run_ahead(items(), n_ahead=2)
    mapped = map_ahead(str, ahead, num_threads=2)
    assert next(mapped) == "0"
    mapped.close()
    ahead.close()
    assert closed == [True]
    assert threading.active_count() == before
