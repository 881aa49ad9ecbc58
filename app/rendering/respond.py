"""Answering a request with a body: read it, choose the tokenizer, work, send.

It stands alone because all routes that take a text or ids do it alike. What is large leaves the
event loop, and what a request holds of the memory budget is given back when its answer is sent or
it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from app.access.limits import INLINE_BODY_BYTES
from app.http.bodies import read_body
from app.http.responses import ChunkedBody
from app.rendering.preconditions import choose_tokenizer, choose_tokenizer_on_thread
from app.services import services_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request
    from starlette.responses import Response

    from app.access.limits import Lease
    from app.serving.live_tokenizer import LiveTokenizer


class _Wanted(Protocol):
    @property
    def tokenizer(self) -> str | None: ...


class _Answer(Protocol):
    @property
    def chunks(self) -> list[bytes]: ...
    @property
    def media_type(self) -> str: ...


Wanted = TypeVar("Wanted", bound=_Wanted)
Answer = TypeVar("Answer", bound=_Answer)


async def respond(
    request: Request,
    parse: Callable[[bytes], Wanted],
    answer: Callable[[Wanted, LiveTokenizer], Answer],
    *,
    is_short: bool = True,
) -> tuple[Answer, Response]:
    """What `answer` makes of the body as `parse` reads it, and the response with it.

    Both run on the event loop for a small body where the work for one `is_short`, and on a thread
    otherwise.

    Raises:
        Problem: whatever is wrong with the request.
    """
    services = services_of(request)
    lease = services.budget.lease()
    try:
        body = await read_within_limits(request, lease)
        if is_short and len(body) <= INLINE_BODY_BYTES:
            wanted = parse(body)
            live = await choose_tokenizer(request, wanted.tokenizer)
            made = answer(wanted, live)
        else:
            bodies = [body]
            del body
            made, live = await services.queue.run(_work, request, parse, answer, bodies)
    except BaseException:
        lease.release()
        raise
    response = ChunkedBody(
        made.chunks,
        raw_headers=live.raw_headers,
        media_type=made.media_type,
        lease=lease,
        idle_seconds=services.settings.send_seconds,
    )
    return made, response


def read_within_limits(request: Request, lease: Lease) -> Awaitable[bytes]:
    """The whole body, within the limits of this service's settings and what `lease` may hold.

    Raises:
        Problem: as `read_body`; 503 where the memory set aside for bodies is used up.
    """
    settings = services_of(request).settings
    return read_body(
        request,
        max_bytes=settings.max_body_bytes,
        reserve=lease.reserve,
        grace_seconds=settings.header_seconds,
    )


def _work(
    request: Request,
    parse: Callable[[bytes], Wanted],
    answer: Callable[[Wanted, LiveTokenizer], Answer],
    bodies: list[bytes],
) -> tuple[Answer, LiveTokenizer]:
    """All of it in one turn on a thread; the body, the only one of `bodies`, is given up on the
    way."""
    wanted = parse(bodies.pop())
    live = choose_tokenizer_on_thread(request, wanted.tokenizer)
    return answer(wanted, live), live
