"""Responses in both directions as ASGI applications: clients that stall."""

import json
from types import SimpleNamespace

import pytest
from starlette.requests import ClientDisconnect

from tests.tokenizer_service.http.clients import Client
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.text.streaming import StreamingEncoder
from tokenizer_service.access.limits import ByteBudget
from tokenizer_service.handlers.duplex import NDJSON, DuplexStream
from tokenizer_service.handlers.stream_codecs import DecodeCodec, EncodeCodec, RawIds
from tokenizer_service.http.id_formats import OCTETS, IdsForm
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.serving.live_tokenizer import LiveTokenizer


@pytest.mark.row(16, 17)
@pytest.mark.parametrize("is_encoding", [True, False], ids=["encode", "decode"])
def test_a_stream_ends_for_a_client_that_stalls(small_tokenizer, is_encoding):
    ref = ArtifactRef("x", "20260101T000000Z-00000000", small_tokenizer.spec.fingerprint)
    live = LiveTokenizer.of(ref, small_tokenizer)

    services = SimpleNamespace(
        queue=None,  # nothing large comes
        budget=ByteBudget(1 << 20),
        metrics=ServiceMetrics(),
        settings=SimpleNamespace(stream_idle_seconds=0.05),
    )

    def stream():
        codec = DecodeCodec(live, RawIds(IdsForm(OCTETS)))
        if is_encoding:
            codec = EncodeCodec(StreamingEncoder(small_tokenizer))
        return DuplexStream(services, live, codec, NDJSON)

    settles_a_token = b"the quick " if is_encoding else b"a\0\0\0b\0\0\0"
    silent, later = Client(), Client(settles_a_token)
    for client in (silent, later):
        client.ask(stream())
    assert silent.taken[0]["status"] == 408
    assert later.taken[0]["status"] == 200
    last = json.loads(later.taken[-1]["body"])
    assert last["error"]["code"] == "stream_idle"
    assert not later.taken[-1]["more_body"]
    deaf = Client(settles_a_token, b"brown ", patience=1)
    with pytest.raises(ClientDisconnect):
        deaf.ask(stream())
    assert deaf.chunks == [b"brown "]  # it read nothing more
