"""The service and its tokenizers: versions, readiness, files, promotions."""

import httpx
import pytest

from tests.tokenizer_client.both_clients import problem
from tests.tokenizer_client.calls.test_exchange import promoted
from tokenizer_client import ConnectionLostError, DeadlineExceededError
from tokenizer_client.schemas.tokens import PromoteResponse

READY = httpx.Response(200, json={"status": "ok"})


def test_whether_it_is_ready_is_asked_once(play, clock):
    for failure in (problem(503), httpx.ConnectError("refused")):
        client, service = play(failure, READY)
        assert client.is_ready() is False
        assert len(service.requests) == 1
    assert clock.slept == []


def test_a_service_that_starts_is_waited_for(play, clock):
    client, service = play(httpx.ConnectError("refused"), problem(503), READY)
    client.wait_until_ready()
    assert len(service.requests) == 3
    client, service = play(*[httpx.ConnectError("refused")] * 100)
    with pytest.raises(DeadlineExceededError) as told:
        client.wait_until_ready(deadline_seconds=5)
    assert isinstance(told.value.__cause__, ConnectionLostError | type(None))
    assert sum(clock.slept) <= 6


def test_a_roll_back_undoes_one_promotion_and_no_other(play):
    now, before = ({"name": name, "version": "v", "digest": name * 2} for name in "ab")
    client, service = play(promoted())
    client.roll_back(PromoteResponse.model_validate({"active": now, "previous": before}))
    (request,) = service.requests
    assert request.headers["If-Match"] == '"aa"'
    with pytest.raises(ValueError, match="no tokenizer was active before"):
        client.roll_back(PromoteResponse.model_validate({"active": now, "previous": None}))


def test_a_name_is_no_path(play):
    client, service = play(httpx.Response(204))
    client.remove_version("a/b@../c")
    assert service.requests[0].url.raw_path == b"/tokenizers/a%2Fb/..%2Fc"
