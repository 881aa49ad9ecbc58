"""The address of the service: both clients with a real server."""

import pytest

from tests.tokenizer_client.test_client import KEY


def test_what_cannot_be_a_header_is_not_repeated(make_client, server):
    client = make_client(server.url, api_key=KEY)
    with pytest.raises(ValueError, match="a header of the request") as told:
        client.train(documents=["a"], idempotency_key="secret\nkey")
    assert "secret" not in str(told.value)
