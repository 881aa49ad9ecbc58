"""Spans as a collector receives them: what they contain, and what of a request they omit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.testclient import TestClient

from tokenizer_service.main import create_app
from tokenizer_service.observability import tracing
from tokenizer_service.settings import Settings

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """Receives spans over HTTP, as OpenTelemetry's collector does."""

    def __init__(self) -> None:
        self.bodies = bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[tuple[str, Span, dict[str, object]]]:
        """(service, span, attributes) of each."""
        found = []
        for body in self.bodies:
            for of_service in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {a.key: a.value.string_value for a in of_service.resource.attributes}
                for of_scope in of_service.scope_spans:
                    for span in of_scope.spans:
                        values = {
                            a.key: a.value.string_value or a.value.int_value
                            for a in span.attributes
                        }
                        found.append((names["service.name"], span, values))
        return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    yield collector
    collector.close()


@pytest.fixture
def traced(settings: Settings, collector: Collector) -> Callable[[], TestClient]:
    return lambda: TestClient(create_app(settings), raise_server_exceptions=False)


def test_a_span_has_route_status_and_tokenizer_and_no_request_data(
    traced: Callable[[], TestClient], collector: Collector
) -> None:
    with traced() as client:
        secret = {"X-Secret": "hidden-header", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        answer = client.post("/v1/encode", json={"text": "hidden text"}, headers=secret)
        client.get("/hidden-path?hidden=query")
        client.get("/tokenizers/hidden-name")
    assert answer.status_code == 200
    service, span, attributes = collector.spans()[0]
    assert (service, span.name) == ("tokenizer-service", "POST /encode")
    assert span.kind == Span.SPAN_KIND_SERVER
    assert span.trace_id.hex() == TRACE
    assert attributes == {
        "http.request.method": "POST",
        "http.route": "/encode",
        "http.response.status_code": 200,
        "tokenizer.request_id": answer.headers["X-Request-Id"],
        "tokenizer.version": answer.headers["Tokenizer-Version"],
    }
    assert [(span.name, values["http.response.status_code"]) for _, span, values in
            collector.spans()[1:]] == [("GET", 404), ("GET /tokenizers/{name}", 404)]  # fmt: skip
    assert b"hidden" not in b"".join(collector.bodies)


def test_a_defect_is_an_error_without_its_message(
    traced: Callable[[], TestClient], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("hidden cause")

    monkeypatch.setattr("tokenizer_service.routes.encode.render_encoding", fail)
    with traced() as client:
        assert client.post("/encode", json={"text": "a"}).status_code == 500
    ((_, span, _),) = collector.spans()
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert b"hidden" not in b"".join(collector.bodies)


def test_without_the_variables_or_the_extra_nothing_is_traced(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert tracing.open_traces() is None
    assert "tokenizer-service[telemetry]" in caplog.text
    caplog.clear()
    for variable in tracing.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert tracing.open_traces() is None
    assert caplog.text == ""
