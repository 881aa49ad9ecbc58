"""Spans as a collector receives them: what they contain, and what of a request they omit."""

import sys

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace.export import SpanExportResult
from starlette.testclient import TestClient

from tokenizer_service.main import create_app
from tokenizer_service.observability import tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def sent(monkeypatch):
    bodies = []

    def export(exporter, spans):
        bodies.append(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    monkeypatch.setattr(tracing, "_LAST_SECONDS", 60.0)  # a thread must not outlive this function
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    return bodies


def spans_in(bodies):
    """(service, span, attributes) of each."""
    found = []
    for body in bodies:
        for of_service in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {a.key: a.value.string_value for a in of_service.resource.attributes}
            for span in (span for of_scope in of_service.scope_spans for span in of_scope.spans):
                values = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
                found.append((names["service.name"], span, values))
    return found


def test_a_span_has_route_status_and_tokenizer_and_no_request_data(settings, sent, monkeypatch):
    def fail(*_):
        raise RuntimeError("hidden cause")

    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        secret = {"X-Secret": "hidden-header", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        answer = client.post("/v1/encode", json={"text": "hidden text"}, headers=secret)
        client.get("/hidden-path?hidden=query")
        client.get("/tokenizers/hidden-name")
        monkeypatch.setattr("tokenizer_service.handlers.encode.Rendered", fail)
        assert client.post("/encode", json={"text": "a"}).status_code == 500
    assert answer.status_code == 200
    spans = spans_in(sent)
    service, span, attributes = spans[0]
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
    others = [(span, values["http.response.status_code"]) for _, span, values in spans[1:]]
    assert [(span.name, status) for span, status in others] == [
        ("GET", 404),
        ("GET /tokenizers/{name}", 404),
        ("POST /encode", 500),
    ]
    assert others[-1][0].status.code == Status.STATUS_CODE_ERROR
    assert spans[-1][2]["error.type"] == "500"
    assert b"hidden" not in b"".join(sent)


def test_a_job_that_ran_has_a_span(sent):
    traces = tracing.open_traces()
    traces.record_job("train", "failed", 1.5, "memory_limit")
    traces.record_job("train", "cancelled", None, None)
    traces.close()
    [(_, span, attributes)] = spans_in(sent)
    assert (span.name, span.start_time_unix_nano) == ("job train", 1_500_000_000)
    assert attributes == {"tokenizer.job.state": "failed", "error.type": "memory_limit"}


def test_without_the_variables_or_the_extra_nothing_is_traced(sent, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert tracing.open_traces() is None
    assert "tokenizer-service[telemetry]" in caplog.text
    caplog.clear()
    for variable in tracing.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert tracing.open_traces() is None
    assert caplog.text == ""
