"""The plan of a request with a body: what its route does with the body, and where that runs.

Where the work runs depends on its cost:

in one step, without a task  short work of a small body that came with its head
on the event loop            short work of a small body
thread for small requests    a small body with more work, such as a batch of many texts: it does not
                             wait for large requests
thread for conversations     those whose template runs in a child process: it may take its time
thread for large requests    all other work
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from starlette.requests import HTTPConnection

from tokenizer_core.engines import EngineChoice
from tokenizer_service.access.limits import INLINE_DETAILED_BYTES, INLINE_ITEMS
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_TEMPLATE: Final = "chat_template"
"""Field of all requests that render a chat template."""


class Plan(NamedTuple):
    """What a route does with the body of a request whose headers it accepts."""

    parse: Callable[[bytes, EngineChoice], Any]
    run: Callable[[Any, LiveTokenizer], Rendered]
    is_short: bool = True
    """Whether a small body means little work."""

    is_decoding: bool = False
    """Whether the metrics count the tokens as decoded ones."""


class PlannedRoute(NamedTuple):
    """A route, and the function that plans its requests; it raises Problem for the headers."""

    path: str
    plan: Callable[[HTTPConnection], Plan]


def is_conversation(wanted: Any) -> bool:
    """Whether a template must be rendered."""
    return _TEMPLATE in vars(wanted)


def is_light(wanted: Any, n_bytes: int) -> bool:
    """Whether to do on the event loop what a small body of `n_bytes` wants."""
    fields = vars(wanted)  # a missing attribute of a model costs an exception
    n_items = 0
    for value in fields.values():
        n_items += len(value) if type(value) is list else 0
    if n_items > INLINE_ITEMS or _TEMPLATE in fields:
        return False
    return n_bytes <= INLINE_DETAILED_BYTES or not wanted.wants_more_than_ids
