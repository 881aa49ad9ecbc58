"""Serve a request with a body: read it, choose the tokenizer, do the work, respond.

Large requests run on a thread. A request holds its share of the memory budget until its response
is sent or it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from app.access.deadlines import DEPARTURE
from app.access.limits import INLINE_BODY_BYTES, INLINE_DETAILED_BYTES, INLINE_ITEMS
from app.http.bodies import WHOLE_BODY, read_body
from app.http.responses import ChunkedBody
from app.rendering.json_values import Rendered
from app.rendering.preconditions import choose_tokenizer, choose_tokenizer_on_thread
from app.services import services_of
from tokenizer_client.schemas.dialects import InputsRequest, PlainTextRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request
    from starlette.responses import Response

    from app.access.limits import Lease
    from app.services import Services
    from app.serving.live_tokenizer import LiveTokenizer


_IDS: Final = ("ids",)
_DETAILED: Final = (InputsRequest, PlainTextRequest)
"""Requests that always get more than ids."""

_TEMPLATE: Final = "chat_template"
"""Field of all requests that render a chat template."""

_CHAT_BYTES_PER_BODY_BYTE: Final = 2
"""The rendered text, and four bytes for each id of about four characters."""

_UNLEASED_BYTES: Final = 1 << 16


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

    Small work runs on the event loop. A small body with more work, such as a batch of many texts,
    has a thread of its own, so it does not wait for large requests. Conversations of any size have
    others, because a template may take its time. All other work runs on the threads for large
    requests; without `is_short`, so does that of small bodies.

    Raises:
        Problem: the request is invalid.
        ClientDisconnect: the client left before the response began.
        OverloadedError: too many requests wait, or use all the memory.
    """
    scope = request.scope
    services: Services = scope["app"].services
    limit = services.settings.max_body_bytes
    body = scope.get(WHOLE_BODY)
    lease = None
    if body is None or len(body) > INLINE_BODY_BYTES or len(body) > limit:
        lease = services.budget.lease()
        try:
            body = await read_within_limits(request, lease)
        except BaseException:
            lease.release()
            raise
    if is_short and len(body) <= INLINE_BODY_BYTES:
        if lease is not None:
            lease.release()
        wanted = parse(bytes(body))
        live = await choose_tokenizer(request, wanted.tokenizer)
        fields = vars(wanted)  # a missing attribute of a model costs an exception
        n_items = 0
        for value in fields.values():
            n_items += len(value) if type(value) is list else 0
        is_light = n_items <= INLINE_ITEMS and (
            len(body) <= INLINE_DETAILED_BYTES
            or not (
                tuple(fields.get("returned", _IDS)) != _IDS
                or fields.get("return_token_strs", False)
                or fields.get("with_pieces", False)
                or isinstance(wanted, _DETAILED)
            )
        )
        if _TEMPLATE in fields:
            lease = services.budget.lease()
            rendered = await _render_chat(request, lease, len(body), render, wanted, live)
        elif is_light:
            rendered = render(wanted, live)
        else:
            lease = services.budget.lease()
            rendered = await services.quick_queue.run_for(
                scope.get(DEPARTURE), lease, render, wanted, live
            )
    else:
        lease = lease or services.budget.lease()
        n_bytes, bodies = len(body), [bytes(body)]
        del body
        done, live = await services.queue.run_for(
            scope.get(DEPARTURE), lease, _work, request, parse, render, bodies
        )
        if isinstance(done, Rendered):
            rendered = done
        else:
            rendered = await _render_chat(request, lease, n_bytes, render, done, live)
    response = ChunkedBody(
        rendered.chunks,
        raw_headers=(*live.raw_headers, *rendered.headers),
        media_type=rendered.media_type,
        idle_seconds=services.settings.send_seconds,
    )
    if response.n_bytes > _UNLEASED_BYTES or lease is not None:
        response.charge_to(lease or services.budget.lease())
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
) -> tuple[Rendered | Wanted, LiveTokenizer]:
    """Parse, choose and render on a thread; a conversation is not rendered here.

    Frees the one body in `bodies` after parsing it. Its lease stays: the parsed values take about
    as much.
    """
    wanted = parse(bodies.pop())
    live = choose_tokenizer_on_thread(request, wanted.tokenizer)
    return (wanted if _TEMPLATE in vars(wanted) else render(wanted, live)), live


async def _render_chat(
    request: Request,
    lease: Lease,
    n_bytes: int,
    render: Callable[[Wanted, LiveTokenizer], Rendered],
    wanted: Wanted,
    live: LiveTokenizer,
) -> Rendered:
    """Render a conversation, of a body of `n_bytes`, on a thread for templates.

    Reserves beforehand what text and ids take as a rule; `render` reserves the rest.
    """
    try:
        lease.expect(_CHAT_BYTES_PER_BODY_BYTE * n_bytes)
    except BaseException:
        lease.release()
        raise
    departure = request.scope.get(DEPARTURE)
    return await services_of(request).chat_queue.run_for(departure, lease, render, wanted, live)
