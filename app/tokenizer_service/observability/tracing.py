"""Tracing: a span for each request, for operators who use OpenTelemetry.

OpenTelemetry's own environment variables enable it: if one of them names an endpoint, and the extra
`telemetry` is installed, each process sends its spans there. A span has the method, the route, the
status, the request's id and the tokenizer's version. The only inputs of a client in it are the
trace context and `X-Request-Id`. The SDK is imported only if tracing is enabled.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Final

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("tokenizer_service.observability.tracing")

VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables; either names the endpoint for spans (OTLP over HTTP)."""

_LAST_SECONDS: Final = 2.0
_SERVER_ERROR: Final = 500
_TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})


class Tracing:
    """ASGI middleware that records a span for each request."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = {name.decode("latin-1"): value for name, value in scope["headers"]}
        carrier = {name: given[name].decode("latin-1") for name in _TRACE_HEADERS & given.keys()}
        method: str = scope["method"] if scope["method"].isalpha() else "OTHER"
        with self._tracer.start_as_current_span(
            method[:16],
            context=propagate.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method[:16]},
            record_exception=False,  # its message may hold input of a client
        ) as span:

            async def observe(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _describe(span, message)
                await send(message)

            try:
                await self._app(scope, receive, observe)
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route is not None:
                    span.update_name(f"{method} {route}")
                    span.set_attribute("http.route", route)


def _describe(span: Span, start: Message) -> None:
    status: int = start["status"]
    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_ERROR:
        span.set_status(Status(StatusCode.ERROR))
        span.set_attribute("error.type", str(status))
    headers = dict(start.get("headers", ()))
    for name, attribute in (
        (b"x-request-id", "tokenizer.request_id"),
        (b"tokenizer-version", "tokenizer.version"),
    ):
        if name in headers:
            span.set_attribute(attribute, headers[name].decode("latin-1"))


class Traces:
    """Sends the spans of this process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self.tracer = provider.get_tracer("tokenizer-service")

    def record_job(
        self, kind: str, state: str, started_at: float | None, error_code: str | None
    ) -> None:
        """A span for a job that has ended, from its last start; none if it never ran."""
        if started_at is None:
            return
        started = int(started_at * 1e9)
        span = self.tracer.start_span(f"job {kind}", context=Context(), start_time=started)
        span.set_attribute("tokenizer.job.state", state)
        if error_code is not None:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", error_code)
        span.end()

    def close(self) -> None:
        """Send the remaining spans for at most two seconds: the endpoint may be unreachable."""
        # Use a thread: without it, the SDK would retry and delay the shutdown.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(_LAST_SECONDS)


def open_traces() -> Traces | None:
    """Traces to the endpoint in the environment; None without an endpoint or the SDK."""
    if not any(os.environ.get(variable) for variable in VARIABLES):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning(
            "%s is set, but OpenTelemetry's SDK is not installed: no spans are sent. Install "
            "`tokenizer-service[telemetry]`, or unset it.",
            " or ".join(VARIABLES),
        )
        return None
    name = os.environ.get("OTEL_SERVICE_NAME", "tokenizer-service")
    provider = TracerProvider(
        resource=Resource.create({"service.name": name}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)
