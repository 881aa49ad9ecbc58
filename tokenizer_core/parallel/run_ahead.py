"""`run_ahead` and `map_ahead`: threads that compute results while the caller uses earlier ones.

Use them for work that releases the GIL: reading, hashing, the compiled engine. The number of
waiting results is bounded, so a slow caller does not use more memory. Nothing can hang: the
generators join their threads before they end.
"""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

Item = TypeVar("Item")
Result = TypeVar("Result")

_END: Final[Any] = object()


def run_ahead(items: Iterator[Item], *, n_ahead: int) -> Generator[Item, None, None]:
    """The same items, computed by a thread at most `n_ahead` items before the caller needs them.

    An exception from `items` is raised here, at its position. Closing this generator ends the
    thread after its current item, and closes `items` if that is a generator.

    Example:
        >>> list(run_ahead(iter("abc"), n_ahead=2))
        ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as pool:
        # A single thread, so the items come in order.
        waiting = deque(pool.submit(next, items, _END) for _ in range(n_ahead))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(pool.submit(next, items, _END))
                yield item
        finally:
            _cancel(waiting)
            pool.shutdown()
            with contextlib.suppress(AttributeError):
                items.close()  # type: ignore[attr-defined]


def map_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_threads: int,
    n_ahead: int = 1,
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in order, computed by `num_threads` threads. At most
    `num_threads + n_ahead` items are running, waiting or not yet yielded. An exception from `items`
    is raised after the results of those before it.

    Example:
        >>> list(map_ahead(len, ["a", "bc"], num_threads=2))
        [1, 2]
    """
    waiting: deque[Future[Result]] = deque()
    errors: list[Exception] = []
    with ThreadPoolExecutor(num_threads) as pool:
        try:
            for item in until_error(items, errors):
                waiting.append(pool.submit(function, item))
                if len(waiting) >= num_threads + n_ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            _cancel(waiting)
    for error in errors:
        raise error


def until_error(items: Iterable[Item], errors: list[Exception]) -> Generator[Item, None, None]:
    """The items before an exception, which is appended to `errors`: for a caller that raises it
    when the items before it are done."""
    try:
        yield from items
    except Exception as error:
        errors.append(error)


def _cancel(waiting: Iterable[Future[Any]]) -> None:
    for future in waiting:
        future.cancel()
