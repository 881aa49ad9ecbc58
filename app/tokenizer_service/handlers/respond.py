"""Respond to a request with a body: plan it, read it, choose the tokenizer, run the plan, send.

Planned routes need neither FastAPI's matching nor its dependency solver and exit stacks, which took
65 us of the 155 us of a small request, so `PlannedRoutes` serves them without these. In OpenAPI
they are ordinary routes. A request holds its share of the memory budget until its response is sent
or it fails.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from fastapi import Request, Response
from starlette.requests import HTTPConnection

from tokenizer_core.chat.renderer import ChildNeededError, without_child
from tokenizer_service.access.auth import check_read
from tokenizer_service.access.deadlines import DEPARTURE
from tokenizer_service.access.limits import (
    INLINE_BODY_BYTES,
    INLINE_TEMPLATE_UNITS,
    UNCHARGED_RESPONSE_BYTES,
)
from tokenizer_service.handlers.choose_tokenizer import (
    choose_tokenizer,
    choose_tokenizer_on_thread,
    find_tokenizer,
)
from tokenizer_service.handlers.plan import (
    SECONDS_PER_BYTE,
    SMALL_BODY_BYTES,
    SMALL_SECONDS,
    ParsedRequest,
    Plan,
    PlannedRoute,
    inline_bytes_of,
    is_conversation,
    runs_inline,
    seconds_of,
)
from tokenizer_service.handlers.preconditions import check_query
from tokenizer_service.http.bodies import WHOLE_BODY, read_body
from tokenizer_service.http.responses import ChunkedBody
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import APIRouter
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tokenizer_service.access.limits import Lease
    from tokenizer_service.http.middleware import RawResponse, Server
    from tokenizer_service.responses.json_values import Rendered
    from tokenizer_service.services import Services
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

    Planner = Callable[[HTTPConnection], Plan]

    Elsewhere = Literal["thread", "child"]
    """Where a plan must run instead: on a thread, as it takes too long here, or on one of those for
    conversations, as its template needs a child process."""

PLANNED: Final[dict[str, PlannedRoute]] = {}
"""The planned routes, by their paths with and without `/v1`."""

STATUSES: Final = (400, 404, 406, 408, 409, 412, 413, 415, 422, 503)
_CHAT_BYTES_PER_BODY_BYTE: Final = 2
"""The rendered text, and four bytes for each id of about four characters."""


def planned(
    router: APIRouter, path: str, *, body: dict[str, Any], response: Any, summary: str
) -> Callable[[Planner], Planner]:
    """Make the decorated function the plan of POST requests to `path`, for which `router` requires
    a read key. OpenAPI shows its name and docstring, and describes `body` and `response`."""

    def register(planner: Planner) -> Planner:
        async def endpoint(request: Request) -> Response:
            return await respond(request, planner(request))

        endpoint.__name__, endpoint.__doc__ = planner.__name__, planner.__doc__
        responses = {200: response, **problem_responses(*STATUSES)}
        router.post(
            path, summary=summary, openapi_extra=body, response_model=None, responses=responses
        )(endpoint)
        PLANNED[path] = PLANNED[f"/v1{path}"] = PlannedRoute(path, planner, body)
        return planner

    return register


class PlannedRoutes:
    """An ASGI app: serves the planned routes of `service`, and passes other requests to `app`."""

    def __init__(self, app: ASGIApp, service: Any) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises any error of a route."""
        route = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            route = PLANNED.get(scope["path"])
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        connection = Request(scope, receive, send)
        check_read(connection)
        check_query(connection)
        response = await respond(connection, route.planner(connection))
        await response(scope, receive, send)

    def server_of(self, scope: Scope) -> Server | None:
        """A function that serves requests with this head in one step, given the whole body; None
        for other routes. Both raise any error of a route; the app then responds with it."""
        route = PLANNED.get(scope["path"])
        if route is None or scope["method"] != "POST" or scope["root_path"]:
            return None
        scope["app"], scope["route"] = self._service, route
        connection = HTTPConnection(scope)
        check_read(connection)
        check_query(connection)
        return partial(self._serve, connection, route.planner(connection))

    def _serve(self, connection: HTTPConnection, plan: Plan, body: bytes) -> RawResponse | None:
        """Respond to a whole body; None if it takes a thread or a wait."""
        services: Services = self._service.services
        if len(body) > services.settings.max_body_bytes or not plan.may_run_inline(len(body)):
            return None
        live = services.live.active
        rendered: Rendered | Elsewhere | None = None if live is None else plan.run_body(body, live)
        if rendered is None:
            request = plan.parse(body, services.engine)
            live = find_tokenizer(connection, request.tokenizer, vars(request).get("model"))
            if live is None or not runs_inline(request, live, plan, len(body)):
                return None
            rendered = _run_inline(services, plan, request, live)
        if live is None or isinstance(rendered, str):
            return None
        # As `RequestObserver`, which does not see this response.
        end = b"\n" if rendered.media_type == "application/json" else b""
        content = b"".join((*rendered.chunks, end))
        if len(content) > UNCHARGED_RESPONSE_BYTES:
            return None
        _count(services, plan, rendered)
        headers = b"%bcontent-length: %d\r\ncontent-type: %b\r\n" % (
            live.header_lines,
            len(content),
            rendered.media_type.encode(),
        )
        for header in rendered.headers:
            headers += b"%b: %b\r\n" % header
        return headers, content


