"""The plan of a request with a body: what its route does with the body, and where that runs.

where                     | what runs there                               | decided by
--------------------------|-----------------------------------------------|------------------------
in one step, no task      | as the next, if the body came with its head   | `server_of`
                          | and the tokenizer is in memory                |
on the event loop         | bodies up to `Plan.inline_bytes`, of up to    | `Plan.may_run_inline`,
                          | INLINE_ITEMS texts; with details, bodies up   | `runs_inline`
                          | to INLINE_DETAILED_BYTES; ids of up to        |
                          | INLINE_DECODED_BYTES of text; of conversations|
                          | INLINE_CONVERSATIONS a turn, each with up to  |
                          | INLINE_TEMPLATE_UNITS, and with a text as     |
                          | large as a body                               |
thread for small requests | other bodies up to SMALL_BODY_BYTES are read  | `seconds_of`
                          | there, and served if the work takes up to     |
                          | SMALL_SECONDS                                 |
threads for conversations | those whose template runs in a child process  | ChildNeededError
threads for large ones    | all other work                                |

On each thread cheap work goes first, see `work_queue.CheapestFirst`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from starlette.requests import HTTPConnection

from tokenizer_core.engines import EngineChoice
from tokenizer_service.access.limits import (
    INLINE_BODY_BYTES,
    INLINE_DECODED_BYTES,
    INLINE_DETAILED_BYTES,
    INLINE_ITEMS,
    repeat_limit,
)
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

SECONDS_PER_BYTE: Final = 4e-7
_SECONDS_PER_ITEM: Final = 3e-5
_SECONDS_PER_DETAILED_BYTE: Final = 4e-6
_SECONDS_PER_REPEATED_BYTE: Final = 25e-9
"""About what work takes on two cores at 2.5 GHz; docs/operate.md has a table of the most."""

SMALL_BODY_BYTES: Final = 1 << 16
SMALL_SECONDS: Final = 0.05
"""How long the one thread for small requests may be held."""

BYTES_PER_ID: Final = 8
"""Seven digits and a comma."""

_TEMPLATE: Final = "chat_template"
"""Field of all requests that render a chat template."""


class ParsedRequest(Protocol):
    """What every parsed body says. That of a conversation has a `chat_template` too, and some have
    a `model`."""

    @property
    def tokenizer(self) -> str | None:
        """The name of the wanted tokenizer."""

    @property
    def wants_more_than_ids(self) -> bool:
        """Whether the response has more than ids, which takes longer."""


class Plan(NamedTuple):
    """What a route does with the body of a request whose headers it accepts."""

    parse: Callable[[bytes, EngineChoice], ParsedRequest]
    run: Callable[[Any, LiveTokenizer], Rendered]
    run_body: Callable[[bytes, LiveTokenizer], Rendered | None] = lambda body, live: None
    """Encodes a body with the active tokenizer, without parsing it; None if the body must be
    parsed, or if the request is refused."""

    is_cheap: bool = True
    """Whether a small body means little work."""

    is_decoding: bool = False
    """Whether the metrics count the tokens as decoded ones."""

    bytes_per_byte: int = BYTES_PER_ID
    """The most that the response has for a byte of text, which may be a token."""

    @property
    def inline_bytes(self) -> int:
        """The largest text that is processed on the event loop."""
        return INLINE_BODY_BYTES * BYTES_PER_ID // self.bytes_per_byte

    def may_run_inline(self, n_bytes: int) -> bool:
        """Whether to parse a body of `n_bytes` on the event loop; `runs_inline` decides then."""
        return self.is_cheap and n_bytes <= self.inline_bytes


class PlannedRoute(NamedTuple):
    """A route, and the function that plans its requests; it raises Problem for the headers."""

    path: str
    planner: Callable[[HTTPConnection], Plan]
    openapi_extra: dict[str, Any]
    """Its body and query, as OpenAPI describes them."""


def is_conversation(request: ParsedRequest) -> bool:
    """Whether a template must be rendered for the parsed `request`."""
    return _TEMPLATE in vars(request)


def inline_bytes_of(request: ParsedRequest, plan: Plan) -> int:
    """The largest text that `plan` processes on the event loop for the parsed `request`."""
    return INLINE_DETAILED_BYTES if request.wants_more_than_ids else plan.inline_bytes


def runs_inline(request: ParsedRequest, live: LiveTokenizer, plan: Plan, n_bytes: int) -> bool:
    """Whether to serve the parsed `request`, whose body of `n_bytes` may run inline, there."""
    fields = vars(request)  # a missing attribute of a model costs an exception
    if _count_items(fields) > INLINE_ITEMS:
        return False
    if _count_text_bytes(fields, live) > INLINE_DECODED_BYTES:
        return False
    return n_bytes + _count_around(fields, live) <= inline_bytes_of(request, plan)


def seconds_of(request: ParsedRequest, live: LiveTokenizer, n_bytes: int) -> float:
    """About how long the work of the parsed `request` takes, whose body has `n_bytes`."""
    fields = vars(request)
    has_details = _TEMPLATE not in fields and request.wants_more_than_ids
    n_bytes += _count_around(fields, live)
    seconds = n_bytes * (_SECONDS_PER_DETAILED_BYTE if has_details else SECONDS_PER_BYTE)
    seconds += _SECONDS_PER_ITEM * _count_items(fields)
    if fields.get("overlap_tokens"):
        seconds += _SECONDS_PER_REPEATED_BYTE * repeat_limit(n_bytes, sys.maxsize)
    return seconds


def _count_text_bytes(fields: dict[str, Any], live: LiveTokenizer) -> int:
    """The bytes of the tokens whose ids a request has."""
    n_bytes, lengths = 0, live.token_lengths
    for value in fields.values():
        for ids in value if type(value) is list else (value,):
            if type(ids) is np.ndarray:
                n_bytes += int(lengths[ids[ids < len(lengths)]].sum(dtype=np.uint64))
    return n_bytes


def _count_around(fields: dict[str, Any], live: LiveTokenizer) -> int:
    """The ids that the post-processor puts around the texts of a request. Each costs as much as a
    byte of text, which gives at most one."""
    if not (fields.get("add_special_tokens") or fields.get("add_special")):
        return 0
    return sum(live.around) * max(1, _count_items(fields))


def _count_items(fields: dict[str, Any]) -> int:
    return sum(len(value) for value in fields.values() if type(value) is list)
