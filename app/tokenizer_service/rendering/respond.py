"""Serve a request with a body: read it, choose the tokenizer, do the work, respond.

Large requests run on a thread. A request holds its share of the memory budget until its response
is sent or it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tokenizer_client.schemas.dialects import InputsRequest, PlainTextRequest
from tokenizer_service.access.deadlines import DEPARTURE
from tokenizer_service.access.limits import INLINE_BODY_BYTES, INLINE_DETAILED_BYTES, INLINE_ITEMS
from tokenizer_service.http.bodies import WHOLE_BODY, read_body
from tokenizer_service.http.responses import ChunkedBody
from tokenizer_service.rendering.json_values import Rendered
from tokenizer_service.rendering.preconditions import (
    choose_tokenizer,
    choose_tokenizer_on_thread,
    find_tokenizer,
)
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from fastapi import Request
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from tokenizer_service.access.limits import Lease
    from tokenizer_service.http.fast_path import RawResponse
    from tokenizer_service.services import Services
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer


_IDS: Final = ("ids",)
_DETAILED: Final = (InputsRequest, PlainTextRequest)
"""Requests that always get more than ids."""

_TEMPLATE: Final = "chat_template"
"""Field of all requests that render a chat template."""

_CHAT_BYTES_PER_BODY_BYTE: Final = 2
"""The rendered text, and four bytes for each id of about four characters."""

_UNLEASED_BYTES: Final = 1 << 16


class Work(NamedTuple):
    """What a route does with the body of a request whose headers it accepts."""

    parse: Callable[[bytes], Any]
    render: Callable[[Any, LiveTokenizer], Rendered]
    is_short: bool = True
    """Whether a small body means little work."""

    is_decoding: bool = False
    """Whether the metrics count the tokens as decoded ones."""


def respond_now(
    find_work: Callable[[HTTPConnection], Work], request: HTTPConnection, body: bytes
) -> RawResponse | None:
    """As `respond`, at once, for a whole body; None for work that needs a thread or a wait.

    Raises:
        Problem: the request is invalid.
    """
    services: Services = request.scope["app"].services
    if len(body) > INLINE_BODY_BYTES or len(body) > services.settings.max_body_bytes:
        return None
    work = find_work(request)
    if not work.is_short:
        return None
    wanted = work.parse(body)
    live = find_tokenizer(request, wanted.tokenizer, _model_of(wanted))
    if live is None or not _is_light(wanted, len(body)):
        return None
    rendered = work.render(wanted, live)
    content = b"".join(rendered.chunks)
    if len(content) > _UNLEASED_BYTES:
        return None
    _count(services, work, rendered)
    further = b"".join(b"%b: %b\r\n" % header for header in rendered.headers)
    headers = b"%b%bcontent-length: %d\r\ncontent-type: %b\r\n"
    kind = rendered.media_type.encode()
    return headers % (live.header_lines, further, len(content), kind), content


async def respond(request: Request, work: Work) -> Response:
    """Do `work` with the body of `request`; return the response.

    Small work runs on the event loop. A small body with more work, such as a batch of many texts,
    has a thread of its own, so it does not wait for large requests. Conversations of any size have
    others, because a template may take its time. All other work runs on the threads for large
    requests; if it is not short, so does that of small bodies.

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
    if work.is_short and len(body) <= INLINE_BODY_BYTES:
        if lease is not None:
            lease.release()
        wanted = work.parse(bytes(body))
        live = await choose_tokenizer(request, wanted.tokenizer, _model_of(wanted))
        if _TEMPLATE in vars(wanted):
            lease = services.budget.lease()
            rendered = await _render_chat(request, lease, len(body), work.render, wanted, live)
        elif _is_light(wanted, len(body)):
            rendered = work.render(wanted, live)
        else:
            lease = services.budget.lease()
            rendered = await services.quick_queue.run_for(
                scope.get(DEPARTURE), lease, work.render, wanted, live
            )
    else:
        lease = lease or services.budget.lease()
        n_bytes, bodies = len(body), [bytes(body)]
        del body
        done, live = await services.queue.run_for(
            scope.get(DEPARTURE), lease, _work, request, work, bodies
        )
        if isinstance(done, Rendered):
            rendered = done
        else:
            rendered = await _render_chat(request, lease, n_bytes, work.render, done, live)
    response = ChunkedBody(
        rendered.chunks,
        raw_headers=(*live.raw_headers, *rendered.headers),
        media_type=rendered.media_type,
        idle_seconds=services.settings.send_seconds,
    )
    if response.n_bytes > _UNLEASED_BYTES or lease is not None:
        response.charge_to(lease or services.budget.lease())
    _count(services, work, rendered)
    return response


def _count(services: Services, work: Work, rendered: Rendered) -> None:
    if work.is_decoding:
        services.metrics.count_decoded(rendered.n_tokens)
    else:
        services.metrics.count_encoded(rendered.n_bytes, rendered.n_tokens)


def _model_of(wanted: Any) -> str | None:
    """The `model` of a request in another server's format."""
    model: str | None = vars(wanted).get("model")
    return model


def _is_light(wanted: Any, n_bytes: int) -> bool:
    """Whether to do on the event loop what a small body of `n_bytes` wants."""
    fields = vars(wanted)  # a missing attribute of a model costs an exception
    n_items = 0
    for value in fields.values():
        n_items += len(value) if type(value) is list else 0
    if n_items > INLINE_ITEMS or _TEMPLATE in fields:
        return False
    return n_bytes <= INLINE_DETAILED_BYTES or not (
        tuple(fields.get("returned", _IDS)) != _IDS
        or fields.get("return_token_strs", False)
        or fields.get("with_pieces", False)
        or isinstance(wanted, _DETAILED)
    )


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
    request: Request, work: Work, bodies: list[bytes]
) -> tuple[Rendered | Any, LiveTokenizer]:
    """Parse, choose and render on a thread; a conversation is not rendered here.

    Frees the one body in `bodies` after parsing it. Its lease stays: the parsed values take about
    as much.
    """
    wanted = work.parse(bodies.pop())
    live = choose_tokenizer_on_thread(request, wanted.tokenizer, _model_of(wanted))
    return (wanted if _TEMPLATE in vars(wanted) else work.render(wanted, live)), live


async def _render_chat(
    request: Request,
    lease: Lease,
    n_bytes: int,
    render: Callable[[Any, LiveTokenizer], Rendered],
    wanted: Any,
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