async def respond(connection: Request, plan: Plan) -> Response:
    """Carry out `plan` with the body of a request; return the response."""
    scope, services = connection.scope, services_of(connection)
    body = scope.get(WHOLE_BODY)
    lease: Lease | None = None
    most = min(INLINE_BODY_BYTES, services.settings.max_body_bytes)
    if body is None or len(body) > most:
        lease = services.budget.lease()
        try:
            body = await read_within_limits(connection, lease)
        except BaseException:
            lease.release()
            raise
    rendered: Rendered | Elsewhere = "thread"
    n_bytes = len(body)
    departure = scope.get(DEPARTURE)
    if plan.may_run_inline(n_bytes):
        if lease is not None:
            lease.release()
            lease = None
        request = plan.parse(bytes(body), services.engine)
        live = await choose_tokenizer(connection, request.tokenizer, vars(request).get("model"))
        if runs_inline(request, live, plan, n_bytes):
            rendered = _run_inline(services, plan, request, live)
    else:
        lease = lease or services.budget.lease()
        is_small = n_bytes <= SMALL_BODY_BYTES
        seconds = SECONDS_PER_BYTE * n_bytes
        queue, most_seconds = (
            (services.quick_queue, SMALL_SECONDS) if is_small else (services.queue, 2 * seconds)
        )
        parts = [bytes(body)]
        del body
        request, live, rendered = await queue.run_for(
            departure,
            lease,
            _run_body,
            *(connection, plan, parts, lease, most_seconds),
            seconds=seconds,
        )
    if isinstance(rendered, str):
        n_expected = 0
        if lease is None:
            lease = services.budget.lease()
            n_expected = _CHAT_BYTES_PER_BODY_BYTE * n_bytes if is_conversation(request) else 0
        if rendered == "thread":
            seconds = seconds_of(request, live, n_bytes)
            queue = services.quick_queue if seconds <= SMALL_SECONDS else services.queue
            rendered = await queue.run_for(
                departure,
                lease,
                _run_here,
                *(plan, request, live),
                n_expected=n_expected,
                seconds=seconds,
            )
        if isinstance(rendered, str):  # "child"
            owner = live.ref, vars(request).get("chat_template")
            run_for = services.chat_queue.run_for
            by_child = await run_for(departure, lease, plan.run, request, live, owner=owner)
            rendered = by_child
    response = ChunkedBody(
        rendered.chunks,
        raw_headers=(*live.raw_headers, *rendered.headers),
        media_type=rendered.media_type,
        idle_seconds=services.settings.send_seconds,
    )
    if response.n_bytes > UNCHARGED_RESPONSE_BYTES or lease is not None:
        response.charge_to(lease or services.budget.lease())
    _count(services, plan, rendered)
    return response


def _count(services: Services, plan: Plan, rendered: Rendered) -> None:
    if plan.is_decoding:
        services.metrics.count_decoded(rendered.n_tokens)
    else:
        services.metrics.count_encoded(rendered.n_bytes, rendered.n_tokens)


def _run_body(
    connection: Request, plan: Plan, parts: list[bytes], lease: Lease, most_seconds: float
) -> tuple[Any, LiveTokenizer, Rendered | Elsewhere]:
    """Parse, choose and run on a thread, unless that takes more than `most_seconds`; the request is
    None once it ran.

    Frees the body, the one item of `parts`, after parsing it. Its lease stays: the parsed values
    take about as much.
    """
    body = parts.pop()
    n_bytes = len(body)
    services = services_of(connection)
    active = services.live.active
    rendered: Rendered | Elsewhere | None = plan.run_body(body, active) if active else None
    if active and rendered:
        return None, active, rendered
    request = plan.parse(body, services.engine)
    del body
    live = choose_tokenizer_on_thread(connection, request.tokenizer, vars(request).get("model"))
    if is_conversation(request):
        lease.expect(_CHAT_BYTES_PER_BODY_BYTE * n_bytes)
    if seconds_of(request, live, n_bytes) > most_seconds:
        return request, live, "thread"
    rendered = _run_here(plan, request, live)
    return request if rendered == "child" else None, live, rendered


def _run_inline(
    services: Services, plan: Plan, request: ParsedRequest, live: LiveTokenizer
) -> Rendered | Elsewhere:
    """Run the plan on the event loop, unless this turn of it has rendered enough, or the template
    needs more than a few units or renders much."""
    if not is_conversation(request):
        return plan.run(request, live)
    if not services.inline_conversations.take():
        return "thread"
    try:
        with without_child(INLINE_TEMPLATE_UNITS, inline_bytes_of(request, plan)):
            return plan.run(request, live)
    except ChildNeededError:
        return "thread"


def _run_here(
    plan: Plan, request: ParsedRequest, live: LiveTokenizer
) -> Rendered | Literal["child"]:
    """Run the plan on a thread, unless the chat template needs a child process, which may take its
    time."""
    if not is_conversation(request):
        return plan.run(request, live)
    try:
        with without_child():
            return plan.run(request, live)
    except ChildNeededError:
        return "child"


async def read_within_limits(connection: Request, lease: Lease) -> bytes:
    """Read the whole body within the limits of the settings and of `lease`."""
    settings = services_of(connection).settings
    return await read_body(
        connection,
        max_bytes=settings.max_body_bytes,
        reserve=lease.reserve,
        grace_seconds=settings.header_seconds,
    )
