"""Serve a request with a body: read it, choose the tokenizer, do the work, respond.

Large requests run on a thread. A request holds its share of the memory budget until its response
is sent or it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from app.access.limits import INLINE_BODY_BYTES
from app.http.bodies import WHOLE_BODY, read_body
from app.http.responses import ChunkedBody
from app.rendering.preconditions import choose_tokenizer, choose_tokenizer_on_thread
from app.services import services_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request
    from starlette.responses import Response

    from app.access.limits import Lease
    from app.rendering.json_values import Rendered
    from app.services import Services
    from app.serving.live_tokenizer import LiveTokenizer


class _Wanted(Protocol):
    @property
    def tokenizer(self) -> str | None: ...


Wanted = TypeVar("Wanted", bound=_Wanted)


async def respond(
    request: Request,
    parse: Callable[[bytes], Wanted],
    render: Callable[[Wanted, LiveTokenizer], Rendered],
    *,
    is_short: bool = True,
) -> tuple[Rendered, Response]:
    """Call `render` on the body that `parse` reads; return the result and its response.

    Both run on the event loop if the body is small and `is_short` holds for the work, otherwise on
    a thread.

    Raises:
        Problem: the request is invalid.
    """
    scope = request.scope
    services: Services = scope["app"].services
    limit = services.settings.max_body_bytes
    body = scope.get(WHOLE_BODY)
    lease = None
    try:
        if body is None or len(body) > INLINE_BODY_BYTES or len(body) > limit:
            lease = services.budget.lease()
            body = await read_within_limits(request, lease)
        if is_short and len(body) <= INLINE_BODY_BYTES:
            wanted = parse(bytes(body))
            live = await choose_tokenizer(request, wanted.tokenizer)
            rendered = render(wanted, live)
        else:
            bodies = [bytes(body)]
            del body
            rendered, live = await services.queue.run(_work, request, parse, render, bodies)
    except BaseException:
        if lease is not None:
            lease.release()
        raise
    response = ChunkedBody(
        rendered.chunks,
        raw_headers=live.raw_headers,
        media_type=rendered.media_type,
        lease=lease,
        idle_seconds=services.settings.send_seconds,
    )
    return rendered, response


def read_within_limits(request: Request, lease: Lease) -> Awaitable[bytes]:
    """Read the whole body within the limits of the settings and of `lease`.

    Raises:
        Problem: as `read_body`.
        OverloadedError: the memory for bodies is used up.
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
    render: Callable[[Wanted, LiveTokenizer], Rendered],
    bodies: list[bytes],
) -> tuple[Rendered, LiveTokenizer]:
    """Parse, choose and render on a thread. Frees the one body in `bodies` after parsing it."""
    wanted = parse(bodies.pop())
    live = choose_tokenizer_on_thread(request, wanted.tokenizer)
    return render(wanted, live), live
