"""Steps: what a call wants done by somebody who can wait and be interrupted.

A call is a generator (`Flow`). It yields steps and is sent their results; it does nothing itself
that takes time, so that one and the same call is run by a client that blocks and by one that
awaits. A flow has one answer open at a time; whoever runs it closes that one at the end, and
throws what a step raised into it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tokenizer_client.sources import Source

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `path` is below the address of the service.

    `is_two_way`: the answer may begin while the body is still being sent, and must then be read,
    or both sides wait for each other.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Source | None = None
    is_two_way: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request; gives its Head. Raises httpx.TransportError.

    `timeout_seconds` bounds each wait for the other side, of this step and of reading the answer.
    """

    request: Request
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """Gives the next bytes of the answer, None at its end. Raises httpx.TransportError."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Let so much time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Do work that may wait for a disk; gives what it returns, and raises what it raises."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    """Hand a part of the result to the caller, who may take as long as he likes."""

    value: T


Step = Open | Read | Wait | OnDisk
Flow = Generator[Step, Any, T]
"""A call with one result."""

Emitting = Generator[Step | Emit[T], Any, None]
"""A call whose result comes in parts."""


def consume(
    flow: Generator[Step | Emit[T], Any, R], take: Callable[[T], object], *, on_disk: bool = False
) -> Flow[R]:
    """A flow with one result out of one in parts: `take` is called with each part.

    Example:
        >>> def parts():
        ...     for number in (1, 2):
        ...         yield Emit(number)
        >>> taken = []
        >>> list(consume(parts(), taken.append)), taken
        ([], [1, 2])
    """
    try:
        step = next(flow)
        while True:
            if isinstance(step, Emit):
                if on_disk:
                    yield OnDisk(partial(take, step.value))
                else:
                    take(step.value)
                step = next(flow)
                continue
            try:
                result = yield step
            except Exception as error:
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as end:
        returned: R = end.value
        return returned
    finally:
        flow.close()
